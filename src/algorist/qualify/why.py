"""What happened to a run, why it is or is not qualified, and what to do next: in words, for somebody who did not watch it."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from algorist.digest import JSON, file_digest
from algorist.qualify.receipt import existing, gates, judge
from algorist.record import commit, ledger
from algorist.record.ledger import ChainReport, Event, EventKind, counts
from algorist.record.run_folder import RunFolder
from algorist.report.words import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer."""

    run: Path
    status: str
    """qualified, unqualified, unadmitted, refused or failed; paused, running or unfinished; damaged."""
    reasons: tuple[str, ...]
    """What stands against it; empty for a qualified run."""
    gates: tuple[Mapping[str, JSON], ...]
    """Each gate of the closed list with its verdict; `missing`: not judged, or not yet."""
    events: tuple[str, ...]
    """What was done, and what was not: skips with their causes, pauses, resumes, refusals, watched figures."""
    remedy: str
    """What to do next, in words."""
    commands: tuple[str, ...]
    """What to type for it."""

    def to_json(self) -> dict[str, JSON]:
        """For --json."""
        return {
            "run": str(self.run),
            "status": self.status,
            "reasons": list(self.reasons),
            "gates": [dict(gate) for gate in self.gates],
            "events": list(self.events),
            "remedy": self.remedy,
            "commands": list(self.commands),
        }


def why(path: Path) -> Why:
    """Read ledger, receipts and lease of a run, of which `path` is the folder, the export or a checkpoint.

    Raises InputError where there is no run.
    """
    folder = RunFolder.around(path)
    events, chain = ledger.scan(folder.ledger) if folder.ledger.is_file() else ([], None)
    status, reasons = _status(folder, events, chain)
    return Why(
        run=folder.root,
        status=status,
        reasons=tuple(reasons),
        gates=tuple(gate for gate in gates(events) if isinstance(gate, Mapping)) if events else (),
        events=tuple(_event_lines(events, folder)),
        remedy=_remedy(status, events, folder),
        commands=tuple(_commands(status, folder)),
    )


def _status(folder: RunFolder, events: Sequence[Event], chain: ChainReport | None) -> tuple[str, Sequence[str]]:
    if chain is not None and chain.bad_line is not None:
        return "damaged", [
            f"{folder.ledger}:{chain.bad_line}: {chain.problem}; the ledger was changed after it was written"
        ]
    if events and not _contract_in_force(folder, events[-1].contract):
        return "damaged", [f"{folder.contract}: is missing, or is not the contract that the ledger was written under"]
    held, holder = folder.in_use()
    if held:
        who = f"process {holder.pid} on {holder.host}" if holder else "another process"
        return "running", [f"{who} works on it now"]
    if not events:
        return "unfinished", ["the process that began it ended before its first event; nothing was done"]
    last = events[-1]
    if last.kind is EventKind.PAUSED:
        return "paused", [str(last.payload.get("message"))]
    failed = last.kind is EventKind.GATE and last.payload.get("passed") is False
    if last.kind in (EventKind.CLOSED, EventKind.REFUSED) or failed:
        return judge(events)
    ended = (
        f"process {holder.pid} on {holder.host} ended all at once: killed, out of memory, or the machine stopped"
        if holder
        else "the process ended without writing down why: a second Ctrl-C, a full or failing disk, or a fault of Algorist's"
    )
    return "unfinished", [ended, *_kept(folder)]


def _contract_in_force(folder: RunFolder, digest: str) -> bool:
    """contract.json is that contract, or an amendment was cut short and a resume will put it in its place."""
    files = (folder.contract, folder.root / "contracts" / f"{digest}.json")
    return any(file.is_file() and file_digest(file) == digest for file in files)


def _kept(folder: RunFolder) -> Iterator[str]:
    """What a resume will begin from."""
    latest = commit.latest_valid(folder.checkpoints)
    yield from (f"checkpoint {s.path.name} cannot be used: {s.reason}" for s in latest.skipped)
    if latest.path is None:
        yield "there is no checkpoint yet: a resume begins again, to the same result"
    else:
        yield f"everything up to checkpoint {latest.path.name} is kept; what came after it is done again, to the same result"


def _event_lines(events: Sequence[Event], folder: RunFolder) -> Iterator[str]:
    found, rl = counts(events), counts(events, stage="rl")
    promised = _promised(folder)
    of = f" of {promised}" if promised else ""
    sft = found.updates_applied + found.updates_skipped - rl.updates_applied - rl.updates_skipped
    taught = f"{plural(sft, 'SFT update')}, " if sft else ""
    yield (
        f"{taught}{found.rollout_batches}{of} rollout batches, "
        f"{plural(rl.updates_applied, 'RL update')} applied, {rl.updates_skipped} skipped, "
        f"{plural(found.evaluations_completed, 'evaluation')}"
    )
    causes = Counter(str(e.payload.get("cause")) for e in events if e.kind is EventKind.UPDATE_SKIPPED)
    yield from (f"{plural(count, 'update')} skipped: {cause}" for cause, count in causes.most_common())
    accuracy = [
        f"{e.payload['name']} {float(str(e.payload['greedy'])):.1%}"
        for e in events
        if e.kind is EventKind.EVALUATION_COMPLETED and e.payload.get("greedy") is not None
    ]
    if accuracy:
        yield f"held-out greedy accuracy: {', '.join(accuracy)}"
    checks = [e for e in events if e.kind is EventKind.REPLAY_CHECK]
    if checks:
        worst = max(float(str(e.payload["mean_nats"])) for e in checks)
        yield f"{plural(len(checks), 'replay check')}, largest mean difference {worst:.3g} nats per token"
    trips = Counter(str(e.payload["figure"]) for e in events if e.payload.get("name") == "watch")
    yield from (
        f"watched figure {figure} left its range {plural(count, 'time')}" for figure, count in trips.most_common()
    )
    for event in events[:-1]:  # the last one is the reason
        if event.kind is EventKind.RESUMED:
            before = [str(m) for key in ("failed_before", "paused_before") for m in _list(event.payload.get(key))]
            yield f"resumed from {event.payload.get('checkpoint') or 'the beginning'}{' after: ' if before else ''}{'; '.join(before)}"
        elif event.kind is EventKind.REFUSED:
            yield f"refused: {event.payload.get('message')}"
        elif event.kind is EventKind.CONTRACT and event.payload.get("amends"):
            yield f"contract amended: {'; '.join(map(str, _list(event.payload.get('changes'))))}"
    yield from _receipt_lines(events, folder)


def _receipt_lines(events: Sequence[Event], folder: RunFolder) -> Iterator[str]:
    receipts = existing(folder)
    if receipts:
        yield f"{plural(len(receipts), 'receipt')}, the last one {receipts[-1].name}"
    elif events and events[-1].kind in (EventKind.CLOSED, EventKind.REFUSED):
        yield "no receipt was written: the disk was full or the process was killed just then; a resume writes it"


def _because(gate: Mapping[str, JSON]) -> str:
    return f": {str(gate['cause']).rstrip('.')}" if gate.get("cause") else ""


def _remedy(status: str, events: Sequence[Event], folder: RunFolder) -> str:
    match status:
        case "qualified":
            noted = [g for g in gates(events) if isinstance(g, Mapping) and g["verdict"] == "reported"]
            looked = "".join(f"Look at what the gate {g['name']} reports{_because(g)}. " for g in noted)
            return f"{looked or 'Nothing to do. '}Files and figures are not checked here: that is what an audit does."
        case "running":
            return "Wait, or stop it: it finishes its step and saves."
        case "paused":
            return "Do what is said above, if anything, and go on."
        case "unfinished":
            return "Go on: a resume begins at the newest checkpoint that verifies, to the same result."
        case "damaged":
            return "Put the original file back. Without it nothing vouches for this run: start a new one."
        case "unadmitted":
            return "Free memory and go on, or try other figures under a contract that names this one."
    begun = max((i for i, e in enumerate(events) if e.kind is EventKind.CONTRACT), default=0)
    remedies = [
        str(e.payload.get("remedy"))
        for e in events[begun:]
        if e.kind in (EventKind.GATE, EventKind.ADMISSION)
        and (e.payload.get("passed") is False or e.payload.get("name") == "outcome")
        and e.payload.get("remedy")
    ]
    told = " ".join(dict.fromkeys(remedies)) or "Repair the cause."
    if events[-1].kind is EventKind.CLOSED:
        return f"{told} The run is finished and its receipt stays as it is: start a new run."
    return f"{told} Unchanged, the run would meet the same again: go on under an amended contract, or start a new run."


def _commands(status: str, folder: RunFolder) -> list[str]:
    run = shlex.quote(str(folder.root))
    _, holder = folder.in_use()
    amend = f"algorist resume {run} --amend --set "
    return {
        "qualified": [f"algorist audit {run}"],
        "unqualified": [f"algorist audit {run}", "algorist run RECIPE --out NEW"],
        "running": [f"kill -TERM {holder.pid}"] if holder else [],
        "paused": [f"algorist resume {run}"],
        "unfinished": [f"algorist resume {run}"],
        "damaged": [f"algorist audit {run}"],
        "unadmitted": [f"algorist resume {run}", f"{amend}qualify.memory.trainer_allocator_cap_gib=GIB"],
    }.get(status, [f"{amend}KEY=VALUE", "algorist run RECIPE --out NEW"])


def _promised(folder: RunFolder) -> int | None:
    """Rollout batches that the contract promises."""
    try:
        return int(json.loads(folder.contract.read_bytes())["recipe"]["rl"]["updates"])
    except (OSError, ValueError, KeyError, TypeError):  # no contract, or no RL
        return None


def _list(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, list) else ()
