"""Accuracy and its uncertainty: pass@k, mean@k, maj@k, Wilson and bootstrap intervals, paired differences.

Pure functions of counts and lists; n samples a problem, c of them right, P problems. Sampling k of the n is without
replacement throughout.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from algorist.seeds import generator

Ties = Literal["shared", "first", "lost"]
"""What a majority vote that ends in a tie is worth.

shared: right answers among the tied / tied answers, the value of a fair draw.
first:  what the tied answer that was sampled first is worth. Over random subsets in random order this is `shared`.
lost:   1 only where every tied answer is right, else 0.
"""
_MAX_SAMPLES: Final = 1000  # beyond, binomials leave float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with an interval.

    >>> Estimate(value=0.5, low=0.4, high=0.6).separate_from(Estimate(value=0.8, low=0.7, high=0.9))
    True
    """

    value: float
    """The point estimate."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""

    def separate_from(self, other: "Estimate") -> bool:
        """True where the two intervals have no point in common."""
        return self.high < other.low or other.high < self.low


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """After minus before, problem by problem.

    >>> paired_difference([0, 0, 1, 1], [1, 1, 1, 0], resamples=200, seed=0).difference.value
    0.25
    """

    difference: Estimate
    """Mean over problems of after - before, bootstrap interval over problems."""
    better: int
    """Problems that rose."""
    worse: int
    """Problems that fell."""
    same: int
    """Problems that did neither."""
    p_value: float
    """Two-sided exact sign test on better against worse; for right/wrong values this is McNemar's exact test."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """pass@k = 1 - C(n-c, k) / C(n, k), the chance that k of the n samples hold a right one. Chen et al. 2021, eq. 1.

    Computed as 1 - prod_{i = n-c+1}^{n} (1 - k/i), so that no binomial is formed.

    >>> pass_at_k(4, 1, 2), pass_at_k(4, 3, 2), pass_at_k(4, 0, 4)
    (0.5, 1.0, 0.0)
    """
    assert 0 <= c <= n, f"right samples must lie in [0, {n}], got {c}"
    assert 1 <= k <= n, f"k must lie in [1, {n}], got {k}"
    if n - c < k:
        return 1.0
    miss = 1.0
    for i in range(n - c + 1, n + 1):
        miss *= 1.0 - k / i
    return 1.0 - miss


def maj_at(
    answers: Sequence[str | None], correct: Sequence[bool], ks: Sequence[int], *, ties: Ties = "shared"
) -> dict[int, float]:
    """maj@k: exact expected score of a plurality vote among k of the n samples, for every k asked.

    answers [n]: what each sample votes for, None where it has no answer and does not vote; correct [n]: whether it is
    right (samples with one answer must agree). Votes without a single answer score 0. For a right answer with m votes
    in all, and v of them drawn, the others' draws are counted by the coefficients of a polynomial in x (draws) and y
    (answers tied at v); all terms are positive, so float64 loses nothing to cancellation. `first` equals `shared` here.

    >>> maj_at(["5", "5", "7", None], [True, True, False, False], [1, 3, 4])
    {1: 0.5, 3: 0.75, 4: 1.0}
    >>> maj_at(["5", "5", "7", None], [True, True, False, False], [2], ties="lost")[2]
    0.5
    """
    n = len(answers)
    right = _check_votes(answers, correct)
    assert n <= _MAX_SAMPLES, f"at most {_MAX_SAMPLES} samples a problem, got {n}"
    assert all(1 <= k <= n for k in ks), f"every k must lie in [1, {n}], got {list(ks)}"
    votes = Counter(answer for answer in answers if answer is not None)
    silent = n - votes.total()
    total = dict.fromkeys(ks, 0.0)
    for answer, m in votes.items():
        if not right[answer]:
            continue
        others = [(other, count) for other, count in votes.items() if other != answer]
        for v in range(1, min(m, max(ks)) + 1):
            ways = _others_ways(others, right, silent=silent, n=n, v=v, ties=ties)
            share = 1.0 / np.arange(1, ways.shape[0] + 1)  # t others tied: the vote is worth 1 / (1 + t)
            worth = math.comb(m, v) * (share @ ways)
            for k in ks:
                if k >= v:
                    total[k] += float(worth[k - v])
    return {k: min(1.0, total[k] / math.comb(n, k)) for k in ks}


def maj_of_first(answers: Sequence[str | None], correct: Sequence[bool], k: int, *, ties: Ties = "shared") -> float:
    """The score of one plurality vote among the first k samples, in the order they were drawn.

    >>> [maj_of_first(["7", "5"], [False, True], 2, ties=t) for t in ("shared", "first", "lost")]
    [0.5, 0.0, 0.0]
    """
    assert 1 <= k <= len(answers), f"k must lie in [1, {len(answers)}], got {k}"
    right = _check_votes(answers, correct)
    votes = Counter(answer for answer in answers[:k] if answer is not None)  # keeps the order of first appearance
    if not votes:
        return 0.0
    most = max(votes.values())
    tied = [right[answer] for answer, count in votes.items() if count == most]
    match ties:
        case "shared":
            return sum(tied) / len(tied)
        case "first":
            return float(tied[0])
        case "lost":
            return float(all(tied))


def wilson(successes: float, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Wilson's score interval of a proportion, without continuity correction. Wilson 1927.

    centre = (p + z^2/2n) / (1 + z^2/n), half = z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n). It stays inside [0, 1] and
    has a width at 0 and n successes too.

    >>> e = wilson(8, 10); round(e.low, 4), e.value, round(e.high, 4)
    (0.4902, 0.8, 0.9433)
    """
    assert trials > 0, "an interval needs at least one trial"
    assert 0 <= successes <= trials, f"successes must lie in [0, {trials}], got {successes}"
    p = successes / trials
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    scale = 1 + z * z / trials
    centre = (p + z * z / (2 * trials)) / scale
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials)) / scale
    # at p = 0 and p = 1 the outer end is p itself; rounding must not move it inside
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Estimate(value=p, low=low, high=high)


def bootstrap(values: Sequence[float], *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean over problems with a percentile bootstrap interval: problems are resampled, not responses. Efron 1979.

    values [P], one a problem. A pure function of its arguments. Where all values are 0 or all are 1 every resample is
    the same and would claim certainty; Wilson's interval on P trials is used there.

    >>> e = bootstrap([0.0, 0.5, 1.0, 0.5], resamples=500); e.value, e.low < e.value < e.high
    (0.5, True)
    >>> bootstrap([0.0] * 10).high > 0.2
    True
    """
    x = np.asarray(values, dtype=np.float64)
    assert x.ndim == 1, f"values must be one a problem, got shape {x.shape}"
    assert x.size > 0, "an interval needs at least one problem"
    if np.all(x == 0.0) or np.all(x == 1.0):
        return wilson(float(x.sum()), x.size, confidence=confidence)
    low, high = _percentiles(x, confidence=confidence, resamples=resamples, seed=seed)
    return Estimate(value=float(x.mean()), low=low, high=high)


def paired_difference(
    before: Sequence[float],
    after: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> PairedDifference:
    """Mean of after - before over the same problems in the same order, bootstrap over problems, and a sign test.

    >>> d = paired_difference([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1], resamples=200)
    >>> d.better, d.worse, d.same, d.p_value
    (5, 0, 1, 0.0625)
    """
    assert len(before) == len(after), f"pairs need equal lengths, got {len(before)} and {len(after)}"
    x = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    assert x.size > 0, "a difference needs at least one problem"
    low, high = _percentiles(x, confidence=confidence, resamples=resamples, seed=seed)
    better, worse = int((x > 0).sum()), int((x < 0).sum())
    return PairedDifference(
        difference=Estimate(value=float(x.mean()), low=low, high=high),
        better=better,
        worse=worse,
        same=int(x.size) - better - worse,
        p_value=sign_test(better, worse),
    )


def sign_test(better: int, worse: int) -> float:
    """p = min(1, 2 sum_{i <= min(b, w)} C(b+w, i) / 2^(b+w)): the two-sided exact binomial test of better = worse.

    >>> sign_test(5, 0), sign_test(3, 3), sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    n = better + worse
    tail = sum(math.comb(n, i) for i in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**n)


def _percentiles(x: NDArray[np.float64], *, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    rng = generator(seed, "bootstrap", int(x.size), resamples)
    means = np.concatenate(
        [x[rng.integers(0, x.size, size=(rows, x.size))].mean(axis=1) for rows in _blocks(resamples, x.size)]
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _blocks(resamples: int, size: int) -> list[int]:
    """Rows of each block of resamples, so that no index array exceeds a few MiB."""
    rows = max(1, min(resamples, 2**18 // size))
    return [min(rows, resamples - start) for start in range(0, resamples, rows)]


def _check_votes(answers: Sequence[str | None], correct: Sequence[bool]) -> dict[str, bool]:
    right: dict[str, bool] = {}
    for answer, is_right in zip(answers, correct, strict=True):
        if answer is None:
            continue
        assert right.setdefault(answer, is_right) == is_right, (
            f"samples that answer {answer!r} must agree on right or wrong"
        )
    return right


def _others_ways(
    others: Sequence[tuple[str, int]], right: dict[str, bool], *, silent: int, n: int, v: int, ties: Ties
) -> NDArray[np.float64]:
    """[ties, draws]: in how many ways the other samples can be drawn so that none has more than v votes.

    Row t counts draws with exactly t others tied at v; with `lost`, a wrong answer may not tie at all.
    """
    ways = np.zeros((1 + sum(count >= v for _, count in others), n + 1))
    ways[0, : silent + 1] = [math.comb(silent, j) for j in range(silent + 1)]
    for other, count in others:
        grown = np.zeros_like(ways)
        for j in range(min(count, v - 1) + 1):
            grown[:, j:] += math.comb(count, j) * ways[:, : n + 1 - j]
        if count >= v and (ties != "lost" or right[other]):
            grown[1:, v:] += math.comb(count, v) * ways[:-1, : n + 1 - v]
        ways = grown
    return ways
