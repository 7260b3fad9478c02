"""The gates of a run as its newest receipt states them: what was found, what it was held against, and the verdict."""

from collections.abc import Mapping
from typing import Any, Final

from algorist.report.html import Safe, el, join
from algorist.report.verdict import Judgement

_TONES: Final = {"passed": "good", "failed": "bad", "missing": "bad", "reported": "bad"}
_HEADS: Final = ("gate", "verdict", "found", "held against", "why")


def section(found: Judgement) -> Safe | None:
    """A table with one row a gate; None where no receipt could be read."""
    if not found.gates:
        return None
    head = el("thead", None, el("tr", None, [el("th", {"scope": "col"}, h) for h in _HEADS]))
    table = el("table", None, head, el("tbody", None, [_row(gate) for gate in found.gates]))
    words = "As the receipt states them; algorist audit checks them. The gates are explained in docs/qualification.md."
    return join(
        [
            el("div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "Gates"}, table),
            el("p", {"class": "quiet"}, words),
        ]
    )


def _row(gate: Mapping[str, Any]) -> Safe:
    verdict = str(gate.get("verdict"))
    badge = el("strong", {"class": f"badge {_TONES.get(verdict, 'quiet')}"}, verdict)
    value = gate.get("value")
    found = "" if value is None else f"{_number(value)} {gate.get('unit') or ''}".strip()
    cells = [str(gate.get("name")), badge, found, _number(gate.get("threshold")), str(gate.get("cause") or "")]
    return el("tr", None, [el("td", {"class": "name"}, cell) for cell in cells])


def _number(value: object) -> str:
    """A value in short; '' where there is none.

    >>> _number(0.0312456), _number(None)
    ('0.03125', '')
    """
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
