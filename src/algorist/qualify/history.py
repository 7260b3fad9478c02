"""Whether the events of a ledger tell one possible story: contracts, order, counts, thresholds, and what receipts say of them."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from algorist.digest import canonical, digest
from algorist.qualify.config import QualifyConfig
from algorist.qualify.contract import SCHEMA, differences, promises
from algorist.qualify.evidence import Evidence, near, whole
from algorist.qualify.receipt import PREDICATE, STATEMENT, claims, existing, subjects
from algorist.qualify.watch import Watch
from algorist.record import ledger, metrics
from algorist.record.ledger import OF_PROCESSES, Event, EventKind
from algorist.stages.config import OFFLINE
from algorist.train.trainer import Difference, gate_value

UPDATES = (EventKind.UPDATE_APPLIED, EventKind.UPDATE_SKIPPED)


def terms(e: Evidence) -> tuple[str, Iterator[str]]:
    """Each contract follows from its recipe, and each amendment names the one before and what changed."""

    def faults() -> Iterator[str]:
        for name, document in e.contracts.items():
            file = e.contract_file(name)
            if document.get("schema") != SCHEMA:
                yield f"{file}: must have schema {SCHEMA}, got {document.get('schema')!r}"
            if digest(document["recipe"]) != document["recipe_digest"]:
                yield f"{file}: its recipe does not have the digest it states"
            due, said = promises(document["recipe"]), document["promises"]
            names = (
                due.keys() | said.keys() if e.same_sources else due.keys() & said.keys()
            )  # others may promise less or more
            odd = sorted(name for name in names if name != "gates" and due.get(name) != said.get(name))
            if e.same_sources and due["gates"] != said["gates"]:
                odd.append("gates")
            if odd:
                yield f"{file}: promises.{odd[0]} is not what its recipe promises"
        before = None
        for event in e.of(EventKind.CONTRACT):
            where = f"{e.folder.ledger}: event {event.seq}"
            document = e.contracts[event.contract]
            if (event.payload.get("recipe_digest"), event.payload.get("seed")) != (
                document["recipe_digest"],
                document["recipe"]["seed"],
            ):
                yield f"{where} names another recipe or seed than its contract"
            if not event.payload.get("amends") == document.get("amends") == before:
                yield f"{where} must amend {'the contract ' + before[:16] if before else 'no contract'}"
            elif before and event.payload.get("changes") != differences(e.contracts[before], document):
                yield f"{where} does not say what changed between the two contracts"
            before = event.contract

    return f"{len(e.contracts)} contracts", faults()


def order(e: Evidence) -> tuple[str, Iterator[str]]:
    """Each event may come where it comes, and has the policy version that the updates before it give."""

    def faults() -> Iterator[str]:
        story = _Story()
        for event in e.events:
            yield from (f"{e.folder.ledger}: event {event.seq} {fault}" for fault in story.faults(event, e))
            if event.policy_version != (due := story.version_of(event, e)):
                yield f"{e.folder.ledger}: event {event.seq} must have policy version {due}, got {event.policy_version}"
                return  # every later one would be named too

    return f"{len(e.events)} events", faults()


@dataclass(slots=True)
class _Story:
    """How far a run is, event by event."""

    before: Event | None = None
    contract: str = ""
    version: int = 0
    """Applied updates of the stage."""
    sft_steps: int = 0
    batch: int = -1
    epochs: int = 0
    """Updates of the batch so far."""
    decided: bool = True
    """The batch has had all its updates."""
    names: set[tuple[EventKind, object]] = field(default_factory=set)
    """Evaluations and checkpoints so far."""

    def faults(self, event: Event, e: Evidence) -> Iterator[str]:
        """What is wrong with the next event, which the run then has behind it."""
        yield from self._place(event)
        match event.kind:
            case EventKind.ROLLOUT_BATCH:
                yield from self._batch(event)
            case EventKind.UPDATE_APPLIED | EventKind.UPDATE_SKIPPED if event.payload.get("stage") == "sft":
                if whole(event, "step") != self.sft_steps or self.batch >= 0:
                    yield f"must be SFT step {self.sft_steps}, before any batch: got {event.payload['step']}"
                self.sft_steps += 1
                self.version += event.kind is EventKind.UPDATE_APPLIED
            case EventKind.UPDATE_APPLIED | EventKind.UPDATE_SKIPPED:
                yield from self._update(event, e.rl(event)["epochs_per_batch"])
            case EventKind.REPLAY_CHECK:
                if whole(event, "batch") != self.batch or self.decided or self.epochs:
                    yield f"must be the replay of batch {self.batch}, before its update: got {event.payload['batch']}"
            case EventKind.EVALUATION_COMPLETED | EventKind.CHECKPOINT:
                name = (event.kind, event.payload.get("name"))
                if name in self.names or not self.decided:
                    yield f"must not come twice, or inside a batch: {event.kind} {name[1]}"
                self.names.add(name)
        self.before = event

    def version_of(self, event: Event, e: Evidence) -> int:
        """The policy version it must have; offline rollouts come from a policy that no update touches."""
        sampled = event.kind in (EventKind.ROLLOUT_BATCH, EventKind.REPLAY_CHECK)
        return 0 if sampled and e.rl(event)["objective"]["name"] in OFFLINE else self.version

    def _place(self, event: Event) -> Iterator[str]:
        kind, before = event.kind, self.before
        if kind is EventKind.CONTRACT:
            self.contract = event.contract
        if kind is EventKind.CONTRACT and before is not None and before.kind is not EventKind.RESUMED:
            yield "is a contract, which may begin a run or follow a resume"
        if before is None and kind is not EventKind.CONTRACT:
            yield "must be the contract that the run began with"
        elif event.contract != self.contract:
            yield "belongs to a contract that is not in force"
        ended = before is not None and before.kind is EventKind.REFUSED and kind not in OF_PROCESSES
        if ended or (before is not None and before.kind is EventKind.CLOSED):
            yield f"must not follow event {event.seq - 1}, which ended the run"

    def _batch(self, event: Event) -> Iterator[str]:
        if whole(event, "batch") != self.batch + 1 or not self.decided:
            yield f"must be batch {self.batch + 1}, after batch {self.batch} was decided: got {event.payload['batch']}"
        self.version = 0 if self.batch < 0 else self.version  # versions are counted anew in RL
        self.batch, self.epochs, self.decided = whole(event, "batch"), 0, False

    def _update(self, event: Event, epochs: int) -> Iterator[str]:
        got = (whole(event, "batch"), whole(event, "epoch"))
        if event.payload.get("stage") != "rl" or self.decided or got != (self.batch, self.epochs):
            yield f"must be update {self.epochs} of batch {self.batch}, once: got update {got[1]} of batch {got[0]}"
        self.epochs += 1
        self.version += event.kind is EventKind.UPDATE_APPLIED
        self.decided = event.kind is EventKind.UPDATE_SKIPPED or self.epochs == epochs


def counts(e: Evidence) -> tuple[str, Iterator[str]]:
    """Promised, done and stated numbers agree."""

    def faults() -> Iterator[str]:
        path, last = e.folder.ledger, e.events[-1]
        if not e.closed:
            return
        found = ledger.counts(e.events)
        rl, sft = e.recipe.get("rl"), e.recipe.get("sft")
        promised = rl["updates"] if rl else 0
        for name in ("rollout_batches", "updates_applied", "updates_skipped", "evaluations_completed"):
            if last.payload.get(name) != getattr(found, name):
                yield f"{path}: the closing event says {name} {last.payload.get(name)}, the ledger holds {getattr(found, name)}"
        if last.payload.get("batches_promised") != promised or found.rollout_batches != promised:
            yield f"{path}: {promised} batches were promised, {found.rollout_batches} were done"
        decided = {u.payload.get("batch") for u in e.of(*UPDATES) if u.payload.get("stage") == "rl"}
        if len(decided) != found.rollout_batches:
            yield f"{path}: every batch must end in an applied or skipped update, {len(decided)} did"
        steps = sum(u.payload.get("stage") == "sft" for u in e.of(*UPDATES))
        if (sft["steps"] if sft else 0) not in (None, steps):
            yield f"{path}: {sft['steps'] if sft else 0} SFT steps were promised, {steps} were done"
        names = {"before", "after"}
        if rl and rl["evaluate_every"]:
            names |= {f"step-{n}" for n in range(rl["evaluate_every"], promised, rl["evaluate_every"])}
        done = {str(ev.payload.get("name")) for ev in e.of(EventKind.EVALUATION_COMPLETED)}
        if missing := names - done if len(e.contracts) == 1 else {"before", "after"} - done:
            yield f"{path}: the evaluation {min(missing)} was promised, it was not completed"
        total, every = steps + found.rollout_batches, e.recipe["record"]["checkpoint_every"]
        due = [f"step-{n}" for n in range(1, total + 1) if n % every == 0 or n in (steps, total)] + ["export"]
        saved = [ev.payload.get("name") for ev in e.of(EventKind.CHECKPOINT)]
        if saved != due and (len(e.contracts) == 1 or saved[-2:] != due[-2:]):
            odd = next(iter({str(name) for name in saved} ^ set(due)), "their order")
            yield f"{path}: must hold the checkpoints {', '.join(due[:2])}, ..., {due[-2]} and the export: {odd} is wrong"

    return f"{len(e.events)} events", faults()


def thresholds(e: Evidence) -> tuple[str, Iterator[str]]:
    """Every verdict follows from its own figures, with the bounds of the contract it was given under."""
    path, checks = e.folder.ledger, e.of(EventKind.REPLAY_CHECK)
    gates = e.of(EventKind.GATE, EventKind.ADMISSION)

    def faults() -> Iterator[str]:
        for event in checks:
            yield from (f"{path}: event {event.seq} {fault}" for fault in _replay(e, event))
        for event in gates:
            yield from (f"{path}: event {event.seq} ({event.payload.get('name')}) {fault}" for fault in _gate(e, event))
        judged = {str(ev.payload.get("name")) for ev in gates} | {"replay" for _ in checks}
        promised = e.contract["promises"]["gates"]
        if strangers := sorted(judged - {*promised, "run", "watch"}):
            yield f"{e.folder.contract}: does not promise the gate {strangers[0]}, which was judged"
        for name in promised if e.closed and len(e.contracts) == 1 else ():
            if name not in judged:
                yield f"{path}: the contract promises the gate {name}, and it was never judged"
        done = {whole(ev, "batch") for ev in checks}
        for ev in e.of(EventKind.ROLLOUT_BATCH) if e.closed else ():
            rl = e.rl(ev)
            sampled = OFFLINE.get(rl["objective"]["name"]) != "dataset"
            if sampled and whole(ev, "batch") % rl["replay"]["every"] == 0 and whole(ev, "batch") not in done:
                yield f"{path}: the contract promises a replay of batch {ev.payload['batch']}, there is none"
        yield from _watched(e)

    return f"{len(checks)} replay checks, {len(gates)} gates", faults()


def _replay(e: Evidence, event: Event) -> Iterator[str]:
    p: Mapping[str, Any] = event.payload
    cfg, contract = e.rl(event)["replay"], e.contracts[event.contract]
    bounds = [{"statistic": cfg["statistic"], "nats": cfg["nats"]}]
    if contract["policy"]["dtype"] == "float32":
        sharper = min(cfg["nats"], contract["recipe"]["qualify"]["float32"]["mean_nats"])
        bounds.append({"statistic": "mean", "nats": sharper})
    if p["bounds"] != bounds or (p["statistic"], p["bound_nats"]) != (cfg["statistic"], cfg["nats"]):
        yield "uses another replay bound than the contract"
    found = Difference(mean_nats=p["mean_nats"], p99_nats=p["p99_nats"], max_nats=p["max_nats"], num_tokens=p["tokens"])
    numbers = all(isinstance(p[f"{name}_nats"], int | float) for name in ("mean", "p99", "max"))
    holds = numbers and all(gate_value(found, b["statistic"]) <= b["nats"] for b in bounds)
    if holds is not p["passed"]:
        yield f"calls a replay {'passed' if p['passed'] else 'failed'} against its own figures"
    if numbers and not (0 <= p["mean_nats"] <= p["max_nats"] and 0 <= p["p99_nats"] <= p["max_nats"]):
        yield "has a mean or p99 above its maximum"


def _gate(e: Evidence, event: Event) -> Iterator[str]:
    p: Mapping[str, Any] = event.payload
    if p.get("name") == "run":  # what ended a run, not a judgement of its own
        return
    if (p["verdict"] != "failed") is not p["passed"]:
        yield "has two verdicts"
    contract = e.contracts[event.contract]
    cfg = contract["recipe"]["qualify"]
    value, threshold, verdict = p.get("value"), p.get("threshold"), p["verdict"]
    match p["name"]:
        case "signal" if verdict != "absent":
            low = value < cfg["signal"]["minimum_useful_share"]
            due = ("failed" if cfg["signal"]["action"] == "refuse" else "reported") if low else "passed"
            if (threshold, verdict) != (cfg["signal"]["minimum_useful_share"], due):
                yield f"must be {due} at threshold {cfg['signal']['minimum_useful_share']}: got {verdict} at {threshold}"
        case "cache" | "export_replay" if value is not None:
            float32 = contract["policy"]["dtype"] == "float32"
            bound = min(cfg["cache"]["nats"], cfg["float32"]["mean_nats"]) if float32 else cfg["cache"]["nats"]
            if threshold != bound or (not value <= bound and verdict != "failed"):
                yield f"must hold {value} against the contract's {bound} nats: got {verdict} at {threshold}"
        case "memory":
            for name in ("trainer_allocator_cap_gib", "driver_free_memory_gib"):
                if p["figures"] and p["figures"].get(name) != cfg["memory"][name]:
                    yield f"was judged with another {name} than the contract's"
        case "counts" | "rollouts" | "parameters" | "parents" | "verifier_canary" | "template" if value is not None:
            if threshold != 0 or (value > 0 and verdict not in ("failed", "reported")):
                yield f"must hold {value} against 0: got {verdict} at {threshold}"


def _watched(e: Evidence) -> Iterator[str]:
    """The watched figures trip again where they tripped, and nowhere else."""
    rows = (
        [row for row in metrics.read(e.folder.metrics) if row.get("stage") == "rl"]
        if e.folder.metrics.is_file()
        else []
    )
    under = {whole(ev, "batch"): ev.contract for ev in e.of(EventKind.ROLLOUT_BATCH)}
    watches = {
        name: Watch(QualifyConfig.model_validate_json(canonical(document["recipe"]["qualify"])).watch)
        for name, document in e.contracts.items()
    }
    due = []
    for row in (row for row in rows if row.get("batch") in under):  # others are named where rows are looked at
        trips = {name: watch.see(row) for name, watch in watches.items()}
        due += [
            (t.rule.figure, t.batch, t.rule.action, t.threshold, t.value) for t in trips[under[int(str(row["batch"]))]]
        ]
    done = [
        tuple(ev.payload.get(k) for k in ("figure", "batch", "action", "threshold", "value"))
        for ev in e.of(EventKind.GATE)
        if ev.payload.get("name") == "watch"
    ]
    for said, mine in zip(done, due, strict=False):
        if (
            said[:3] != mine[:3]
            or not near(said[3], mine[3])
            or not (near(said[4], mine[4]) or said[4] == str(mine[4]))
        ):
            yield f"{e.folder.ledger}: a watch event says {said}, {e.folder.metrics.name} gives {mine}"
            return
    if len(done) > len(due) or (e.closed and len(done) != len(due)):
        yield f"{e.folder.ledger}: holds {len(done)} watch events, {e.folder.metrics.name} gives {len(due)}"


def receipts(e: Evidence) -> tuple[str, Iterator[str]]:
    """What each receipt says of the ledger is what the ledger gives."""
    paths = existing(e.folder)

    def faults() -> Iterator[str]:
        for path in paths:
            statement = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
            said: dict[str, Any] = statement["predicate"]
            if (statement.get("_type"), statement.get("predicateType")) != (STATEMENT, PREDICATE):
                yield f"{path}: must be a statement of type {STATEMENT} about {PREDICATE}"
            events = e.events[: said["ledger"]["events"]]
            mine = claims(events) if events else {}
            if said["ledger"] != mine.get("ledger"):  # of a state that a resume went back behind
                continue
            names = mine.keys() if e.same_sources else mine.keys() & said.keys()
            odd = [name for name in names if digest({"": said.get(name)}) != digest({"": mine[name]})]
            if odd:
                yield f"{path}: its {odd[0]} is not what the ledger gives"
            if path == paths[-1] and len(events) == len(e.events) and statement["subject"] != subjects(e.folder):
                yield f"{path}: its subjects are not the checkpoints and the export that are there"

    return f"{len(paths)} receipts", faults()
