"""Is a real number made of rationals and roots zero? Decided exactly, by evaluation to enough digits.

An expression E of integers, + - * / and roots that is not zero is not very small either (Burnikel, Fleischer, Mehlhorn,
Schirra, A strong and easily computable separation bound for arithmetic expressions involving radicals, 2000):

    |E| >= 1 / (u^(D^2 - 1) l)        D the product of the root orders,

with u and l computed along the tree: u = |n|, l = 1 for an integer n; for sums u = u1 l2 + l1 u2, l = l1 l2; products
multiply; a quotient has u = u1 l2, l = l1 u2; a k-th root has u = (u l^(k-1))^(1/k) where u >= l, else l = (u^(k-1)
l)^(1/k).
"""

from __future__ import annotations

import math
from typing import Any

from algorist.verify.tree import Node, walk

_MAX_BITS = 40_000


def is_zero(node: Node) -> bool | None:
    """True or False where the tree is a real radical expression within reach, None elsewhere.

    >>> from algorist.verify.read import read
    >>> from algorist.verify.tree import add, neg
    >>> is_zero(add([read(r"\\sqrt{5+2\\sqrt6}"), neg(read(r"\\sqrt2+\\sqrt3"))]))
    True
    """
    radicals = set[Node]()
    for part in walk(node):
        if part.op == "pow" and part.args[1].op == "num":
            if part.args[1].number.denominator > 1:
                radicals.add(Node("root", (part.args[0],), part.args[1].number.denominator.__str__()))
        elif part.op not in ("num", "add", "mul"):
            return None
    orders = [int(radical.name) for radical in radicals]
    degree = math.prod(orders)
    if degree > 256:
        return None
    upper, lower = _bounds(node)
    bits = int((degree * degree - 1) * max(upper, 0.0) + max(lower, 0.0)) + 32
    if bits > _MAX_BITS:
        return None
    value = _value(node, 2 * bits + 256)
    return None if value is None else bool(abs(value) < value.context.mpf(2) ** -bits)


def _bounds(node: Node) -> tuple[float, float]:
    """(log2 u, log2 l), rounded up a little."""
    if node.op == "num":
        return math.log2(max(abs(node.number.numerator), 1)), math.log2(node.number.denominator)
    if node.op == "add":
        upper, lower = _bounds(node.args[0])
        for arg in node.args[1:]:
            u, low = _bounds(arg)
            upper, lower = _log_sum(upper + low, lower + u), lower + low
        return upper, lower
    if node.op == "mul":
        pairs = [_bounds(arg) for arg in node.args]
        return sum(u for u, _ in pairs), sum(low for _, low in pairs)
    exponent = node.args[1].number
    upper, lower = _bounds(node.args[0])
    k = exponent.denominator
    if k > 1:
        if upper >= lower:
            upper = (upper + (k - 1) * lower) / k
        else:
            lower = ((k - 1) * upper + lower) / k
    power = abs(exponent.numerator)
    upper, lower = upper * power, lower * power
    return (upper, lower) if exponent > 0 else (lower, upper)


def _log_sum(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high + math.log2(1 + 2.0 ** max(low - high, -60)) + 1e-9


def _value(node: Node, bits: int) -> Any:
    """The value to that many bits; None where a root of a negative number occurs."""
    from mpmath.ctx_mp import MPContext  # type: ignore[import-untyped]

    c = MPContext()
    c.prec = bits

    def value(part: Node) -> Any:
        if part.op == "num":
            return c.mpf(part.number.numerator) / part.number.denominator
        args = [value(arg) for arg in part.args[: 1 if part.op == "pow" else None]]
        if part.op == "add":
            return c.fsum(args)
        if part.op == "mul":
            return c.fprod(args)
        exponent = part.args[1].number
        if exponent.denominator > 1 and args[0] < 0:
            raise ValueError
        return c.root(args[0], exponent.denominator) ** exponent.numerator

    try:
        return value(node)
    except (ValueError, ZeroDivisionError):
        return None
