"""Whether the files of a run hold what its events say of them: rollouts, metrics, evaluations, checkpoints, the page."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from algorist.digest import canonical, file_digest, sha256
from algorist.errors import InputError
from algorist.evaluate.result import EvaluationResult, summarise
from algorist.flow import Batch
from algorist.qualify.evidence import Evidence, near, whole
from algorist.qualify.history import UPDATES
from algorist.qualify.signal import Contrast
from algorist.record import commit, metrics
from algorist.record import rollouts as store
from algorist.record.ledger import OF_PROCESSES, Event, EventKind
from algorist.record.metrics import Row
from algorist.record.run_folder import Holder
from algorist.seeds import derive
from algorist.stages.config import OFFLINE
from algorist.stages.figures import batch_figures
from algorist.train import rows as rows_of

_LAYOUT: Final = re.compile(
    r"contract\.json|ledger\.jsonl|metrics\.jsonl|report\.html|\.lease|logs/.+|contracts/[0-9a-f]{64}\.json|receipts/[^/]+"
    r"|rollouts/batch-\d{6,}\.parquet|evaluations/[^/]+\.json|export/.+"
    r"|checkpoints/(LATEST|step-\d+/(manifest\.json|state\.json|(weights|moments|reference)\.safetensors))"
)
_MOST_RESAMPLES: Final = 1_000_000


def layout(e: Evidence) -> tuple[str, Iterator[str]]:
    """Every file is one that a run writes, and where an event speaks of it."""
    root = e.folder.root
    batches = {e.batch_file(ev).name for ev in e.of(EventKind.ROLLOUT_BATCH)}
    evaluations = {e.folder.evaluation(str(ev.payload["name"])).name for ev in e.of(EventKind.EVALUATION_COMPLETED)}

    def faults() -> Iterator[str]:
        unspoken = 0  # a process that is killed leaves one file that its event does not name yet
        for name in sorted(e.tree.files):
            place, file = name.split("/")[0], name.split("/")[-1]
            known = {"rollouts": batches, "evaluations": evaluations}.get(place)
            if not _LAYOUT.fullmatch(name):
                if e.ended or not re.search(r"(^|/)\.[^/]+\.(tmp|old)-\d+(/|$)", name):
                    yield f"{root / name}: is no file of a run"
            elif known is not None and file not in known:
                unspoken += 1
                if (
                    e.ended
                    or unspoken > 1
                    or (place == "rollouts" and file != store.batch_path(root, len(batches)).name)
                ):
                    yield f"{root / name}: no event speaks of it"
        origin = root / "logs" / "origin.json"
        if "logs/origin.json" not in e.tree.files or file_digest(origin) != e.events[0].wall.get(
            "origin", file_digest(origin)
        ):
            yield f"{origin}: must be the file that the first event of the ledger names"

    return f"{len(e.tree.files)} files", faults()


def batches(e: Evidence) -> tuple[str, Iterator[str]]:
    """Each batch is the one its event stored, and event and metrics row have its figures."""
    events = e.of(EventKind.ROLLOUT_BATCH)
    rows = {row.get("batch"): row for row in _rows(e) if row.get("stage") == "rl"}
    updates = {u.payload.get("batch"): u for u in e.of(*UPDATES) if u.payload.get("stage") == "rl"}

    def faults() -> Iterator[str]:
        for event in events:
            path = e.batch_file(event)
            if event.payload.get("file") != path.name:
                yield f"{e.folder.ledger}: event {event.seq} must name the file {path.name}, got {event.payload.get('file')!r}"
            if not path.is_file():
                yield f"{path}: event {event.seq} speaks of it, and it is missing"
            elif file_digest(path) != event.payload.get("digest"):
                yield f"{path}: is not the file that event {event.seq} stored"
            else:
                batch = e.stored(event).batch
                yield from (f"{path}: {fault}" for fault in _event_fault(batch, event))
                row, update = rows.get(whole(event, "batch")), updates.get(whole(event, "batch"))
                if row is not None and update is not None:
                    due = _due(batch, update, sampled=OFFLINE.get(e.rl(event)["objective"]["name"]) != "dataset")
                    if not e.same_sources:  # others may have written fewer figures
                        due = {name: value for name, value in due.items() if name in row}
                    yield from (
                        f"{e.folder.metrics}: {fault} ({path.name}, the ledger)" for fault in _row_fault(row, due)
                    )

    return f"{len(events)} batches", faults()


def _event_fault(batch: Batch, event: Event) -> Iterator[str]:
    figures = batch_figures(batch, rows_of.from_batch(batch))
    held: dict[str, object] = {
        name: figures[key]
        for name, key in {
            "batch": "batch", "rollouts": "rollouts", "tokens": "tokens/sampled", "all_right": "groups/all_right",
            "mixed": "groups/mixed", "all_wrong": "groups/all_wrong", "excluded_rows": "groups/excluded_rows",
        }.items()
    }  # fmt: skip
    held["truncated"] = sum(r.truncated for g in batch.groups for r in g.rollouts)
    for name, value in held.items():
        if event.payload.get(name) != value:
            yield f"holds {name} {value}, event {event.seq} says {event.payload.get(name)}"
            return
    if batch.policy_version != event.policy_version:
        yield f"was sampled by version {batch.policy_version}, event {event.seq} says {event.policy_version}"


def _due(batch: Batch, update: Event, *, sampled: bool) -> dict[str, object]:
    """What a metrics row must say, as far as rollouts and ledger tell."""
    due: dict[str, object] = {**batch_figures(batch, rows_of.from_batch(batch)), "lr": update.payload.get("lr")}
    if sampled:
        contrast = Contrast.of(batch.groups)
        due |= {
            "groups/mixed_share": contrast.mixed_share,
            "response/duplicate_share": contrast.duplicate_share,
            "reward/spread_mean": contrast.reward_spread,
        }
    due["update/skipped"] = update.payload.get("cause") or None
    if not str(update.payload.get("cause") or "").startswith("nonfinite"):
        due |= {name: update.payload.get(name) for name in ("loss", "grad_norm", "tokens/trained")}
    if update.payload.get("cause") in ("flat", "no_tokens"):  # nothing was computed
        due |= dict.fromkeys(
            ("policy/entropy_nats", "kl/ref_nats", "advantage/positive_mass", "advantage/negative_mass")
        )
    return due


def _row_fault(row: Row, due: Mapping[str, object]) -> Iterator[str]:
    where = f"row {row.get('stage')} {row.get('step')}"
    for name, mine in due.items():
        said = row.get(name)
        lost = said is None and isinstance(mine, str) and name in str(row.get(metrics.NONFINITE, "")).split()
        same = near(said, mine) if isinstance(mine, int | float) and not isinstance(mine, bool) else said == mine
        if not same and not lost:
            yield f"{where} has {name} {said}, it must be {mine}"
            return


def metric_rows(e: Evidence) -> tuple[str, Iterator[str]]:
    """One row a step in the order of the events, in the bytes that a run writes, with the figures of its event."""
    path = e.folder.metrics
    rows = _rows(e)

    def faults() -> Iterator[str]:
        *lines, tail = path.read_bytes().split(b"\n") if path.is_file() else [b""]
        if tail and e.ended:
            yield f"{path}: ends in {len(tail)} bytes that are no row"
        for number, (line, row) in enumerate(zip(lines, rows, strict=True), start=1):
            if (
                json.dumps(row, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
                != line
            ):
                yield f"{path}:{number}: its bytes are not those a run writes"
        yield from (f"{path}: {fault}" for fault in _sealed(e, lines))
        due = list(expected_rows(e.events))
        got = [(row.get("stage"), row.get("name" if row.get("stage") == "evaluate" else "step")) for row in rows]
        place = next((i for i, (a, b) in enumerate(zip(got, due, strict=False)) if a != b), min(len(got), len(due)))
        if len(got) > len(due) or got != due[: len(got)] or len(got) < len(due) - (0 if e.closed else 1):
            wanted = f"must be row {' '.join(map(str, due[place]))}" if place < len(due) else "must not be there"
            yield f"{path}:{place + 1}: {wanted}, by the ledger: a row is missing, doubled or moved"
            return
        steps = {u.payload.get("step"): u for u in e.of(*UPDATES) if u.payload.get("stage") == "sft"}
        for row in rows:
            if row.get("stage") == "sft":
                update = steps[row.get("step")]
                due_row = {"sft/loss": update.payload.get("loss"), "sft/lr": update.payload.get("lr")}
                known = due_row if update.kind is EventKind.UPDATE_APPLIED else {}
                yield from (f"{path}: {fault} (the ledger)" for fault in _row_fault(row, known))
            elif row.get("stage") == "evaluate" and e.folder.evaluation(str(row["name"])).is_file():
                result = EvaluationResult.read(e.folder.evaluation(str(row["name"])))
                figures = {f"heldout/mean_at_{k}": estimate.value for k, estimate in result.mean_at.items()}
                figures |= {"heldout/greedy": result.greedy.value} if result.greedy else {}
                yield from (f"{path}: {fault} (evaluations/{row['name']}.json)" for fault in _row_fault(row, figures))

    return f"{len(rows)} rows", faults()


def _sealed(e: Evidence, lines: Sequence[bytes]) -> Iterator[str]:
    """The rows up to each checkpoint, and up to where a process paused, are those whose digest the event holds."""
    for event in e.of(EventKind.CHECKPOINT, EventKind.PAUSED):
        saved = event.kind is EventKind.CHECKPOINT
        rows = len(list(expected_rows(e.events[: event.seq]))) if saved else len(lines)
        sealed = event.wall.get("metrics")
        if sealed is not None and sha256(b"".join(line + b"\n" for line in lines[:rows])) != sealed:
            yield f"its first {rows} rows are not those that event {event.seq} saw"
            return


def expected_rows(events: Iterable[Event]) -> Iterator[tuple[object, object]]:
    """(stage, step or name) of the rows that some events stand for, in order."""
    last: object = None
    for event in events:
        if last is not None and event.kind not in UPDATES:  # the updates of one batch share a row
            yield "rl", last
            last = None
        if event.kind in UPDATES and event.payload.get("stage") == "sft":
            yield "sft", event.payload.get("step")
        elif event.kind in UPDATES:
            last = event.payload.get("batch")
        elif event.kind is EventKind.EVALUATION_COMPLETED:
            yield "evaluate", event.payload.get("name")
    if last is not None:
        yield "rl", last


def evaluations(e: Evidence) -> tuple[str, Iterator[str]]:
    """Each evaluation covers what the contract promises, its figures follow from its records, its event says the same."""
    done = e.of(EventKind.EVALUATION_COMPLETED)

    def faults() -> Iterator[str]:
        for event in done:
            path = e.folder.evaluation(str(event.payload["name"]))
            if not path.is_file():
                yield f"{path}: event {event.seq} speaks of it, and it is missing"
            elif ("digest" in event.payload or e.same_sources) and file_digest(path) != event.payload.get("digest"):
                yield f"{path}: is not the file that event {event.seq} stored"
            else:
                yield from (f"{path}: {fault}" for fault in _evaluation(e, path, event))

    return f"{len(done)} evaluations", faults()


def _evaluation(e: Evidence, path: Path, event: Event) -> Iterator[str]:
    contract, stored = e.contracts[event.contract], EvaluationResult.read(path)
    cfg = contract["recipe"]["evaluate"]
    promised = {
        "name": event.payload["name"], "problems": contract["problems"]["evaluated"], "samples": cfg["samples"],
        "confidence": cfg["confidence"], "resamples": cfg["bootstrap"], "measures the likeliest response": cfg["greedy"],
        "ks": sorted(cfg["ks"]), "seed": derive(contract["recipe"]["seed"], "bootstrap"),
    }  # fmt: skip
    held = {
        "name": stored.name, "problems": stored.problems, "samples": stored.samples, "confidence": stored.confidence,
        "resamples": stored.resamples, "measures the likeliest response": stored.greedy is not None,
        "ks": sorted(stored.pass_at), "seed": stored.seed,
    }  # fmt: skip
    if odd := [name for name in promised if promised[name] != held[name]]:
        yield f"{odd[0]} must be {promised[odd[0]]}, as the contract promises: got {held[odd[0]]}"
        return
    if stored.resamples > _MOST_RESAMPLES:
        raise InputError(f"{path}: has {stored.resamples} resamples, at most {_MOST_RESAMPLES} are computed again")
    again = summarise(
        stored.name, policy_digest=stored.policy_digest, records=stored.records, ks=sorted(stored.pass_at), ties=stored.ties,
        confidence=stored.confidence, resamples=stored.resamples, seed=stored.seed,
    )  # fmt: skip
    if canonical(again.to_json()) != canonical(stored.to_json()):
        yield "its figures are not those of the problems it lists"
    written = json.dumps(stored.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if written.encode() != path.read_bytes():
        yield "its bytes are not those a run writes"
    says: dict[str, object] = {
        "problems": stored.problems,
        "responses": stored.responses,
        "policy_digest": stored.policy_digest,
    }
    says["greedy"] = stored.greedy.value if stored.greedy else None
    says["mean_at"] = {str(k): estimate.value for k, estimate in stored.mean_at.items()}
    for key, value in says.items():
        if event.payload.get(key) != value:
            yield f"has {key} {value}, event {event.seq} says {event.payload.get(key)}"
    starts = stored.name == "before" and (contract["recipe"].get("sft") is None or contract["recipe"].get("rl") is None)
    weights = contract["policy"]["weights"] if starts else None
    if stored.name == "after" and e.closed:
        weights = e.events[-1].payload.get("weights")
    if weights is not None and stored.policy_digest != weights:
        yield f"measured the weights {stored.policy_digest[:16]}, those of the run are {str(weights)[:16]}"


def checkpoints(e: Evidence) -> tuple[str, Iterator[str]]:
    """Each checkpoint is the one its event committed, at the position it says; the export is of the last weights."""
    announced = {str(ev.payload["name"]): ev for ev in e.of(EventKind.CHECKPOINT)}
    resumed = {ev.payload.get("checkpoint"): ev.payload.get("manifest") for ev in e.of(EventKind.RESUMED)}
    present = commit.numbered(e.folder.checkpoints)

    def faults() -> Iterator[str]:
        for path in [*present, *([e.folder.export] if e.folder.export.exists() else [])]:
            manifest, event = commit.read_manifest(path), announced.get(path.name)
            if event is not None and event.payload["manifest"] != manifest.digest:
                yield f"{path}: is not the directory that event {event.seq} committed"
            elif event is None and (e.ended or path != present[-1]) and resumed.get(path.name) != manifest.digest:
                yield f"{path}: no event committed it"
            if path != e.folder.export:
                yield from (f"{path / 'state.json'}: {fault}" for fault in _state(e, path, event))
        newest = [name for name in announced if name != "export"]
        if present and newest and int(newest[-1].rpartition("-")[2]) > int(present[-1].name.rpartition("-")[2]):
            yield f"{e.folder.checkpoints / newest[-1]}: the newest checkpoint is missing"
        latest = e.folder.checkpoints / commit.LATEST
        named = [
            f"{path.name}\n".encode() for path in present[-1 if e.ended else -2 :]
        ]  # a kill may come before it is written
        if (latest.is_file() and latest.read_bytes() not in named) or (e.ended and present and not latest.is_file()):
            yield f"{latest}: must name the newest checkpoint{f', {present[-1].name}' if present else ''}"
        if e.closed:
            yield from _exported(e)

    return f"{len(present)} checkpoints and the export", faults()


def _state(e: Evidence, path: Path, event: Event | None) -> Iterator[str]:
    """The position that a checkpoint was saved at, against the events before it."""
    state = json.loads((path / "state.json").read_bytes())
    trained = [ev for ev in e.events if ev.kind not in OF_PROCESSES]
    if not isinstance(state["ledger"], int) or state["ledger"] > len(trained):
        yield f"was saved after {state['ledger']} events, {e.folder.ledger} holds {len(trained)}: it was cut"
        return
    kept = state["ledger"] if event is None else trained.index(event) + 1
    before = trained[: kept - (event is not None)]
    batches = [ev for ev in before if ev.kind is EventKind.ROLLOUT_BATCH]
    steps = sum(ev.kind in UPDATES and ev.payload.get("stage") == "sft" for ev in before)
    due = {
        "ledger": kept,
        "metrics": len(list(expected_rows(before))),
        "batches": len(batches),
        "sft_steps": steps,
        "sampled_tokens": sum(whole(ev, "tokens") for ev in batches),
        "applied": before[-1].policy_version if before else 0,
        "contract": before[-1].contract if before else e.events[0].contract,
    }
    if event is not None:
        due |= {"phase": event.payload.get("phase"), "applied": event.policy_version, "contract": event.contract}
    for name, value in due.items():
        if state.get(name) != value:
            yield f"has {name} {state.get(name)}, the ledger gives {value}"
            return
    if path.name != f"step-{steps + len(batches)}":
        yield f"belongs to step-{steps + len(batches)}"


def _exported(e: Evidence) -> Iterator[str]:
    file = e.folder.export / "algorist.json"
    if not file.is_file():
        yield f"{file}: the run is closed, and its export does not say where it comes from"
        return
    facts = json.loads(file.read_bytes())
    due = {"contract": e.events[-1].contract, "recipe": e.recipe["name"]}
    for name, value in due.items():
        if facts.get(name) != value:
            yield f"{file}: has {name} {facts.get(name)}, the run {value}"


def page(e: Evidence) -> tuple[str, Iterator[str]]:
    """report.html is what the files give; .lease is empty, or names a process."""

    def faults() -> Iterator[str]:
        lease = e.folder.root / ".lease"
        if lease.is_file() and lease.read_bytes() and Holder.read(lease.read_bytes()) is None:
            yield f"{lease}: must be empty, or name the process that holds the run"
        if e.folder.report.is_file() and e.ended and e.same_sources:
            from algorist.report.gather import gather
            from algorist.report.page import render

            if render(gather(e.folder.root)).encode() != e.folder.report.read_bytes():
                yield f"{e.folder.report}: is not the page these files give (algorist report builds it again)"

    if not e.same_sources:
        return ".lease; report.html not: other sources than these wrote it", faults()
    return "report.html built again in memory, .lease" if e.ended else ".lease", faults()


def _rows(e: Evidence) -> Sequence[dict[str, Any]]:
    return metrics.read(e.folder.metrics) if e.folder.metrics.is_file() else []
