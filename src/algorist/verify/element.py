"""One value with what belongs to it: a money sign before, a unit after, words that lead to it; or words alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction

from algorist.verify import lex, names, tree, units
from algorist.verify.lex import Token
from algorist.verify.normalise import key
from algorist.verify.parse import Inner, Parser, matching
from algorist.verify.tree import Node, Unreadable, num

JOINING = frozenset({",", r"\comma", "or", "and", "或", "或者", "和", "以及", "及", "与", r"\&"})
"""What separates the members of a list."""

_MONEY = {r"\usd": "usd", r"\pounds": "pounds_sterling", r"\euro": "euro", r"\yen": "yuan"}
_MULTIPLES = {
    "万": 10**4,
    "亿": 10**8,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "hundred": 100,
}
_HEDGES = frozenset(
    [
        "not",
        "no",
        "never",
        "least",
        "most",
        "than",
        "about",
        "approximately",
        "between",
        "either",
        "except",
        "without",
        "if",
        "when",
        "unless",
        "nearly",
        "almost",
        "roughly",
        "possibly",
        "maybe",
        "perhaps",
        "or",
        "over",
        "under",
        "more",
        "less",
        "half",
        "twice",
        "times",
        "plus",
        "minus",
        "divided",
        "squared",
        "cubed",
        "negative",
        "wrong",
        "incorrect",
        "is",
        "for",
    ]
)
_UNIVERSAL = (["for", "all"], ["for", "every"], ["for", "any"], ["for", "each"])
_ZH_HEDGE = re.compile("到|至|以上|以下|左右|不|超过|或者|错")
_LEADS = frozenset(
    [
        "共",
        "一共",
        "总共",
        "为",
        "是",
        "等于",
        "有",
        "需要",
        "is",
        "are",
        "equals",
        "earns",
        "total",
        "answer",
        "costs",
        "pays",
        "gets",
        "has",
        "have",
        "makes",
        "be",
        "was",
        "cost",
    ]
)
_PLAIN_WORDS = frozenset({"yes", "no", "odd", "even", "true", "none", "nan", "dne", "any", "all", "tie"})


def element(tokens: Sequence[Token], inner: Inner, depth: int) -> Node:
    """One value with what belongs to it: money sign before, unit after, words that lead to it."""
    tokens = _point(_lead_in(_bare_unit(list(tokens))))
    money = ""
    if len(tokens) > 1 and tokens[-1].text in _MONEY:
        tokens = [tokens[-1], *tokens[:-1]]
    if tokens and tokens[0].text in _MONEY:
        money, tokens = _MONEY[tokens[0].text], tokens[1:]
    elif len(tokens) > 1 and tokens[0].text in ("-", "+") and tokens[1].text in _MONEY:
        money, tokens = _MONEY[tokens[1].text], [tokens[0], *tokens[2:]]
    if not tokens:
        raise Unreadable("grammar")
    if len(tokens) == 1 and tokens[0].text in (r"\emptyset",):
        return Node("set", ())
    if all(t.kind == "word" for t in tokens) or (len(tokens) == 1 and is_words(tokens)):
        return Node("text", (), key(" ".join(t.text for t in tokens)))
    if len(tokens) > 3 and tokens[0].text == "-" and tokens[1].kind == "num" and tokens[2].text == "_":
        positive = element(tokens[1:], inner, depth + 1)  # -221_3: the sign belongs to the digits
        return Node("base", (), f"-{positive.name}") if positive.op == "base" else tree.neg(positive)
    parser = Parser(tokens, inner, depth)
    value = parser.expression()
    tail = parser.tokens[parser.position :]
    value = names.expand_signs(value)
    if money and not tail:
        return _with_unit(value, money)
    return _with_tail(value, tail, money) if tail else value


def _bare_unit(tokens: list[Token]) -> list[Token]:
    """24 (cm) and 24(\u5143) without the brackets around the unit."""
    if len(tokens) < 4 or tokens[-1].text != ")":
        return tokens
    start = next((i for i in range(len(tokens) - 1, 0, -1) if tokens[i].text == "("), 0)
    inside = tokens[start + 1 : -1]
    if not start or not inside or not all(_names_unit(token) for token in inside):
        return tokens
    return [*tokens[:start], *inside]


def _names_unit(token: Token) -> bool:
    if token.kind == "word":
        return not token.text.isascii() or len(token.text) > 1
    return token.kind == "let" and (token.text in units.WORDS or names.is_noun(token.text))


def _point(tokens: list[Token]) -> list[Token]:
    """P(5, 7), a point with its name, is (5, 7)."""
    named = len(tokens) > 5 and tokens[0].kind == "let" and len(tokens[0].text) == 1 and tokens[0].text in "ABCDMNPQST"
    if not named or tokens[1].text != "(" or matching(tokens, 1) != len(tokens) - 1:
        return tokens
    depths = itertools.accumulate((t.text in "([{") - (t.text in ")]}") for t in tokens[2:-1])
    comma = any(t.text == "," and not depth for t, depth in zip(tokens[2:-1], depths, strict=True))
    return tokens[1:] if comma else tokens


def _lead_in(tokens: list[Token]) -> list[Token]:
    """Drop words before a value, `Eliza earns $460`, where the last one leads to it and none of them hedges."""
    count = 0
    while count < len(tokens) and (
        tokens[count].kind == "word" or (tokens[count].kind == "let" and _spoken(tokens, count))
    ):
        count += 1
    if count and count < len(tokens):
        words = [t.text.lower() for t in tokens[:count]]
        if words[-1] not in _LEADS or set(words[:-1]) & _HEDGES:
            raise Unreadable("grammar")
        return tokens[count:]
    return tokens


def _spoken(tokens: list[Token], index: int) -> bool:
    """True within `The area is 12`: plain words that end in a leading one and are followed by a value."""
    end = index
    while end < len(tokens) and tokens[end].kind in ("let", "word"):
        end += 1
    words = [t.text for t in tokens[index:end]]
    return end < len(tokens) and words[-1].lower() in _LEADS and (index > 0 or len(words) > 1)


def _with_tail(value: Node, tail: list[Token], money: str) -> Node:
    words = [t.text for t in tail]
    if [word.lower() for word in words[:2]] in _UNIVERSAL:
        return value
    if any(word.lower() in _HEDGES or _ZH_HEDGE.search(word) for word in words if word.isalpha()):
        raise Unreadable("grammar")
    if words[0][:1] in _MULTIPLES or words[0] in _MULTIPLES:
        head = words[0] if words[0] in _MULTIPLES else words[0][0]
        if value.op != "num":
            raise Unreadable("grammar")
        value, rest = num(tree.bounded(value.number * _MULTIPLES[head])), words[0][len(head) :]
        words = ([rest] if rest else []) + words[1:]
        if not words:
            return _with_unit(value, money) if money else value
    if not all(_may_be_unit(token) for token in tail):
        raise Unreadable("grammar")
    if value.op == "sym" and value.name in ("a", "A", "I") and tail[0].kind in ("let", "word"):
        raise Unreadable("grammar")  # the article, the pronoun
    if any(_starts_part(tail, i) for i in range(len(tail))):
        return _compound(value, tail)
    first = words[0].lower()
    if first in ("degree", "degrees", "deg", "度"):
        return Node("deg", (value,))
    if first == "percent":
        return Node("pct", (value,))
    if first in ("radian", "radians", "rad", "弧度"):
        return Node("unit", (value,), "rad")
    if first in ("'", "′"):
        return Node("unit", (value,), "arcminute" if len(words) == 1 else "arcsecond")
    phrase = " ".join(words).replace("- ", "-")
    return _with_unit(value, money or phrase)


def _starts_part(tail: list[Token], index: int) -> bool:
    """A number in a unit that is no exponent: 20 of 3 hours 20 minutes, but not 2 of cm2 or of s^{-2}."""
    if tail[index].kind != "num" or tail[index - 1].text in ("^", "-", "{"):
        return False
    last = index + 1 == len(tail) or tail[index + 1].kind not in ("word", "let")
    return not (last and tail[index - 1].text in units.WORDS and tail[index].text in ("2", "3"))


def _compound(value: Node, tail: list[Token]) -> Node:
    """3 hours 20 minutes: each part in a smaller unit of the same dimension, the sum in the first unit."""
    if value.op != "num":
        raise Unreadable("grammar")
    total, amount, first, smallest = Fraction(0), value.number, "", Fraction(0)
    for token in [*tail, Token("end", "")]:
        if token.kind in ("word", "let"):
            unit = units.within(token.text, first) if first else token.text
            parsed, whole = units.parse(unit), units.parse(first or unit)
            if parsed is None or whole is None or not parsed.dimensions or parsed.dimensions != whole.dimensions:
                raise Unreadable("grammar")
            if first and parsed.factor >= smallest:
                raise Unreadable("grammar")
            total += amount * parsed.factor / whole.factor
            first, smallest, amount = first or unit, parsed.factor, Fraction(-1)
        elif token.kind == "num" and amount < 0 and token.text.isdigit():
            amount = Fraction(token.text)
        elif token.kind != "end" or amount >= 0:
            raise Unreadable("grammar")
    return Node("unit", (num(total),), first)


def _with_unit(value: Node, phrase: str) -> Node:
    if units.parse(phrase) is None:
        return value
    if value.op == "list":
        return Node("list", tuple(_with_unit(member, phrase) for member in value.args))
    if value.op in ("set", "tuple", "interval", "matrix", "rel", "union"):
        return value
    return Node("unit", (value,), phrase)


def _may_be_unit(token: Token) -> bool:
    if token.kind in ("word", "let"):
        return True
    return (token.kind == "num" and len(token.text) < 3) or token.text in (
        "^",
        "/",
        "{",
        "}",
        "-",
        r"\cdot",
        ".",
        "'",
        "(",
        ")",
    )


def is_words(tokens: Sequence[Token]) -> bool:
    """Words only: from a text font, in another script, or letter runs that no formula has."""
    words = False
    for token in tokens:
        if token.kind == "word" or (token.kind == "let" and _is_word(token.text)):
            words |= len(token.text) > 1 or not token.text.isascii()
        elif not (token.kind == "let" or token.text in (",", ".", "-", "'", '"', "{", "}", "!", "?", ":")):
            return False
    return words and not all(t.text in JOINING or len(t.text) == 1 for t in tokens)


def _is_word(run: str) -> bool:
    if run in lex.FUNCTION_WORDS or run in names.MATH_WORDS or run in lex.OPERATORS:
        return False
    return run.lower() in _PLAIN_WORDS or (len(run) >= 4 and not names.looks_like_product(run))
