"""The ledger of a run: one event a line, each line holding the sha256 of the one before it.

    line_i = canonical({seq: i, prev: sha256(line_{i-1}), kind, contract, policy_version, wall: {...}, payload...})

Rollout batches, applied updates, skipped updates and completed evaluations are different kinds with different
counters. The chain covers every byte as written. All wall-clock values live under the one key `wall`, which
`logical_digest` leaves out, so that two equal runs have equal logical digests. A local chain proves order and
wholeness up to its head, not that nobody rewrote it from the start: publish the head to prove that.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from io import FileIO
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self, final

from algorist.digest import JSON, canonical, sha256
from algorist.errors import InputError, ResumeMismatch
from algorist.record.commit import append_durably, fsync_directory
from algorist.record.storage import require_in_place

GENESIS: Final = "0" * 64
"""`prev` of the first line."""
WALL: Final = "wall"
"""The only key that may hold wall-clock values: moments, durations, speeds, temperatures."""
_HEAD: Final = ("seq", "prev", "kind", "contract", "policy_version", WALL)
_TYPES: Final = MappingProxyType(
    {"seq": int, "prev": str, "kind": str, "contract": str, "policy_version": int, WALL: dict}
)
_NOTHING: Final[Mapping[str, JSON]] = MappingProxyType({})


class EventKind(StrEnum):
    """What can happen to a run."""

    CONTRACT = "contract"
    """The run says what it will do; first line."""
    ADMISSION = "admission"
    """The machine was measured against the contract's memory figures."""
    ROLLOUT_BATCH = "rollout_batch"
    """A batch was sampled, checked, rewarded and stored."""
    REPLAY_CHECK = "replay_check"
    """Stored log-probabilities were compared with the trainer's."""
    UPDATE_APPLIED = "update_applied"
    """The optimizer took a step."""
    UPDATE_SKIPPED = "update_skipped"
    """It did not, for a named cause; weights, moments and schedule are unchanged."""
    EVALUATION_COMPLETED = "evaluation_completed"
    """A whole evaluation was finished and written."""
    CHECKPOINT = "checkpoint"
    """A directory was committed."""
    GATE = "gate"
    """A check with value, threshold and verdict."""
    REFUSED = "refused"
    """The run ended before training, with the reason."""
    PAUSED = "paused"
    """A process ended before the run did, on purpose: a request, a watch rule, a full disk. Gone once a later one resumes."""
    RESUMED = "resumed"
    """A later process took over."""
    CLOSED = "closed"
    """The run ended; last line."""


OF_PROCESSES: Final = frozenset({EventKind.PAUSED, EventKind.RESUMED})
"""Kinds that tell about processes, not about training: no position counts them and no logical digest covers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a ledger.

    >>> e = Event(seq=0, prev=GENESIS, kind=EventKind.GATE, contract="c0", policy_version=0, payload={"name": "data"})
    >>> Event.from_line(e.to_line()) == e, e.payload["name"]
    (True, 'data')
    """

    seq: int
    """Position, counted from 0."""
    prev: str
    """sha256 of the bytes of the line before it, newline not included."""
    kind: EventKind
    """What happened."""
    contract: str
    """Digest of the contract in force."""
    policy_version: int
    """Applied updates when it happened."""
    payload: Mapping[str, JSON] = field(default_factory=lambda: _NOTHING)
    """What is known about it, by name; equal in equal runs."""
    wall: Mapping[str, JSON] = field(default_factory=lambda: _NOTHING)
    """Wall-clock values: `time` (UTC) and durations in seconds (names end in _s)."""

    def to_line(self) -> bytes:
        """RFC 8785 bytes without the newline; payload keys stand beside the head's."""
        head: dict[str, JSON] = {
            "seq": self.seq,
            "prev": self.prev,
            "kind": str(self.kind),
            "contract": self.contract,
            "policy_version": self.policy_version,
            WALL: dict(self.wall),
        }
        return canonical({**self.payload, **head})

    @classmethod
    def from_line(cls, line: bytes) -> "Event":
        """The event a line holds. Raises ValueError where the line is not exactly what `to_line` writes."""
        raw = json.loads(line)
        if not isinstance(raw, dict) or (missing := [name for name in _HEAD if name not in raw]):
            raise ValueError("is not an event" + (f": {missing[0]} is missing" if isinstance(raw, dict) else ""))
        if odd := [name for name, kind in _TYPES.items() if type(raw[name]) is not kind]:
            raise ValueError(f"{odd[0]} must be a {_TYPES[odd[0]].__name__}, got {raw[odd[0]]!r:.40}")
        event = cls(
            seq=raw["seq"],
            prev=raw["prev"],
            kind=EventKind(raw["kind"]),
            contract=raw["contract"],
            policy_version=raw["policy_version"],
            payload={name: value for name, value in raw.items() if name not in _HEAD},
            wall=raw[WALL],
        )
        if event.to_line() != line:  # doubled keys, -0, other spellings of a number, spaces
            raise ValueError("its bytes are not canonical")
        return event


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """What checking a ledger's chain came to.

    >>> ChainReport(num_events=3, head="ab", bad_line=None, problem="", torn_bytes=0).ok
    True
    """

    num_events: int
    """Events before the first bad line."""
    head: str
    """sha256 of the last good line; GENESIS for an empty ledger."""
    bad_line: int | None
    """First bad line, counted from 1; None where there is none."""
    problem: str
    """What is wrong with it, in words."""
    torn_bytes: int
    """Bytes after the last newline: an append that never finished."""

    @property
    def ok(self) -> bool:
        """True where every line holds and nothing is torn."""
        return self.bad_line is None and not self.torn_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Events that must never be confused, counted apart.

    >>> Counts(rollout_batches=5, updates_applied=3, updates_skipped=2, evaluations_completed=1).updates_skipped
    2
    """

    rollout_batches: int
    """Batches sampled and stored."""
    updates_applied: int
    """Optimizer steps taken."""
    updates_skipped: int
    """Optimizer steps not taken, each with a cause."""
    evaluations_completed: int
    """Evaluations finished and written."""


@final
class Ledger:
    """An open ledger; one writer at a time (the run folder's lease sees to that)."""

    def __init__(self, path: Path, *, contract: str, events: list[Event], head: str, torn_bytes: int) -> None:
        self.path = path
        self.contract = contract
        self.torn_bytes = torn_bytes
        """Bytes of an unfinished append that `open` cut off."""
        self._events = events
        self._head = head
        self.append_s = 0.0
        """Seconds spent in `append` by this process, flush and fsync included."""
        self._file = FileIO(path, "ab")

    @classmethod
    def open(cls, path: Path, *, contract: str, amend: bool = False) -> "Ledger":
        """Open for appending, creating the file where there is none. A torn tail is cut; the chain is verified.

        Raises ResumeMismatch where a line is bad (its number is named), or where the last event belongs to another
        contract and `amend` does not allow that.

        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "ledger.jsonl"
        >>> with Ledger.open(file, contract="c0") as ledger:
        ...     _ = ledger.append(EventKind.CONTRACT, policy_version=0, payload={"name": "demo"})
        ...     _ = ledger.append(EventKind.UPDATE_SKIPPED, policy_version=0, payload={"batch": 0, "cause": "flat"})
        >>> verify(file).ok, counts(read(file)).updates_skipped
        (True, 1)
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        created = not path.exists()
        data = b"" if created else path.read_bytes()
        events, report = _scan(data)
        if report.bad_line is not None:
            raise ResumeMismatch(
                f"{path}:{report.bad_line}: {report.problem}; the ledger must be the one this run wrote. "
                "Nothing was changed; put the original file back, or start a new run"
            )
        if report.torn_bytes:
            with path.open("r+b") as file:
                file.truncate(len(data) - report.torn_bytes)
                os.fsync(file.fileno())
        if events and events[-1].contract != contract and not amend:
            raise ResumeMismatch(
                f"{path}: must continue contract {events[-1].contract[:12]}, got {contract[:12]}. "
                "Resume with the recipe and files the run was started with, or start a new run"
            )
        ledger = cls(path, contract=contract, events=events, head=report.head, torn_bytes=report.torn_bytes)
        if created:
            fsync_directory(path.parent)
        return ledger

    def append(
        self,
        kind: EventKind,
        *,
        policy_version: int,
        payload: Mapping[str, JSON] = _NOTHING,
        wall: Mapping[str, JSON] = _NOTHING,
    ) -> Event:
        """Add an event, flushed and fsynced before this returns.

        `wall` gets `time` added, never before that of the event above: a clock that is set back does not set the ledger back.
        Non-finite floats, which JSON does not know, become the strings nan, inf and -inf.
        Raises WriteFailed with the ledger as it was before, ValueError for a value JSON cannot hold.
        """
        started = time.monotonic()
        if clash := sorted(set(payload) & set(_HEAD)):
            raise ValueError(f"a payload must not use the ledger's own keys, got {clash}")
        moment = max(_now(), str(self._events[-1].wall.get("time", "")) if self._events else "")
        event = Event(
            seq=len(self._events),
            prev=self._head,
            kind=EventKind(kind),
            contract=self.contract,
            policy_version=policy_version,
            payload={name: _plain(value) for name, value in payload.items()},
            wall={"time": moment, **{name: _plain(value) for name, value in wall.items()}},
        )
        line = event.to_line()
        append_durably(self._file, line + b"\n", self.path)
        self._events.append(event)
        self._head = sha256(line)
        self.append_s += time.monotonic() - started
        return event

    def require_in_place(self) -> None:
        """Raise FolderGone where the run folder was moved or deleted since the ledger was opened."""
        require_in_place(self.path, self._file.fileno())

    def truncate_to(self, seq: int) -> tuple[Event, ...]:
        """Keep the events 0..seq, cut those after it, and return the cut ones (-1 cuts all)."""
        assert -1 <= seq < len(self._events), f"seq must lie in [-1, {len(self._events)}), got {seq}"
        kept, cut = self._events[: seq + 1], tuple(self._events[seq + 1 :])
        lines = [event.to_line() for event in kept]
        self._forget_after(sum(len(line) + 1 for line in lines))
        self._events = kept
        self._head = sha256(lines[-1]) if lines else GENESIS
        return cut

    def roll_back(self, position: int) -> tuple[Event, ...]:
        """Cut everything after the first `position` events of training and return it; those of processes count for nothing.

        What a resume calls with the `position` its checkpoint holds: the cut events are replayed identically.
        """
        assert 0 <= position <= self.position, f"position must lie in [0, {self.position}], got {position}"
        seen, last = 0, -1
        for event in self._events:
            if event.kind in OF_PROCESSES:
                continue
            if seen == position:
                break
            seen, last = seen + 1, event.seq
        return self.truncate_to(last)

    @property
    def position(self) -> int:
        """Events of training so far: equal in a run and in its killed and resumed twin."""
        return sum(event.kind not in OF_PROCESSES for event in self._events)

    @property
    def head(self) -> str:
        """sha256 of the last line; GENESIS while empty. It stands for everything before it."""
        return self._head

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far."""
        return tuple(self._events)

    def close(self) -> None:
        """Close the file; the events stay readable."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget_after(self, size: int) -> None:
        self._file.truncate(size)
        os.fsync(self._file.fileno())


def read(path: Path) -> list[Event]:
    """All events of a ledger whose chain holds; an unfinished last line is left out.

    Raises InputError naming the file and first bad line, or where there is no ledger.
    """
    events, report = scan(path)
    if report.bad_line is not None:
        raise InputError(f"{path}:{report.bad_line}: {report.problem}; the ledger was changed after it was written")
    return events


def verify(path: Path) -> ChainReport:
    """Check every line, its place, and its link to the line before; never raises for what the lines hold."""
    return scan(path)[1]


def scan(path: Path) -> tuple[list[Event], ChainReport]:
    """The events before the first bad line, and what checking the chain came to. Raises InputError where no file is."""
    return _scan(_bytes(path))


def counts(events: Iterable[Event], *, stage: str | None = None) -> Counts:
    """Rollout batches, applied updates, skipped updates and completed evaluations, apart.

    stage: count only updates whose payload names this stage (sft, rl, ...), or no stage; None: all updates.
    """
    kinds = [event.kind for event in events if stage is None or event.payload.get("stage", stage) == stage]
    return Counts(
        rollout_batches=kinds.count(EventKind.ROLLOUT_BATCH),
        updates_applied=kinds.count(EventKind.UPDATE_APPLIED),
        updates_skipped=kinds.count(EventKind.UPDATE_SKIPPED),
        evaluations_completed=kinds.count(EventKind.EVALUATION_COMPLETED),
    )


def logical_digest(path: Path) -> str:
    """sha256 over kind, contract, policy version and payload of every event, in order.

    Wall-clock values, the chain over them, and events of processes (with the numbers they shift) are left out: a run,
    its repetition, and its killed and resumed twin have the same logical digest.
    """
    return sha256(
        b"\n".join(
            canonical(
                {"kind": str(e.kind), "contract": e.contract, "policy_version": e.policy_version, "payload": e.payload}
            )
            for e in read(path)
            if e.kind not in OF_PROCESSES
        )
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: must be a run's ledger, could not be read ({error.strerror})") from error


def _scan(data: bytes) -> tuple[list[Event], ChainReport]:
    *lines, tail = data.split(b"\n")
    events: list[Event] = []
    head, bad_line, problem = GENESIS, None, ""
    for number, line in enumerate(lines, start=1):
        try:
            event = Event.from_line(line)
        except (ValueError, TypeError, RecursionError) as error:
            bad_line, problem = number, f"is not a ledger line ({error})"
            break
        if event.seq != len(events):
            bad_line, problem = (
                number,
                f"seq must be {len(events)}, got {event.seq}: a line is missing, doubled or moved",
            )
            break
        if event.prev != head:
            bad_line, problem = (
                number,
                f"prev must be {head[:12]}..., got {str(event.prev)[:12]}...: the line before changed",
            )
            break
        events.append(event)
        head = sha256(line)
    report = ChainReport(num_events=len(events), head=head, bad_line=bad_line, problem=problem, torn_bytes=len(tail))
    return events, report


def _plain(value: JSON) -> JSON:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
