"""Forms that only a whole text can have: clock times, numerals with a base, bracketed periods, set phrases; and which
`e` is Euler's number.
"""

from __future__ import annotations

import re

from algorist.verify import numerals, tree
from algorist.verify.normalise import key
from algorist.verify.tree import Node, num

_TEXT = re.compile(r"\\(?:text|mathrm) *\{([^{}]*)\}")
_TIME = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])\.?\s*m\.?", re.IGNORECASE)
_HOUR = re.compile(r"(\d{1,2})\s+([ap])\.?\s*m\.?", re.IGNORECASE)
_PERIOD = re.compile(r"([-+]?)(\d*\.\d*)\((\d+)\)")
_BASED = re.compile(
    r"\(?([0-9A-F]+)\)?\s*(?:_ *\{? *\(? *([0-9]+) *\)? *\}?|\(?(?:in )?base[ -]?(\w+)\)?)", re.IGNORECASE
)
_REALS = frozenset({
    "allrealnumbers", "allreals", "allrealnumber", "therealnumbers", "anyrealnumber", "everyrealnumber",
    "realnumbers", "allrealx", "thesetofallrealnumbers", "thesetofrealnumbers", "全体实数", "所有实数", "任意实数",
    "实数集", "一切实数",
})  # fmt: skip
_NOTHING = frozenset({
    "nosolution", "nosolutions", "norealsolution", "norealsolutions", "therearenosolutions",
    "thereisnosolution", "emptyset", "theemptyset", "therearenorealsolutions", "thereisnorealsolution", "无解",
    "空集", "无实数解",
})  # fmt: skip


def whole(text: str) -> Node | None:
    """The node of a text that is one of these forms as a whole, else None.

    >>> whole("4:45pm").name, whole("0.1(6)").number, whole("3af_{16}").name, whole("43 base 5").name
    ('4:45 pm', Fraction(1, 6), '3AF_16', '43_5')
    >>> whole("x + 1") is None
    True
    """
    if len(text) > 200:
        return None
    plain = " ".join(_TEXT.sub(r" \1 ", text).split())
    if time := _TIME.fullmatch(plain):
        return Node("time", (), f"{int(time[1])}:{time[2]} {time[3].lower()}m")
    if hour := _HOUR.fullmatch(plain):
        return Node("time", (), f"{int(hour[1])}:00 {hour[2].lower()}m")
    if period := _PERIOD.fullmatch(text):
        value = numerals.repeating(period[2] if period[2][:1] != "." else "0" + period[2], period[3])
        return num(-value if period[1] == "-" else value)
    if (based := _BASED.fullmatch(plain)) and (node := _based(based)) is not None:
        return node
    phrase = key(plain)
    if phrase in _REALS:
        return tree.sym(r"\mathbb{R}")
    return Node("set", ()) if phrase in _NOTHING else None


def _based(match: re.Match[str]) -> Node | None:
    """52_8, (52)_8, 52 base 8, 3AF_{16}: digits that the base has; None for a symbol with a subscript."""
    digits, base = match[1].upper(), match[2] or numerals.base(match[3] or "")
    if not base.isdigit() or (not digits[:1].isdigit() and match[2] and base != "16"):
        return None
    known = "0123456789ABCDEF"[: max(int(base), 10)] if int(base) <= 16 else ""
    if not known or not set(digits) <= set(known) or (not any(ch.isdigit() for ch in digits) and len(digits) < 3):
        return None
    return Node("base", (), f"{digits}_{base}")


_E_NOTATION = re.compile(r"(?<![A-Za-z\\])(\d+(?:\.\d+)?)e([+-]?)(\d+)")
_LONE_E = re.compile(r"(?<![A-Za-z\\\d])e(?![A-Za-z])|(?<=\d)e(?![A-Za-z\d+-])|\\mathrm *\{ *e *\}")


def has_euler(text: str) -> bool:
    """True where an `e` of the text can only be Euler's number.

    >>> has_euler(r"\\frac{2e-1}{e}"), has_euler("2e-1")
    (True, False)
    """
    return _LONE_E.search(text) is not None


def with_euler(text: str) -> str:
    """The text with `2e-1` spelt as the difference 2 e - 1.

    >>> with_euler("2e-1"), with_euler("2e3")
    ('2 e -1', '2e3')
    """
    return _E_NOTATION.sub(lambda m: f"{m[1]} e {m[2]}{m[3]}" if m[2] else m[0], text)


def clock(hours_minutes: str, time: str) -> bool:
    """Whether 4:45 or 16:45 is the time 4:45 pm; without a mark of the half day either half will do.

    >>> clock("4:45", "4:45 pm"), clock("16:45", "4:45 pm"), clock("16:45", "4:45 am")
    (True, True, False)
    """
    hours, _, minutes = hours_minutes.partition(":")
    stated, _, half = time.partition(" ")
    hour, _, minute = stated.partition(":")
    if not hours.isdigit() or minutes.zfill(2) != minute:
        return False
    return int(hours) == int(hour) or (half == "pm" and int(hours) == int(hour) + 12)
