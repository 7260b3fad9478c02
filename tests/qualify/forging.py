"""What somebody can do to a run who may write every file of it and has the sources: change, then repair what would tell."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import load_file, save_file

from algorist.digest import canonical, digest, file_digest, sha256
from algorist.evaluate.result import EvaluationResult, summarise
from algorist.qualify import receipt
from algorist.qualify.contents import expected_rows
from algorist.qualify.signal import Contrast
from algorist.record import commit, ledger
from algorist.record import rollouts as store
from algorist.record.ledger import Event, EventKind
from algorist.record.run_folder import RunFolder
from algorist.report.page import build
from algorist.stages.figures import batch_figures
from algorist.train import rows as rows_of

Json = dict[str, Any]


def read(path: Path) -> Json:
    return json.loads(path.read_bytes())


def lines(run: Path) -> list[bytes]:
    return (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def rechain(run: Path, change: Callable[[list[Json]], list[Json]] = lambda events: events) -> None:
    """Change events and chain them again."""
    prev, out = ledger.GENESIS, []
    for seq, event in enumerate(change([json.loads(x) for x in lines(run)])):
        line = canonical({**event, "seq": seq, "prev": prev})
        out.append(line + b"\n")
        prev = sha256(line)
    (run / "ledger.jsonl").write_bytes(b"".join(out))


def events(run: Path, kind: str, change: Callable[[Json], object], **match: object) -> None:
    """Change every event of a kind that matches, and chain them again."""

    def apply(found: list[Json]) -> list[Json]:
        for event in found:
            if event["kind"] == kind and all(event.get(k) == v for k, v in match.items()):
                change(event)
        return found

    rechain(run, apply)


def reissue(run: Path) -> None:
    """Forge the receipts, and the page that is made of them."""
    shutil.rmtree(run / "receipts", ignore_errors=True)
    receipt.issue(RunFolder(root=run), ledger.read(run / "ledger.jsonl"))
    if (run / "report.html").exists():
        build(run)


def metrics(run: Path, stage: str, number: int, change: Callable[[Json], object]) -> None:
    """Change a row of metrics, and the digests of it on the ledger."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    change([row for row in rows if row["stage"] == stage][number])
    write_metrics(
        run, [json.dumps(r, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode() for r in rows]
    )


def write_metrics(run: Path, rows: list[bytes]) -> None:
    (run / "metrics.jsonl").write_bytes(b"".join(row + b"\n" for row in rows))

    def seal(found: list[Json]) -> list[Json]:
        plain = [
            Event(seq=i, prev="", kind=EventKind(e["kind"]), contract="", policy_version=0, payload=e)
            for i, e in enumerate(found)
        ]
        for i, event in enumerate(found):
            if "metrics" in event["wall"]:
                count = len(list(expected_rows(plain[:i])))
                event["wall"]["metrics"] = sha256(b"".join(row + b"\n" for row in rows[:count]))
        return found

    rechain(run, seal)


def rollouts(run: Path, batch: int, change: Callable[[list[Json]], object], *, figures: bool = True) -> None:
    """Change rows of a batch; digest, figures of its event and its row of metrics are made to fit."""
    path = run / "rollouts" / f"batch-{batch:06d}.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        row["reward_parts"] = dict(row["reward_parts"] or ())
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path, compression="zstd", version="2.6")
    events(run, "rollout_batch", lambda e: e.update(digest=file_digest(path)), batch=batch)
    if not figures:
        return
    held = store.read(path).batch
    mine, contrast = batch_figures(held, rows_of.from_batch(held)), Contrast.of(held.groups)
    names = {"mixed": "groups/mixed", "all_right": "groups/all_right", "all_wrong": "groups/all_wrong",
             "excluded_rows": "groups/excluded_rows", "rollouts": "rollouts", "tokens": "tokens/sampled"}  # fmt: skip
    events(run, "rollout_batch", lambda e: e.update({k: mine[v] for k, v in names.items()}), batch=batch)

    def fit(row: Json) -> None:
        row.update({k: v for k, v in mine.items() if k != "update/skipped"})
        row.update({"groups/mixed_share": contrast.mixed_share, "reward/spread_mean": contrast.reward_spread})
        row.update({"response/duplicate_share": contrast.duplicate_share})

    metrics(run, "rl", batch, fit)


def pay(rows: list[Json]) -> None:
    """A wrong answer becomes a right one, paid, with the leave-one-out advantages that follow."""
    row = next(r for r in rows if r["verdict"] == "wrong")
    row.update(verdict="correct", reason="equal", reward=1.0, reward_parts={"correct": 1.0})
    group = [r for r in rows if r["group"] == row["group"]]
    for r in group:
        r["advantage"] = r["reward"] - sum(x["reward"] for x in group if x is not r) / (len(group) - 1)


def remanifest(run: Path, folder: str) -> None:
    """A manifest for what a checkpoint or the export holds now, and its digest on the ledger."""
    path = run / folder
    schema = read(path / "manifest.json")["schema"]
    (path / "manifest.json").unlink()
    files = {
        p.relative_to(path).as_posix(): commit.FileEntry(sha256=file_digest(p), size_bytes=p.stat().st_size)
        for p in path.rglob("*")
        if p.is_file()
    }
    manifest = commit.Manifest(schema=schema, files=files)
    (path / "manifest.json").write_bytes(manifest.to_bytes())
    events(run, "checkpoint", lambda e: e.update(manifest=manifest.digest), name=path.name)


def contract(run: Path, change: Callable[[Json], object]) -> None:
    """Change the contract, and everything that names its digest."""
    old, document = file_digest(run / "contract.json"), read(run / "contract.json")
    change(document)
    document["recipe_digest"] = digest(document["recipe"])
    new = digest(document)
    (run / "contract.json").write_bytes(canonical(document))

    def rename(found: list[Json]) -> list[Json]:
        for event in found:
            event["contract"] = new if event["contract"] == old else event["contract"]
            if event["kind"] == "contract":
                event["recipe_digest"] = document["recipe_digest"]
        return found

    rechain(run, rename)
    for path in commit.numbered(run / "checkpoints"):
        (path / "state.json").write_bytes(canonical({**read(path / "state.json"), "contract": new}))
        remanifest(run, f"checkpoints/{path.name}")
    (run / "export/algorist.json").write_bytes(canonical({**read(run / "export/algorist.json"), "contract": new}))
    card = run / "export/README.md"
    card.write_text(card.read_text().replace(old, new))
    remanifest(run, "export")


def evaluation(run: Path, name: str, change: Callable[[Json], object]) -> None:
    """Change the records of an evaluation; figures, event and metrics are made to fit."""
    path = run / "evaluations" / f"{name}.json"
    raw = read(path)
    change(raw)
    s = EvaluationResult.from_json(raw)
    new = summarise(s.name, policy_digest=s.policy_digest, records=s.records, ks=sorted(s.pass_at), ties=s.ties,
                    confidence=s.confidence, resamples=s.resamples, seed=s.seed)  # fmt: skip
    new.write(path)
    says = {"problems": new.problems, "responses": new.responses, "policy_digest": new.policy_digest}
    says["digest"] = file_digest(path)
    says |= {"greedy": new.greedy and new.greedy.value, "mean_at": {str(k): x.value for k, x in new.mean_at.items()}}
    events(run, "evaluation_completed", lambda e: e.update(says), name=name)
    figures = {f"heldout/mean_at_{k}": x.value for k, x in new.mean_at.items()}
    metrics(run, "evaluate", 1 if name == "after" else 0, lambda row: row.update(figures))


def weights(path: Path, add: float) -> None:
    """Move one tensor of a file."""
    tensors = load_file(path)
    name = sorted(tensors)[0]
    save_file({**tensors, name: tensors[name] + add}, path, metadata={"format": "pt"})


def swap(a: Path, b: Path) -> None:
    between = a.with_name(".between")
    a.rename(between)
    b.rename(a)
    between.rename(b)


def forge_receipt(run: Path, change: Callable[[Json, Json], object]) -> None:
    """Change (statement, envelope) of the last receipt, and name it after its new bytes."""
    path = sorted((run / "receipts").iterdir())[-1]
    outer = read(path)
    statement = json.loads(base64.b64decode(outer["payload"]))
    change(statement, outer)
    data = canonical({**outer, "payload": base64.b64encode(canonical(statement)).decode()})
    path.unlink()
    (run / "receipts" / f"{path.name[:4]}-{sha256(data)[:16]}.json").write_bytes(data)


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data, (path, old)
    path.write_bytes(data.replace(old, new, 1))
