"""What an audit reads, and what it says: a run folder whose bytes hold, and checks with their faults."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorist.digest import JSON
from algorist.errors import AlgoristError, InputError
from algorist.qualify.check import DAMAGED, Part, Tree, plain
from algorist.qualify.contract import source_digest
from algorist.record import rollouts as store
from algorist.record.ledger import Event, EventKind
from algorist.record.rollouts import Stored
from algorist.record.run_folder import RunFolder

_PROMPT: Final = 1 << 17
"""Tokens that no prompt exceeds."""


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
    """How much was looked at, and what could not be, with the reason."""
    skipped: bool = False
    """True where nothing of it could be looked at: says nothing for or against the run."""

    @property
    def ok(self) -> bool:
        """No fault was found."""
        return not self.faults

    @classmethod
    def of(cls, name: str, part: Part) -> "Check":
        """What the standalone checker found, as one of our checks."""
        return cls(name=name, faults=tuple(part.problems), looked_at=part.looked_at, skipped=part.skipped)


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

    @property
    def skipped(self) -> tuple[Check, ...]:
        """The checks that could not be made."""
        return tuple(check for check in self.checks if check.skipped)

    def to_json(self) -> dict[str, JSON]:
        """For --json."""
        return {
            "run": plain(str(self.run)),
            "ok": self.ok,
            "checks": [
                {"name": c.name, "ok": c.ok, "skipped": c.skipped, "looked_at": c.looked_at, "faults": list(c.faults)}
                for c in self.checks
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A run folder whose bytes hold: chain, contracts, manifests, and the newest receipt where there is one."""

    folder: RunFolder
    tree: Tree
    """Its plain files."""
    contracts: Mapping[str, dict[str, Any]]
    """Digest -> contract, every one that events name."""
    events: tuple[Event, ...]

    @property
    def contract(self) -> dict[str, Any]:
        """The one in force at the end."""
        return self.contracts[self.events[-1].contract]

    @property
    def recipe(self) -> dict[str, Any]:
        """Its resolved recipe."""
        found: dict[str, Any] = self.contract["recipe"]
        return found

    def rl(self, event: Event) -> dict[str, Any]:
        """The rl settings in force at an event. Raises ValueError where the recipe had none."""
        found = self.contracts[event.contract]["recipe"].get("rl")
        if not isinstance(found, dict):
            raise ValueError(f"event {event.seq} belongs to RL, and its contract has no rl stage")
        return found

    def of(self, *kinds: EventKind) -> list[Event]:
        """Events of some kinds."""
        return [event for event in self.events if event.kind in kinds]

    @property
    def closed(self) -> bool:
        """The run ended in good order."""
        return self.events[-1].kind is EventKind.CLOSED

    @property
    def ended(self) -> bool:
        """Nothing more was to come: closed, refused, or ended by a failed gate."""
        last = self.events[-1]
        failed = last.kind is EventKind.GATE and last.payload.get("passed") is False
        return failed or last.kind in (EventKind.CLOSED, EventKind.REFUSED)

    @property
    def same_sources(self) -> bool:
        """The run was made by the sources that audit it, so that every word must come out again."""
        return bool(self.contract["code"]["source"] == source_digest())

    def contract_file(self, digest: str) -> Path:
        """Where a contract lies."""
        kept = self.folder.root / "contracts" / f"{digest}.json"
        return self.folder.contract if digest == self.events[-1].contract else kept

    def batch_file(self, event: Event) -> Path:
        """Where the batch of an event lies."""
        return store.batch_path(self.folder.rollouts, whole(event, "batch"))

    def stored(self, event: Event) -> Stored:
        """The batch of an event. Raises InputError naming its file, also where it claims more than such a batch can hold."""
        path, rl = self.batch_file(event), self.rl(event)
        most = rl["prompts_per_batch"] * rl["group_size"]
        rows, values = store.size(path)
        if rows > most or values > most * len(store.SCHEMA) * (rl["sampling"]["response_tokens"] + _PROMPT):
            raise InputError(f"{path}: must hold at most {most} rows, claims {rows} with {values} values")
        return store.read(path)


def whole(event: Event, name: str) -> int:
    """A whole number of an event. Raises ValueError where it is none."""
    value = event.payload.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"event {event.seq} must have a whole number {name}, got {value!r}")
    return value


def near(said: object, mine: float, allowed: float = 1e-9) -> bool:
    """True where a stored number is `mine` but for `allowed`, times its size where that is above 1. nan is near nothing.

    >>> near(1.0, 1.0), near(float("nan"), 1.0), near(None, 1.0), near(True, 1.0)
    (True, False, False, False)
    """
    number = isinstance(said, int | float) and not isinstance(said, bool)
    return number and abs(float(said) - mine) <= allowed * max(1.0, abs(mine))  # type: ignore[arg-type]


def run_check(name: str, judge: Callable[[], tuple[str, Iterable[str]]], blame: Path) -> Check:
    """One check. What cannot be read is a fault that names its file, else `blame`."""
    faults: list[str] = []
    try:
        looked_at, found = judge()
        faults.extend(found)
    except AlgoristError as error:
        looked_at = "stopped at the first file that cannot be used"
        faults.append(str(error))
    except (*DAMAGED, AssertionError, OSError) as error:
        looked_at = "stopped at the first value of the wrong shape"
        faults.append(f"{blame}: holds what no run writes ({type(error).__name__}: {error})")
    skipped = looked_at.startswith("skipped")
    return Check(
        name=name, faults=tuple(map(plain, faults)), looked_at=plain(looked_at), skipped=skipped and not faults
    )
