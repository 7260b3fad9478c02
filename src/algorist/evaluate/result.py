"""What an evaluation found: per-problem records, the figures made of them, and the file they are kept in."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from algorist.digest import JSON
from algorist.errors import InputError
from algorist.evaluate.statistics import (
    Estimate,
    PairedDifference,
    Ties,
    bootstrap,
    maj_at,
    paired_difference,
    pass_at_k,
    wilson,
)
from algorist.flow import Outcome, Verdict
from algorist.record.commit import atomic_write


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """One held-out problem: its greedy response and its n samples.

    >>> ProblemRecord(problem_id="p", answers=("5", None), correct=(True, False)).num_correct
    1
    """

    problem_id: str
    """Id of the problem."""
    greedy_correct: bool | None = None
    """Whether the likeliest response is right; None where it was not measured."""
    greedy_answer: str | None = None
    """Its answer; None where none could be read."""
    answers: tuple[str | None, ...] = ()
    """[n] answer of each sample; None where none could be read. Samples with equal strings vote together."""
    correct: tuple[bool, ...] = ()
    """[n] whether it is right."""
    truncated: int = 0
    """Responses, greedy included, that the budget ended."""
    unsupported: int = 0
    """Responses, greedy included, without a single readable answer. They count as not right."""
    errors: int = 0
    """Responses on which the checker itself failed. They count as not right, so figures are lower bounds."""

    def __post_init__(self) -> None:
        assert len(self.answers) == len(self.correct), "answers and correct: equal length"

    @property
    def num_correct(self) -> int:
        """c, right ones among the n samples."""
        return sum(self.correct)

    @property
    def num_samples(self) -> int:
        """n."""
        return len(self.correct)


def record_of(
    problem_id: str,
    *,
    greedy: Verdict | None,
    samples: Sequence[Verdict],
    truncated: int = 0,
    canonical: Callable[[str], str] = str.strip,
) -> ProblemRecord:
    """The record of one problem from the verdicts on its responses.

    `canonical` turns an extracted answer into what it votes for, so that two spellings of one number vote together.
    Where a spelling was judged right once and wrong once (possible only if `canonical` merges too much) each verdict
    keeps its own vote.

    >>> right = Verdict(verdict=Outcome.CORRECT, reason="equal", extracted=" 5")
    >>> lost = Verdict(verdict=Outcome.UNSUPPORTED, reason="truncated")
    >>> r = record_of("p", greedy=right, samples=[right, lost], truncated=1)
    >>> r.answers, r.correct, r.unsupported
    (('5', None), (True, False), 1)
    """
    every = [*([greedy] if greedy else []), *samples]
    kinds = [verdict.verdict for verdict in every]
    answers = [_vote(verdict, canonical) for verdict in samples]
    correct = [verdict.verdict is Outcome.CORRECT for verdict in samples]
    right = {answer for answer, is_right in zip(answers, correct, strict=True) if is_right}
    wrong = {answer for answer, is_right in zip(answers, correct, strict=True) if not is_right}
    torn = (right & wrong) - {None}
    return ProblemRecord(
        problem_id=problem_id,
        greedy_correct=None if greedy is None else greedy.verdict is Outcome.CORRECT,
        greedy_answer=None if greedy is None else _vote(greedy, canonical),
        answers=tuple(
            f"{answer} ({'right' if is_right else 'wrong'})" if answer in torn else answer
            for answer, is_right in zip(answers, correct, strict=True)
        ),
        correct=tuple(correct),
        truncated=truncated,
        unsupported=kinds.count(Outcome.UNSUPPORTED),
        errors=kinds.count(Outcome.ERROR),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """The figures of one finished evaluation.

    >>> votes = {"answers": ("1", "2"), "correct": (True, False)}
    >>> records = [ProblemRecord(problem_id=p, greedy_correct=p < "c", **votes) for p in "abcd"]
    >>> result = summarise("before", policy_digest="d0", records=records, ks=[1, 2])
    >>> result.greedy.value, result.mean_at[2].value, result.pass_at[2].value, result.maj_at[2].value
    (0.5, 0.5, 1.0, 0.5)
    >>> EvaluationResult.from_json(result.to_json()) == result
    True
    """

    name: str
    """before, after, or what the caller calls it."""
    policy_digest: str
    """Digest of the weights that were measured."""
    problems: int
    """P."""
    samples: int
    """n, sampled responses a problem."""
    greedy: Estimate | None
    """Accuracy of the likeliest response, Wilson interval; None where not measured."""
    mean_at: Mapping[int, Estimate]
    """n -> mean accuracy of the n samples, bootstrap over problems."""
    pass_at: Mapping[int, Estimate]
    """k -> unbiased pass@k."""
    maj_at: Mapping[int, Estimate]
    """k -> exact expected maj@k."""
    truncated: int
    """Responses the budget ended, of `responses`."""
    unsupported: int
    """Responses without a readable answer, of `responses`."""
    errors: int
    """Responses the checker failed on, of `responses`."""
    responses: int
    """Greedy and sampled responses in all."""
    ties: Ties = "shared"
    """What a tied vote is worth."""
    confidence: float = 0.95
    """Coverage of every interval."""
    resamples: int = 2000
    """Bootstrap resamples."""
    seed: int = 0
    """Seed of the resampling."""
    records: tuple[ProblemRecord, ...] = field(default=(), repr=False)
    """[P] what everything above is computed from."""

    def to_json(self) -> dict[str, JSON]:
        """The object of `evaluations/<name>.json`."""
        return {
            "name": self.name,
            "policy_digest": self.policy_digest,
            "problems": self.problems,
            "greedy": None if self.greedy is None else _estimate_json(self.greedy),
            "mean_at": _by_k_json(self.mean_at),
            "pass_at": _by_k_json(self.pass_at),
            "maj_at": _by_k_json(self.maj_at),
            "truncated": self.truncated,
            "unsupported": self.unsupported,
            "errors": self.errors,
            "responses": self.responses,
            "method": {
                "samples": self.samples,
                "greedy": "wilson",
                "sampled": "percentile bootstrap over problems",
                "confidence": self.confidence,
                "resamples": self.resamples,
                "seed": self.seed,
                "ties": self.ties,
            },
            "per_problem": [_record_json(record) for record in self.records],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "EvaluationResult":
        """The result an object holds. Raises InputError naming what is missing or of the wrong kind."""
        try:
            method = raw["method"]
            if method["ties"] not in get_args(Ties):
                raise InputError(f"evaluation: method.ties must be one of {get_args(Ties)}, got {method['ties']!r}")
            return cls(
                name=raw["name"],
                policy_digest=raw["policy_digest"],
                problems=int(raw["problems"]),
                samples=int(method["samples"]),
                greedy=None if raw["greedy"] is None else _estimate(raw["greedy"]),
                mean_at=_by_k(raw["mean_at"]),
                pass_at=_by_k(raw["pass_at"]),
                maj_at=_by_k(raw["maj_at"]),
                truncated=int(raw["truncated"]),
                unsupported=int(raw["unsupported"]),
                errors=int(raw["errors"]),
                responses=int(raw["responses"]),
                ties=method["ties"],
                confidence=float(method["confidence"]),
                resamples=int(method["resamples"]),
                seed=int(method["seed"]),
                records=tuple(_record(entry) for entry in raw["per_problem"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise InputError(
                f"evaluation: is not what an evaluation writes ({type(error).__name__}: {error})"
            ) from error

    def write(self, path: Path) -> None:
        """Keep the result in a file, whole or not at all. Raises DiskFull."""
        atomic_write(path, (json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> "EvaluationResult":
        """The result a file holds. Raises InputError naming the file."""
        try:
            raw = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: must be an evaluation, could not be read ({error})") from error
        if not isinstance(raw, dict):
            raise InputError(f"{path}: must be an evaluation, got a JSON {type(raw).__name__}")
        try:
            return cls.from_json(raw)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def summarise(
    name: str,
    *,
    policy_digest: str,
    records: Sequence[ProblemRecord],
    ks: Sequence[int],
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    ties: Ties = "shared",
) -> EvaluationResult:
    """All figures of an evaluation from its records.

    Raises InputError where there is no problem, where problems have different numbers of samples, where only some have
    a greedy response, or where a k exceeds n.
    """
    n = _samples(records, ks)
    greedy = [r.greedy_correct for r in records if r.greedy_correct is not None]
    if greedy and len(greedy) != len(records):
        raise InputError(
            f"evaluation {name}: greedy must be measured on all problems or none, got {len(greedy)} of {len(records)}"
        )

    def over_problems(values: Sequence[float]) -> Estimate:
        return bootstrap(values, confidence=confidence, resamples=resamples, seed=seed)

    majorities = [maj_at(r.answers, r.correct, ks, ties=ties) for r in records] if n else []
    used = sorted(set(ks)) if n else []
    return EvaluationResult(
        name=name,
        policy_digest=policy_digest,
        problems=len(records),
        samples=n,
        greedy=wilson(sum(greedy), len(greedy), confidence=confidence) if greedy else None,
        mean_at={n: over_problems([r.num_correct / n for r in records])} if n else {},
        pass_at={k: over_problems([pass_at_k(n, r.num_correct, k) for r in records]) for k in used},
        maj_at={k: over_problems([scores[k] for scores in majorities]) for k in used},
        truncated=sum(r.truncated for r in records),
        unsupported=sum(r.unsupported for r in records),
        errors=sum(r.errors for r in records),
        responses=len(greedy) + n * len(records),
        ties=ties,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
        records=tuple(records),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two evaluations of the same problems.

    >>> Comparison(greedy=None, mean=None, common=0, only_before=3, only_after=0).only_before
    3
    """

    greedy: PairedDifference | None
    """Greedy accuracy; None where one side did not measure it."""
    mean: PairedDifference | None
    """Mean accuracy of the samples; None where one side has none."""
    common: int
    """Problems both sides measured; the differences are over these."""
    only_before: int
    """Problems left out because the second evaluation lacks them."""
    only_after: int
    """Problems left out because the first evaluation lacks them."""


def compare(before: EvaluationResult, after: EvaluationResult) -> Comparison:
    """Paired differences, after minus before, over the problems both measured; the rest is counted."""
    old = {record.problem_id: record for record in before.records}
    new = {record.problem_id: record for record in after.records}
    pairs = [(old[name], new[name]) for name in old if name in new]

    def paired(values: Sequence[tuple[float, float]]) -> PairedDifference | None:
        if not values:
            return None
        return paired_difference(
            [b for b, _ in values],
            [a for _, a in values],
            confidence=after.confidence,
            resamples=after.resamples,
            seed=after.seed,
        )

    return Comparison(
        greedy=paired(
            [
                (b.greedy_correct, a.greedy_correct)
                for b, a in pairs
                if b.greedy_correct is not None and a.greedy_correct is not None
            ]
        ),
        mean=paired(
            [
                (b.num_correct / b.num_samples, a.num_correct / a.num_samples)
                for b, a in pairs
                if b.num_samples and a.num_samples
            ]
        ),
        common=len(pairs),
        only_before=len(old) - len(pairs),
        only_after=len(new) - len(pairs),
    )


def _samples(records: Sequence[ProblemRecord], ks: Sequence[int]) -> int:
    if not records:
        raise InputError("evaluation: needs at least one problem, got none. Check the held-out split")
    numbers = {r.num_samples for r in records}
    if len(numbers) > 1:
        raise InputError(f"evaluation: every problem needs the same number of samples, got {sorted(numbers)}")
    if len({r.problem_id for r in records}) != len(records):
        raise InputError("evaluation: a problem was measured twice; ids must be unique")
    n = numbers.pop()
    if n and (wrong := [k for k in ks if not 1 <= k <= n]):
        raise InputError(f"evaluation: k must lie in [1, {n}], the samples a problem has: got {wrong[0]}")
    return n


def _vote(verdict: Verdict, canonical: Callable[[str], str]) -> str | None:
    if verdict.verdict in (Outcome.UNSUPPORTED, Outcome.ERROR) or not verdict.extracted.strip():
        # a right response always votes, even where the checker gave no answer text
        return "(right)" if verdict.verdict is Outcome.CORRECT else None
    return canonical(verdict.extracted)


def _estimate_json(estimate: Estimate) -> dict[str, JSON]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _estimate(raw: Mapping[str, Any]) -> Estimate:
    return Estimate(value=float(raw["value"]), low=float(raw["low"]), high=float(raw["high"]))


def _by_k_json(by_k: Mapping[int, Estimate]) -> dict[str, JSON]:
    return {str(k): _estimate_json(by_k[k]) for k in sorted(by_k)}


def _by_k(raw: Mapping[str, Any]) -> dict[int, Estimate]:
    return {int(k): _estimate(value) for k, value in raw.items()}


def _record_json(record: ProblemRecord) -> dict[str, JSON]:
    return {
        "problem_id": record.problem_id,
        "greedy_correct": record.greedy_correct,
        "greedy_answer": record.greedy_answer,
        "num_correct": record.num_correct,
        "num_samples": record.num_samples,
        "answers": list(record.answers),
        "correct": list(record.correct),
        "truncated": record.truncated,
        "unsupported": record.unsupported,
        "errors": record.errors,
    }


def _record(raw: Mapping[str, Any]) -> ProblemRecord:
    return ProblemRecord(
        problem_id=raw["problem_id"],
        greedy_correct=raw["greedy_correct"],
        greedy_answer=raw["greedy_answer"],
        answers=tuple(raw["answers"]),
        correct=tuple(raw["correct"]),
        truncated=int(raw["truncated"]),
        unsupported=int(raw["unsupported"]),
        errors=int(raw["errors"]),
    )
