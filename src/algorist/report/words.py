"""Numbers and times as people read them."""

import math
from collections.abc import Mapping
from typing import Any

from algorist.evaluate.statistics import Estimate


def number(value: float) -> str:
    """A figure with three significant digits, as short as it can be.

    >>> [number(x) for x in (0, 0.12345, 1e-5, 12345, 1234567, -0.5, 64)]
    ['0', '0.123', '1e-5', '12,345', '1.23M', '-0.5', '64']
    """
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e6:
        unit, name = (1e9, "B") if size >= 1e9 else (1e6, "M")
        return f"{value / unit:.3g}{name}"
    if size >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    if size < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.3g}"


def percent(value: float) -> str:
    """A share in percent with one decimal.

    >>> percent(0.125), percent(1.0)
    ('12.5%', '100.0%')
    """
    return f"{100 * value:.1f}%"


def points(estimate: Estimate) -> str:
    """A difference of shares in percentage points with its interval.

    >>> points(Estimate(value=0.5, low=0.42, high=0.581))
    '+50.0 points (42.0 to 58.1)'
    """
    return f"{100 * estimate.value:+.1f} points ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def duration(seconds: float) -> str:
    """A duration in the two largest units.

    >>> duration(0.25), duration(61.4), duration(3725), duration(200000)
    ('0.2 s', '1 min 1 s', '1 h 2 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // small} {small_name}"
    raise AssertionError("a duration of a minute or more has a unit")


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> plural(1, "batch", "batches"), plural(4, "update")
    ('1 batch', '4 updates')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round values that cover [low, high], some `about` steps apart.

    >>> ticks(0, 0.93), ticks(3, 17)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 5.0, 10.0, 15.0, 20.0])
    """
    size = max(abs(low), abs(high))
    if size < 1e-15:
        low, high = 0.0, 1.0
    elif high - low <= 1e-6 * size:  # one value, as far as a label can tell
        low, high = (low + high) / 2 - size / 2, (low + high) / 2 + size / 2
    raw = (high - low) / about
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(f * magnitude for f in (1, 2, 2.5, 5, 10) if f * magnitude >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def yaml_like(value: Any, indent: int = 0) -> str:
    """Nested settings as indented lines; for reading, not for parsing.

    >>> print(yaml_like({"rl": {"updates": 60, "ks": [1, 4]}, "sft": None}))
    rl:
      updates: 60
      ks: [1, 4]
    sft: null
    >>> print(yaml_like([{"kind": "jsonl", "path": "a"}, 7]))
    - kind: jsonl
      path: a
    - 7
    """
    pad = "  " * indent
    if isinstance(value, Mapping):
        return "\n".join(
            f"{pad}{key}:\n{yaml_like(item, indent + 1)}" if _nested(item) else f"{pad}{key}: {scalar(item)}"
            for key, item in value.items()
        )
    if isinstance(value, list):
        items = (yaml_like(item, indent + 1) for item in value)
        return "\n".join(f"{pad}- {item.removeprefix(pad + '  ')}" for item in items)
    return f"{pad}{scalar(value)}"


def scalar(value: Any) -> str:
    """A leaf of settings in YAML's spelling.

    >>> scalar(True), scalar(None), scalar([1, "a"]), scalar(1e-6)
    ('true', 'null', '[1, a]', '1e-06')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return "[" + ", ".join(scalar(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {scalar(item)}" for key, item in value.items()) + "}"
    return str(value)


def _nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value)
