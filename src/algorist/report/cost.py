"""What proof costs: seconds at the gates, of replay checks and of the ledger, as the run itself recorded them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from algorist.digest import JSON
from algorist.record.ledger import Event, EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of a run, and what they were spent on.

    >>> Cost(run_s=200.0, gates_s=2.0, replay_s=4.0, ledger_s=1.0, replay_checks=7).shares
    {'gates': 0.01, 'replay': 0.02, 'ledger': 0.005}
    """

    run_s: float
    """From the first event to the last, without the time between the end of a process and the resume by the next."""
    gates_s: float
    """All gates, watch included, replay checks not."""
    replay_s: float
    ledger_s: float
    """Lines of the ledger, each flushed and fsynced."""
    replay_checks: int

    @property
    def shares(self) -> dict[str, float]:
        """Part of the run's time, by what it was spent on."""
        spent = {"gates": self.gates_s, "replay": self.replay_s, "ledger": self.ledger_s}
        return {name: round(seconds / self.run_s, 5) if self.run_s else 0.0 for name, seconds in spent.items()}

    def to_json(self) -> dict[str, JSON]:
        """For --json."""
        return {
            "run_s": round(self.run_s, 2),
            "gates_s": round(self.gates_s, 3),
            "replay_s": round(self.replay_s, 3),
            "ledger_s": round(self.ledger_s, 3),
            "replay_checks": self.replay_checks,
            "shares": dict(self.shares),
        }


def cost(events: Sequence[Event]) -> Cost | None:
    """From the wall-clock values of a ledger; None where it holds none. A run that goes on is told up to its last checkpoint.

    Checkpoints and the end say how long gates and ledger took since the last of them; replay checks say it themselves.
    """
    told = [e for e in events if "gates_s" in e.wall]
    moments = [_moment(e) for e in events]
    if not told or None in moments:
        return None
    gaps = [
        (after - before).total_seconds()
        for (before, after), event in zip(pairwise(moments), events[1:], strict=True)
        if event.kind is not EventKind.RESUMED and before is not None and after is not None
    ]
    checks = [e for e in events if e.kind is EventKind.REPLAY_CHECK]
    replay_s = sum(_number(e.wall, "replay_s") for e in checks)
    return Cost(
        run_s=sum(gaps),
        gates_s=max(0.0, sum(_number(e.wall, "gates_s") for e in told) - replay_s),
        replay_s=replay_s,
        ledger_s=sum(_number(e.wall, "ledger_s") for e in told),
        replay_checks=len(checks),
    )


def _moment(event: Event) -> datetime | None:
    try:
        return datetime.fromisoformat(str(event.wall.get("time")))
    except ValueError:
        return None


def _number(values: Mapping[str, JSON], name: str) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
