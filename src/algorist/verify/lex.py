"""Normalised text to tokens, in one pass."""

from __future__ import annotations

import re
from typing import NamedTuple

from algorist.verify.tree import Unreadable

MAX_TOKENS = 1500


class Token(NamedTuple):
    """kind: num, let (run of letters), word (letters from a text font), cmd (\\name), op (one character)."""

    kind: str
    text: str


_NUMBER = (
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,]*\d)"  # 1,450,000.5
    r"|\d{1,3}(?: \d{3})+(?![\d./]| ?\\frac)"  # 1 450 000
    r"|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+(?![\d.])|\d+\.(?=\s*[/*)]|\s*$)|\d+|\.\d+(?:[eE][+-]?\d+)?"
)
_TOKEN = re.compile(rf"({_NUMBER})|(\\[A-Za-z]+)|(\\.)|([A-Za-z]+)|(\S)")
_SPLIT_NUMBER = re.compile(r"\d+")
_TEXT_FONTS = frozenset({r"\text", r"\mathrm", r"\operatorname", r"\mathop"})
_ROMAN_UNIT = re.compile("[msghLltJNWVAKCMTFH]")
_UNITS_ONLY = re.compile(r"(?:[ /{}^.-]|\\cdot|\d|\\(?:mathrm|text) *\{[^{}]*\})*")
_FONT_BODY = re.compile(r" *\*? *\{")


def tokens(text: str, *, grouped: bool = True) -> list[Token]:
    """Tokens of a normalised text.

    Outside brackets a comma between three-digit groups joins them where `grouped` is true; within brackets it
    separates, unless a later group starts with 0.

    >>> [t.text for t in tokens("1,200")], [t.text for t in tokens("(1,200)")]
    (['1200'], ['(', '1', ',', '200', ')'])
    """
    found: list[Token] = []
    depth = position = 0
    while match := _TOKEN.search(text, position):
        position = match.end()
        number, command, escaped, letters, other = match.groups()
        if number is not None:
            found.extend(_number(number, grouped and depth == 0))
        elif command in _TEXT_FONTS and (body := _FONT_BODY.match(text, position)):
            end = matching_brace(text, body.end() - 1)
            inner = text[body.end() : end]
            position = end + 1
            upright = found and (found[-1].kind == "num" or found[-1].text == "}") and _ROMAN_UNIT.fullmatch(inner)
            found.extend(
                [Token("word", inner)] if upright and _UNITS_ONLY.fullmatch(text, position) else _font(command, inner)
            )
        elif command or escaped:
            found.append(Token("cmd", command or escaped))
        elif letters:
            found.append(Token("let", letters))
        else:
            depth += (other in "([") - (other in ")]")
            found.append(Token("op" if other.isascii() else "word", other))
        if len(found) > MAX_TOKENS:
            raise Unreadable("bound")
    return _join_foreign(found)


def _number(number: str, grouped: bool) -> list[Token]:
    if " " in number:
        return [Token("num", number.replace(" ", ""))]
    if "," not in number:
        return [Token("num", number)]
    groups = number.split(",")
    if grouped or any(group.startswith("0") for group in groups[1:]):
        return [Token("num", "".join(groups))]
    out = [Token("num", groups[0])]
    for group in groups[1:]:
        out += [Token("op", ","), Token("num", group)]
    return out


def _font(command: str, inner: str) -> list[Token]:
    """Contents of \\text{...} and \\mathrm{...}: a lone letter of \\mathrm is a symbol, other letters are words."""
    stripped = inner.strip()
    if inner in ("i", "e"):  # \text{i}: a constant in an upright font
        return [Token("let", inner)]
    if command != r"\text" and len(stripped) == 1 and stripped.isalpha():
        return [Token("let" if inner == stripped else "word", stripped)]
    if command != r"\text" and stripped.isalpha() and stripped.isascii():
        kind = "let" if stripped in FUNCTION_WORDS else "word"
        return [Token(kind, stripped)]
    return [Token("word", t.text) if t.kind == "let" else t for t in tokens(inner)]


def _join_foreign(found: list[Token]) -> list[Token]:
    """Neighbouring characters of other scripts are one word."""
    out: list[Token] = []
    for token in found:
        if out and token.kind == "word" == out[-1].kind and not token.text.isascii() and not out[-1].text.isascii():
            out[-1] = Token("word", out[-1].text + token.text)
        else:
            out.append(token)
    return out


def matching_brace(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`; escaped braces do not count.

    Raises Unreadable('truncated') where there is none.
    """
    depth, position = 0, start
    while position < len(text):
        ch = text[position]
        if ch == "\\":
            position += 1
        elif ch == "{":
            depth += 1
        elif ch == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise Unreadable("truncated")


FUNCTION_WORDS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc", "cosec": "csc", "ctg": "cot",
    "tg": "tan", "arcsin": "arcsin", "arccos": "arccos", "arctan": "arctan", "asin": "arcsin", "acos": "arccos",
    "atan": "arctan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "coth": "coth", "arcsinh": "arcsinh",
    "sh": "sinh",
    "arccosh": "arccosh", "arctanh": "arctanh", "ln": "ln", "log": "log10", "lg": "log10", "exp": "exp", "sqrt": "sqrt",
    "abs": "abs", "floor": "floor", "ceil": "ceil", "Re": "re", "Im": "im", "arctg": "arctan", "sgn": "app:sgn",
    "erf": "app:erf",
    "Si": "app:Si", "arccot": "app:arccot", "arcsec": "app:arcsec", "arccsc": "app:arccsc", "adj": "app:adj",
    "tr": "app:tr",
    "zeta": "app:zeta", "Arg": "app:arg", "arg": "app:arg", "rank": "app:rank", "Li": "app:Li", "Ei": "app:Ei",
    "Var": "app:Var",
}  # fmt: skip
"""Function names, plain or as a command, and the name each has in the tree; app: marks those never evaluated."""
FUNCTION_WORDS.pop("sh")

OPERATORS = frozenset({
    "int", "iint", "iiint", "oint", "sum", "prod", "lim", "limsup", "liminf", "det", "gcd", "lcm", "max", "min",
    "sup", "inf",
    "mod", "bmod", "pmod", "GCD", "LCM", "HCF", "integrate", "Sum", "Integral", "diff", "limit", "solve", "argmax",
    "argmin",
})  # fmt: skip
"""Operations that restate a problem: never evaluated, an answer may contain one only where the gold does."""
