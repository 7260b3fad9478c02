"""Check a run offline, from its files alone: nothing here trusts what the run said about itself.

Files first (digests, chain, counts, figures, thresholds); then, where the recipe can be loaded again, a sample of what
was computed (`qualify.recompute`): verdicts, rewards, advantages, losses, log-probabilities, the order of problems.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorist.digest import JSON, canonical, digest, file_digest, sha256
from algorist.errors import InputError
from algorist.evaluate.result import EvaluationResult, summarise
from algorist.qualify import check as checker
from algorist.qualify.receipt import existing
from algorist.record import commit, ledger, metrics
from algorist.record import rollouts as store
from algorist.record.ledger import Event, EventKind
from algorist.record.run_folder import RunFolder
from algorist.train.trainer import Difference, gate_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    >>> Check(name="chain", faults=(), looked_at="12 events").ok
    True
    """

    name: str
    faults: tuple[str, ...]
    """What does not hold, each naming its file; empty where all does."""
    looked_at: str
    """How much was looked at, or why it could not be."""
    skipped: bool = False
    """True where it could not be looked at: says nothing for or against the run."""

    @property
    def ok(self) -> bool:
        """No fault was found."""
        return not self.faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What an audit came to."""

    run: Path
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """No check found a fault."""
        return all(check.ok for check in self.checks)

    @property
    def faults(self) -> tuple[str, ...]:
        """All faults, in the order they were found."""
        return tuple(fault for check in self.checks for fault in check.faults)

    def to_json(self) -> dict[str, JSON]:
        """For --json."""
        return {
            "run": str(self.run),
            "ok": self.ok,
            "checks": [
                {"name": c.name, "ok": c.ok, "skipped": c.skipped, "looked_at": c.looked_at, "faults": list(c.faults)}
                for c in self.checks
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A run folder as it was read."""

    folder: RunFolder
    contract: dict[str, Any]
    events: tuple[Event, ...]
    """Those before the first bad line."""

    @property
    def recipe(self) -> dict[str, Any]:
        """The resolved recipe."""
        found: dict[str, Any] = self.contract["recipe"]
        return found

    def of(self, kind: EventKind) -> list[Event]:
        """Events of one kind."""
        return [e for e in self.events if e.kind is kind]


def audit_files(path: Path, *, public_key: bytes | None = None) -> tuple[Evidence | None, list[Check]]:
    """Every check that needs nothing but the files. Evidence is None where not even contract and ledger can be read."""
    folder = RunFolder.open(path)
    events, chain = ledger.scan(folder.ledger)
    checks = [
        _receipts(folder, events, public_key),
        Check(
            name="chain",
            faults=() if chain.ok else (_chain_words(folder.ledger, chain),),
            looked_at=f"{chain.num_events} events, head {chain.head[:16]}",
        ),
    ]
    contract, faults = _contract(folder, events)
    checks.append(Check(name="contract", faults=faults, looked_at="contract.json against the ledger"))
    if contract is None or not events:
        return None, checks
    evidence = Evidence(folder=folder, contract=contract, events=tuple(events))
    for name, judge in CHECKS.items():
        checks.append(run_check(name, judge, evidence))
    return evidence, checks


def run_check(name: str, judge: Callable[[Evidence], tuple[str, Iterator[str]]], evidence: Evidence) -> Check:
    """One check; a file that cannot be read is a fault that names it."""
    try:
        looked_at, found = judge(evidence)
        return Check(name=name, faults=tuple(found), looked_at=looked_at)
    except InputError as error:
        return Check(name=name, faults=(str(error),), looked_at="stopped at the first unreadable file")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        words = f"{evidence.folder.root}: ledger or contract hold values of the wrong shape ({type(error).__name__}: {error})"
        return Check(name=name, faults=(words,), looked_at="stopped at the first malformed value")


def _receipts(folder: RunFolder, events: Sequence[Event], key: bytes | None) -> Check:
    if not existing(folder):
        ended = bool(events) and events[-1].kind in (EventKind.CLOSED, EventKind.REFUSED)
        words = f"{folder.receipts}: the run has ended and there is no receipt"
        return Check(
            name="receipts",
            faults=(words,) if ended else (),
            looked_at="none: the run is not finished",
            skipped=not ended,
        )
    goes_on = bool(events) and events[-1].kind not in (EventKind.CLOSED, EventKind.REFUSED, EventKind.GATE)
    status, count, head = last_statement(existing(folder)[-1])
    if goes_on and status == "failed":  # a resume goes back to a checkpoint, behind what that receipt speaks of
        return Check(name="receipts", faults=(), looked_at="of an earlier failure; the run went on", skipped=True)
    if goes_on and status in ("refused", "unadmitted"):  # a refusal is sealed: what came before it stays
        line = folder.ledger.read_bytes().split(b"\n")[: count or 0]
        kept = len(line) == count and sha256(line[-1]) == head
        words = f"{folder.ledger}: must still hold the {count} events up to the refusal that the last receipt speaks of"
        return Check(
            name="receipts",
            faults=() if kept else (words,),
            looked_at="of an earlier refusal; the run went on",
            skipped=kept,
        )
    faults = tuple(checker.check(folder.root, key))
    signed = "signed by the given key" if key is not None else "signatures not asked for"
    return Check(name="receipts", faults=faults, looked_at=f"{len(existing(folder))} receipts, {signed}")


def last_statement(path: Path) -> tuple[str, int, str]:
    """(status, events, ledger head) that a receipt states; what is wrong with it is for the checker to say."""
    try:
        predicate = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))["predicate"]
        return str(predicate["status"]), int(predicate["ledger"]["events"]), str(predicate["ledger"]["head"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", 0, ""


def _chain_words(path: Path, chain: ledger.ChainReport) -> str:
    if chain.bad_line is not None:
        return f"{path}:{chain.bad_line}: {chain.problem}"
    return f"{path}: ends in {chain.torn_bytes} bytes that are no line"


def _contract(folder: RunFolder, events: Sequence[Event]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    try:
        data = folder.contract.read_bytes()
        document: dict[str, Any] = json.loads(data)
        recipe = document["recipe"]
        faults = []
        if canonical(document) != data:
            faults.append(f"{folder.contract}: its bytes are not canonical")
        if events and digest(document) != events[-1].contract:
            faults.append(
                f"{folder.contract}: is not the contract {events[-1].contract[:16]} that the ledger was written under"
            )
        if digest(recipe) != document["recipe_digest"]:
            faults.append(f"{folder.contract}: its recipe does not have the digest it states")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, (f"{folder.contract}: is not a contract ({error})",)
    amended = [e for e in events if e.kind is EventKind.CONTRACT]
    for event in amended[1:]:
        old = folder.root / "contracts" / f"{event.payload.get('amends')}.json"
        if not old.is_file() or file_digest(old) != event.payload.get("amends"):
            faults.append(f"{old}: the contract that event {event.seq} amends is missing or changed")
    return document, tuple(faults)


def _counts(e: Evidence) -> tuple[str, Iterator[str]]:
    def faults() -> Iterator[str]:
        path, events = e.folder.ledger, e.events
        batches = [ev.payload["batch"] for ev in e.of(EventKind.ROLLOUT_BATCH)]
        if batches != list(range(len(batches))):
            yield f"{path}: rollout batches must be numbered 0, 1, 2, ..., each once: got {batches[:12]}"
        updates = [ev for ev in events if ev.kind in (EventKind.UPDATE_APPLIED, EventKind.UPDATE_SKIPPED)]
        rl = [ev for ev in updates if ev.payload.get("stage") == "rl"]
        decided = sorted({int(str(ev.payload["batch"])) for ev in rl})
        last = events[-1]
        if decided != batches[: len(decided)] or len(batches) - len(decided) > int(last.kind is not EventKind.CLOSED):
            yield f"{path}: every batch must end in an applied or skipped update: {len(batches)} batches, {len(decided)} decided"
        version = 0
        for stage in ("sft", "rl"):
            version = 0
            for ev in (u for u in updates if u.payload.get("stage") == stage):
                version += ev.kind is EventKind.UPDATE_APPLIED
                if ev.policy_version != version:
                    yield f"{path}: event {ev.seq} must have policy version {version}, got {ev.policy_version}"
                    break
        if last.kind is EventKind.CLOSED:
            found = ledger.counts(events)
            for name in ("rollout_batches", "updates_applied", "updates_skipped", "evaluations_completed"):
                said, real = last.payload.get(name), getattr(found, name)
                if said != real:
                    yield f"{path}: the closing event says {name} {said}, the ledger holds {real}"
            promised = e.recipe["rl"]["updates"] if e.recipe.get("rl") else 0
            if len(batches) != promised:
                yield f"{path}: {promised} batches were promised, {len(batches)} were done"

    return f"{len(e.events)} events", faults()


def _rollout_files(e: Evidence) -> tuple[str, Iterator[str]]:
    batches = e.of(EventKind.ROLLOUT_BATCH)

    def faults() -> Iterator[str]:
        known = set()
        for event in batches:
            path = e.folder.rollouts / str(event.payload["file"])
            known.add(path.name)
            if not path.is_file():
                yield f"{path}: event {event.seq} speaks of it, and it is missing"
                continue
            if file_digest(path) != event.payload["digest"]:
                yield f"{path}: is not the file that event {event.seq} stored"
                continue
            yield from _batch_figures(path, event)
        for path in sorted(e.folder.rollouts.glob("*")) if e.folder.rollouts.is_dir() else []:
            if path.name not in known:
                yield f"{path}: no event speaks of it"

    return f"{len(batches)} batches", faults()


def _batch_figures(path: Path, event: Event) -> Iterator[str]:
    batch = store.read(path).batch
    rollouts = [r for g in batch.groups for r in g.rollouts]
    flat = [g for g in batch.groups if g.flat]
    right = sum(bool(g.values) and max(g.values) > 0 for g in flat)
    figures = {
        "batch": batch.index,
        "rollouts": batch.num_rollouts,
        "tokens": sum(len(r.token_ids) for r in rollouts),
        "all_right": right,
        "mixed": len(batch.groups) - len(flat),
        "all_wrong": len(flat) - right,
        "truncated": sum(r.truncated for r in rollouts),
    }
    for name, value in figures.items():
        if event.payload.get(name) != value:
            yield f"{path}: holds {name} {value}, event {event.seq} says {event.payload.get(name)}"
    if batch.policy_version != event.policy_version:
        yield f"{path}: was sampled by version {batch.policy_version}, event {event.seq} says {event.policy_version}"


def _metrics(e: Evidence) -> tuple[str, Iterator[str]]:
    rows = metrics.read(e.folder.metrics) if e.folder.metrics.is_file() else []

    def faults() -> Iterator[str]:
        by_batch = {int(str(r["batch"])): r for r in rows if r.get("stage") == "rl"}
        for event in e.of(EventKind.ROLLOUT_BATCH):
            row = by_batch.get(int(str(event.payload["batch"])))
            if row is None:
                if e.events[-1].kind is EventKind.CLOSED:
                    yield f"{e.folder.metrics}: has no row for batch {event.payload['batch']}"
                continue
            for name, key in (
                ("groups/mixed", "mixed"),
                ("groups/all_right", "all_right"),
                ("tokens/sampled", "tokens"),
            ):
                if row.get(name) != event.payload.get(key):
                    where = f"{e.folder.metrics}: batch {event.payload['batch']}"
                    yield f"{where} has {name} {row.get(name)}, the ledger {event.payload.get(key)}"
            path = e.folder.rollouts / str(event.payload["file"])
            if path.is_file() and file_digest(path) == event.payload["digest"]:
                values = [v for g in store.read(path).batch.groups for v in g.values]
                mean = sum(values) / max(1, len(values))
                said = row.get("reward/mean")
                if not isinstance(said, int | float) or abs(said - mean) > 1e-9 * max(1.0, abs(mean)):
                    yield f"{e.folder.metrics}: batch {event.payload['batch']} has reward/mean {said}, its rollouts {mean}"

    return f"{len(rows)} rows", faults()


def _evaluations(e: Evidence) -> tuple[str, Iterator[str]]:
    done = {str(ev.payload["name"]): ev for ev in e.of(EventKind.EVALUATION_COMPLETED)}

    def faults() -> Iterator[str]:
        for name, event in done.items():
            path = e.folder.evaluation(name)
            if not path.is_file():
                yield f"{path}: event {event.seq} speaks of it, and it is missing"
                continue
            stored = EvaluationResult.read(path)
            again = summarise(
                stored.name, policy_digest=stored.policy_digest, records=stored.records, ks=sorted(stored.pass_at),
                ties=stored.ties, confidence=stored.confidence, resamples=stored.resamples, seed=stored.seed,
            )  # fmt: skip
            if canonical(again.to_json()) != canonical(stored.to_json()):
                yield f"{path}: its figures are not those of the problems it lists"
            said = {"problems": stored.problems, "responses": stored.responses, "policy_digest": stored.policy_digest}
            said["greedy"] = stored.greedy.value if stored.greedy else None
            for key, value in said.items():
                if event.payload.get(key) != value:
                    yield f"{path}: has {key} {value}, event {event.seq} says {event.payload.get(key)}"
        for path in sorted(e.folder.evaluations.glob("*")) if e.folder.evaluations.is_dir() else []:
            if path.stem not in done and e.events[-1].kind is EventKind.CLOSED:
                yield f"{path}: no event speaks of it"

    return f"{len(done)} evaluations", faults()


def _checkpoints(e: Evidence) -> tuple[str, Iterator[str]]:
    announced = {str(ev.payload["name"]): ev for ev in e.of(EventKind.CHECKPOINT)}
    present = commit.numbered(e.folder.checkpoints)

    def faults() -> Iterator[str]:
        for path in [*present, *([e.folder.export] if e.folder.export.exists() else [])]:
            try:
                manifest = commit.verify_directory(path)
            except InputError as error:
                yield str(error)
                continue
            event = announced.get(path.name)
            if event is not None and event.payload["manifest"] != manifest.digest:
                yield f"{path}: is not the directory that event {event.seq} committed"
            if event is None and e.events[-1].kind is EventKind.CLOSED:
                yield f"{path}: no event committed it"
        latest = e.folder.checkpoints / commit.LATEST
        if present and (not latest.is_file() or latest.read_bytes() != f"{present[-1].name}\n".encode()):
            yield f"{latest}: must name the newest checkpoint, {present[-1].name}"
        if e.events[-1].kind is EventKind.CLOSED and not e.folder.export.is_dir():
            yield f"{e.folder.export}: the run is closed and its export is missing"

    return f"{len(present)} checkpoints and the export", faults()


def _thresholds(e: Evidence) -> tuple[str, Iterator[str]]:
    """Every verdict follows from its own figures, with the bounds of the contract."""
    checks = e.of(EventKind.REPLAY_CHECK)

    def faults() -> Iterator[str]:
        path, rl = e.folder.ledger, e.recipe.get("rl")
        for event in checks:
            p: Mapping[str, Any] = event.payload
            difference = Difference(
                mean_nats=p["mean_nats"], p99_nats=p["p99_nats"], max_nats=p["max_nats"], num_tokens=p["tokens"]
            )
            holds = all(gate_value(difference, b["statistic"]) <= b["nats"] for b in p.get("bounds") or [])
            if holds is not p["passed"]:
                yield f"{path}: event {event.seq} calls a replay {'passed' if p['passed'] else 'failed'} against its own figures"
            if rl and (p["statistic"], p["bound_nats"]) != (rl["replay"]["statistic"], rl["replay"]["nats"]):
                yield f"{path}: event {event.seq} uses another replay bound than the contract"
        if rl:
            batches = [int(str(ev.payload["batch"])) for ev in e.of(EventKind.ROLLOUT_BATCH)]
            due = {b for b in batches if b % rl["replay"]["every"] == 0}
            missing = due - {int(str(ev.payload["batch"])) for ev in checks}
            if missing and e.events[-1].kind is EventKind.CLOSED and rl["objective"]["name"] != "sft":
                yield f"{path}: the contract promises a replay of batch {min(missing)}, there is none"
        for event in (*e.of(EventKind.GATE), *e.of(EventKind.ADMISSION)):
            p = event.payload
            if "verdict" in p and (p["verdict"] != "failed") is not p["passed"]:
                yield f"{path}: event {event.seq} gives the gate {p.get('name')} two verdicts"

    return f"{len(checks)} replay checks, {len(e.of(EventKind.GATE))} gates", faults()


def _page_and_lock(e: Evidence) -> tuple[str, Iterator[str]]:
    def faults() -> Iterator[str]:
        lease = e.folder.root / ".lease"
        if lease.is_file() and not re.fullmatch(rb"\d*\n?", lease.read_bytes()):
            yield f"{lease}: must hold a process number"
        if e.folder.report.is_file():
            from algorist.report.gather import gather
            from algorist.report.page import render

            if render(gather(e.folder.root)).encode() != e.folder.report.read_bytes():
                yield f"{e.folder.report}: is not the page these files give (algorist report builds it again)"

    return "report.html built again in memory", faults()


CHECKS: dict[str, Callable[[Evidence], tuple[str, Iterator[str]]]] = {
    "counts": _counts,
    "rollout files": _rollout_files,
    "metrics": _metrics,
    "evaluations": _evaluations,
    "checkpoints": _checkpoints,
    "thresholds": _thresholds,
    "page and lock": _page_and_lock,
}
"""Name -> check over the files alone."""
