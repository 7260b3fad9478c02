"""The last step, in a worker only: sympy decides whether a difference that vanishes at every point is zero.

The sympy expression is built node by node from our own tree; no text reaches sympy's parsers.
"""

from __future__ import annotations

from typing import Any

import sympy

from algorist.verify import compare, numeric, tree
from algorist.verify.compare import Finding
from algorist.verify.tree import Node, Unreadable

_FUNCTIONS: dict[str, Any] = {
    "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec, "csc": sympy.csc,
    "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "sinh": sympy.sinh, "cosh": sympy.cosh,
    "tanh": sympy.tanh,
    "coth": sympy.coth, "arcsinh": sympy.asinh, "arccosh": sympy.acosh, "arctanh": sympy.atanh, "ln": sympy.log,
    "abs": sympy.Abs, "re": sympy.re, "im": sympy.im, "floor": sympy.floor, "ceil": sympy.ceiling,
    "factorial": sympy.factorial, "binomial": sympy.binomial,
}  # fmt: skip
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
NUMERIC_POINTS = 12


def build(node: Node, *, positive: bool = False, integer: bool = False) -> Any:
    """The sympy expression of a tree; symbols are real, positive, or positive integers."""
    if node.op == "num":
        return sympy.Rational(node.number.numerator, node.number.denominator)
    if node.op == "const":
        return _CONSTANTS[node.name]
    if node.op == "sym":
        if integer:
            return sympy.Symbol(f"s_{node.name}", integer=True, positive=True)
        return sympy.Symbol(f"s_{node.name}", positive=True) if positive else sympy.Symbol(f"s_{node.name}", real=True)
    if node.op == "fn" and node.name not in _FUNCTIONS:
        return sympy.Symbol(f"opaque_{hash(node)}", positive=positive or None, real=True)
    args = [build(arg, positive=positive, integer=integer) for arg in node.args]
    if node.op == "add":
        return sympy.Add(*args)
    if node.op == "mul":
        return sympy.Mul(*args)
    if node.op == "pow":
        return _power(*args)
    if node.op == "deg":
        return args[0] * sympy.pi / 180
    if node.op == "pct":
        return args[0] / 100
    if node.op == "fn":
        return _FUNCTIONS[node.name](*args)
    raise Unreadable("operator")


def _power(base: Any, exponent: Any) -> Any:
    """As in `numeric`: the real root of a negative number where the exponent has an odd denominator."""
    if base.is_number and base.is_negative and exponent.is_Rational and exponent.q > 1 and exponent.q % 2:
        return (-1) ** exponent.p * (-base) ** exponent
    return base**exponent


def prove(a: Node, b: Node) -> Finding:
    """Equal, different or unsure about two scalars that agree at random points.

    A constant difference is decided by sympy's own zero test (with an evaluation to 200 digits against tiny values).
    Where no simplification reaches zero, twelve points agree and both sides use the same functions, the answer is equal
    by the `numeric` method, which the record shows.
    """
    real = build(a, positive=False) - build(b, positive=False)
    if real == 0:
        return compare.equal("symbolic")
    if real.is_number:
        return _constant(a, b, real)
    if _is_zero(real):
        return compare.equal("symbolic")
    if _is_zero(build(a, positive=True) - build(b, positive=True)) and numeric.agree(a, b, NUMERIC_POINTS):
        return compare.equal("symbolic")
    indices = numeric.are_indices(numeric.atoms(a) | numeric.atoms(b))
    if indices and _is_zero(build(a, integer=True) - build(b, integer=True)):
        return compare.equal("symbolic")
    if numeric.agree(a, b, NUMERIC_POINTS) and _vocabulary(a) == _vocabulary(b):
        return compare.equal("numeric")
    return compare.unsure("unproved")


def _is_zero(difference: Any) -> bool:
    if difference == 0:
        return True
    for step in (sympy.expand, sympy.together, sympy.trigsimp, sympy.radsimp, sympy.simplify, _expand_all):
        difference_now = step(difference)
        if difference_now == 0 or sympy.expand(difference_now) == 0:
            return True
    return False


def _expand_all(difference: Any) -> Any:
    exponential = difference.rewrite(sympy.exp)
    return sympy.simplify(sympy.expand(sympy.expand_log(exponential, force=False), complex=False))


def _constant(a: Node, b: Node, difference: Any) -> Finding:
    """Two constants that agree to 200 digits are equal where sympy proves it or both use the same functions."""
    value = difference.evalf(200, maxn=1200)
    if abs(value) > sympy.Float(10) ** -150:
        return compare.different("numeric")
    if abs(value) > sympy.Float(10) ** -180:
        return compare.unsure("unproved")
    if difference.is_zero:
        return compare.equal("symbolic")
    if _vocabulary(a) == _vocabulary(b):
        return compare.equal("numeric")
    return compare.equal("symbolic") if _is_zero(difference) else compare.unsure("unproved")


def _vocabulary(node: Node) -> frozenset[str]:
    return frozenset(part.name for part in tree.walk(node) if part.op in ("fn", "const", "sym"))
