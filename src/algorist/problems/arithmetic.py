"""Arithmetic problems with exact answers and worked solutions, drawn without repetition from countable spaces.

A family is a function from whole numbers to a question. Its operands and choices span a finite space; problem number n
of that space is a pure function of n (mixed radix), so it can be listed or sampled, the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from algorist.digest import content_id
from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.config import ArithmeticConfig, FamilyConfig
from algorist.seeds import generator, permutation

T = TypeVar("T")

_LIST_LIMIT = 2_000_000
"""Spaces up to this size are permuted whole; larger ones are sampled by drawing numbers and skipping repeats."""
_COUNT_LIMIT = 50_000
"""Spaces up to this size are counted by listing them when only their size is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One generated question."""

    text: str
    gold: str
    solution: str
    """Worked steps; the last number is the answer."""


Build = Callable[[Sequence[int], Sequence[int]], Question | None]
"""(operands, choices) -> question; None where these numbers make no problem of the family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one family is spelled and solved."""

    digits: tuple[int, ...]
    """Digits per operand where the recipe does not say; one entry counts for all."""
    smallest: tuple[int, ...]
    """Smallest one-digit value per operand; one entry counts for all."""
    build: Build
    choices: Callable[[int], tuple[int, ...]] = lambda terms: ()
    """Sizes of what is chosen besides the operands, from the number of terms."""


def _add(v: Sequence[int], _: Sequence[int]) -> Question:
    a, b = v
    return Question(text=f"{a} + {b}", gold=f"{a + b}", solution=f"{a} + {b} = {a + b}")


def _subtract(v: Sequence[int], _: Sequence[int]) -> Question | None:
    a, b = v
    return None if b > a else Question(text=f"{a} - {b}", gold=f"{a - b}", solution=f"{a} - {b} = {a - b}")


def _places(n: int) -> list[int]:
    """347 -> [300, 40, 7]; zeros left out, 0 -> [0]."""
    text = str(n)
    parts = [int(digit) * 10 ** (len(text) - 1 - i) for i, digit in enumerate(text) if digit != "0"]
    return parts or [0]


def _multiply(v: Sequence[int], _: Sequence[int]) -> Question:
    a, b = v
    steps = " + ".join(str(part * b) for part in _places(a))
    middle = f" = {steps}" if len(_places(a)) > 1 else ""
    return Question(text=f"{a} * {b}", gold=f"{a * b}", solution=f"{a} * {b}{middle} = {a * b}")


def _multiply_partial(v: Sequence[int], _: Sequence[int]) -> Question:
    a, b = v
    text = str(a)
    parts = [int(digit) * 10 ** (len(text) - 1 - i) * b for i, digit in enumerate(text)]
    steps = "+".join(map(str, parts))
    return Question(text=f"{a}*{b}", gold=f"{a * b}", solution=f"{steps}={a * b}")


def _column_addition(v: Sequence[int], _: Sequence[int]) -> Question:
    a, b = v
    steps: list[str] = []
    carry, left, right = 0, a, b
    while left or right or not steps:
        column = left % 10 + right % 10 + carry
        carried = f"+{carry}" if carry else ""
        steps.append(f"{left % 10}+{right % 10}{carried}={column}")
        carry, left, right = column // 10, left // 10, right // 10
    return Question(text=f"{a}+{b}", gold=f"{a + b}", solution=f"{','.join(steps)}:{a}+{b}={a + b}")


def _divide_exact(v: Sequence[int], _: Sequence[int]) -> Question | None:
    quotient, divisor = v
    if divisor == 0:
        return None
    whole = quotient * divisor
    solution = f"{quotient} * {divisor} = {whole}, so {whole} / {divisor} = {quotient}"
    return Question(text=f"{whole} / {divisor}", gold=f"{quotient}", solution=solution)


def _chain_sum(v: Sequence[int], choices: Sequence[int]) -> Question:
    text, total, steps = f"{v[0]}", v[0], []
    for value, minus in zip(v[1:], choices, strict=True):
        after = total - value if minus else total + value
        sign = "-" if minus else "+"
        steps.append(f"{total} {sign} {value} = {after}")
        text, total = f"{text} {sign} {value}", after
    return Question(text=text, gold=f"{total}", solution="; ".join(steps))


def _mixed_parentheses(v: Sequence[int], choices: Sequence[int]) -> Question | None:
    """One sum or difference in parentheses beside at least one product, so that the parentheses matter."""
    *codes, at = choices
    signs = ["+-*"[code] for code in codes]
    beside = [signs[i] for i in (at - 1, at + 1) if 0 <= i < len(signs)]
    if signs[at] == "*" or "*" not in beside:
        return None
    inner = v[at] + v[at + 1] if signs[at] == "+" else v[at] - v[at + 1]
    numbers = [*v[:at], inner, *v[at + 2 :]]
    operators = [*signs[:at], *signs[at + 1 :]]
    steps = [f"{v[at]} {signs[at]} {v[at + 1]} = {inner}"]
    for wanted in ("*", "+-"):
        i = 0
        while i < len(operators):
            if operators[i] not in wanted:
                i += 1
                continue
            a, op, b = numbers[i], operators[i], numbers[i + 1]
            value = a * b if op == "*" else a + b if op == "+" else a - b
            steps.append(f"{a} {op} {_in_brackets(b)} = {value}")
            numbers[i : i + 2], operators[i : i + 1] = [value], []
    shown = [str(value) for value in v]
    shown[at], shown[at + 1] = f"({shown[at]}", f"{shown[at + 1]})"
    text = shown[0] + "".join(f" {sign} {value}" for sign, value in zip(signs, shown[1:], strict=True))
    return Question(text=text, gold=f"{numbers[0]}", solution="; ".join(steps))


def _in_brackets(n: int) -> str:
    return f"({n})" if n < 0 else str(n)


def _gcd(v: Sequence[int], _: Sequence[int]) -> Question | None:
    a, b = v
    if a == 0 or b == 0:
        return None
    steps, x, y = [], a, b
    while y:
        steps.append(f"{x} mod {y} = {x % y}")
        x, y = y, x % y
    return Question(text=f"gcd({a}, {b})", gold=f"{x}", solution="; ".join(steps) + f"; gcd = {x}")


def _lcm(v: Sequence[int], _: Sequence[int]) -> Question | None:
    a, b = v
    if a == 0 or b == 0:
        return None
    divisor, result = math.gcd(a, b), math.lcm(a, b)
    solution = f"gcd({a}, {b}) = {divisor}; {a} * {b} / {divisor} = {result}"
    return Question(text=f"lcm({a}, {b})", gold=f"{result}", solution=solution)


def _modulo(v: Sequence[int], _: Sequence[int]) -> Question | None:
    a, b = v
    if b == 0:
        return None
    return Question(text=f"{a} mod {b}", gold=f"{a % b}", solution=f"{a} - {a // b} * {b} = {a % b}")


def _fraction_add(v: Sequence[int], _: Sequence[int]) -> Question | None:
    """Two proper fractions in lowest terms."""
    a, b, c, d = v
    if not (0 < a < b and 0 < c < d and math.gcd(a, b) == 1 and math.gcd(c, d) == 1):
        return None
    common, total = math.lcm(b, d), Fraction(a, b) + Fraction(c, d)
    left, right = a * common // b, c * common // d
    steps = f"{left}/{common} + {right}/{common} = {left + right}/{common}"
    reduced = "" if f"{left + right}/{common}" == str(total) else f" = {total}"
    return Question(text=f"{a}/{b} + {c}/{d}", gold=str(total), solution=f"{a}/{b} + {c}/{d} = {steps}{reduced}")


def _compare(v: Sequence[int], _: Sequence[int]) -> Question | None:
    a, b = v
    if a == b:
        return None
    low, high = sorted(v)
    return Question(text=f"Which is larger, {a} or {b}?", gold=f"{high}", solution=f"{low} < {high}, so {high}")


def _linear_equation(v: Sequence[int], _: Sequence[int]) -> Question | None:
    a, x, b = v
    if a == 0:
        return None
    right = a * x + b
    factor = "" if a == 1 else str(a)
    steps = [f"{factor}x = {right} - {b} = {a * x}"] + ([f"x = {a * x} / {a} = {x}"] if a > 1 else [])
    return Question(text=f"Solve {factor}x + {b} = {right} for x.", gold=f"{x}", solution="; ".join(steps))


FAMILIES: dict[str, Family] = {
    "add": Family(digits=(2,), smallest=(0,), build=_add),
    "subtract": Family(digits=(2,), smallest=(0,), build=_subtract),
    "multiply": Family(digits=(2, 1), smallest=(2,), build=_multiply),
    "divide_exact": Family(digits=(2, 1), smallest=(2,), build=_divide_exact),
    "chain_sum": Family(digits=(1,), smallest=(0,), build=_chain_sum, choices=lambda terms: (2,) * (terms - 1)),
    "mixed_parentheses": Family(
        digits=(1,), smallest=(1,), build=_mixed_parentheses, choices=lambda terms: (*(3,) * (terms - 1), terms - 1)
    ),
    "gcd": Family(digits=(2,), smallest=(1,), build=_gcd),
    "lcm": Family(digits=(1,), smallest=(2,), build=_lcm),
    "modulo": Family(digits=(2, 1), smallest=(2,), build=_modulo),
    "fraction_add": Family(digits=(1,), smallest=(1,), build=_fraction_add),
    "compare": Family(digits=(2,), smallest=(0,), build=_compare),
    "linear_equation": Family(digits=(1,), smallest=(1,), build=_linear_equation),
    "column_addition": Family(digits=(3,), smallest=(0,), build=_column_addition),
    "multiply_partial": Family(digits=(3, 1), smallest=(2,), build=_multiply_partial),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All number combinations of one family at one difficulty, numbered from 0."""

    config: FamilyConfig
    ranges: tuple[tuple[int, int], ...]
    """Smallest and largest value of each operand."""
    choices: tuple[int, ...]
    """Sizes of the further choices."""

    @property
    def size(self) -> int:
        """How many combinations there are; some may make no problem."""
        return math.prod(high - low + 1 for low, high in self.ranges) * math.prod(self.choices)

    def question(self, number: int) -> Question | None:
        """Combination `number`, 0 <= number < size; None where it makes no problem.

        >>> space(FamilyConfig(name="multiply_partial")).question(0)
        Question(text='100*2', gold='200', solution='200+0+0=200')
        """
        radices = [high - low + 1 for low, high in self.ranges]
        digits = []
        for radix in reversed([*radices, *self.choices]):
            number, digit = divmod(number, radix)
            digits.append(digit)
        digits.reverse()
        operands = [low + digit for (low, _), digit in zip(self.ranges, digits, strict=False)]
        return FAMILIES[self.config.name].build(operands, digits[len(radices) :])


def space(config: FamilyConfig) -> Space:
    """The space of a family at the difficulty its knobs set.

    >>> space(FamilyConfig(name="multiply_partial", digits=(3, 1))).size
    7200
    """
    family, num = FAMILIES[config.name], config.num_operands

    if config.ranges is not None:
        ranges = _spread(config.ranges, num)
    else:
        ranges = tuple(
            (low if digits == 1 else 10 ** (digits - 1), 10**digits - 1)
            for digits, low in zip(
                _spread(config.digits or family.digits, num), _spread(family.smallest, num), strict=True
            )
        )
    return Space(config=config, ranges=ranges, choices=family.choices(num))


def _spread(values: tuple[T, ...], num: int) -> tuple[T, ...]:
    return values * num if len(values) == 1 else values


def generate(cfg: ArithmeticConfig, seed: int) -> list[Problem]:
    """`cfg.count` distinct problems, families in recipe order, shares by weight; without a count, all there are.

    A pure function of the settings and the seed. Raises InputError where a family has too few problems.

    >>> cfg = ArithmeticConfig(families=(FamilyConfig(name="add", ranges=((1, 60), (1, 39))),), count=2)
    >>> [(p.question, p.gold) for p in generate(cfg, seed=0)] == [(p.question, p.gold) for p in generate(cfg, seed=0)]
    True
    """
    wanted_of = shares(cfg)
    problems: list[Problem] = []
    for index, (family, wanted) in enumerate(zip(cfg.families, wanted_of, strict=True)):
        whole = space(family)
        if wanted is None and whole.size > _LIST_LIMIT:
            raise InputError(
                f"problems.source: {family.name} spans {whole.size:,} combinations, too many to list. Set count."
            )
        found = _draw(whole, wanted, seed, index)
        if wanted is not None and len(found) < wanted:
            raise InputError(
                f"problems.source: {wanted:,} problems of {family.name} were asked for, and there are {len(found):,}. "
                "Lower count or the family's weight, or widen its digits or ranges."
            )
        problems += found
    return problems


def num_problems(cfg: ArithmeticConfig) -> int | None:
    """How many problems `generate` gives; None where that takes long to count.

    >>> num_problems(ArithmeticConfig(families=(FamilyConfig(name="multiply_partial"),)))
    7200
    """
    if cfg.count is not None:
        return cfg.count
    if sum(space(family).size for family in cfg.families) > _COUNT_LIMIT:
        return None
    return len({problem.id for problem in generate(cfg, seed=0)})


def shares(cfg: ArithmeticConfig) -> list[int | None]:
    """Problems per family: largest remainders, so that the shares add up to the count exactly.

    >>> shares(ArithmeticConfig(families=(FamilyConfig(name="add"), FamilyConfig(name="gcd", weight=2)), count=10))
    [3, 7]
    """
    if cfg.count is None:
        return [None] * len(cfg.families)
    total = math.fsum(family.weight for family in cfg.families)
    exact = [cfg.count * family.weight / total for family in cfg.families]
    counts = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: cfg.count - sum(counts)]:
        counts[i] += 1
    return list(counts)


def _draw(whole: Space, wanted: int | None, seed: int, index: int) -> list[Problem]:
    """The first `wanted` problems in a seeded order without repetition; all of them, in order, where wanted is None."""
    found: dict[str, Problem] = {}
    for number in range(whole.size) if wanted is None else _numbers(whole, seed, index):
        question = whole.question(number)
        if question is None:
            continue
        problem = _problem(question, whole.config.name)
        found.setdefault(problem.id, problem)
        if wanted is not None and len(found) == wanted:
            break
    return list(found.values())


def _numbers(whole: Space, seed: int, index: int) -> Iterator[int]:
    path = ("arithmetic", index, whole.config.name)
    if whole.size <= _LIST_LIMIT:
        yield from permutation(whole.size, seed, *path)
        return
    random, seen = generator(seed, *path), set[int]()
    while len(seen) < _LIST_LIMIT:
        # 62 bits cover every allowed space up to a negligible bias; larger spaces are built from two draws
        number = (int(random.integers(2**62)) << 62 | int(random.integers(2**62))) % whole.size
        if number not in seen:
            seen.add(number)
            yield number


def _problem(question: Question, family: str) -> Problem:
    return Problem(
        id=content_id(question.text, question.gold),
        question=question.text,
        gold=question.gold,
        source="arithmetic",
        family=family,
        kind="expression" if "/" in question.gold else "number",
        solution=question.solution,
    )
