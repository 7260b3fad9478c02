"""Sets of real numbers: intervals, inequalities, unions, differences, compared by membership.

Two sets with finitely many end points are equal when they agree at every end point of either, between neighbours, and
outside. That needs only the order of the end points, which 50-digit values give.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from algorist.verify import numeric, tree
from algorist.verify.tree import Node

_SAME = 1e-40
_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


class NotReal(Exception):
    """Not a set of reals with constant end points."""


def variable(node: Node) -> str:
    """The unknown that conditions speak about, '' where none is named. Raises NotReal for two."""
    found = {part.name for part in tree.walk(node) if part.op == "sym" and part.name != r"\mathbb{R}"}
    if len(found) > 1:
        raise NotReal
    return found.pop() if found else ""


def is_set(node: Node) -> bool:
    """True for what can be compared as a set of reals: intervals, conditions and what is made of them."""
    if node.op == "interval":
        return True
    if node.op == "rel":
        return bool(set(node.name.split()) & {"<", ">", "<=", ">=", "!=", "in"})
    if node.op in ("union", "inter", "minus", "and", "builder"):
        return True
    return node.op == "sym" and node.value == r"\mathbb{R}"


def equal(a: Node, b: Node) -> bool | None:
    """Whether two sets of reals are equal; None where their end points are not constants."""
    try:
        if _closed_at_infinity(a) != _closed_at_infinity(b):
            return False
        free = [variable(side) for side in (a, b)]
        names = {name for side, name in zip((a, b), free, strict=True) if name and side.op != "builder"}
        if len(names) > 1:
            return None
        points = sorted(_merged([*_ends(a), *_ends(b)]))
    except NotReal:
        return None
    if not points:
        probes = [numeric.context().mpf(0)]
    else:
        probes = [points[0] - 1, *points, points[-1] + 1]
        probes += [(low + high) / 2 for low, high in itertools.pairwise(points)]
    try:
        return all(contains(a, x) == contains(b, x) for x in probes)
    except NotReal:
        return None


def _merged(values: list[Any]) -> list[Any]:
    out: list[Any] = []
    for value in sorted(values):
        if not out or abs(value - out[-1]) > _SAME * max(1, abs(value)):
            out.append(value)
    return out


def _value(node: Node) -> Any:
    value = numeric.constant(node)
    if value is None:
        raise NotReal
    return value


def _infinite(node: Node) -> int:
    """1 and -1 for the infinities, 0 for the rest."""
    if node == tree.INF:
        return 1
    return -1 if node == tree.neg(tree.INF) else 0


def _ends(node: Node) -> list[Any]:
    """All finite end points."""
    if node.op == "list" and any(arg.op == "interval" for arg in node.args):
        return [end for arg in node.args for end in _ends(arg)]
    if node.op == "interval" and not any(map(_infinite, node.args)):
        low, high = (_value(arg) for arg in node.args)
        if low > high or (_same(low, high) and node.name != "[]"):
            raise NotReal  # (3, 2) is a point, not an empty set
        return [low, high]
    if node.op in ("interval", "set", "list"):
        return [_value(arg) for arg in node.args if not _infinite(arg)]
    if node.op in ("union", "inter", "minus", "and"):
        return [end for arg in node.args for end in _ends(arg)]
    if node.op == "builder":
        return _ends(node.args[1])
    if node.op == "rel":
        if "in" in node.name.split():
            return _ends(node.args[1])
        centres = [centre for arg in node.args if (centre := _distance_from(arg)) is not None]
        ends = [_value(arg) for arg in node.args if not _is_unknown(arg) and not _infinite(arg)]
        return ends if not centres else [c + s * end for c in centres for end in ends for s in (1, -1)]
    if node.op == "sym" and node.value == r"\mathbb{R}":
        return []
    raise NotReal


def _closed_at_infinity(node: Node) -> bool:
    """(3, oo] has a member that no set of reals has."""
    return any(
        part.op == "interval"
        and ((_infinite(part.args[0]) and part.name[0] == "[") or (_infinite(part.args[1]) and part.name[1] == "]"))
        for part in tree.walk(node)
    )


def _distance_from(node: Node) -> Any:
    """c where the node is |x - c|, else None."""
    if node.op != "fn" or node.value != "abs":
        return None
    inside = node.args[0]
    if inside.op == "sym":
        return numeric.context().mpf(0)
    if inside.op == "add" and len(inside.args) == 2 and inside.args[1].op == "sym":
        return -_value(inside.args[0])
    return None


def _is_unknown(node: Node) -> bool:
    return node.op == "sym" or _distance_from(node) is not None


def _at(node: Node, x: Any) -> Any:
    return x if node.op == "sym" else abs(x - _distance_from(node))


def contains(node: Node, x: Any) -> bool:
    """Membership of a number. Raises NotReal where the node is no set of reals."""
    if node.op == "interval":
        low, high = node.args
        above = _compare(x, low, ">=" if node.name[0] == "[" else ">")
        return above and _compare(x, high, "<=" if node.name[1] == "]" else "<")
    if node.op in ("set", "list"):
        if node.op == "list" and any(arg.op == "interval" for arg in node.args):
            return any(contains(arg, x) for arg in node.args)
        return any(_same(x, _value(arg)) for arg in node.args)
    if node.op == "union":
        return any(contains(arg, x) for arg in node.args)
    if node.op in ("inter", "and"):
        return all(contains(arg, x) for arg in node.args)
    if node.op == "minus":
        return contains(node.args[0], x) and not any(contains(arg, x) for arg in node.args[1:])
    if node.op == "builder":
        return contains(node.args[1], x)
    if node.op == "rel":
        return _holds(node, x)
    if node.op == "sym" and node.value == r"\mathbb{R}":
        return True
    raise NotReal


def _holds(node: Node, x: Any) -> bool:
    ops = node.name.split()
    if ops == ["in"] and node.args[0].op == "sym":
        return contains(node.args[1], x)
    result = True
    for op, left, right in zip(ops, node.args, node.args[1:], strict=False):
        if _is_unknown(left) and not _is_unknown(right):
            result &= _compare(_at(left, x), right, op)
        elif _is_unknown(right) and not _is_unknown(left):
            result &= _compare(_at(right, x), left, _FLIP.get(op, op))
        else:
            raise NotReal
    return result


_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda x, y: x < y and not _same(x, y),
    ">": lambda x, y: x > y and not _same(x, y),
    "<=": lambda x, y: x < y or _same(x, y),
    ">=": lambda x, y: x > y or _same(x, y),
    "!=": lambda x, y: not _same(x, y),
    "=": lambda x, y: _same(x, y),
}


def _compare(x: Any, end: Node, op: str) -> bool:
    infinite = _infinite(end)
    if infinite:
        return op == "!=" or (op in ("<", "<=")) == (infinite > 0)
    if op not in _OPS:
        raise NotReal
    return bool(_OPS[op](x, _value(end)))


def _same(x: Any, y: Any) -> bool:
    return bool(abs(x - y) <= _SAME * max(1, abs(y)))
