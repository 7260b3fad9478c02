"""Numerals: decimals with exponents, repeating decimals, names of number bases."""

from __future__ import annotations

from fractions import Fraction

from algorist.verify import tree
from algorist.verify.tree import Unreadable


def number(text: str) -> Fraction:
    """Exact value of a numeral, e-notation included; refused beyond the bounds."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > 2000 or len(exponent) > 6 or abs(int(exponent or 0)) > tree.MAX_DIGITS:
        raise Unreadable("bound")
    return Fraction(mantissa.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)


_BASE_WORDS = dict(zip(["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
    range(2, 13), strict=True)) | {
    "sixteen": 16, "twenty": 20, "hexadecimal": 16, "binary": 2, "octal": 8, "decimal": 10,
}  # fmt: skip


def base(text: str) -> str:
    return str(_BASE_WORDS.get(text.lower(), text))


def repeating(head: str, period: str) -> Fraction:
    """0.1 and 6 repeating is 1/6.

    >>> repeating("0.1", "6")
    Fraction(1, 6)
    """
    if not period.isdigit() or len(head) + len(period) > 100:
        raise Unreadable("grammar")
    places = len(head.partition(".")[2])
    return Fraction(head.rstrip(".")) + Fraction(int(period), (10 ** len(period) - 1) * 10**places)
