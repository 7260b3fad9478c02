"""Equality of expressions as rational functions: an exact proof without a computer algebra system.

An expression becomes numerator / denominator, two polynomials over atoms: symbols, roots, exponentials, opaque things.
sin and cos are written in z = e^(i t), hyperbolic functions in e^t, and a^(u + v) as a^u a^v, with one unit for each
base and exponent, so that multiple angles, sums of angles and laws of exponents hold by themselves. i^2 = -1 and r^q =
base for r = base^(1/q) are applied. A difference that vanishes proves equality; one that does not proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from typing import NamedTuple, final

from algorist.verify import polynomial, tree
from algorist.verify.polynomial import (
    ONE,
    UNIT,
    Monomial,
    Polynomial,
    TooLarge,
    cleared,
    constant,
    monic,
    plus,
    subtract,
)
from algorist.verify.tree import Node, Unreadable

_MAX_POWER = 64
_PI_KEY: Monomial = frozenset({(tree.PI, 1)})
_I_TERM = (tree.IMAGINARY, 1)


class Quotient(NamedTuple):
    """top / bottom; the bottom is never the zero polynomial."""

    top: Polynomial
    bottom: Polynomial

    def frozen(self) -> Hashable:
        """A hashable form, equal for equal pairs up to a rational factor of both."""
        scale = polynomial.leading(self.bottom)
        return (
            frozenset((m, c / scale) for m, c in self.top.items()),
            frozenset((m, c / scale) for m, c in self.bottom.items()),
        )


class Power(NamedTuple):
    """The atom base^(exponent / units): an exponential with its smallest needed step."""

    base: Hashable
    """'cis' for e^i, 'exp' for e, a prime, or a frozen quotient."""
    exponent: Hashable


class Root(NamedTuple):
    """The atom base^(1/order)."""

    base: Hashable
    order: int


def equal(a: Node, b: Node) -> bool:
    """True where a = b is proved; False means not proved.

    >>> from algorist.verify.read import read
    >>> equal(read("(x+1)^2"), read("x^2+2x+1")), equal(read("x"), read("x+1"))
    (True, False)
    >>> equal(read(r"\\cos 4x"), read(r"8\\cos^4 x-8\\cos^2 x+1"))
    True
    """
    try:
        converter = _prepared(a, b)
        left, right = converter.convert(a), converter.convert(b)
        return not converter.cross(left, right)
    except (TooLarge, Unreadable, RecursionError):
        return False


def equation(left: Node, right: Node) -> tuple[Polynomial, Polynomial] | None:
    """(numerator, denominator) of left - right, the numerator without common exponentials and with leading coefficient 1;
    None where out of reach."""
    try:
        converter = _prepared(left, right)
        a, b = converter.convert(left), converter.convert(right)
        top, bottom = converter.cross(a, b), converter.times(a.bottom, b.bottom)
    except (TooLarge, Unreadable, RecursionError):
        return None
    return (monic(top), bottom) if top else None


def same_solutions(a: tuple[Polynomial, Polynomial], b: tuple[Polynomial, Polynomial]) -> bool:
    """True where two numerators agree and no denominator could hide a solution of the other."""
    return a[0] == b[0] and all(len(side[1]) == 1 and _harmless(side[1], a[0]) for side in (a, b))


def _harmless(bottom: Polynomial, top: Polynomial) -> bool:
    """A monomial denominator x^k is harmless where the numerator does not vanish at x = 0 (xy = 1 against y = 1/x)."""
    (monomial,) = bottom
    for atom, _ in monomial:
        if isinstance(atom, Power | Root) or (isinstance(atom, Node) and tree.is_positive(atom)):
            continue
        if {m for m in top if not any(name == atom for name, _ in m)} != {UNIT}:
            return False
    return True


def sign_factor(a: tuple[Node, Node], b: tuple[Node, Node]) -> int:
    """1 or -1 where (a0 - a1) is a positive or negative rational multiple of (b0 - b1), 0 otherwise."""
    try:
        converter = _prepared(*a, *b)
        first = converter.convert(tree.add([a[0], tree.neg(a[1])]))
        second = converter.convert(tree.add([b[0], tree.neg(b[1])]))
        x, y = converter.times(first.top, second.bottom), converter.times(second.top, first.bottom)
    except (TooLarge, Unreadable, RecursionError):
        return 0
    if not x or x.keys() != y.keys():
        return 0
    factors = {x[m] / y[m] for m in x}
    return (1 if factors.pop() > 0 else -1) if len(factors) == 1 else 0


def _prepared(*nodes: Node) -> _Converter:
    """A converter that knows the step of every exponential in these trees."""
    converter = _Converter()
    for node in nodes:
        converter.convert(node)
    converter.learning = False
    return converter


@final
class _Converter:
    """Trees to quotients. While learning it only collects, per exponential, the common denominator of its exponents."""

    def __init__(self) -> None:
        self.learning = True
        self.steps: dict[Power, int] = {}
        self.bases: dict[Root, Quotient] = {}

    # arithmetic

    def times(self, p: Polynomial, q: Polynomial) -> Polynomial:
        return polynomial.times(p, q, self.reduce)

    def product(self, a: Quotient, b: Quotient) -> Quotient:
        return Quotient(self.times(a.top, b.top), self.times(a.bottom, b.bottom))

    def total(self, a: Quotient, b: Quotient) -> Quotient:
        if a.bottom == b.bottom:
            return Quotient(plus(a.top, b.top), a.bottom)
        top = plus(self.times(a.top, b.bottom), self.times(b.top, a.bottom))
        return Quotient(top, self.times(a.bottom, b.bottom))

    def cross(self, a: Quotient, b: Quotient) -> Polynomial:
        difference = subtract(self.times(a.top, b.bottom), self.times(b.top, a.bottom))
        return cleared(difference, lambda atom: isinstance(atom, Power))

    def over(self, a: Quotient, b: Quotient) -> Quotient:
        if not b.top:
            if self.learning:  # exponentials stand for 1 while their steps are collected
                return a
            raise Unreadable("undefined")
        return self.product(a, Quotient(b.bottom, b.top))

    def whole_power(self, q: Quotient, power: int) -> Quotient:
        if abs(power) > _MAX_POWER:
            raise TooLarge
        if power < 0:
            q, power = self.over(Quotient(ONE, ONE), q), -power
        result = Quotient(ONE, ONE)
        for _ in range(power):
            result = self.product(result, q)
        return result

    def reduce(self, p: Polynomial) -> Polynomial:
        """Apply i^2 = -1 and r^q = base until neither fits."""
        for _ in range(400):
            step = self._step(p)
            if step is None:
                return p
            p = step
        raise TooLarge

    def _step(self, p: Polynomial) -> Polynomial | None:
        for monomial, coefficient in p.items():
            for atom, power in monomial:
                if atom == tree.IMAGINARY and not 0 <= power < 2:
                    rest = monomial - {(atom, power)}
                    turned = {0: (rest, 1), 1: (rest | {_I_TERM}, 1), 2: (rest, -1), 3: (rest | {_I_TERM}, -1)}[
                        power % 4
                    ]
                    without = {m: c for m, c in p.items() if m != monomial}
                    return plus(without, {turned[0]: coefficient * turned[1]})
                if isinstance(atom, Root) and power >= atom.order and self.bases[atom].bottom.keys() == {UNIT}:
                    base = self.bases[atom]
                    scale = base.bottom[UNIT]
                    left = power - atom.order
                    rest = monomial - {(atom, power)} | ({(atom, left)} if left else frozenset())
                    without = {m: c for m, c in p.items() if m != monomial}
                    value = {m: c * coefficient / scale for m, c in base.top.items()}
                    return plus(without, polynomial.times({rest: Fraction(1)}, value, lambda q: q))
        return None

    # conversion

    def convert(self, node: Node) -> Quotient:
        if node.op == "num":
            return Quotient(constant(node.number), ONE)
        if node.op == "add":
            total = self.convert(node.args[0])
            for arg in node.args[1:]:
                total = self.total(total, self.convert(arg))
            return total
        if node.op == "mul":
            product = self.convert(node.args[0])
            for arg in node.args[1:]:
                product = self.product(product, self.convert(arg))
            return product
        if node.op == "pow":
            return self.power(node.args[0], node.args[1])
        if node.op in ("deg", "pct"):
            unit = [tree.PI, tree.num(Fraction(1, 180))] if node.op == "deg" else [tree.num(Fraction(1, 100))]
            return self.convert(tree.mul([node.args[0], *unit]))
        if node.op == "fn":
            return self.function(node)
        if node.op in ("sym", "const") and node != tree.INF:
            return self.atom(node)
        raise Unreadable("operator")

    def atom(self, atom: Hashable, power: int = 1) -> Quotient:
        return Quotient(self.reduce({frozenset({(atom, power)}): Fraction(1)}), ONE)

    def function(self, node: Node) -> Quotient:
        name = node.name
        if name in _CIRCULAR:
            return self.circular(name, self.convert(node.args[0]))
        if name in _HYPERBOLIC:
            up = self.exponential("exp", self.convert(node.args[0]), 1)
            down = self.exponential("exp", self.convert(node.args[0]), -1)
            sine, cosine = self.halved(up, down, -1), self.halved(up, down, 1)
            return {"sinh": sine, "cosh": cosine}.get(name) or (
                self.over(sine, cosine) if name == "tanh" else self.over(cosine, sine)
            )
        if name.startswith(("op:", "app:")):
            return self.atom(node)
        return self.atom((name, *(self.convert(arg).frozen() for arg in node.args)))

    def halved(self, up: Quotient, down: Quotient, sign: int) -> Quotient:
        total = self.total(up, Quotient({m: c * sign for m, c in down.top.items()}, down.bottom))
        return Quotient({m: c / 2 for m, c in total.top.items()}, total.bottom)

    def circular(self, name: str, angle: Quotient) -> Quotient:
        up, down = self.exponential("cis", angle, 1), self.exponential("cis", angle, -1)
        cosine = self.halved(up, down, 1)
        sine = self.product(self.halved(up, down, -1), self.atom(tree.IMAGINARY, -1))
        one = Quotient(ONE, ONE)
        pairs = {"sin": (sine, one), "cos": (cosine, one), "tan": (sine, cosine), "cot": (cosine, sine),
        "sec": (one, cosine),
                 "csc": (one, sine)}  # fmt: skip
        return self.over(*pairs[name])

    def exponential(self, base: Hashable, exponent: Quotient, sign: int) -> Quotient:
        """base^(sign * exponent) as a product of powers of units, one factor for each term of the exponent."""
        result = Quotient(ONE, ONE)
        for key, coefficient in self.terms(exponent):
            kind, term = base, key
            if base == "exp" and isinstance(key, frozenset) and _I_TERM in key:
                kind, term = "cis", key - {_I_TERM}
            if kind == "cis" and term == _PI_KEY and (known := self.turned(sign * coefficient)) is not None:
                result = self.product(result, known)
            else:
                result = self.product(result, self.stepped(Power(kind, term), sign * coefficient))
        return result

    def terms(self, exponent: Quotient) -> list[tuple[Hashable, Fraction]]:
        """(key, coefficient) of the terms of a sum; a true quotient is one term."""
        if exponent.bottom.keys() == {UNIT}:
            scale = exponent.bottom[UNIT]
            return [(m, c / scale) for m, c in exponent.top.items()]
        if not exponent.top:
            return []
        scale = polynomial.leading(exponent.top) / polynomial.leading(exponent.bottom)
        return [(Quotient({m: c / scale for m, c in exponent.top.items()}, exponent.bottom).frozen(), scale)]

    def stepped(self, atom: Power, coefficient: Fraction) -> Quotient:
        """atom^coefficient, in steps of 1/steps[atom]."""
        if self.learning:
            self.steps[atom] = math.lcm(self.steps.get(atom, 1), coefficient.denominator)
            return Quotient(ONE, ONE)
        power = coefficient * self.steps.get(atom, 1)
        if power.denominator != 1 or abs(power) > 10**4:
            raise TooLarge
        return self.atom(atom, power.numerator)

    def turned(self, turns: Fraction) -> Quotient | None:
        """e^(i pi turns) at the table angles."""
        value = tree.euler(turns)
        return None if value is None else self.convert(value)

    def power(self, base: Node, exponent: Node) -> Quotient:
        if exponent.op == "num" and exponent.number.denominator == 1:
            return self.whole_power(self.convert(base), exponent.number.numerator)
        if base == tree.E:
            return self.exponential("exp", self.convert(exponent), 1)
        if exponent.op == "num":
            return self.rooted(base, exponent.number)
        result = Quotient(ONE, ONE)
        for key, coefficient in self.terms(self.convert(exponent)):
            if key == UNIT:
                result = self.product(result, self.convert(tree.power(base, tree.num(coefficient))))
            elif base.op == "num" and base.number > 0:
                for part, sign in ((base.number.numerator, 1), (base.number.denominator, -1)):
                    for prime, multiplicity in tree.factor_small(part):
                        result = self.product(
                            result, self.stepped(Power(prime, key), coefficient * multiplicity * sign)
                        )
            else:
                result = self.product(result, self.stepped(Power(self.convert(base).frozen(), key), coefficient))
        return result

    def rooted(self, base: Node, exponent: Fraction) -> Quotient:
        """base^(p/q) = (base^(1/q))^p."""
        inside = self.convert(base)
        root = Root(inside.frozen(), exponent.denominator)
        self.bases[root] = inside
        if abs(exponent.numerator) > _MAX_POWER:
            raise TooLarge
        if exponent > 0:
            return self.atom(root, exponent.numerator)
        return Quotient(ONE, self.atom(root, -exponent.numerator).top)


_CIRCULAR = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_HYPERBOLIC = frozenset({"sinh", "cosh", "tanh", "coth"})
