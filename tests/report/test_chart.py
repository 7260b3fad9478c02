"""Charts say what the numbers say, for every shape of data."""

import json
import re
import xml.etree.ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.report.chart import Chart, Line, smooth, thin
from algorist.report.draw import svg
from algorist.report.figure import figure

points = st.lists(
    st.tuples(st.integers(0, 500), st.floats(-1e6, 1e6)), min_size=1, max_size=30, unique_by=lambda p: p[0]
)


@settings(max_examples=60, deadline=None)
@given(points, st.booleans(), st.sampled_from(["narrow", "half", "wide"]))
def test_every_curve_lies_inside_its_drawing(raw: list[tuple[int, float]], from_zero: bool, size) -> None:
    line = Line(name="<a>", tone="accent", points=sorted((float(x), y) for x, y in raw), dots=True)
    chart = Chart(title="t & t", x_label="batch", y_label="y", lines=[line], from_zero=from_zero)
    root = ET.fromstring(svg(chart, size))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for circle in root.iter("circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_stacked_bars_have_heights_in_proportion_to_their_values(rows: list[tuple[int, int, int]]) -> None:
    lines = [
        Line(name=n, tone=t, points=[(float(x), float(row[i])) for x, row in enumerate(rows)])
        for i, (n, t) in enumerate((("a", "good"), ("b", "accent"), ("c", "quiet")))
    ]
    root = ET.fromstring(
        svg(Chart(title="t", x_label="x", y_label="y", lines=lines, stacked=True, counts=True), "narrow")
    )
    heights = [float(r.attrib["height"]) for r in root.iter("rect")]
    values = [v for i in range(3) for v in [row[i] for row in rows] if v]
    assert len(heights) == len(values)
    if values:
        scale = max(heights) / max(values)
        assert all(abs(h - scale * v) < 0.21 for h, v in zip(heights, values, strict=True))


def test_pointer_data_holds_every_curve_but_the_faint_one() -> None:
    lines = [
        Line(name="raw", tone="accent", points=[(0, 1)], faint=True),
        Line(name="mean", tone="accent", points=[(0, 0.123456)]),
    ]
    text = figure(Chart(title="t", x_label="batch", y_label="y", lines=lines), "wide")
    match = re.search(r'data-chart="([^"]*)"', text)
    assert match
    data = json.loads(match[1].replace("&quot;", '"'))
    assert data["lines"] == [{"name": "mean", "at": [[0, 0.12346]]}]
    assert text.count('<svg viewBox="0 0 780') == text.count('<svg viewBox="0 0 380') == 1


def test_long_runs_are_drawn_as_means_of_neighbours() -> None:
    many = [(float(i), float(i % 2)) for i in range(10_000)]
    shown = thin(many)
    assert len(shown) <= 240
    assert all(abs(y - 0.5) < 0.02 for _, y in shown)


def test_smoothing_a_constant_changes_nothing() -> None:
    assert smooth([(float(i), 2.0) for i in range(9)], 5) == [(float(i), 2.0) for i in range(9)]
