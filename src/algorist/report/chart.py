"""What a chart says: curves or stacked shares, axes with units, how to read it. Drawn by `figure`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Points = Sequence[tuple[float, float]]
_MOST_POINTS: Final = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve.

    >>> Line(name="mean", tone="accent", points=[(0, 1)]).dashed
    False
    """

    name: str
    """What the legend says."""
    tone: str
    """Colour by role: accent, other, good, quiet."""
    points: Points
    """(x, y), x rising."""
    faint: bool = False
    """Raw values behind their smoothed line."""
    dashed: bool = False
    """Second reading of the same thing."""
    dots: bool = False
    """Few points that are each worth seeing."""
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high) of an interval around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with everything a reader needs beside it.

    >>> Chart(title="Loss", x_label="batch", y_label="loss", lines=[]).stacked
    False
    """

    title: str
    """A few words."""
    x_label: str
    """What the horizontal axis counts."""
    y_label: str
    """Quantity and unit of the vertical axis."""
    lines: Sequence[Line]
    """Curves; or, stacked, the shares from bottom to top, all with the same x."""
    note: str = ""
    """How to read it, one sentence."""
    stacked: bool = False
    """Bars on top of each other instead of curves."""
    wide: bool = False
    """Takes two columns where there is room."""
    counts: bool = False
    """y values are whole numbers."""
    percent: bool = False
    """y values are shares; the axis shows percent."""
    log2_x: bool = False
    """x doubles from tick to tick."""
    from_zero: bool = True
    """The axis starts at 0 where no value is negative."""
    top: float | None = None
    """Upper end of the axis; None: from the data."""
    marks: Sequence[float] = ()
    """x of things worth a mark on the axis."""
    marks_name: str = ""
    """What the marks are."""


def thin(points: Points, most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most `most` points, each the mean of neighbours; long runs stay readable and pages small.

    >>> thin([(0, 1), (1, 3), (2, 5), (3, 7)], most=2)
    [(0.5, 2.0), (2.5, 6.0)]
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / most)
    blocks = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in b) / len(b), sum(y for _, y in b) / len(b)) for b in blocks]


def smooth(points: Points, window: int) -> list[tuple[float, float]]:
    """Centred moving mean over `window` points, shorter at both ends.

    >>> smooth([(0, 0), (1, 3), (2, 6)], 3)
    [(0, 1.5), (1, 3.0), (2, 4.5)]
    """
    half = window // 2
    ys = [y for _, y in points]
    return [
        (x, sum(part) / len(part)) for i, (x, _) in enumerate(points) if (part := ys[max(0, i - half) : i + half + 1])
    ]
