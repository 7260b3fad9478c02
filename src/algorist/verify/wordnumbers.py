"""Small numbers in words, English and Chinese: eight, twenty-one, three quarters, 十二, 二分之一."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {word: value for value, word in enumerate(
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
)}  # fmt: skip
_TENS = {
    word: 10 * value
    for value, word in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2)
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4,
    "fifth": 5,
          "fifths": 5, "sixth": 6, "sixths": 6, "eighth": 8, "eighths": 8, "tenth": 10, "tenths": 10}  # fmt: skip
_FONT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_ENGLISH = re.compile(r"[A-Za-z][A-Za-z -]*")

_DIGITS = {ch: value for value, ch in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_CHINESE_SCALES = {"十": 10, "百": 100, "千": 1000}
_CHINESE = re.compile("负?[零一二三四五六七八九两〇十百千万亿又分之]+")


def value(text: str) -> Fraction | None:
    """The number that a text spells out, or None.

    >>> value("twenty-one"), value("three quarters"), value("二分之一"), value("east")
    (Fraction(21, 1), Fraction(3, 4), Fraction(1, 2), None)
    """
    text = _FONT.sub(r"\1", text).strip()
    if len(text) > 80 or not text:
        return None
    if not text.isascii():
        return _chinese(text) if _CHINESE.fullmatch(text) else None
    return _english(text.lower()) if _ENGLISH.fullmatch(text) else None


def _english(text: str) -> Fraction | None:
    words = [word for word in text.replace("-", " ").split() if word != "and"]
    if not words:
        return None
    sign = 1
    if words[0] in ("minus", "negative"):
        sign, words = -1, words[1:]
    if words and words[-1] in _PARTS:
        top = 1 if words[:-1] in (["a"], ["one"], []) else _natural(words[:-1])
        return None if top is None or len(words) == 1 else Fraction(sign * top, _PARTS[words[-1]])
    whole = _natural(words)
    return None if whole is None else Fraction(sign * whole)


def _natural(words: list[str]) -> int | None:
    total = current = 0
    last = ""
    for word in words:
        if word in _UNITS:
            if last in _UNITS or (last in _TENS and not 0 < _UNITS[word] < 10):
                return None
            current += _UNITS[word]
        elif word in _TENS:
            if last in _UNITS or last in _TENS:
                return None
            current += _TENS[word]
        elif word == "hundred" and 0 < current < 10:
            current *= 100
        elif word in _SCALES and current:
            total, current = total + current * _SCALES[word], 0
        else:
            return None
        last = word
    return total + current if words else None


def _chinese(text: str) -> Fraction | None:
    sign = -1 if text.startswith("负") else 1
    text = text.removeprefix("负")
    whole_text, mark, rest = text.partition("又")
    if not mark:
        whole_text, rest = "", text
    bottom_text, mark, top_text = rest.partition("分之")
    if mark:
        top, bottom, whole = (
            _chinese_natural(top_text),
            _chinese_natural(bottom_text),
            _chinese_natural(whole_text or "零"),
        )
        if top is None or whole is None or not bottom:
            return None
        return sign * (whole + Fraction(top, bottom))
    natural = _chinese_natural(text)
    return None if natural is None else Fraction(sign * natural)


def _chinese_natural(text: str) -> int | None:
    total = section = digit = 0
    if not text or (len(text) > 1 and all(ch in _DIGITS for ch in text)):
        return None
    for ch in text:
        if ch in _DIGITS:
            digit = _DIGITS[ch]
        elif ch in _CHINESE_SCALES:
            section, digit = section + (digit or 1) * _CHINESE_SCALES[ch], 0
        elif ch in "万亿":
            total, section, digit = (total + section + digit) * (10**4 if ch == "万" else 10**8), 0, 0
        else:
            return None
    return total + section + digit
