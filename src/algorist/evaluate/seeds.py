"""Uncertainty over seeds: a few runs of one recipe, each a number; Student's t, since a few are few."""

import math
from collections.abc import Sequence

from algorist.evaluate.statistics import Estimate


def over_seeds(values: Sequence[float], *, confidence: float = 0.95, share: bool = False) -> Estimate:
    """mean +- t s / sqrt(n), s the sample standard deviation, t Student's quantile at n - 1. Student 1908.

    values [n], one a seed, n >= 2. share: the values are shares, so the interval is cut at 0 and 1. With three seeds t is
    4.3: intervals are wide because three runs say little, and that is what they should look like.

    >>> e = over_seeds([0.5, 0.6, 0.7]); round(e.low, 3), round(e.value, 3), round(e.high, 3)
    (0.352, 0.6, 0.848)
    """
    n = len(values)
    assert n >= 2, "an interval over seeds needs at least two"
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    half = t_quantile(0.5 + confidence / 2, n - 1) * spread / math.sqrt(n)
    low, high = mean - half, mean + half
    return Estimate(value=mean, low=max(0.0, low) if share else low, high=min(1.0, high) if share else high)


def t_quantile(p: float, df: int) -> float:
    """The p-quantile of Student's t with whole degrees of freedom, by bisection, 0.5 <= p < 1.

    >>> [round(t_quantile(0.975, df), 3) for df in (1, 2, 4, 30)]
    [12.706, 4.303, 2.776, 2.042]
    """
    assert df >= 1, f"degrees of freedom must be at least 1, got {df}"
    assert 0.5 <= p < 1.0, f"p must lie in [0.5, 1), got {p}"
    low, high = 0.0, 1.0
    while _t_cdf(high, df) < p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def _t_cdf(t: float, df: int) -> float:
    """P(T <= t) for t >= 0: the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    theta = math.atan2(t, math.sqrt(df))
    cosine, sine = math.cos(theta), math.sin(theta)
    if df % 2:
        term, total = cosine, cosine if df > 1 else 0.0
        for k in range(3, df - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        inside = 2 / math.pi * (theta + sine * total)
    else:
        term, total = 1.0, 1.0
        for k in range(2, df, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        inside = sine * total
    return 0.5 + inside / 2
