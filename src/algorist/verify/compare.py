"""Are two trees the same answer? A ladder: equal trees, exact rationals, containers member by member, evaluation,
proof.

Symmetric by construction: every rule treats both sides alike. Nothing here takes long; where all points agree and
algebra finds no proof, the finding is `pending` and a worker proves it with `symbolic`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from algorist.verify import algebra, literals, normalise, numeric, radicals, relations, sets, tree, units
from algorist.verify.tree import Node, Unreadable, num

State = Literal["equal", "different", "unsure", "pending"]
_RANK = {"": 0, "string": 1, "rational": 2, "symbolic": 3, "numeric": 4}


class Finding(NamedTuple):
    """What a comparison came to, why, and by which method."""

    state: State
    reason: str
    method: str = ""


Prover = Callable[[Node, Node], Finding]

PENDING = Finding("pending", "needs_proof", "symbolic")


def equal(method: str) -> Finding:
    """The finding that two answers are the same."""
    return Finding("equal", "equal", method)


def different(method: str, reason: str = "different") -> Finding:
    """The finding that they are not."""
    return Finding("different", reason, method)


def unsure(reason: str) -> Finding:
    """The finding that nothing can be said."""
    return Finding("unsure", reason)


def wait(a: Node, b: Node) -> Finding:
    """The prover of the cheap stage: there is none."""
    return PENDING


def same(a: Node, b: Node, prover: Prover = wait) -> Finding:
    """Compare two trees.

    >>> from algorist.verify.read import read
    >>> same(read(r"\\frac{\\sqrt{3}}{3}"), read(r"\\frac{1}{\\sqrt{3}}")).state
    'equal'
    >>> same(read("(2,3)"), read("(3,2)")).state
    'different'
    """
    if a == b:
        return equal("rational" if a.op == "num" else "string")
    if a.op == "num" == b.op:
        return different("rational")
    if "raw" in (a.op, b.op):
        return _unread(a, b)
    if "text" in (a.op, b.op) or "time" in (a.op, b.op):
        return _words(a, b)
    if {"unit", "deg", "pct"} & {a.op, b.op}:
        if "base" in (a.op, b.op):
            return different("string", "base")
        return _quantities(a, b, prover)
    if "base" in (a.op, b.op):
        return _bases(a, b)
    if {"rel", "named"} & {a.op, b.op}:
        return relations.same(a, b, prover)
    if {"blanks", "ratio"} & {a.op, b.op}:
        return _ordered(a, b, prover)
    if _CONTAINERS & {a.op, b.op}:
        return _containers(a, b, prover)
    return scalars(a, b, prover)


_CONTAINERS = frozenset({"list", "set", "tuple", "interval", "matrix", "union", "inter", "minus", "and", "builder"})


def all_of(pairs: Sequence[tuple[Node, Node]], prover: Prover) -> Finding:
    """Every pair is equal; the first difference decides."""
    worst = equal("string")
    for a, b in pairs:
        finding = same(a, b, prover)
        if finding.state == "different":
            return finding
        worst = _worse(worst, finding)
    return worst


_ORDER = {"equal": 0, "pending": 1, "unsure": 2, "different": 3}


def _worse(a: Finding, b: Finding) -> Finding:
    if _ORDER[a.state] != _ORDER[b.state]:
        return a if _ORDER[a.state] > _ORDER[b.state] else b
    return a if _RANK[a.method] >= _RANK[b.method] else b


def any_order(a: Sequence[Node], b: Sequence[Node], prover: Prover) -> Finding:
    """A bijection of equal members; equality is transitive, so taking the first match is enough."""
    if len(a) != len(b):
        a, b = _distinct(a), _distinct(b)
    if len(a) != len(b):
        return different("string", "size")
    if len(a) > 64:
        return unsure("bound")
    left = list(b)
    worst = equal("string")
    for member in a:
        best: tuple[int, Finding] | None = None
        for index, other in enumerate(left):
            if numeric.apart(member, other):
                continue
            finding = same(member, other, prover)
            if finding.state == "equal":
                best = index, finding
                break
            if finding.state != "different" and best is None:
                best = index, finding
        if best is None:
            return different("string")
        del left[best[0]]
        worst = _worse(worst, best[1])
    return worst


def _distinct(members: Sequence[Node]) -> list[Node]:
    return list(dict.fromkeys(members))


_WORD_OR_NUMBER = re.compile(r"\\?[A-Za-z]+|\d+|\S")


def _unread(a: Node, b: Node) -> Finding:
    """Texts outside the grammar: the same words with other numbers, March 5 and March 6, are different answers."""
    if a.op == b.op:
        x, y = (_WORD_OR_NUMBER.findall(side.name.casefold()) for side in (a, b))
        plain = all(part.isalnum() or part in "\\text{},." for part in (*x, *y))
        if plain and normalise.key(a.name) == normalise.key(b.name):
            return equal("string")
        if plain and [p for p in x if not p.isdigit()] == [p for p in y if not p.isdigit()]:
            return different("string", "words")
    return unsure("outside_grammar")


def _words(a: Node, b: Node) -> Finding:
    if a.op == b.op == "text":
        x, y = _bare(a.name), _bare(b.name)
        if x == y:
            return equal("string")
        return different("string")
    if a.op == b.op == "time":
        return different("string")
    if "time" in (a.op, b.op):
        time, other = (a, b) if a.op == "time" else (b, a)
        if other.op == "ratio":
            shown = ":".join(str(arg.number) for arg in other.args if arg.op == "num")
            return equal("string") if literals.clock(shown, time.name) else different("string")
        return different("string")
    text, other = (a, b) if a.op == "text" else (b, a)
    if other.op == "sym" and _bare(text.name) == other.name.casefold().removeprefix("text:"):
        return equal("string")
    if other.op in ("mul", "list", "rel", "set", "tuple"):
        return unsure("words")
    return different("string", "words")


def _bare(text: str) -> str:
    for article in ("the", "an", "a"):
        if text.startswith(article) and len(text) > len(article) + 4 and text[len(article) :] in _AFTER_ARTICLE:
            return text[len(article) :]
    return text


_AFTER_ARTICLE = frozenset(
    {"circle", "ellipse", "parabola", "hyperbola", "square", "line", "plane", "sphere", "cone", "cylinder"}
)


def _bases(a: Node, b: Node) -> Finding:
    if a.op == b.op:
        return different("string")
    base, other = (a, b) if a.op == "base" else (b, a)
    digits = base.name.partition("_")[0]
    if not digits.lstrip("-").isdigit():
        return unsure("base")
    if other.op == "num" and other.number.denominator == 1 and len(digits) < 200:
        return equal("string") if Fraction(digits) == other.number else different("string")
    return different("string", "base")


def _quantities(a: Node, b: Node, prover: Prover) -> Finding:
    """A unit, a percent or a degree sign may be left out; two different ones must convert."""
    if a.op != b.op and b.op in ("rel", "named", "list", "set"):
        if b.op in ("rel", "named"):
            return relations.same(a, b, prover)
        return different("string", "size")
    if a.op != b.op and a.op in ("rel", "named", "list", "set"):
        return _quantities(b, a, prover)
    if "pct" in (a.op, b.op):
        return _percent(a, b, prover)
    if "deg" in (a.op, b.op):
        return _degrees(a, b, prover)
    if a.op == b.op == "unit":
        factor = units.ratio(a.name, b.name)
        if factor is None:
            return different("string", "unit")
        if isinstance(factor, str):
            return unsure("unit")
        return same(_scaled(a.args[0], factor), b.args[0], prover)
    unit, plain = (a, b) if a.op == "unit" else (b, a)
    if (product := _letters_product(unit)) is not None and numeric.atoms(plain) and plain.op != "unit":
        return same(product, plain, prover)  # 7nm^3 beside 7m^3n: letters, not nanometres
    finding = same(unit.args[0], plain, prover)
    if finding.state == "different" and plain.op == "mul" and len(unit.name) <= 2:
        return same(tree.mul([unit.args[0], tree.sym(unit.name)]), plain, prover)
    return finding


_LETTER_POWERS = re.compile(r"([A-Za-z]{1,3})(?: \^ (?:\{ )?(-?\d{1,2})(?: \})?)?")


def _letters_product(unit: Node) -> Node | None:
    """A unit phrase such as `nm ^ 3` read as the product n m^3; None for any other."""
    factors = [unit.args[0]]
    rest = unit.name.strip()
    while rest:
        match = _LETTER_POWERS.match(rest)
        if match is None or set(match[1]) & set("ei"):
            return None
        *single, last = (tree.sym(letter) for letter in match[1])
        factors += [*single, tree.power(last, num(int(match[2] or 1)))]
        rest = rest[match.end() :].strip()
    return tree.mul(factors)


def _scaled(node: Node, factor: Fraction) -> Node:
    return node if factor == 1 or node.op in _CONTAINERS else tree.mul([num(factor), node])


def _percent(a: Node, b: Node, prover: Prover) -> Finding:
    if a.op == b.op:
        return same(a.args[0], b.args[0], prover)
    marked, plain = (a, b) if a.op == "pct" else (b, a)
    if plain.op in ("deg", "unit"):
        return different("string", "unit")
    number = marked.args[0]
    first = same(number, plain, prover)
    return first if first.state == "equal" else same(tree.mul([number, num(Fraction(1, 100))]), plain, prover)


def _degrees(a: Node, b: Node, prover: Prover) -> Finding:
    if a.op == b.op:
        return same(a.args[0], b.args[0], prover)
    marked, plain = (a, b) if a.op == "deg" else (b, a)
    radians = tree.mul([marked.args[0], tree.PI, num(Fraction(1, 180))])
    if plain.op == "unit":
        if plain.name in ("celsius", "fahrenheit"):
            return same(marked.args[0], plain.args[0], prover)
        return same(radians, plain.args[0], prover) if plain.name == "rad" else unsure("unit")
    if any(part == tree.PI for part in tree.walk(plain)):
        return same(radians, plain, prover)
    return same(marked.args[0], plain, prover)


def _ordered(a: Node, b: Node, prover: Prover) -> Finding:
    """Blanks keep their order, also against a comma list; ratios are proportional, one of two terms is a fraction."""
    if a.op == b.op == "ratio":
        if len(a.args) != len(b.args):
            return different("string", "size")
        if tree.ZERO in (*a.args, *b.args):  # 6:00 is a time, and 0 is in proportion to everything
            return all_of(list(zip(a.args, b.args, strict=True)), prover)
        pairs = [(_product(a.args[0], y), _product(b.args[0], x)) for x, y in zip(a.args[1:], b.args[1:], strict=True)]
        return all_of(pairs, prover)
    if "ratio" in (a.op, b.op):
        ratio, other = (a, b) if a.op == "ratio" else (b, a)
        if len(ratio.args) == 2 and other.op not in _CONTAINERS and other.op != "blanks":
            return same(_product(ratio.args[0], tree.power(_plain(ratio.args[1]), tree.MINUS_ONE)), other, prover)
        return different("string", "shape")
    if a.op == b.op or "list" in (a.op, b.op):
        if len(a.args) != len(b.args):
            return different("string", "size")
        return all_of(list(zip(a.args, b.args, strict=True)), prover)
    return different("string", "size")


def _plain(node: Node) -> Node:
    return node.args[0] if node.op in ("unit", "deg") else node


def _product(a: Node, b: Node) -> Node:
    return tree.mul([_plain(a), _plain(b)])


def _containers(a: Node, b: Node, prover: Prover) -> Finding:
    ops = {a.op, b.op}
    if ops <= {"list", "set"}:
        left, right = (_distinct(side.args) if "set" in ops else side.args for side in (a, b))
        finding = any_order(left, right, prover)
        if finding.state == "equal" and ops == {"list"} and len(a.args) != len(b.args):
            return unsure("size")  # a root named twice, or a list with a member missing
        return finding
    if ops == {"interval"} and a.value == b.value:
        finding = all_of(list(zip(a.args, b.args, strict=True)), prover)
        return finding
    if ops == {"tuple"}:
        if len(a.args) != len(b.args):
            return different("string", "size")
        return all_of(list(zip(a.args, b.args, strict=True)), prover)
    if "matrix" in ops:
        return _matrices(a, b, prover)
    if _are_sets(a, b):
        verdict = sets.equal(a, b)
        if verdict is not None:
            return equal("rational") if verdict else different("rational")
        if ops == {"interval"}:
            return different("string", "shape")
        if a.op == b.op == "builder":
            return all_of(list(zip(a.args, b.args, strict=True)), prover)
        if a.op == b.op and len(a.args) == len(b.args):
            finding = any_order(a.args, b.args, prover)
            return finding if finding.state != "different" else unsure("set")
        return unsure("set")
    if ops <= {"list", "set", "tuple", "interval"}:
        return _shapes(a, b)
    if "list" in ops or "set" in ops:
        sized = a if a.op in ("list", "set") else b
        other = b if sized is a else a
        if len(sized.args) == 1:
            return same(sized.args[0], other, prover)
        return different("string", "size")
    return different("string", "shape")


def _shapes(a: Node, b: Node) -> Finding:
    """A bare list against a tuple or an interval: the brackets decide, so nothing is paid and nothing refuted."""
    if "list" in (a.op, b.op) and len(a.args) == len(b.args):
        return unsure("shape") if any_order(a.args, b.args, wait).state != "different" else different("string")
    if "set" in (a.op, b.op):
        single = a if a.op == "set" else b
        other = b if single is a else a
        if len(single.args) == 1:
            return same(single.args[0], other)
    return different("string", "shape")


def _are_sets(a: Node, b: Node) -> bool:
    if sets.is_set(a) and sets.is_set(b):
        return True
    listed, other = (a, b) if a.op in ("list", "set") else (b, a)
    if listed.op == "set":
        return other.op in ("union", "inter", "minus", "and", "builder")
    return listed.op == "list" and other.op == "union" and any(arg.op == "interval" for arg in listed.args)


def _matrices(a: Node, b: Node, prover: Prover) -> Finding:
    if a.op == b.op:
        if len(a.args) != len(b.args) or len(a.args[0].args) != len(b.args[0].args):
            return different("string", "shape")
        cells = [(x, y) for r, s in zip(a.args, b.args, strict=True) for x, y in zip(r.args, s.args, strict=True)]
        return all_of(cells, prover)
    matrix, other = (a, b) if a.op == "matrix" else (b, a)
    if other.op == "tuple" or (other.op == "interval" and other.value == "()"):
        if any(len(row.args) != 1 for row in matrix.args):
            return unsure("shape")
        if len(matrix.args) != len(other.args):
            return different("string", "size")
        return all_of([(row.args[0], y) for row, y in zip(matrix.args, other.args, strict=True)], prover)
    return different("string", "shape")


def operators(node: Node) -> frozenset[Node]:
    """The unevaluated operations of a tree, floor and ceiling included."""
    return frozenset(
        part
        for part in tree.walk(node)
        if part.op == "fn" and (part.name.startswith("op:") or part.value in ("floor", "ceil"))
    )


def scalars(a: Node, b: Node, prover: Prover) -> Finding:
    """Two expressions: evaluation refutes, algebra proves, a worker decides the rest."""
    if a.op in _CONTAINERS or b.op in _CONTAINERS:
        return different("string", "shape")
    if tree.INF in (a, b) or tree.neg(tree.INF) in (a, b):
        return different("string")
    restated = operators(a) ^ operators(b)
    if restated:
        names = {part.name for part in operators(a)} ^ {part.name for part in operators(b)}
        return unsure("operator" if names or any(part.name.startswith("op:") for part in restated) else "different")
    try:
        agrees = numeric.agree(a, b)
    except Unreadable as why:
        return unsure(why.reason)
    if agrees is False:
        return different("numeric")
    zero = radicals.is_zero(tree.add([a, tree.neg(b)]))
    if zero is not None:
        return equal("symbolic") if zero else different("numeric")
    if algebra.equal(a, b):
        return equal("symbolic")
    return prover(a, b) if agrees else unsure("unproved")
