"""The expression tree, built in canonical form: sums and products are flat, folded exactly and sorted.

Every constructor does exact rational arithmetic only and refuses to build a number of more than `MAX_DIGITS` digits, so
a tree is never larger than its text and building it never takes long. Two expressions that canonicalise to the same tree
are equal; the converse needs `algebra` or `symbolic`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from algorist.verify.node import (
    HALF,
    IMAGINARY,
    INF,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_NODES,
    MAX_SYMBOLS,
    MINUS_ONE,
    ONE,
    PI,
    ZERO,
    E,
    Node,
    Unreadable,
    bounded,
    is_num,
    num,
    num_digits,
    sort_key,
    sym,
    walk,
)
from algorist.verify.roots import factor_small, root

__all__ = [
    "HALF",
    "IMAGINARY",
    "INF",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_NODES",
    "MAX_SYMBOLS",
    "MINUS_ONE",
    "ONE",
    "PI",
    "ZERO",
    "E",
    "Node",
    "Unreadable",
    "add",
    "binomial",
    "bounded",
    "check_size",
    "div",
    "euler",
    "factor_small",
    "factorial",
    "fn",
    "is_num",
    "is_positive",
    "leading_sign",
    "mul",
    "neg",
    "num",
    "pi_multiple",
    "power",
    "sort_key",
    "split_coefficient",
    "sqrt",
    "sym",
    "walk",
]  # fmt: skip


def add(terms: Iterable[Node]) -> Node:
    """Sum; equal terms are collected, so that x + x is 2x and x - x is 0."""
    constant, collected = Fraction(0), dict[Node, Fraction]()
    stack = list(terms)[::-1]
    while stack:
        term = stack.pop()
        if term.op == "num":
            constant += term.number
        elif term.op == "add":
            stack.extend(term.args)
        else:
            coefficient, rest = split_coefficient(term)
            if rest == INF and collected.get(INF, coefficient) * coefficient < 0:
                raise Unreadable("undefined")
            collected[rest] = collected.get(rest, Fraction(0)) + coefficient
    parts = [_scaled(rest, c) for rest, c in collected.items() if c]
    if constant:
        parts.append(num(bounded(constant)))
    if len(parts) > 1:
        return Node("add", tuple(sorted(parts, key=sort_key)))
    return parts[0] if parts else ZERO


def split_coefficient(term: Node) -> tuple[Fraction, Node]:
    """(c, rest) with term = c * rest.

    >>> split_coefficient(mul([num(3), sym("x")]))[0]
    Fraction(3, 1)
    """
    if term.op == "mul" and term.args[0].op == "num":
        rest = term.args[1:]
        return term.args[0].number, rest[0] if len(rest) == 1 else Node("mul", rest)
    return Fraction(1), term


def _scaled(rest: Node, coefficient: Fraction) -> Node:
    if coefficient == 1:
        return rest
    factors = rest.args if rest.op == "mul" else (rest,)
    return Node("mul", (num(bounded(coefficient)), *factors))


def mul(factors: Iterable[Node]) -> Node:
    """Product; powers of one base with rational exponents are collected, rationals folded."""
    coefficient, powers = Fraction(1), dict[Node, Fraction]()
    others = dict[Node, list[Node]]()
    stack = list(factors)[::-1]
    while stack:
        factor = stack.pop()
        if factor.op == "num":
            coefficient *= factor.number
        elif factor.op == "mul":
            stack.extend(factor.args)
        elif factor.op == "pow" and factor.args[1].op != "num":
            others.setdefault(factor.args[0], []).append(factor.args[1])
        else:
            base, exponent = (factor.args[0], factor.args[1].number) if factor.op == "pow" else (factor, Fraction(1))
            powers[base] = powers.get(base, Fraction(0)) + exponent
    if not coefficient:
        if INF in powers:
            raise Unreadable("undefined")
        return ZERO
    for base, exponents in others.items():
        if base in powers:
            exponents.append(num(powers.pop(base)))
    parts = [power(base, num(e)) if e != 1 else base for base, e in powers.items() if e]
    parts += [power(base, add(exponents)) for base, exponents in others.items()]
    if any(part.op in ("num", "mul") for part in parts):  # i*i, sqrt2*sqrt2: folding made new numbers
        return mul([num(bounded(coefficient)), *parts])
    if not parts:
        return num(bounded(coefficient))
    if coefficient == 1 and len(parts) == 1:
        return parts[0]
    if len(parts) == 1 and parts[0].op == "add":
        return add(mul([num(coefficient), term]) for term in parts[0].args)
    if coefficient != 1:
        parts.append(num(bounded(coefficient)))
    return Node("mul", tuple(sorted(parts, key=sort_key)))


def neg(node: Node) -> Node:
    """-node."""
    return mul([MINUS_ONE, node])


def div(a: Node, b: Node) -> Node:
    """a / b; division by an exact zero is undefined."""
    return mul([a, power(b, MINUS_ONE)])


def sqrt(node: Node) -> Node:
    """Square root."""
    return power(node, HALF)


def power(base: Node, exponent: Node) -> Node:
    """base ** exponent with exact folding where both are rational."""
    if base == INF and exponent != ONE:
        raise Unreadable("undefined")
    if exponent.op == "num":
        e = exponent.number
        if e == 1:
            return base
        if base.op == "num":
            return _rational_power(base.number, e)
        if e == 0:
            return ONE
        if base.op == "const" and base.value == "i" and e.denominator == 1:
            return (ONE, IMAGINARY, MINUS_ONE, mul([MINUS_ONE, IMAGINARY]))[e.numerator % 4]
        if base.op == "pow" and base.args[1].op == "num" and (e.denominator == 1 or is_positive(base.args[0])):
            return power(base.args[0], num(base.args[1].number * e))
        if base.op == "pow" and (e.denominator == 1 or is_positive(base)):
            return power(base.args[0], mul([base.args[1], exponent]))
        if base.op == "mul" and e.denominator == 1:
            return mul(power(factor, exponent) for factor in base.args)
        if base.op == "mul" and base.args[0].op == "num" and base.args[0].number > 0 and base.args[0] != ONE:
            rest = base.args[1:]
            return mul(
                [power(base.args[0], exponent), power(rest[0] if len(rest) == 1 else Node("mul", rest), exponent)]
            )
        if base.op == "add" and e != 1:
            return _power_of_sum(base, exponent)
    if base == ONE:
        return ONE
    if base == E and (value := _euler(exponent)) is not None:
        return value
    if base == E and exponent.op == "fn" and exponent.value == "ln":
        return exponent.args[0]
    return Node("pow", (base, exponent))


def _power_of_sum(base: Node, exponent: Node) -> Node:
    """(2x + 2)^-1 = 2^-1 (x + 1)^-1: sums under a power are primitive, so that equal fractions meet."""
    content, e = _content(base), exponent.number
    if e.denominator == 1 and leading_sign(base) < 0:
        content = -content
    if content != 1 and (content > 0 or e.denominator == 1):
        primitive = Node("add", tuple(sorted((mul([num(1 / content), t]) for t in base.args), key=sort_key)))
        return mul([_rational_power(content, e), Node("pow", (primitive, exponent))])
    return Node("pow", (base, exponent))


def leading_sign(node: Node) -> int:
    """Sign of the coefficient of the first term in an order that does not depend on coefficients.

    >>> leading_sign(add([num(3), neg(sym("x"))]))
    -1
    """
    terms = [split_coefficient(t) for t in (node.args if node.op == "add" else (node,)) if t.op != "num"]
    if not terms:
        return 1 if node.op != "num" or node.number >= 0 else -1
    return 1 if min(terms, key=lambda pair: sort_key(pair[1]))[0] > 0 else -1


def _content(node: Node) -> Fraction:
    """gcd of the coefficients of a sum, positive."""
    coefficients = [t.number if t.op == "num" else split_coefficient(t)[0] for t in node.args]
    top = math.gcd(*(abs(c.numerator) for c in coefficients))
    bottom = math.lcm(*(c.denominator for c in coefficients))
    return Fraction(top, bottom)


def _rational_power(base: Fraction, e: Fraction) -> Node:
    if base == 0:
        if e <= 0:
            raise Unreadable("undefined")
        return ZERO
    if base in (1, -1) and e.denominator == 1:
        return num(1 if base == 1 or e.numerator % 2 == 0 else -1)
    if num_digits(base) * abs(float(e)) > MAX_DIGITS if abs(e) < 10**9 else base not in (1, -1):
        raise Unreadable("bound")
    if e.denominator == 1:
        return num(base**e.numerator)
    if base < 0:
        if e.denominator == 2:
            return mul([power(IMAGINARY, num(e.numerator)), _rational_power(-base, e)])
        if e.denominator % 2:  # the real root, as school mathematics has it
            sign = MINUS_ONE if e.numerator % 2 else ONE
            return mul([sign, _rational_power(-base, e)])
        return Node("pow", (num(base), num(e)))
    if base.denominator != 1:
        return mul([_rational_power(Fraction(base.numerator), e), _rational_power(Fraction(base.denominator), -e)])
    return root(base.numerator, e)


def factorial(node: Node) -> Node:
    """node! folded for small naturals; symbolic otherwise."""
    if node.op != "num":
        return Node("fn", (node,), "factorial")
    n = node.number
    if n.denominator != 1 or n < 0:
        raise Unreadable("undefined")
    if n > 3000 or math.lgamma(float(n) + 1) / math.log(10) > MAX_DIGITS:
        raise Unreadable("bound")
    return num(math.factorial(n.numerator))


def binomial(n: Node, k: Node) -> Node:
    """Binomial coefficient, folded for small naturals."""
    if n.op != "num" or k.op != "num":
        return Node("fn", (n, k), "binomial")
    a, b = n.number, k.number
    if a.denominator != 1 or b.denominator != 1 or a < 0 or b < 0:
        raise Unreadable("undefined")
    if a > 30_000:
        raise Unreadable("bound")
    return num(bounded(Fraction(math.comb(a.numerator, b.numerator))))


def fn(name: str, *args: Node) -> Node:
    """A named function; the few exact values that school mathematics takes for granted are folded."""
    x = args[0]
    if name == "abs" and x.op == "num":
        return num(abs(x.number))
    if name in ("floor", "ceil") and x.op == "num":
        whole = math.floor(x.number) if name == "floor" else math.ceil(x.number)
        return Node("fn", args, name) if whole != x.number else x
    if name == "exp":
        return power(E, x)
    if name == "ln":
        return _ln(x)
    if name in _TRIGONOMETRIC:
        if x.op == "deg":
            return fn(name, mul([x.args[0], PI, num(Fraction(1, 180))]))
        return _trigonometric(name, x)
    if name == "abs" and x.op in ("add", "mul"):
        return _abs(x)
    return Node("fn", args, name)


def _ln(x: Node) -> Node:
    """ln of rationals and of their powers in terms of ln of primes, so that log_2 8 folds to 3."""
    if x == E:
        return ONE
    if x.op == "num" and x.number <= 0:
        if x.number == 0:
            raise Unreadable("undefined")
        return Node("fn", (x,), "ln")
    if x.op == "num":
        value = x.number
        if num_digits(value) > 60:
            return Node("fn", (x,), "ln")
        terms = [mul([num(k), Node("fn", (num(p),), "ln")]) for p, k in factor_small(value.numerator)]
        terms += [mul([num(-k), Node("fn", (num(p),), "ln")]) for p, k in factor_small(value.denominator)]
        return add(terms)
    if x.op == "pow" and is_positive(x.args[0]) and not any(part == IMAGINARY for part in walk(x.args[1])):
        return mul([x.args[1], _ln(x.args[0])])
    if x.op == "mul" and x.args[0].op == "num" and x.args[0].number > 0:
        rest = x.args[1:]
        return add([_ln(x.args[0]), _ln(rest[0] if len(rest) == 1 else Node("mul", rest))])
    return Node("fn", (x,), "ln")


_TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})


def _trigonometric(name: str, x: Node) -> Node:
    """Exact values at multiples of pi/6 and pi/4; parity elsewhere."""
    turns = pi_multiple(x)
    if turns is not None and (known := _cosine(turns)) is not None:
        cosine, sine = known, _cosine(turns - HALF.number)
        assert sine is not None, "a quarter turn keeps a table angle in the table"
        top, bottom = {"sin": (sine, ONE), "cos": (cosine, ONE), "tan": (sine, cosine), "cot": (cosine, sine)}.get(
            name, (ONE, cosine if name == "sec" else sine)
        )
        if bottom == ZERO:
            raise Unreadable("undefined")
        return div(top, bottom)
    if leading_sign(x) < 0:
        flipped = Node("fn", (neg(x),), name)
        return flipped if name in ("cos", "sec") else neg(flipped)
    return Node("fn", (x,), name)


def pi_multiple(x: Node) -> Fraction | None:
    """c where x is c * pi for a rational c.

    >>> pi_multiple(mul([num(Fraction(1, 3)), PI]))
    Fraction(1, 3)
    """
    if x == ZERO:
        return Fraction(0)
    coefficient, rest = split_coefficient(x)
    return coefficient if rest == PI else None


@lru_cache(512)
def _cosine(turns: Fraction) -> Node | None:
    """cos(turns * pi) where the denominator divides 12."""
    turns = abs((turns + 1) % 2 - 1)
    sign = 1
    if turns > HALF.number:
        turns, sign = 1 - turns, -1
    root2, root6 = sqrt(num(2)), sqrt(num(6))
    quarter = num(Fraction(1, 4))
    table = {
        Fraction(0): ONE,
        Fraction(1, 12): mul([quarter, add([root6, root2])]),
        Fraction(1, 6): mul([HALF, sqrt(num(3))]),
        Fraction(1, 4): mul([HALF, root2]),
        Fraction(1, 3): HALF,
        Fraction(5, 12): mul([quarter, add([root6, neg(root2)])]),
        Fraction(1, 2): ZERO,
    }
    return mul([num(sign), table[turns]]) if turns in table else None


def _euler(exponent: Node) -> Node | None:
    """e^(i pi r) at the table angles, None elsewhere."""
    if exponent.op != "mul" or IMAGINARY not in exponent.args:
        return None
    turns = pi_multiple(mul(arg for arg in exponent.args if arg != IMAGINARY))
    return None if turns is None else euler(turns)


def euler(turns: Fraction) -> Node | None:
    """cos(pi turns) + i sin(pi turns) where both are in the table, None elsewhere.

    >>> euler(Fraction(1)) == MINUS_ONE
    True
    """
    cosine, sine = _cosine(turns), _cosine(turns - HALF.number)
    return None if cosine is None or sine is None else add([cosine, mul([IMAGINARY, sine])])


def is_positive(node: Node) -> bool:
    """True where the node is a positive constant for sure."""
    if node.op == "num":
        return node.number > 0
    if node.op == "pow":
        return is_positive(node.args[0]) and not any(part == IMAGINARY for part in walk(node.args[1]))
    if node.op in ("mul", "add"):
        return all(is_positive(arg) for arg in node.args)
    return node in (PI, E)


def _abs(x: Node) -> Node:
    """|c * rest| = |c| |rest|, and |a - b| = |b - a|: the leading coefficient is made positive."""
    if x.op == "mul":
        c, rest = split_coefficient(x)
        return mul([num(abs(c)), Node("fn", (rest,), "abs")]) if abs(c) != 1 or c < 0 else Node("fn", (x,), "abs")
    content = _content(x)
    if content != 1:
        x = Node("add", tuple(sorted((mul([num(1 / content), t]) for t in x.args), key=sort_key)))
    size = Node("fn", (neg(x) if leading_sign(x) < 0 else x,), "abs")
    return size if content == 1 else mul([num(content), size])


def check_size(node: Node) -> Node:
    """The node, refused where it is too large to compare within a deadline."""
    names = set[str]()
    for count, part in enumerate(walk(node)):
        if part.op == "sym":
            names.add(part.name)
        if count >= MAX_NODES or len(names) > MAX_SYMBOLS:
            raise Unreadable("bound")
    return node
