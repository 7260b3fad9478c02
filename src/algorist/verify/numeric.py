"""Refutation by evaluation: two trees that differ at a random point are different.

Values have 50 digits, so that a difference in the thirtieth place refutes and rounding does not. Magnitudes are bounded
before a function is called, so an evaluation takes time in proportion to the tree. Agreement proves nothing here.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from algorist.verify.tree import Node, Unreadable, walk

DIGITS = 50
_AGREE = 1e-38  # relative; 12 guard digits for cancellation inside an expression
_CANCELLED = 1e-44  # below this share of a term that cancelled, a difference is rounding
_HUGE = 10**7

_local = threading.local()


class Undefined(Exception):
    """No value at this point: a pole, the logarithm of zero, a real function of a complex number."""


def context() -> Any:
    """A 50-digit mpmath context of this thread (mpmath changes the precision of a context while it works)."""
    found = getattr(_local, "context", None)
    if found is None:
        from mpmath.ctx_mp import MPContext  # type: ignore[import-untyped]

        found = MPContext()
        found.dps = DIGITS
        _local.context = found
    return found


def evaluate(node: Node, point: Mapping[Node, Any], seen: list[Any] | None = None, *, real: bool = False) -> Any:
    """Value of a tree at a point that maps symbols and opaque nodes to numbers.

    `seen` collects the magnitudes among which digits can cancel: terms of sums and arguments of functions. With `real`,
    roots and logarithms of negative numbers are undefined even where they cancel later.
    """
    c = context()
    if node.op == "num":
        value = node.number
        if value.numerator.bit_length() > 40_000 or value.denominator.bit_length() > 40_000:
            raise Unreadable("bound")
        return c.mpf(value.numerator) / value.denominator
    if node in point:
        return point[node]
    if node.op == "const":
        if node.value == "inf":
            raise Undefined
        return {"pi": +c.pi, "e": +c.e, "i": c.mpc(0, 1)}[node.name]
    if node.op not in _EVALUATED:
        raise Unreadable("operator")
    args = [evaluate(arg, point, seen, real=real) for arg in node.args]
    if seen is not None and node.op in ("add", "fn"):
        seen.extend(abs(arg) for arg in args)
    if node.op == "add":
        return c.fsum(args)
    if node.op == "mul":
        return c.fprod(args)
    if node.op == "pow":
        return _power(c, args[0], args[1], real)
    if node.op == "deg":
        return args[0] * c.pi / 180
    if node.op == "pct":
        return args[0] / 100
    if real and node.value in ("ln", "log") and any(c.im(arg) == 0 and arg < 0 for arg in args):
        raise Undefined
    return _function(c, node.name, args)


_EVALUATED = frozenset({"add", "mul", "pow", "deg", "pct", "fn"})


def _power(c: Any, base: Any, exponent: Any, real: bool) -> Any:
    if base == 0:
        if c.re(exponent) <= 0:
            raise Undefined
        return c.mpf(0)
    if abs(exponent) > _HUGE or abs(exponent * c.log(base)) > _HUGE:
        raise Unreadable("bound")
    if c.im(base) == 0 and c.im(exponent) == 0 and base < 0:
        root = _odd_root(c, base, exponent)
        if root is not None:
            return root
        if real and c.nint(exponent) != exponent:
            raise Undefined
    return c.power(base, exponent)


def _odd_root(c: Any, base: Any, exponent: Any) -> Any:
    """(-8)^(1/3) = -2, the real root, where the exponent is a small odd fraction."""
    for q in (3, 5, 7, 9):
        p = exponent * q
        whole = c.nint(p)
        if abs(p - whole) < c.mpf(10) ** -40 and int(whole) % q and abs(whole) < 1000:
            value = c.power(-base, exponent)
            return -value if int(whole) % 2 else value
    return None


def _function(c: Any, name: str, args: list[Any]) -> Any:
    x = args[0]
    if abs(x) > _HUGE and name not in ("abs", "ln", "floor", "ceil", "log", "arctan"):
        raise Unreadable("bound")
    if name in _PLAIN:
        return getattr(c, _PLAIN[name])(x)
    if name in ("ln", "log"):
        if any(value == 0 for value in args) or (name == "log" and args[0] == 1):
            raise Undefined
        return c.log(x) if name == "ln" else c.log(args[1]) / c.log(args[0])
    if name in _RECIPROCAL:
        value = getattr(c, _RECIPROCAL[name])(x)
        if abs(value) < c.mpf(10) ** -40:
            raise Undefined
        return 1 / value
    if name in ("tan", "tanh"):
        bottom = c.cos(x) if name == "tan" else c.cosh(x)
        if abs(bottom) < c.mpf(10) ** -40:
            raise Undefined
        return (c.sin(x) if name == "tan" else c.sinh(x)) / bottom
    if name in ("factorial", "binomial"):
        if any(abs(value) > 3000 for value in args) or any(c.im(value) != 0 for value in args):
            raise Unreadable("bound")
        return c.gamma(x + 1) if name == "factorial" else c.binomial(*args)
    if name in ("floor", "ceil"):
        if c.im(x) != 0:
            raise Undefined
        return getattr(c, name)(x)
    raise Unreadable("operator")


_PLAIN = {
    "sin": "sin", "cos": "cos", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "abs": "fabs", "re": "re", "im": "im",
}  # fmt: skip
_RECIPROCAL = {"cot": "tan", "sec": "cos", "csc": "sin", "coth": "tanh"}
FUNCTIONS = frozenset({*_PLAIN, *_RECIPROCAL, "ln", "log", "tan", "tanh", "factorial", "binomial", "floor", "ceil"})


def atoms(node: Node) -> set[Node]:
    """What a point must give values to: symbols and opaque functions (topmost only)."""
    if node.op == "sym" or (node.op == "fn" and node.name not in FUNCTIONS):
        return {node}
    found = set[Node]()
    for arg in node.args:
        found |= atoms(arg)
    return found


def has_i(node: Node) -> bool:
    """True where the imaginary unit occurs."""
    return any(part.op == "const" and part.value == "i" for part in walk(node))


_INDEX_NAMES = frozenset("nkmjlNpqr")


def are_indices(names: Iterable[Node]) -> bool:
    """True where all are letters that usually stand for natural numbers."""
    return all(n.op == "sym" and n.name[:1] in _INDEX_NAMES for n in names)


def agree(a: Node, b: Node, points: int = 6) -> bool | None:
    """False where a point refutes a = b, True where all points agree, None where no point could be evaluated.

    Real points; one at which either side is not real counts only where the imaginary unit is written out. Where real
    points say nothing and all symbols are index names, natural points are tried.
    """
    names = sorted(atoms(a) | atoms(b), key=repr)
    if not names:
        return _agree_at(a, b, {}, complex_allowed=True)
    complex_allowed = has_i(a) or has_i(b)
    rng = random.Random(" ".join(n.name for n in names))
    agreed = 0
    for index in range(points * 4):
        point = _point(rng, names, index)
        verdict = _agree_at(a, b, point, complex_allowed=complex_allowed)
        if verdict is False:
            return False
        agreed += verdict is True
        if agreed >= points:
            return True
    if agreed >= 2:
        return True
    if are_indices(names):
        verdicts = [
            _agree_at(a, b, {n: context().mpf(rng.randint(1, 14)) for n in names}, complex_allowed=True)
            for _ in range(points * 2)
        ]
        if False in verdicts:
            return False
        return True if verdicts.count(True) >= points else None
    return None


def _point(rng: random.Random, names: list[Node], index: int) -> dict[Node, Any]:
    """Rationals of small, moderate and larger size; every fourth point is negative, another one has signs that alternate."""
    c = context()
    point = {}
    for place, name in enumerate(names):
        value = Fraction(rng.randint(1_000, 29_999), 9_973) * (1, Fraction(1, 4), 1, 7)[index % 4]
        if index % 4 == 2 or (index % 4 == 3 and (place + index // 4) % 2):
            value = -value
        point[name] = c.mpf(value.numerator) / value.denominator
    return point


def _agree_at(a: Node, b: Node, point: Mapping[Node, Any], *, complex_allowed: bool) -> bool | None:
    c = context()
    try:
        seen: list[Any] = []
        real = not complex_allowed
        x, y = evaluate(a, point, seen, real=real), evaluate(b, point, seen, real=real)
    except (Undefined, ZeroDivisionError, ValueError, OverflowError):
        return None
    scale = max(abs(x), abs(y))
    if not c.isfinite(scale):
        return None
    if not complex_allowed and (_not_real(c, x) or _not_real(c, y)):
        return None
    return bool(abs(x - y) <= max([scale * _AGREE, *(size * _CANCELLED for size in seen)]))


def _not_real(c: Any, x: Any) -> bool:
    return bool(abs(c.im(x)) > abs(x) * _AGREE)


def apart(a: Node, b: Node) -> bool:
    """True where both are real constants that differ: a cheap filter before a full comparison."""
    if not (_plain(a) and _plain(b)):
        return False
    x, y = constant(a), constant(b)
    return x is not None and y is not None and bool(abs(x - y) > max(abs(x), abs(y), 1) * 1e-30)


def _plain(node: Node) -> bool:
    return node.op in ("num", "const", "add", "mul", "pow", "fn")


@lru_cache(4096)
def constant(node: Node) -> Any:
    """Real value of a constant tree, or None."""
    try:
        value = evaluate(node, {})
    except (Undefined, Unreadable, ZeroDivisionError, ValueError, OverflowError, KeyError):
        return None
    c = context()
    return None if _not_real(c, value) or not c.isfinite(value) else c.re(value)


def constant_ratio(a: Node, b: Node, points: int = 6) -> Fraction | None:
    """The rational c with a = c * b at all points; None where there is none or it is not a small fraction."""
    names = sorted(atoms(a) | atoms(b), key=repr)
    rng = random.Random(" ".join(n.name for n in names))
    c = context()
    ratios: list[Any] = []
    for index in range(points * 3):
        point = _point(rng, names, index)
        try:
            x, y = evaluate(a, point), evaluate(b, point)
        except (Undefined, ZeroDivisionError, ValueError, OverflowError):
            continue
        if y and c.isfinite(x) and c.isfinite(y):
            ratios.append(x / y)
        if len(ratios) >= points:
            break
    if len(ratios) < 2 or any(abs(r - ratios[0]) > abs(ratios[0]) * _AGREE for r in ratios):
        return None
    if not ratios[0] or abs(c.im(ratios[0])) > _AGREE:
        return None
    guess = Fraction(str(c.re(ratios[0]))).limit_denominator(10**6)
    return guess if abs(c.mpf(guess.numerator) / guess.denominator - ratios[0]) < abs(ratios[0]) * _AGREE else None
