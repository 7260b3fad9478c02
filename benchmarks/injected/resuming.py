"""A stopped run that is not what it was when it goes on."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import rfc8785

from algorist.policy import weights
from algorist.stages.session import Session
from injected.tools import Fault, Patch, tensors

MISMATCH = ("resume",)


def latest(run: Path) -> Path:
    return run / "checkpoints" / (run / "checkpoints" / "LATEST").read_text().strip()


def sealed_again(folder: Path) -> None:
    """The manifest is made to fit what the folder holds now."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    kept = {name: entry for name, entry in manifest["files"].items() if (folder / name).is_file()}
    for name, entry in kept.items():
        held = (folder / name).read_bytes()
        entry.update(sha256=hashlib.sha256(held).hexdigest(), size=len(held))
    (folder / "manifest.json").write_bytes(rfc8785.dumps({**manifest, "files": kept}))


def in_checkpoints(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """The same change in every checkpoint, sealed again."""

    def edit(run: Path) -> None:
        for folder in sorted((run / "checkpoints").glob("step-*")):
            change(folder)
            sealed_again(folder)

    return edit


def moments(change):
    def edit(folder: Path) -> None:
        (folder / "moments.safetensors").rename(folder / "model.safetensors")
        tensors(change)(folder)
        (folder / "model.safetensors").rename(folder / "moments.safetensors")

    return edit


def own_weights(change):
    def edit(folder: Path) -> None:
        (folder / "weights.safetensors").rename(folder / "model.safetensors")
        tensors(change)(folder)
        (folder / "model.safetensors").rename(folder / "weights.safetensors")

    return edit


def further(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_bytes())
    (folder / "state.json").write_bytes(rfc8785.dumps({**state, "batches": state["batches"] + 1}))


def contract(run: Path) -> None:
    (run / "contract.json").write_text((run / "contract.json").read_text().replace('"updates":4', '"updates":9'))


def ledger(run: Path) -> None:
    lines = (run / "ledger.jsonl").read_text().splitlines()
    (run / "ledger.jsonl").write_text("\n".join(lines[:-5]) + "\n")


def beside(run: Path) -> Path:
    """The folder that the run's recipe reads."""
    return Path(json.loads((run / "logs" / "origin.json").read_bytes())["base"])


def in_copy(name: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """A file that the recipe reads is another one now; the run's own copy of the folder, so that no other fault sees it."""

    def edit(run: Path) -> None:
        change(beside(run) / name)

    return edit


def not_loaded(p: Patch) -> None:
    p.set(weights, "load_state", lambda old: lambda policy, path: None)


def moments_not_loaded(p: Patch) -> None:
    def make(old):
        def load(self, trainer) -> None:
            trainer.applied, self.restored = self.position.applied, None

        return load

    p.set(Session, "load_optimizer", make)


def schedule_restarts(p: Patch) -> None:
    p.set(
        Session,
        "load_optimizer",
        lambda old: lambda self, trainer: (old(self, trainer), setattr(trainer, "applied", 0))[0],
    )


def nothing(run: Path) -> None:
    """The folder stays as it is."""


def rolled_digits(file: Path) -> None:
    document = json.loads(file.read_text())
    vocabulary = document["model"]["vocab"]
    vocabulary.update({d: vocabulary[e] for d, e in zip("0123456789", "1234567890", strict=True)})
    file.write_text(json.dumps(document))


def changed(key: str, value: object) -> Callable[[Path], None]:
    return lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))


def at(name: str, source: str, words: str, resume: Callable[[Path], None], **more) -> Fault:
    return Fault(
        name, source, more.pop("gates", MISMATCH), words, code=more.pop("code", 5), resume=resume, updates=2, **more
    )


FAULTS = (
    at("moments of the optimizer are missing", "E75", "its manifest is not the one",
       in_checkpoints(lambda d: (d / "moments.safetensors").unlink())),
    at("moments of the optimizer are zero", "E75", "its manifest is not the one",
       in_checkpoints(moments(lambda t: [x.zero_() for x in t.values()]))),
    at("moments are not loaded", "E75", "moments know of 0", nothing, patch=moments_not_loaded, gates=("update",), code=4),
    at("the schedule begins anew", "B42", "0 updates were applied", nothing, patch=schedule_restarts, gates=("update",),
       code=4),
    at("weights are not loaded", "E75", "must hold the checkpoint's weights", nothing, patch=not_loaded),
    at("weights of another run, sealed again", "E75", "its manifest is not the one",
       in_checkpoints(own_weights(lambda t: [x.mul_(1.01) for x in t.values()]))),
    at("a batch is skipped", "E73, E76", "its manifest is not the one", in_checkpoints(further)),
    at("the contract is another one", "E77", "different now", contract),
    at("the end of the ledger is gone", "E73", "Files are missing", ledger),
    at("the data file is another one", "E76", "problems.digest",
       in_copy("data.jsonl", lambda f: f.write_text(f.read_text().replace('"2"', '"3"', 1))),
       overrides=("problems.source={kind: jsonl, path: data.jsonl}",)),
    at("the tokenizer is another one", "C49", "policy.tokenizer", in_copy("start/tokenizer.json", rolled_digits)),
    at("the start policy is another one", "E75", "policy.weights",
       in_copy("start", tensors(lambda t: t["model.norm.weight"].mul_(1.01)))),
    at("config.json is another one", "E75", "config", in_copy("start/config.json", changed("rms_norm_eps", 1e-2))),
    at("the reference is missing", "B34", "its manifest is not the one", in_checkpoints(lambda d: (d / "reference.safetensors").unlink()),
       overrides=("rl.objective={name: grpo, beta: 0.04}",)),
    at("all checkpoints are from elsewhere", "E75", "its manifest is not the one",
       lambda run: (shutil.copytree(latest(run), run / "kept"), further(run / "kept"), sealed_again(run / "kept"),
                    shutil.rmtree(latest(run)), (run / "kept").rename(latest(run)))[0]),
)  # fmt: skip
