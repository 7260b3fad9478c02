"""The node of an expression tree, its leaves, its order, and the bounds that every tree keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

MAX_DIGITS = 10_000
MAX_NODES = 400
MAX_DEPTH = 64
MAX_SYMBOLS = 30

_LOG2_10 = math.log2(10)


class Unreadable(Exception):
    """A text is outside the grammar or over a bound; `reason` is the code that the verdict carries."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Node(NamedTuple):
    """One node: an operation, its arguments, and a value where the operation is a leaf or has a name.

    op      value       args
    num     Fraction
    sym     name                     a free symbol, or a name with a subscript
    const   pi e i inf
    add mul                          two or more, sorted
    pow                 base, exponent
    fn      name        arguments    sin, log, abs, factorial, ...; opaque ones are named 'app:f' or 'op:int'
    deg pct             one          degree and percent marks
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Fraction | str = ""

    @property
    def number(self) -> Fraction:
        """The exact value of a `num` node."""
        assert isinstance(self.value, Fraction), f"only num nodes have a number, got {self.op}"
        return self.value

    @property
    def name(self) -> str:
        """The value as text: name of a symbol, constant or function."""
        return str(self.value)


ZERO, ONE = Node("num", (), Fraction(0)), Node("num", (), Fraction(1))
MINUS_ONE, HALF = Node("num", (), Fraction(-1)), Node("num", (), Fraction(1, 2))
PI, E, IMAGINARY, INF = (Node("const", (), name) for name in ("pi", "e", "i", "inf"))


def num(value: Fraction | int) -> Node:
    """An exact number."""
    return Node("num", (), Fraction(value))


def sym(name: str) -> Node:
    """A free symbol."""
    return Node("sym", (), name)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(top.args)


def is_num(node: Node) -> bool:
    """True for an exact rational number."""
    return node.op == "num"


def num_digits(value: Fraction) -> float:
    return max(value.numerator.bit_length(), value.denominator.bit_length()) / _LOG2_10


def bounded(value: Fraction) -> Fraction:
    """The value, refused beyond `MAX_DIGITS` digits."""
    if num_digits(value) > MAX_DIGITS:
        raise Unreadable("bound")
    return value


def sort_key(node: Node) -> tuple[object, ...]:
    """A total order of trees; numbers by value, the rest by operation, name and arguments."""
    value = node.value
    if isinstance(value, Fraction):
        return (0, value.numerator, value.denominator)
    return (1, node.op, value, len(node.args), tuple(sort_key(arg) for arg in node.args))
