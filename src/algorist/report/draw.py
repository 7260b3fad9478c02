"""The drawing of a chart: scales, axes, curves, bands and bars as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from algorist.report.chart import Chart, Line
from algorist.report.html import Safe, el
from algorist.report.words import number, ticks

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 14.0, 22.0, 38.0
_MOST_DOTS: Final = 50
Size = Literal["narrow", "half", "wide"]
"""A column of three, of two, or two columns of three."""
_SIZES: Final = {"narrow": (380.0, 236.0), "half": (580.0, 250.0), "wide": (780.0, 244.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plane:
    """From values to places in the drawing."""

    width: float
    height: float
    x_low: float
    x_high: float
    y_ticks: Sequence[float]
    log2_x: bool

    @property
    def right(self) -> float:
        return self.width - _RIGHT

    @property
    def bottom(self) -> float:
        return self.height - _BOTTOM

    def x(self, value: float) -> float:
        low, high, at = self.x_low, self.x_high, value
        if self.log2_x:
            low, high, at = math.log2(low), math.log2(high), math.log2(at)
        return _LEFT + (self.right - _LEFT) * (at - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return self.bottom - (self.bottom - _TOP) * (min(max(value, low), high) - low) / (high - low)


def svg(chart: Chart, size: Size) -> Safe:
    """The drawing in one of three sizes; at least one curve must have a point."""
    width, height = _SIZES[size]
    x_low, x_high = _x_range(chart)
    plane = _Plane(width=width, height=height, x_low=x_low, x_high=x_high, y_ticks=_y_ticks(chart), log2_x=chart.log2_x)
    shapes = [*_y_axis(chart, plane), *_x_axis(chart, plane)]
    if chart.stacked:
        shapes += _bars(chart, plane)
    else:
        shapes += [_band(line, plane) for line in chart.lines if line.band]
        shapes += [shape for line in chart.lines for shape in _curve(line, plane)]
    for value in chart.marks:
        at, base = plane.x(value), plane.bottom
        d = f"M{fixed(at)} {fixed(base - 8)} L{fixed(at + 4)} {fixed(base)} L{fixed(at - 4)} {fixed(base)} Z"
        shapes.append(el("path", {"d": d, "class": "mark"}))
    shapes.append(el("line", {"class": "cross", "x1": 0, "x2": 0, "y1": fixed(_TOP), "y2": fixed(plane.bottom)}))
    return el(
        "svg",
        {
            "viewBox": f"0 0 {width:.0f} {height:.0f}",
            "role": "img",
            "tabindex": 0,
            "aria-label": f"{chart.title}: {chart.y_label} against {chart.x_label}. {_in_words(chart)}",
            "data-plot": f"{_LEFT} {plane.right} {x_low} {x_high} {int(chart.log2_x)}",
        },
        shapes,
    )


def fixed(value: float) -> str:
    """A coordinate with one decimal, without a trailing .0, so that pages stay small and equal.

    >>> fixed(3.0), fixed(3.14)
    ('3', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")


def _x_range(chart: Chart) -> tuple[float, float]:
    xs = [x for line in chart.lines for x, _ in line.points]
    low, high = min(xs), max(xs)
    if chart.stacked:
        half = _bar_step(chart) / 2
        return low - half, high + half
    if low == high:
        return (low, low * 2) if chart.log2_x else (low - 0.5, high + 0.5)
    return (0.0 if 0 < low < 0.03 * high and not chart.log2_x else low), high


def _y_ticks(chart: Chart) -> list[float]:
    if chart.stacked:
        ys = [sum(values) for values in zip(*([y for _, y in line.points] for line in chart.lines), strict=True)]
    else:
        ys = [y for line in chart.lines for _, y in line.points]
        ys += [v for line in chart.lines for _, low, high in line.band for v in (low, high)]
    low, high = min(ys), max(ys)
    if chart.from_zero and low >= 0:
        low = 0.0
    values = ticks(low, high if chart.top is None else chart.top)
    whole = [v for v in values if v.is_integer()]
    return whole if chart.counts and len(whole) > 1 else values


def _y_axis(chart: Chart, plane: _Plane) -> list[Safe]:
    shapes = [el("text", {"x": 2, "y": 11, "class": "axis"}, chart.y_label)]
    for value in plane.y_ticks:
        y = plane.y(value)
        grid = {"x1": fixed(_LEFT), "x2": fixed(plane.right), "y1": fixed(y), "y2": fixed(y)}
        shapes.append(el("line", grid | {"class": "grid base" if value == 0 else "grid"}))
        text = f"{100 * value:g}%" if chart.percent else number(value)
        shapes.append(
            el("text", {"x": fixed(_LEFT - 6), "y": fixed(y + 4), "class": "tick", "text-anchor": "end"}, text)
        )
    return shapes


def _x_axis(chart: Chart, plane: _Plane) -> list[Safe]:
    if chart.log2_x:
        values = sorted({x for line in chart.lines for x, _ in line.points})
    else:
        about = 8 if plane.width > 500 else 5
        values = [v for v in ticks(plane.x_low, plane.x_high, about) if plane.x_low <= v <= plane.x_high]
        values = [v for v in values if v.is_integer()] or values  # batches and steps are counted in whole numbers
    shapes = [
        el(
            "text",
            {"x": fixed(plane.x(v)), "y": fixed(plane.bottom + 16), "class": "tick", "text-anchor": "middle"},
            number(v),
        )
        for v in values
    ]
    place = {"x": fixed(plane.right), "y": fixed(plane.height - 5), "class": "axis", "text-anchor": "end"}
    return [*shapes, el("text", place, chart.x_label)]


def _curve(line: Line, plane: _Plane) -> list[Safe]:
    places = [(plane.x(x), plane.y(y)) for x, y in line.points]
    classes = f"stroke {line.tone}{' faint' if line.faint else ''}{' dashed' if line.dashed else ''}"
    d = " ".join(f"{'L' if i else 'M'}{fixed(x)} {fixed(y)}" for i, (x, y) in enumerate(places))
    shapes = [el("path", {"d": d, "class": classes})] if len(places) > 1 else []
    if (line.dots and len(places) <= _MOST_DOTS) or len(places) == 1:
        dots = [{"cx": fixed(x), "cy": fixed(y), "r": 3.5, "class": f"fill {line.tone}"} for x, y in places]
        shapes += [el("circle", dot) for dot in dots]
    return shapes


def _band(line: Line, plane: _Plane) -> Safe:
    upper = [(plane.x(x), plane.y(high)) for x, _, high in line.band]
    lower = [(plane.x(x), plane.y(low)) for x, low, _ in reversed(line.band)]
    corners = " ".join(f"{fixed(x)},{fixed(y)}" for x, y in [*upper, *lower])
    return el("polygon", {"points": corners, "class": f"fill {line.tone} soft"})


def _bars(chart: Chart, plane: _Plane) -> list[Safe]:
    step = plane.x(plane.x_low + _bar_step(chart)) - plane.x(plane.x_low)
    width = max(0.6, step - (1.2 if step > 4 else 0))
    shapes: list[Safe] = []
    below = [0.0] * len(chart.lines[0].points)
    for line in chart.lines:
        for i, (x, y) in enumerate(line.points):
            if y <= 0:
                continue
            low, high = plane.y(below[i]), plane.y(below[i] + y)
            place = {"x": fixed(plane.x(x) - width / 2), "y": fixed(high), "width": fixed(width)}
            shapes.append(el("rect", place | {"height": fixed(low - high), "class": f"fill {line.tone}"}))
            below[i] += y
    return shapes


def _bar_step(chart: Chart) -> float:
    xs = [x for x, _ in chart.lines[0].points]
    return (xs[-1] - xs[0]) / (len(xs) - 1) if len(xs) > 1 else 1.0


def _in_words(chart: Chart) -> str:
    shown = [line for line in chart.lines if line.points and not line.faint]
    ends = [f"{line.name} from {number(line.points[0][1])} to {number(line.points[-1][1])}" for line in shown]
    return "; ".join(ends) + "."
