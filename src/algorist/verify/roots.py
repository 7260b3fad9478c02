"""Roots of natural numbers: prime powers with exponents between 0 and 1 times a rational."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from algorist.verify.node import ONE, Node, bounded, num, sort_key


def root(base: int, e: Fraction) -> Node:
    """base ** e for a positive integer base and a fraction: prime powers with exponents in (0, 1) times a rational."""
    outside, inside = Fraction(1), list[Node]()
    for prime, multiplicity in factor_small(base):
        whole = multiplicity * e
        floor = math.floor(whole)
        outside *= Fraction(prime) ** floor
        if whole != floor:
            inside.append(Node("pow", (num(prime), num(whole - floor))))
    parts = sorted(inside, key=sort_key)
    if outside != 1:
        parts.insert(0, num(bounded(outside)))
    if not parts:
        return ONE
    return parts[0] if len(parts) == 1 else Node("mul", tuple(parts))


_PRIMES = [p for p in range(2, 2000) if all(p % q for q in range(2, math.isqrt(p) + 1))]


@lru_cache(4096)
def factor_small(n: int) -> tuple[tuple[int, int], ...]:
    """Factors of n below 2000, and what is left as one factor (a perfect power is taken apart).

    >>> factor_small(720)
    ((2, 4), (3, 2), (5, 1))
    """
    found = []
    for p in _PRIMES:
        if p * p > n:
            break
        count = 0
        while n % p == 0:
            n, count = n // p, count + 1
        if count:
            found.append((p, count))
    if n > 1:
        found.append(_perfect_power(n))
    return tuple(found)


def _perfect_power(n: int) -> tuple[int, int]:
    if n.bit_length() < 512:
        for k in (2, 3, 5):
            root = math.isqrt(n) if k == 2 else round(n ** (1 / k)) if n.bit_length() < 900 else 0
            if root > 1 and root**k == n:
                return root, k
    return n, 1
