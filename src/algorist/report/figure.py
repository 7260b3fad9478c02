"""A chart with its title, legend and note; and two accuracies on one scale.

Own SVG, no library and no style attributes (the page's content policy forbids them): colours come from classes.
"""

import json

from algorist.evaluate.statistics import Estimate
from algorist.report.chart import Chart, Line
from algorist.report.draw import Size, fixed, svg
from algorist.report.html import Safe, el


def figure(chart: Chart, size: Size = "narrow") -> Safe:
    """The chart as a figure: title, legend, drawing, note, and a line that reads out the values under the pointer.

    A chart larger than narrow is drawn twice, once for narrow windows, so that its text keeps its size.
    """
    sizes: list[Size] = ["narrow"] if size == "narrow" else [size, "narrow"]
    drawings = [el("div", {"class": f"draw {name if len(sizes) > 1 else ''}"}, svg(chart, name)) for name in sizes]
    legend = [_legend(line, chart.stacked) for line in chart.lines if not line.faint]
    if chart.marks:
        mark = el("path", {"d": "M5 2 L10 10 L0 10 Z", "class": "mark"})
        legend.append(el("li", None, _swatch(mark), chart.marks_name))
    return el(
        "figure",
        {"class": f"chart {size}", "data-chart": _data(chart)},
        el("h3", None, chart.title),
        el("ul", {"class": "legend"}, legend) if len(legend) > 1 else None,
        drawings,
        el(
            "figcaption",
            None,
            el("span", {"class": "about"}, chart.note),
            el("span", {"class": "readout", "aria-live": "polite"}, ""),
        ),
    )


def intervals(label: str, before: Estimate | None, after: Estimate | None) -> Safe:
    """Two accuracies on one scale from 0 to 100 %, each a dot in its interval."""
    width, left, right = 340.0, 48.0, 20.0
    scale = width - left - right
    shapes: list[Safe] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + share * scale
        shapes.append(el("line", {"x1": fixed(x), "x2": fixed(x), "y1": 4, "y2": 54, "class": "grid"}))
        shapes.append(
            el("text", {"x": fixed(x), "y": 68, "class": "tick", "text-anchor": "middle"}, f"{100 * share:.0f}%")
        )
    for y, name, estimate, tone in ((17, "before", before, "quiet"), (41, "after", after, "accent")):
        shapes.append(el("text", {"x": left - 8, "y": y + 4, "class": "tick", "text-anchor": "end"}, name))
        if estimate is not None:
            low, mid, high = (left + v * scale for v in (estimate.low, estimate.value, estimate.high))
            shapes.append(
                el(
                    "rect",
                    {
                        "x": fixed(low),
                        "y": y - 4,
                        "width": fixed(max(high - low, 1)),
                        "height": 8,
                        "rx": 4,
                        "class": f"fill {tone} soft",
                    },
                )
            )
            shapes.append(el("circle", {"cx": fixed(mid), "cy": y, "r": 5, "class": f"fill {tone}"}))
    return el("svg", {"viewBox": "0 0 340 72", "role": "img", "aria-label": label, "class": "intervals"}, shapes)


def _legend(line: Line, stacked: bool) -> Safe:
    if stacked:
        shape = el("rect", {"x": 0, "y": 1, "width": 10, "height": 10, "rx": 2, "class": f"fill {line.tone}"})
    else:
        dash = " dashed" if line.dashed else ""
        shape = el("line", {"x1": 0, "x2": 18, "y1": 6, "y2": 6, "class": f"stroke {line.tone}{dash}"})
    return el("li", None, _swatch(shape, 10 if stacked else 18), line.name)


def _swatch(shape: Safe, width: int = 10) -> Safe:
    return el("svg", {"viewBox": f"0 0 {width} 12", "width": width, "height": 12, "aria-hidden": "true"}, shape)


def _data(chart: Chart) -> str:
    """What the pointer reads out: for each x the value of every curve that has one there."""
    lines = [line for line in chart.lines if not line.faint]
    return json.dumps(
        {
            "x": chart.x_label,
            "percent": chart.percent,
            "lines": [{"name": line.name, "at": [[_short(x), _short(y)] for x, y in line.points]} for line in lines],
        },
        separators=(",", ":"),
    )


def _short(value: float) -> float:
    return float(f"{value:.5g}")
