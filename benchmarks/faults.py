"""Deliberate faults, each with the gate that must catch it: shared by bench_faults.py and tests/qualify.

A fault changes the recipe, the files it reads, a prepared run behind its back (sampler, verifier, reward, data, weights), the
code while it runs (trainer, optimizer, order), or a stopped run before it goes on.
"""

import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # the tests load this file by its path

from algorist.errors import AlgoristError, ResumeMismatch, Stopped
from algorist.launch.prepare import prepare
from algorist.launch.run import resume, run, run_prepared
from algorist.recipe.load import load
from algorist.record.ledger import EventKind, counts, read
from algorist.stages.listener import Silent
from injected import judging, policy, problems, resuming, rollout, sampling, training
from injected.policy import DECLARED as DECLARED
from injected.policy import thaw as _thaw  # noqa: F401
from injected.tools import TEMPERATURE, Fault, Patch
from injected.tools import data as data
from injected.tools import engine as engine
from injected.tools import prompts_of as prompts_of
from injected.tools import rescored as rescored
from injected.tools import weights as weights

START = """
name: fault-start
policy: {new: {hidden_size: 32, intermediate_size: 64, num_layers: 2, num_heads: 4, context: 32}}
problems:
  source: {kind: arithmetic, families: [{name: add, digits: [1, 1]}]}
  heldout: {count: 12}
  sft_count: 60
prompt: {format: "{question}=", target: "{answer}", answer_format: first_line}
sft: {steps: 60, batch_size: 16, target: gold, optimizer: {lr: 1.0e-2}}
evaluate: {problems: 1, samples: 1, ks: [1], greedy: false, bootstrap: 100, response_tokens: 4}
"""
RECIPE = f"""
name: fault
policy: {{path: start}}
problems:
  source: {{kind: arithmetic, families: [{{name: add, digits: [1, 1]}}]}}
  heldout: {{count: 12}}
prompt: {{format: "{{question}}=", target: "{{answer}}", answer_format: first_line}}
rl:
  updates: 4
  prompts_per_batch: 12
  group_size: 6
  sampling: {{temperature: {TEMPERATURE}, response_tokens: 4}}
  objective: {{name: rloo}}
  optimizer: {{lr: 2.0e-3}}
  replay: {{every: 1}}
evaluate: {{problems: 4, samples: 2, ks: [1], greedy: false, bootstrap: 100}}
record: {{checkpoint_every: 2}}
"""
KINDS = {
    "sampling and scoring": sampling,
    "groups and rows": rollout,
    "verifier and reward": judging,
    "problems and prompts": problems,
    "policy, memory, recipe": policy,
    "training": training,
    "resume": resuming,
}
FAULTS: tuple[Fault, ...] = tuple(replace(f, kind=kind) for kind, module in KINDS.items() for f in module.FAULTS)


@dataclass(frozen=True)
class Caught:
    """What became of a run with a fault in it."""

    gate: str
    code: int
    message: str
    applied: int


def start_policy(folder: Path) -> Path:
    """A folder with a recipe and a policy that solves some problems, to inject faults into."""
    (folder / "start.yaml").write_text(START)
    (folder / "recipe.yaml").write_text(RECIPE)
    finished = run(load(folder / "start.yaml"), folder / "start-run", listener=Silent())
    (folder / "start").symlink_to(finished.export)
    return folder / "recipe.yaml"


def inject(fault: Fault, recipe: Path, out: Path) -> Caught:
    """Run with the fault in it and say who noticed."""
    code, message, stopped = 0, "nobody noticed", False
    overrides, files = list(fault.overrides), None
    try:
        if fault.files is not None:
            files = Path(tempfile.mkdtemp(prefix="files-", dir=recipe.parent))
            overrides += fault.files(recipe.parent, files)
        if fault.resume is not None:
            stopped = _begin(fault, recipe, overrides, out)
            with Patch() as patch:
                if fault.patch is not None:
                    fault.patch(patch)
                fault.resume(out)
                resume(out, listener=Silent())
        else:
            with Patch() as patch:
                if fault.patch is not None:
                    fault.patch(patch)
                _run(fault, recipe, overrides, out)
    except AlgoristError as error:
        code, message = error.exit_code, str(error)
        stopped = stopped and isinstance(error, ResumeMismatch)
    finally:
        if files is not None:
            shutil.rmtree(files)
    if not (out / "ledger.jsonl").is_file():
        return Caught(gate="recipe", code=code, message=message, applied=0)
    events = read(out / "ledger.jsonl") if not stopped else []
    applied = counts(events).updates_applied if not stopped else fault.updates
    return Caught(gate="resume" if stopped else _gate(events), code=code, message=message, applied=applied)


def _run(fault: Fault, recipe: Path, overrides: list[str], out: Path) -> None:
    resolved = load(recipe, overrides)
    prepared = prepare(resolved.recipe, base=resolved.base_dir, listener=Silent())
    try:
        run_prepared(fault.tamper(prepared) if fault.tamper else prepared, out, listener=Silent())
    finally:
        prepared.close()


def _begin(fault: Fault, recipe: Path, overrides: list[str], out: Path) -> bool:
    """Two batches of a run in a copy of the recipe's folder, which the fault may change."""
    own = out.parent / f"{out.name}-recipe"
    own.mkdir()
    shutil.copytree(recipe.parent / "start", own / "start")
    (own / "start" / "manifest.json").unlink()  # as a model from elsewhere, which has none
    for file in (*recipe.parent.glob("*.jsonl"), recipe):
        shutil.copy(file, own)
    asked = iter(range(99))
    try:
        run(load(own / recipe.name, overrides), out, listener=Silent(), stop_requested=lambda: next(asked) == 1)
    except Stopped:
        return True
    raise AssertionError("a run that is asked to stop stops")


def _gate(events) -> str:
    gate = ""
    for event in events:
        if event.kind is EventKind.REPLAY_CHECK and not event.payload["passed"]:
            gate = "replay"
        elif event.kind in (EventKind.GATE, EventKind.ADMISSION) and event.payload.get("passed") is False:
            gate = gate or str(event.payload.get("name"))
    return gate


def write_data(folder: Path) -> None:
    """Problem files with faults in them, and one without."""
    (folder / "bad.jsonl").write_text(
        "".join(
            f'{{"question": "{a % 9} + {a // 9}", "answer": "{a % 9 + a // 9 if a % 3 else "((("}"}}\n'
            for a in range(80)
        )
    )
    (folder / "hard.jsonl").write_text(
        "".join(f'{{"question": "{a % 9} + {a // 9}", "answer": "{7000 + a}"}}\n' for a in range(80))
    )
    (folder / "long.jsonl").write_text(
        "".join(
            f'{{"question": "{a % 9} + {a // 9}{" + 1" * (9 if a % 3 else 0)}", "answer": "{a % 9 + a // 9}"}}\n'
            for a in range(80)
        )
    )
    (folder / "data.jsonl").write_text(
        "".join(f'{{"question": "{a} + {b}", "answer": "{a + b}"}}\n' for a in range(9) for b in range(9))
    )
