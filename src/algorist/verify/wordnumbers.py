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
_CHINESE = re.compile(r"[负-]?[零一二三四五六七八九两〇十百千万亿又分之点\d./]+")


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
    sign = -1 if text[0] in "负-" else 1
    text = text.lstrip("负-")
    if text.startswith("百分之"):
        share = _chinese_decimal(text.removeprefix("百分之"))
        return None if share is None else sign * share / 100
    whole_text, mark, rest = text.partition("又")
    if not mark:
        whole_text, rest = "", text
    bottom_text, mark, top_text = rest.partition("分之")
    if not mark and "又" in text:
        top_text, mark, bottom_text = rest.partition("/")
    if mark:
        top, bottom, whole = (
            _chinese_natural(top_text),
            _chinese_natural(bottom_text),
            _chinese_natural(whole_text or "零"),
        )
        if top is None or whole is None or not bottom:
            return None
        return sign * (whole + Fraction(top, bottom))
    number = _chinese_decimal(text)
    return None if number is None else sign * number


def _chinese_decimal(text: str) -> Fraction | None:
    """七点五, 1.5千, 11.42万, 五万二千."""
    whole_text, mark, places = text.partition("点")
    if mark:
        whole = _chinese_natural(whole_text)
        if whole is None or not places or any(ch not in _DIGITS for ch in places):
            return None
        return whole + Fraction(int("".join(str(_DIGITS[ch]) for ch in places)), 10 ** len(places))
    if scaled := _SCALED.fullmatch(text):
        return Fraction(scaled[1]) * {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}[scaled[2]]
    natural = _chinese_natural(text)
    return None if natural is None else Fraction(natural)


_SCALED = re.compile(r"(\d{1,12}\.\d{1,12})([十百千万亿])")


def _chinese_natural(text: str) -> int | None:
    total = section = 0
    digit, last, open_scale = -1, "", False
    if not text or (len(text) > 1 and all(ch in _DIGITS for ch in text)):
        return None
    for part in re.findall(r"\d+|.", text):
        if part.isdigit() and part.isascii():
            if digit >= 0 or len(part) > 18:
                return None
            digit, open_scale = int(part), last in ("百", "千", "万", "亿")
        elif part in _DIGITS:
            if digit > 0:
                return None
            digit, open_scale = _DIGITS[part], bool(last) and last in "百千万亿" and part not in "零〇"
        elif part in _CHINESE_SCALES:
            section, digit = section + (1 if digit < 0 else digit) * _CHINESE_SCALES[part], -1
        elif part in "万亿":
            total, section, digit = (total + section + max(digit, 0)) * (10**4 if part == "万" else 10**8), 0, -1
        else:
            return None
        last = part
    if open_scale and digit > 0 and last not in "十百千万亿":  # 三百二 is 320 in speech, 302 by its signs
        return None
    return total + section + max(digit, 0)
