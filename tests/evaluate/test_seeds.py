"""Intervals over a few seeds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.evaluate.seeds import over_seeds, t_quantile


@pytest.mark.parametrize(
    ("df", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423)]
)
def test_quantiles_are_those_of_the_tables(df, expected) -> None:
    assert t_quantile(0.975, df) == pytest.approx(expected, abs=1e-4)


def test_one_and_two_degrees_of_freedom_have_closed_forms() -> None:
    for p in (0.6, 0.9, 0.975, 0.995):
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
        assert t_quantile(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))), rel=1e-9)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_the_interval_holds_the_mean_and_stays_within_shares(values) -> None:
    e = over_seeds(values, share=True)
    assert 0 <= e.low <= e.value + 1e-12
    assert e.value - 1e-12 <= e.high <= 1
    assert e.value == pytest.approx(sum(values) / len(values))


def test_more_seeds_of_the_same_spread_say_more() -> None:
    few, many = over_seeds([0.4, 0.6]), over_seeds([0.4, 0.6] * 5)
    assert few.low < many.low < many.high < few.high


def test_coverage_of_three_normal_seeds_is_as_declared() -> None:
    import numpy as np

    rng = np.random.Generator(np.random.Philox(key=7))
    draws = rng.normal(0.5, 0.1, size=(2000, 3))
    inside = sum((e := over_seeds(row.tolist())).low <= 0.5 <= e.high for row in draws)
    assert 0.93 < inside / 2000 < 0.97
