"""What a comparison of methods found, as data: runs, measures over seeds, coefficients of stored responses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from algorist.digest import JSON
from algorist.evaluate.result import EvaluationResult
from algorist.evaluate.seeds import over_seeds
from algorist.evaluate.statistics import Estimate
from algorist.record.metrics import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRun:
    """One method under one seed."""

    label: str
    """Name in this comparison: the method's, or that of a variant of it."""
    seed: int
    folder: str
    """Run folder, relative to the comparison's."""
    before: EvaluationResult | None = None
    """Of the shared start."""
    after: EvaluationResult | None = None
    """None where the run did not finish."""
    during: tuple[tuple[int, EvaluationResult], ...] = ()
    """(batches done, evaluation) in between."""
    rows: Sequence[Row] = ()
    """The RL rows of metrics.jsonl."""
    rollouts: int = 0
    """Sampled responses."""
    tokens: int = 0
    """Sampled response tokens."""
    applied: int = 0
    skipped: int = 0
    """Updates."""
    train_s: float = 0.0
    """Seconds in rollouts, verification and updates; wall clock, so not reproducible."""
    failed: str = ""
    """Why it did not finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """One stored response with its gradient coefficient (eq. 5) under every method."""

    text: str
    verdict: str
    reward: float | None
    """Of the rule, before any shaping."""
    by_label: Mapping[str, Sequence[tuple[str, float]]]
    """Label -> stretches of equal coefficient as (text, coefficient); one stretch where all tokens share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoefficients:
    """All responses to one problem."""

    question: str
    gold: str
    responses: tuple[Coefficients, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything `compare.html` and `compare.json` show."""

    name: str
    """Of the recipe."""
    labels: tuple[str, ...]
    """In the order they were asked for; the first is what the others are compared with."""
    seeds: tuple[int, ...]
    budget: Mapping[str, int]
    """What every run was given: batches, responses, response tokens."""
    formulas: Mapping[str, Mapping[str, str]]
    """Label -> the formulas that ran."""
    settings: Mapping[str, Sequence[str]]
    """Label -> settings that are its own, as `key=value`."""
    runs: tuple[MethodRun, ...]
    coefficients: tuple[GroupCoefficients, ...] = ()
    confidence: float = 0.95

    def of(self, label: str) -> list[MethodRun]:
        """The runs of a label that finished, by seed."""
        return [run for run in self.runs if run.label == label and run.after is not None]


MEASURES: tuple[tuple[str, str], ...] = (
    ("greedy", "greedy"),
    ("mean_at", "mean@"),
    ("pass_at", "pass@"),
    ("maj_at", "maj@"),
)


def measures(result: EvaluationResult) -> dict[str, Estimate]:
    """greedy, mean@n, and pass@k and maj@k for every k above 1, by name."""
    found: dict[str, Estimate] = {} if result.greedy is None else {"greedy": result.greedy}
    for field, prefix in MEASURES[1:]:
        by_k: Mapping[int, Estimate] = {"mean_at": result.mean_at, "pass_at": result.pass_at, "maj_at": result.maj_at}[
            field
        ]
        found |= {f"{prefix}{k}": e for k, e in sorted(by_k.items()) if field == "mean_at" or k > 1}
    return found


def estimate(values: Sequence[float], own: Sequence[Estimate], confidence: float) -> Estimate:
    """Over seeds; where all seeds agree to the last digit (or there is one), as wide as their own intervals over problems."""
    if _spread(values):
        return over_seeds(values, confidence=confidence, share=True)
    return Estimate(value=values[0], low=min(e.low for e in own), high=max(e.high for e in own))


def table(comparison: Comparison) -> dict[str, dict[str, dict[str, JSON]]]:
    """Label -> measure -> before, after, gain, against_first, each with its interval over seeds, and the values by seed.

    gain: after - before of the same seed. against_first: after - the first label's after of the same seed. Both are paired by
    seed; where seeds show no spread, or there is one, they have no interval.
    """
    first = {run.seed: measures(run.after) for run in comparison.of(comparison.labels[0]) if run.after}
    result: dict[str, dict[str, dict[str, JSON]]] = {}
    for label in comparison.labels:
        runs = comparison.of(label)
        names = list(measures(runs[0].after)) if runs and runs[0].after else []
        result[label] = {}
        for name in names:
            after = {run.seed: measures(run.after)[name] for run in runs if run.after}
            before = {run.seed: measures(run.before)[name] for run in runs if run.before}
            row: dict[str, JSON] = {
                "by_seed": {str(seed): e.value for seed, e in after.items()},
                "after": _json(
                    estimate([e.value for e in after.values()], list(after.values()), comparison.confidence)
                ),
            }
            if before:
                row["before"] = _json(
                    estimate([e.value for e in before.values()], list(before.values()), comparison.confidence)
                )
                row["gain"] = _paired(after, before, comparison.confidence)
            if label != comparison.labels[0]:
                row["against_first"] = _paired(after, {s: m[name] for s, m in first.items()}, comparison.confidence)
            result[label][name] = row
    return result


def _paired(a: Mapping[int, Estimate], b: Mapping[int, Estimate], confidence: float) -> JSON:
    gaps = [a[seed].value - b[seed].value for seed in a if seed in b]
    if not gaps:
        return None
    if not _spread(gaps):  # one seed, or no spread to make an interval of
        return {"value": gaps[0], "low": None, "high": None}
    return _json(over_seeds(gaps, confidence=confidence))


def _spread(values: Sequence[float]) -> bool:
    """Whether seeds differ by more than rounding."""
    return max(values) - min(values) > 1e-12


def _json(e: Estimate) -> dict[str, JSON]:
    return {"value": e.value, "low": e.low, "high": e.high}
