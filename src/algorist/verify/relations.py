"""Equations, inequalities and names: `x = 5` is 5, `y = 2x` is `2x - y = 0`, `2 < x` is (2, oo)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorist.verify import algebra, compare, names, numeric, sets, tree
from algorist.verify.tree import Node, Unreadable

if TYPE_CHECKING:
    from algorist.verify.compare import Finding, Prover


def same(a: Node, b: Node, prover: Prover) -> Finding:
    """Compare where at least one side is a relation or a set of named values."""
    if "named" in (a.op, b.op):
        return _named(a, b, prover)
    if sets.is_set(a) and sets.is_set(b):
        return _conditions(a, b, prover)
    other = b if _is_inequality(a) else a
    if _is_inequality(a) != _is_inequality(b) and (_is_scalar(other) or other.op in ("list", "tuple")):
        return compare.different("string", "shape")
    x, y = _parts(a), _parts(b)
    if isinstance(x, str) or isinstance(y, str):
        return compare.unsure(x if isinstance(x, str) else str(y))
    (x_name, x_value), (y_name, y_value) = x, y
    if x_name and y_name:
        return _two_names(a, b, (x_name, x_value), (y_name, y_value), prover)
    if "rel" in (x_value.op, y_value.op):
        return _equations(_equation_of(x_name, x_value), _equation_of(y_name, y_value), prover)
    return compare.same(x_value, y_value, prover)


def _is_inequality(node: Node) -> bool:
    return node.op == "rel" and bool(set(node.name.split()) & {"<", ">", "<=", ">=", "!="})


def _equation_of(name: Node | None, value: Node) -> Node:
    return value if name is None else Node("rel", (name, value), "=")


def _parts(node: Node) -> tuple[Node | None, Node] | str:
    """(name, value) of `name = value`, (None, value) of a value or a true chain of constants, (None, equation) else.

    A chain a = b = c gives its last member, what follows an approximation sign gives way to what stands before it.
    """
    if node.op != "rel":
        return None, node
    ops, members = node.name.split(), list(node.args)
    if set(ops) - {"=", "~", "=="}:
        if ops == ["in"] and names.is_name(members[0]):
            return members[0], members[1]
        return None, node
    name = members[0] if names.is_name(members[0]) else None
    if "~" in ops:
        cut = ops.index("~")
        if cut == 0 and name is None:
            return None, members[0]
        members = members[: cut + 1] if cut > 0 or name is None else members[: cut + 2]
    if "==" in ops:
        return None, node
    if name is not None and len(members) == 2:
        return name, members[1]
    if len(members) == 2 and (_has_unknown(members[0]) or _has_unknown(members[1])):
        if names.is_name(members[1]) and not _has_unknown(members[0]):
            return members[1], members[0]
        return None, Node("rel", tuple(members), "=")
    values = members[1:] if name is not None else members
    if len(values) > 1 and (name is not None or not _has_unknown(values[-1])):
        checks = [compare.same(value, values[-1]).state for value in values[:-1] if not names.is_name(value)]
        if "different" in checks:
            return "chain"
    return name, values[-1]


def _has_unknown(node: Node) -> bool:
    return bool(numeric.atoms(node)) or any(part.op in ("text", "raw") for part in tree.walk(node))


def _two_names(a: Node, b: Node, x: tuple[Node, Node], y: tuple[Node, Node], prover: Prover) -> Finding:
    if x[0] == y[0]:
        return compare.same(x[1], y[1], prover)
    if x[1].op == y[1].op == "list" or "rel" in (x[1].op, y[1].op):
        return compare.different("string", "name")
    if _is_scalar(x[1]) and _is_scalar(y[1]):
        finding = _equations(Node("rel", x, "="), Node("rel", y, "="), prover)
        return finding if finding.state != "different" else compare.different(finding.method, "name")
    return compare.different("string", "name")


def _is_scalar(node: Node) -> bool:
    return node.op in ("num", "sym", "const", "add", "mul", "pow", "fn")


def _equations(a: Node, b: Node, prover: Prover) -> Finding:
    """Two equations: equal up to a nonzero factor. An equation against a value says nothing of the value."""
    if a.op != "rel" or b.op != "rel":
        equation, value = (a, b) if a.op == "rel" else (b, a)
        if equation.name == "=" and _is_sum_of_names(equation.args[0]) and equation.args[1].op == "num":
            return compare.same(equation.args[1], value, prover)
        sides = equation.args if equation.name == "=" and len(equation.args) == 2 else (value,)
        meets = any(compare.same(side, value).state != "different" for side in sides)
        many = len(numeric.atoms(equation)) > 1
        return compare.unsure("equation") if meets or not many else compare.different("string", "equation")
    if a.name != b.name:
        return compare.different("string", "relation")
    if a.name != "=" or len(a.args) != 2 or len(b.args) != 2:
        finding = compare.all_of(list(zip(a.args, b.args, strict=False)), prover)
        return finding if finding.state != "different" else compare.unsure("relation")
    if not all(_is_scalar(arg) for arg in (*a.args, *b.args)):
        lists = [side for side in (a, b) if side.args[1].op == "list"]
        if len(lists) == 2 and a.args[0] == b.args[0]:
            return compare.same(a.args[1], b.args[1], prover)
        return compare.unsure("relation")
    x, y = algebra.equation(*a.args), algebra.equation(*b.args)
    if x is not None and y is not None and algebra.same_solutions(x, y):
        return compare.equal("symbolic")
    return _proportional(a, b, prover)


def _is_sum_of_names(node: Node) -> bool:
    """m + n, a + b + c: what such an equation gives is the value asked for."""
    return node.op == "add" and all(term.op == "sym" for term in node.args)


def _proportional(a: Node, b: Node, prover: Prover) -> Finding:
    """Quotient of the differences at random points: not constant refutes; constant is left to the prover."""
    first, second = (tree.add([side.args[0], tree.neg(side.args[1])]) for side in (a, b))
    if numeric.atoms(first) != numeric.atoms(second):
        return compare.different("numeric")
    try:
        factor = numeric.constant_ratio(first, second)
    except Unreadable as why:
        return compare.unsure(why.reason)
    if factor is None:
        return compare.different("numeric")
    return prover(first, tree.mul([tree.num(factor), second]))


def _conditions(a: Node, b: Node, prover: Prover) -> Finding:
    verdict = sets.equal(a, b)
    if verdict is not None:
        return compare.equal("rational") if verdict else compare.different("rational")
    if _speaks_of(a) and _speaks_of(b) and _speaks_of(a) != _speaks_of(b):
        return compare.different("string", "name")
    if a.op == b.op == "rel":
        return _inequalities(a, b, prover)
    if a.op == b.op and len(a.args) == len(b.args):
        finding = compare.any_order(a.args, b.args, prover)
        return finding if finding.state != "different" else compare.unsure("set")
    left, right = (_bare_set(side) for side in (a, b))
    if (left, right) != (a, b):
        return compare.same(left, right, prover)
    return compare.unsure("set")


def _speaks_of(node: Node) -> str:
    """The one unknown of conditions that are no set with a bound symbol; '' elsewhere."""
    try:
        return "" if any(part.op == "builder" for part in tree.walk(node)) else sets.variable(node)
    except sets.NotReal:
        return ""


def _bare_set(node: Node) -> Node:
    """x in S is S."""
    if node.op == "rel" and node.name == "in" and names.is_name(node.args[0]):
        return node.args[1]
    return node


def _inequalities(a: Node, b: Node, prover: Prover) -> Finding:
    """a < b against c < d: the differences are proportional, a negative factor turns the sign."""
    x, y = _one_sided(a), _one_sided(b)
    if x is None or y is None:
        if a.name == b.name and len(a.args) == len(b.args):
            finding = compare.all_of(list(zip(a.args, b.args, strict=True)), prover)
            return finding if finding.state != "different" else compare.unsure("relation")
        return compare.unsure("relation")
    if x[0] != y[0]:
        return compare.different("string", "relation")
    if not all(_is_scalar(arg) for arg in (*x[1], *y[1])):
        return compare.unsure("relation")
    factor = algebra.sign_factor(x[1], y[1])
    if factor > 0 or (factor < 0 and x[0] == "!="):
        return compare.equal("symbolic")
    return compare.different("symbolic") if factor < 0 else compare.unsure("relation")


def _one_sided(node: Node) -> tuple[str, tuple[Node, Node]] | None:
    """(operation, (greater, smaller)) with the operation one of < <= !=."""
    if len(node.args) != 2:
        return None
    left, right = node.args
    return {"<": ("<", (right, left)), "<=": ("<=", (right, left)), ">": ("<", (left, right)), ">=": ("<=", (left,
    right)),
            "!=": ("!=", (left, right))}.get(node.name)  # fmt: skip


_SEQUENCES = ("xyzw", "abcdefgh", "pqrs", "uvw", "mn", "ijk")


def _in_order(members: tuple[Node, ...]) -> list[Node]:
    """Named coordinates in the order of their alphabet, y = 2, x = 1 is (1, 2); other names as they come."""
    heads = [member.args[0].name for member in members]
    for letters in _SEQUENCES:
        if all(len(head) == 1 and head in letters for head in heads):
            return sorted(members, key=lambda member: letters.index(member.args[0].name))
    return list(members)


def _named(a: Node, b: Node, prover: Prover) -> Finding:
    """x = 1, y = 2: by name against names, in order against a tuple."""
    if a.op == b.op:
        left = {m.args[0]: m.args[1] for m in a.args}
        right = {m.args[0]: m.args[1] for m in b.args}
        if left.keys() != right.keys():
            return compare.different("string", "name")
        return compare.all_of([(left[name], right[name]) for name in left], prover)
    named, other = (a, b) if a.op == "named" else (b, a)
    values = tuple(m.args[1] for m in _in_order(named.args))
    if other.op == "rel" and other.name == "=" and other.args[0] in {m.args[0] for m in named.args}:
        return compare.different("string", "size")
    if other.op == "rel" and other.name == "=" and other.args[0].op in ("tuple", "interval"):  # (m, b) = (2, 3)
        left = {m.args[0]: m.args[1] for m in named.args}
        if set(other.args[0].args) == left.keys() and other.args[1].op == other.args[0].op:
            order = [left[name] for name in other.args[0].args]
            return compare.all_of(list(zip(order, other.args[1].args, strict=False)), prover)
    if other.op == "rel":
        parts = _parts(other)
        if not isinstance(parts, str) and parts[1].op in ("tuple", "interval"):
            other = parts[1]
    if other.op == "tuple" or (other.op == "interval" and other.value == "()"):
        if len(values) != len(other.args):
            return compare.different("string", "size")
        return compare.all_of(list(zip(values, other.args, strict=True)), prover)
    heads = {m.args[0].name.partition("_")[0] for m in named.args}
    if other.op in ("list", "set") and len(heads) == 1:  # x_1 = 1, x_2 = 2 are the solutions 1, 2
        return compare.any_order(values, other.args, prover)
    if other.op == "rel" and len(heads) == 1 and other.args[0].name in heads and other.args[1].op == "list":
        return compare.any_order(values, other.args[1].args, prover)
    if other.op == "list" and len(other.args) == len(values) and not any(m.op == "rel" for m in other.args):
        finding = compare.all_of(list(zip(values, other.args, strict=True)), prover)
        return finding if finding.state == "equal" else compare.unsure("name")
    return compare.unsure("name")
