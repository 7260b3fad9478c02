"""Polynomials with rational coefficients over arbitrary atoms, as dictionaries; powers of an atom may be negative.

A monomial is a frozen set of (atom, power). Rules, such as i^2 = -1, belong to the caller, who passes a reducer.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

Atom = object
Monomial = frozenset[tuple[Atom, int]]
Polynomial = dict[Monomial, Fraction]
Reducer = Callable[[Polynomial], Polynomial]

MAX_TERMS = 400
UNIT: Monomial = frozenset()
ONE: Polynomial = {UNIT: Fraction(1)}


class TooLarge(Exception):
    """A result would have more than MAX_TERMS terms."""


def constant(value: Fraction) -> Polynomial:
    """The constant polynomial; zero is the empty one.

    >>> constant(Fraction(0))
    {}
    """
    return {UNIT: value} if value else {}


def negated(p: Polynomial) -> Polynomial:
    """-p."""
    return {m: -c for m, c in p.items()}


def subtract(p: Polynomial, q: Polynomial) -> Polynomial:
    """p - q."""
    out = dict(p)
    for m, c in q.items():
        value = out.get(m, Fraction(0)) - c
        if value:
            out[m] = value
        else:
            out.pop(m, None)
    return out


def plus(p: Polynomial, q: Polynomial) -> Polynomial:
    """p + q."""
    return subtract(p, negated(q))


def times(p: Polynomial, q: Polynomial, reduce: Reducer) -> Polynomial:
    """p * q, reduced. Raises TooLarge."""
    if len(p) * len(q) > 4 * MAX_TERMS:
        raise TooLarge
    if p == ONE or q == ONE:
        return q if p == ONE else p
    out: Polynomial = {}
    for m, c in p.items():
        for n, d in q.items():
            product = joined(m, n)
            value = out.get(product, Fraction(0)) + c * d
            if value:
                out[product] = value
            else:
                out.pop(product, None)
    if len(out) > MAX_TERMS:
        raise TooLarge
    return reduce(out)


def joined(m: Monomial, n: Monomial) -> Monomial:
    """m * n."""
    if not m or not n:
        return m or n
    powers = dict(m)
    for atom, power in n:
        power += powers.pop(atom, 0)
        if power:
            powers[atom] = power
    return frozenset(powers.items())


def leading(p: Polynomial) -> Fraction:
    """Coefficient of the first monomial in a fixed order."""
    return p[min(p, key=lambda m: sorted((repr(atom), power) for atom, power in m))]


def monic(p: Polynomial) -> Polynomial:
    """p divided by its leading coefficient."""
    scale = leading(p)
    return {m: c / scale for m, c in p.items()}


def cleared(p: Polynomial, nonzero: Callable[[Atom], bool]) -> Polynomial:
    """p times the monomial of never-vanishing atoms that makes their lowest power zero in every term.

    >>> cleared({frozenset({("x", -1)}): Fraction(2)}, lambda atom: True)
    {frozenset(): Fraction(2, 1)}
    """
    lowest: dict[Atom, int] = {}
    for atom in {atom for m in p for atom, _ in m if nonzero(atom)}:
        lowest[atom] = min(dict(m).get(atom, 0) for m in p)
    shift: Monomial = frozenset((atom, -power) for atom, power in lowest.items() if power)
    return {joined(m, shift): c for m, c in p.items()}
