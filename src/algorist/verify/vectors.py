"""Sums and multiples of tuples and matrices, entry by entry; everything else is scalar arithmetic of `tree`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from algorist.verify import tree
from algorist.verify.tree import Node, Unreadable

_SHAPED = frozenset({"matrix", "tuple", "interval"})
_CONTAINERS = frozenset(
    {"set", "list", "union", "and", "rel", "blanks", "text", "ratio", "base", "real", "unit", "builder", "minus"}
)


def matrix(rows: Sequence[Sequence[Node]], bars: str = "") -> Node:
    """A matrix of equal rows; one with determinant bars is an operation, which is refused."""
    if bars or not rows or len({len(row) for row in rows}) != 1:
        raise Unreadable("operator" if bars else "grammar")
    return Node("matrix", tuple(Node("row", tuple(row)) for row in rows))


def transpose(node: Node) -> Node:
    """Rows become columns."""
    columns = zip(*(row.args for row in node.args), strict=True)
    return Node("matrix", tuple(Node("row", tuple(column)) for column in columns))


def add(terms: Sequence[Node]) -> Node:
    """Sum of scalars, or of containers of one shape."""
    if len(terms) == 1:
        return terms[0]
    _refuse(terms)
    shaped = [term for term in terms if term.op in _SHAPED]
    if not shaped:
        return tree.add(terms)
    if len(shaped) != len(terms):
        raise Unreadable("operator")
    return _zip(tree.add, shaped)


def mul(factors: Sequence[Node]) -> Node:
    """Product of scalars with at most one container, which is scaled."""
    _refuse(factors)
    shaped = [factor for factor in factors if factor.op in _SHAPED]
    if not shaped:
        return tree.mul(factors)
    if len(shaped) > 1:
        raise Unreadable("operator")
    scale = tree.mul([factor for factor in factors if factor.op not in _SHAPED])
    return _zip(lambda entries: tree.mul([scale, *entries]), shaped)


def _refuse(nodes: Sequence[Node]) -> None:
    if any(node.op in _CONTAINERS for node in nodes):
        raise Unreadable("grammar")


def _zip(combine: Callable[[Sequence[Node]], Node], nodes: Sequence[Node]) -> Node:
    first = nodes[0]
    if any(node.op != first.op or len(node.args) != len(first.args) for node in nodes):
        raise Unreadable("operator")
    if first.op in _SHAPED:
        args = tuple(_zip(combine, column) for column in zip(*(node.args for node in nodes), strict=True))
        return Node(first.op, args, first.value)
    if first.op == "row":
        columns = zip(*(node.args for node in nodes), strict=True)
        return Node("row", tuple(combine(column) for column in columns))
    return combine(nodes)
