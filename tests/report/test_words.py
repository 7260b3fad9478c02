"""Figures read as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.report import words as W

finite = st.floats(-1e9, 1e9, allow_nan=False)


@given(finite, finite)
def test_ticks_cover_the_range_rise_and_are_few(a: float, b: float) -> None:
    low, high = sorted((a, b))
    values = W.ticks(low, high)
    slack = 1e-6 * max(abs(low), abs(high)) + 1e-15  # smaller values are drawn as 0
    assert values[0] <= low + slack
    assert values[-1] >= high - slack
    assert 2 <= len(values) <= 7
    assert values == sorted(set(values))


@given(st.floats(1e-12, 1e12))
def test_a_number_keeps_three_significant_digits(value: float) -> None:
    shown = W.number(value).replace(",", "")
    for suffix, size in (("B", 1e9), ("M", 1e6)):
        if shown.endswith(suffix):
            shown = str(float(shown[:-1]) * size)
    assert float(shown) == pytest.approx(value, rel=5.1e-3)


def test_whole_numbers_are_not_rounded() -> None:
    assert [W.number(x) for x in (7, 64, 999, 123456)] == ["7", "64", "999", "123,456"]
