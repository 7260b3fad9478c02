"""What a run folder holds, read once for the page and the table. Missing or damaged parts become notes, not crashes."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from algorist.errors import InputError
from algorist.evaluate.result import Comparison, EvaluationResult, compare
from algorist.record import ledger, metrics
from algorist.record.ledger import ChainReport, Counts, Event, EventKind
from algorist.record.metrics import Row
from algorist.record.run_folder import RunFolder
from algorist.report.cost import Cost, cost
from algorist.report.verdict import Judgement, newest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """Everything a report shows, but the sample rollouts.

    Example: `gather(Path("runs/quickstart")).counts.updates_applied`
    """

    folder: RunFolder
    """Where it was read from."""
    name: str
    """The recipe's name; the folder's where there is none."""
    recipe: Mapping[str, Any]
    """The resolved recipe; empty where contract.json has none."""
    contract: Mapping[str, Any]
    """contract.json; empty where it is missing."""
    events: tuple[Event, ...]
    """The ledger up to its first bad line."""
    chain: ChainReport
    """What checking the ledger came to."""
    counts: Counts
    """Batches, updates of RL applied and skipped, evaluations."""
    sft_updates: int
    """Updates of SFT applied."""
    skip_causes: Mapping[str, int]
    """Cause -> skipped updates of RL."""
    rows: tuple[Row, ...]
    """metrics.jsonl"""
    before: EvaluationResult | None
    """evaluations/before.json"""
    after: EvaluationResult | None
    """evaluations/after.json"""
    others: tuple[EvaluationResult, ...]
    """Further evaluations, by name."""
    comparison: Comparison | None
    """After against before, where both exist."""
    wall_s: float | None
    """Seconds from the first to the last event."""
    cost: Cost | None
    """What gates, replay checks and ledger took; None where the ledger does not say."""
    judgement: Judgement
    """What the newest receipt says."""
    notes: tuple[str, ...]
    """What could not be read, in words."""

    @property
    def formulas(self) -> Mapping[str, Mapping[str, str]]:
        """Loop -> name -> formula that ran; '' where the loop is not named."""
        said = self._said("formulas")
        if not isinstance(said, Mapping):
            return {"": {"formula": str(said)}} if said else {}
        loops = {str(name): _flat(item) for name, item in said.items() if isinstance(item, Mapping)}
        rest = {str(name): str(item) for name, item in said.items() if not isinstance(item, Mapping)}
        return loops | ({"": rest} if rest else {})

    @property
    def hardware(self) -> str:
        """The machine, in words; '' where nothing was recorded."""
        said = self._said("hardware")
        if isinstance(said, Mapping):
            return ", ".join(_quantity(name, value) for name, value in _flat(said).items())
        numerics = self.contract.get("numerics")
        known = dict(numerics) if isinstance(numerics, Mapping) else {}
        known |= {name: self.policy[name] for name in ("device", "dtype") if name in self.policy}
        words = [str(known[name]) for name in ("device", "machine", "dtype") if name in known]
        return ", ".join([*words, *([_quantity("threads", str(known["threads"]))] if "threads" in known else [])])

    @property
    def policy(self) -> Mapping[str, Any]:
        """What the contract says about the starting policy; empty where it says nothing."""
        said = self.contract.get("policy")
        return said if isinstance(said, Mapping) else {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the run itself noted when it was prepared: rows dropped, problems unused."""
        said = self.contract.get("notes")
        return tuple(str(note) for note in said) if isinstance(said, list) else ()

    @property
    def closed(self) -> bool:
        """True where the run ended in good order."""
        return bool(self.events) and self.events[-1].kind is EventKind.CLOSED

    @property
    def before_label(self) -> str:
        """What 'before' means in this run: before RL, after SFT, where the ledger shows that order."""
        taught = False
        for event in self.events:
            taught |= event.kind is EventKind.UPDATE_APPLIED and event.payload.get("stage") == "sft"
            if event.kind is EventKind.EVALUATION_COMPLETED and event.payload.get("name") == "before":
                return "before RL (after SFT)" if taught else "before"
        return "before"

    @property
    def amendments(self) -> tuple[str, ...]:
        """The contracts that were replaced, oldest first, in words."""
        found = []
        for event in self.events:
            if event.kind is EventKind.CONTRACT and event.payload.get("amends"):
                said = event.payload.get("changes")
                # the recipe's digest follows from the settings that are named
                changes = (
                    [str(c) for c in said if not str(c).startswith("recipe_digest:")] if isinstance(said, list) else []
                )
                words = f" ({'; '.join(changes)})" if changes else ""
                old = str(event.payload["amends"])
                found.append(f"event {event.seq}: contract {old[:12]} replaced by {event.contract[:12]}{words}")
        return tuple(found)

    def _said(self, key: str) -> Any:
        """From contract.json, else from the ledger's contract event, its wall part included."""
        if key in self.contract:
            return self.contract[key]
        for event in self.events:
            if event.kind is EventKind.CONTRACT:
                return event.payload.get(key, event.wall.get(key))
        return None


def gather(run: Path) -> RunData:
    """Read a run folder. Raises InputError where it is none; everything else that is missing or damaged is a note."""
    folder = RunFolder.open(run)
    notes: list[str] = []
    events, chain = ledger.scan(folder.ledger)
    if chain.bad_line is not None:
        notes.append(f"ledger.jsonl line {chain.bad_line}: {chain.problem}. Events from there on are not shown.")
    if chain.torn_bytes:
        notes.append(f"ledger.jsonl ends in {chain.torn_bytes} bytes of an unfinished event.")
    contract = _contract(folder, notes)
    raw_recipe = contract.get("recipe")
    recipe = raw_recipe if isinstance(raw_recipe, Mapping) else {}
    evaluations = _evaluations(folder, notes)
    before, after = evaluations.pop("before", None), evaluations.pop("after", None)
    skips = [e for e in events if e.kind is EventKind.UPDATE_SKIPPED and e.payload.get("stage", "rl") == "rl"]
    causes = Counter(str(e.payload.get("cause") or "no cause") for e in skips)
    sft = [e for e in events if e.payload.get("stage") == "sft"]
    return RunData(
        folder=folder,
        name=str(recipe.get("name") or run.resolve().name),
        recipe=recipe,
        contract=contract,
        events=tuple(events),
        chain=chain,
        counts=ledger.counts(events, stage="rl"),
        sft_updates=ledger.counts(sft).updates_applied,
        skip_causes=dict(causes.most_common()),
        rows=tuple(_rows(folder, notes)),
        before=before,
        after=after,
        others=tuple(evaluations[name] for name in sorted(evaluations)),
        comparison=compare(before, after) if before and after else None,
        wall_s=wall_seconds(events),
        cost=cost(events),
        judgement=newest(folder, chain.head),
        notes=tuple(notes),
    )


def wall_seconds(events: Sequence[Event]) -> float | None:
    """Seconds from the first to the last event, None where their times cannot be read.

    Pauses between a kill and a resume count too.
    """
    times = [t for event in (*events[:1], *events[-1:]) if (t := moment(event)) is not None]
    return max(0.0, (times[-1] - times[0]).total_seconds()) if len(times) == 2 else None


def moment(event: Event) -> datetime | None:
    """When an event was written."""
    try:
        return datetime.fromisoformat(str(event.wall.get("time")))
    except ValueError:
        return None


def _contract(folder: RunFolder, notes: list[str]) -> Mapping[str, Any]:
    try:
        raw = json.loads(folder.contract.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        notes.append(
            f"contract.json could not be read ({type(error).__name__}): recipe and formulas may be missing here."
        )
        return {}
    if not isinstance(raw, dict):
        notes.append("contract.json is not an object: recipe and formulas may be missing here.")
        return {}
    return raw


def _rows(folder: RunFolder, notes: list[str]) -> list[dict[str, metrics.Value]]:
    try:
        return metrics.read(folder.metrics)
    except InputError as error:
        notes.append(f"metrics.jsonl: no curves are shown ({error}).")
        return []


def _evaluations(folder: RunFolder, notes: list[str]) -> dict[str, EvaluationResult]:
    found: dict[str, EvaluationResult] = {}
    for path in sorted(folder.evaluations.glob("*.json")):
        try:
            found[path.stem] = EvaluationResult.read(path)
        except InputError as error:
            notes.append(f"evaluations/{path.name} is not shown ({error}).")
    return found


def _quantity(name: str, value: str) -> str:
    """
    >>> _quantity("memory_gib", "7.7"), _quantity("cores", "2"), _quantity("device", "cpu")
    ('7.7 GiB memory', '2 cores', 'cpu')
    """
    words = name.rsplit(".", 1)[-1]
    if words.endswith("_gib"):
        return f"{value} GiB {words.removesuffix('_gib').replace('_', ' ')}"
    words = words.removesuffix("s") if value == "1" else words
    return f"{value} {words.replace('_', ' ')}" if value.replace(".", "", 1).isdigit() else value


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {prefix or "formula": str(value)} if value is not None else {}
    flat: dict[str, str] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
    return flat
