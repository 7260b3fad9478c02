"""Why a run is, or is not, qualified: in words, for somebody who did not watch it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorist.digest import JSON
from algorist.qualify.receipt import existing, gates, judge
from algorist.record import ledger
from algorist.record.ledger import Event, EventKind, counts
from algorist.record.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer."""

    run: Path
    status: str
    """qualified, unqualified, unadmitted, refused, failed or unfinished."""
    reasons: tuple[str, ...]
    """What stands against it; empty for a qualified run."""
    gates: tuple[str, ...]
    """One line per gate of the closed list."""
    events: tuple[str, ...]
    """What was done, and what was not: skips with their causes, resumes, refusals, watched figures."""
    remedy: str
    """What to do next."""

    def to_json(self) -> dict[str, JSON]:
        """For --json."""
        return {
            "run": str(self.run),
            "status": self.status,
            "reasons": list(self.reasons),
            "gates": list(self.gates),
            "events": list(self.events),
            "remedy": self.remedy,
        }


def why(path: Path) -> Why:
    """Read ledger and receipts of a run. Raises InputError where there is no run or its ledger does not hold."""
    folder = RunFolder.open(path)
    events = ledger.read(folder.ledger)
    status, reasons = judge(events) if events else ("unfinished", ("the ledger is empty",))
    ended = bool(events) and (
        events[-1].kind in (EventKind.CLOSED, EventKind.REFUSED)
        or (events[-1].kind is EventKind.GATE and events[-1].payload.get("passed") is False)
    )
    if not ended:
        status, reasons = (
            "unfinished",
            (f"the run has not ended: its last event is {events[-1].kind}" if events else "",),
        )
    return Why(
        run=folder.root,
        status=status,
        reasons=reasons,
        gates=tuple(_gate_line(g) for g in gates(events)),
        events=tuple(_event_lines(events, folder)),
        remedy=_remedy(status, events, folder),
    )


def _gate_line(gate: Any) -> str:
    value = "" if gate.get("value") is None else f" {gate['value']:.4g} {gate.get('unit') or ''}".rstrip()
    bound = "" if gate.get("threshold") is None else f", threshold {gate['threshold']:.4g}"
    cause = f" ({gate['cause']})" if gate.get("cause") else ""
    return f"{gate['name']}: {gate['verdict']}{':' if value else ''}{value}{bound}{cause}"


def _event_lines(events: Sequence[Event], folder: RunFolder) -> list[str]:
    found = counts(events)
    lines = [
        f"{found.rollout_batches} rollout batches, {found.updates_applied} updates applied, {found.updates_skipped} skipped, "
        f"{found.evaluations_completed} evaluations"
    ]
    causes = Counter(str(e.payload.get("cause")) for e in events if e.kind is EventKind.UPDATE_SKIPPED)
    lines += [f"{count} updates skipped: {cause}" for cause, count in causes.most_common()]
    checks = [e for e in events if e.kind is EventKind.REPLAY_CHECK]
    if checks:
        worst = max(float(str(e.payload["mean_nats"])) for e in checks)
        lines.append(f"{len(checks)} replay checks, largest mean difference {worst:.3g} nats per token")
    trips = Counter(str(e.payload["figure"]) for e in events if e.payload.get("name") == "watch")
    lines += [f"watched figure {figure} left its range {count} times" for figure, count in trips.most_common()]
    resumed = [e for e in events if e.kind is EventKind.RESUMED]
    lines += [f"resumed from {e.payload.get('checkpoint') or 'the beginning'}" for e in resumed]
    lines += [f"refused: {e.payload.get('message')}" for e in events if e.kind is EventKind.REFUSED]
    amended = [e for e in events if e.kind is EventKind.CONTRACT and e.payload.get("amends")]
    lines += [f"contract amended: {'; '.join(map(str, e.payload.get('changes') or ()))}" for e in amended]  # type: ignore[arg-type]
    receipts = existing(folder)
    lines.append(f"{len(receipts)} receipts" + (f", the last one {receipts[-1].name}" if receipts else ""))
    return lines


def _remedy(status: str, events: Sequence[Event], folder: RunFolder) -> str:
    if status == "qualified":
        return f"Nothing to do. Others can check it: algorist audit {folder.root}"
    if status == "unfinished":
        return f"Go on with it: algorist resume {folder.root}"
    if status == "unadmitted":
        return (
            f"Try other figures, under a contract that names this one: algorist resume {folder.root} --amend --set "
            "qualify.memory.trainer_allocator_cap_gib=..."
        )
    begun = max((i for i, e in enumerate(events) if e.kind is EventKind.CONTRACT), default=0)
    remedies = [
        str(e.payload.get("remedy"))
        for e in events[begun:]
        if e.kind in (EventKind.GATE, EventKind.ADMISSION)
        and e.payload.get("passed") is False
        and e.payload.get("remedy")
    ]
    if remedies:
        return " ".join(dict.fromkeys(remedies))
    if events[-1].kind is EventKind.CLOSED:
        return "The run is finished and its receipt stays as it is. Repair the cause, and start a new run."
    return "Start a new run, or repair the cause and go on: algorist resume RUN --amend."
