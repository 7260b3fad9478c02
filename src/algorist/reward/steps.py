"""Process supervision without a learned model: split a response into steps, check the arithmetic that each step states.

Torch-free, linear in the text, exact rationals, no evaluation of model text by Python. A step scorer is anything with
`StepScorer.score`; a learned process model fits behind the same interface.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol, final

MAX_TOKENS, MAX_DIGITS, MAX_DEPTH, MAX_EXPONENT, MAX_BITS = 200, 40, 30, 64, 4096
"""Limits of one side of an equation; beyond them it is unreadable."""
MAX_FRAGMENT, WINDOW = 2000, 64
"""Characters of a chain of equations, and how far back its surroundings are looked at."""

Judgement = Literal["true", "rounded", "false"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of a response: characters start..end-1, without surrounding white space.

    Example:
        >>> Step(start=0, end=9, text="3 + 4 = 7").end
        9
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One stated equation between two sides that can be computed.

    Example:
        >>> check_step("so 3 + 4 = 8")
        (Claim(left='3 + 4', right='8', judgement='false'),)
    """

    left: str
    right: str
    judgement: Judgement
    """true: equal as rationals. rounded: the right side is a decimal within half a unit of its last digit."""


class StepScorer(Protocol):
    """Gives each step of a response a reward, or None where it has nothing to say."""

    def score(self, question: str, steps: Sequence[str], correct: bool | None) -> tuple[float | None, ...]:
        """One entry per step. `correct`: verdict of the final answer, None where there is none."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticScorer:
    """1 for a step whose equations all hold, 0 for one with a false equation, `unchecked` for one without any.

    The last step carries the final answer: 0 where that is wrong, else 1 if no equation of it fails.

    Example:
        >>> ArithmeticScorer().score("", ["3 + 4 = 7", "7 * 2 = 15", "The answer is 15."], False)
        (1.0, 0.0, 0.0)
    """

    unchecked: float | None = None
    """Reward of a step that states no equation; None: it takes no part in the normalisation."""

    def score(self, question: str, steps: Sequence[str], correct: bool | None) -> tuple[float | None, ...]:
        """One reward per step."""
        rewards = [self._one(step) for step in steps]
        if rewards and correct is not None:
            rewards[-1] = 0.0 if not correct else 1.0 if rewards[-1] is None else rewards[-1]
        return tuple(rewards)

    def _one(self, step: str) -> float | None:
        claims = check_step(step)
        if not claims:
            return self.unchecked
        return float(all(claim.judgement != "false" for claim in claims))


def split(text: str) -> tuple[Step, ...]:
    """Steps are non-blank lines; a response of one line is split into sentences.

    >>> [step.text for step in split("3 + 4 = 7\\n\\n7 * 2 = 14\\n")]
    ['3 + 4 = 7', '7 * 2 = 14']
    >>> [step.text for step in split("He has 3 + 4 = 7. That is 7.5 less. Done")]
    ['He has 3 + 4 = 7.', 'That is 7.5 less.', 'Done']
    """
    lines = _spans(re.finditer(r"[^\n]+", text))
    if len(lines) > 1:
        return lines
    return _spans(re.finditer(r"[^.!?。！？]*(?:[.!?。！？](?![\s])[^.!?。！？]*)*[.!?。！？]*", text))


def token_ends(steps: Sequence[Step], pieces: Sequence[str]) -> tuple[int, ...]:
    """Index of the token that holds each step's last character; the last step ends with the last token.

    pieces: the text of each response token, in order; joined they are the text that was split (a stop id is ""). So the
    stop id is credited with the last step, and no steps give no ends.

    >>> token_ends(split("a = 1\\nb = 2"), ["a", " =", " 1", "\\n", "b", " =", " 2", ""])
    (2, 7)
    """
    if not steps:
        return ()
    ends, position, index = [], 0, 0
    for step in steps:
        while index < len(pieces) - 1 and position + len(pieces[index]) < step.end:
            position += len(pieces[index])
            index += 1
        ends.append(index)
    ends[-1] = len(pieces) - 1
    return tuple(ends)


def check_step(text: str) -> tuple[Claim, ...]:
    """The equations a step states, each judged exactly. What cannot be read is left out, never judged.

    A claim needs a computed side (an operator) and two readable sides; chains a = b = c give one claim per sign. Signs,
    percentages, thousands commas, LaTeX times, div, cdot and frac are understood; letters end a claim.

    >>> [(c.left, c.right, c.judgement) for c in check_step("48/2 = 24, and 10 / 3 = 3.33, so 1,200 x 2 = 2401")]
    [('48/2', '24', 'true'), ('10 / 3', '3.33', 'rounded'), ('1,200 * 2', '2401', 'false')]
    >>> check_step("x + 3 = 7"), check_step("f(3) = 12"), check_step("2 3/4 = 5")
    ((), (), ())
    """
    plain = _plain(text)
    found: list[Claim] = []
    for match in _FRAGMENT.finditer(plain):
        fragment = match.group()
        if "=" in fragment and len(fragment) <= MAX_FRAGMENT and not _dangling(plain, match.start(), match.end()):
            found += _claims(_without_bullet(plain, match.start(), fragment))
    return tuple(found)


def value(expression: str) -> Fraction | None:
    """The exact value of an arithmetic expression, None where it cannot be read or is too large.

    >>> value("2(3 + 4)^2 / 7"), value("20% * 50"), value("1,200"), value("1/0"), value("2^999"), value("3 4")
    (Fraction(14, 1), Fraction(10, 1), Fraction(1200, 1), None, None, None)
    """
    tokens = _TOKEN.findall(expression)
    if not tokens or len(tokens) > MAX_TOKENS or "".join(tokens) != re.sub(r"[\s$]", "", expression):
        return None
    if "%" in tokens and ("+" in tokens or "-" in tokens):
        return None  # 5 + 20% means 6 to some and 5.2 to others
    try:
        return _Reader(tokens).all()
    except (_Unreadable, ZeroDivisionError):
        return None


_TOKEN = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])|\d+(?:\.\d+)?|\.\d+|\*\*|[-+*/^()%]")
_FRAGMENT = re.compile(r"(?:\d|\.(?=\d)|(?<=\d),(?=\d{3})|[-+*/^()=%$ \t]|(?<=[\d)] )[xX](?= [\d(]))+")
_REPLACED = str.maketrans({"×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "−": "-", "–": "-", "＝": "=", "％": "%"})
_COMMANDS = ((r"\times", "*"), (r"\cdot", "*"), (r"\div", "/"), (r"\left", ""), (r"\right", ""), (r"\%", "%"))
_FRACTION = re.compile(r"\\[dt]?frac\{([\d.]{1,40})\}\{([\d.]{1,40})\}")
_MIXED_BEFORE = re.compile(r"\d\s+and\s*$|\d:$")  # 1 and 1/4 = ..., 6:00 + ...
_MIXED_AFTER = re.compile(r"and\s+[$(]?\d|:\d|cents?\b")  # ... = 5 and 2/3, ... = 6:48, ... = 50 cents
_VARIABLE_AFTER = re.compile(r"[a-zA-Z\\](?![a-zA-Z])")  # ... = (3/2)x
_BEFORE = re.compile(r"([A-Za-z]{1,12})[ \t]*$")
_WORDS = frozenset(
    {
        "sin",
        "cos",
        "tan",
        "log",
        "ln",
        "exp",
        "sqrt",
        "root",
        "max",
        "min",
        "gcd",
        "lcm",
        "mod",
        "of",
        "half",
        "twice",
        "double",
        "triple",
        "times",
        "plus",
        "minus",
        "over",
    }
)


class _Unreadable(Exception):
    """The tokens are no expression, or one beyond the limits."""


@final
class _Reader:
    """Recursive descent over tokens: sum, product, power, atom."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    def all(self) -> Fraction:
        result = self.sum()
        if self.at != len(self.tokens):
            raise _Unreadable
        return result

    def sum(self) -> Fraction:
        result = self.product()
        while self.peek() in ("+", "-"):
            result = result + self.product() if self.take() == "+" else result - self.product()
        return _bounded(result)

    def product(self) -> Fraction:
        result, before = self.power(), True
        while self.peek() in ("*", "/", "(") and before:
            sign = self.peek()
            if sign != "(":  # 2(3 + 4) multiplies without a sign
                self.take()
            right = self.power()
            result = _bounded(result / right if sign == "/" else result * right)
        return result

    def power(self) -> Fraction:
        if self.peek() in ("-", "+"):
            return -self.power() if self.take() == "-" else self.power()
        base = self.atom()
        if self.peek() not in ("^", "**"):
            return base
        self.take()
        exponent = self.power()
        if exponent.denominator != 1 or abs(exponent) > MAX_EXPONENT or (base == 0 and exponent < 0):
            raise _Unreadable
        return _bounded(base ** int(exponent))

    def atom(self) -> Fraction:
        token = self.take()
        if token == "(":
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise _Unreadable
            result = self.sum()
            if self.take() != ")":
                raise _Unreadable
            self.depth -= 1
        elif token[0].isdigit() or token[0] == ".":
            if len(token) > MAX_DIGITS:
                raise _Unreadable
            result = Fraction(token.replace(",", ""))
        else:
            raise _Unreadable
        if self.peek() == "%":
            self.take()
            result /= 100
        return result

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise _Unreadable
        self.at += 1
        return self.tokens[self.at - 1]


def _bounded(x: Fraction) -> Fraction:
    if x.numerator.bit_length() > MAX_BITS or x.denominator.bit_length() > MAX_BITS:
        raise _Unreadable
    return x


def _spans(matches: Iterable[re.Match[str]]) -> tuple[Step, ...]:
    steps = []
    for match in matches:
        raw = match.group()
        if raw.strip():
            start = match.start() + len(raw) - len(raw.lstrip())
            steps.append(Step(start=start, end=start + len(raw.strip()), text=raw.strip()))
    return tuple(steps)


def _plain(text: str) -> str:
    plain = text.translate(_REPLACED)
    for command, sign in _COMMANDS:
        plain = plain.replace(command, sign)
    return _FRACTION.sub(r"((\1)/(\2))", plain)


def _dangling(plain: str, start: int, end: int) -> bool:
    """True where the text around a fragment says that it is only part of an expression."""
    fragment = plain[start:end]
    body = fragment.lstrip(" \t$")
    before = plain[max(0, start - WINDOW) : start]
    touching = bool(before) and (before[-1].isalnum() or before[-1] in "_}\\]|!") and not fragment[0].isspace()
    if touching or (
        before.strip() and not before.endswith("\n") and body[:1] in "+*/^%=)" and not _ends_clause(before)
    ):
        return True
    if before.rstrip()[-1:].isalnum() and body[:1] == "-" and body[1:2].isspace():
        return True
    word = _BEFORE.search(before[-24:])
    if word is not None and word.group(1).lower() in _WORDS:
        return True
    if _MIXED_BEFORE.search(before):
        return True
    after = plain[end : end + WINDOW]
    variable = not fragment[-1].isspace() and _VARIABLE_AFTER.match(after) is not None
    return variable or _MIXED_AFTER.match(after) is not None


def _ends_clause(before: str) -> bool:
    return before.rstrip()[-1:] in ".,;:<>≈"


def _without_bullet(plain: str, start: int, fragment: str) -> str:
    before = plain[max(0, start - WINDOW) : start]
    line_start = not before.strip() or before.rstrip(" \t").endswith("\n")
    return re.sub(r"^\s*[-*+]\s+", "", fragment) if line_start else fragment


def _claims(fragment: str) -> list[Claim]:
    sides = [side.strip(" \t$") for side in re.sub(r"(?<=[\d)] )[xX](?= )", "*", fragment).split("=")]
    sides[0], sides[-1] = _balanced(sides[0], "("), _balanced(sides[-1], ")")
    values = [value(side) for side in sides]
    if not any(re.search(r"[\d)%]\s*[-+*/^(]", side) for side in sides):
        return []
    found = []
    for left, right, a, b in zip(sides, sides[1:], values, values[1:], strict=False):
        if a is not None and b is not None:
            found.append(Claim(left=left, right=right, judgement=_judge(a, b, right)))
    return found


def _balanced(side: str, surplus: str) -> str:
    """Without the brackets that a surrounding parenthesis left at its outer end."""
    while side.count("(") != side.count(")") and side[:1] == "(" and surplus == "(":
        side = side[1:].strip()
    while side.count("(") != side.count(")") and side[-1:] == ")" and surplus == ")":
        side = side[:-1].strip()
    return side


def _judge(a: Fraction, b: Fraction, right: str) -> Judgement:
    if a == b:
        return "true"
    decimals = re.fullmatch(r"-?[\d,]*\.(\d+)", right)
    if decimals and abs(a - b) * 2 <= Fraction(1, 10 ** min(len(decimals.group(1)), MAX_DIGITS)):
        return "rounded"
    return "false"
