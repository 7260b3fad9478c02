"""Equality of expressions as rational functions: an exact proof without a computer algebra system.

An expression becomes numerator / denominator, two polynomials with rational coefficients over atoms: symbols,
constants,
roots, exponentials, sines and cosines, whatever is opaque. i^2 = -1, r^q = base for r = base^(1/q) and
sin^2 = 1 - cos^2 are applied. A difference that vanishes proves equality; one that does not proves nothing.
"""

from __future__ import annotations

from fractions import Fraction

from algorist.verify import tree
from algorist.verify.tree import Node, Unreadable

Monomial = frozenset[tuple[object, int]]
Polynomial = dict[Monomial, Fraction]

MAX_TERMS = 400
_ONE: Monomial = frozenset()


class TooLarge(Exception):
    """A product would have more than MAX_TERMS terms."""


class Quotient:
    """numerator / denominator; the denominator is never the zero polynomial."""

    __slots__ = ("bottom", "top")

    def __init__(self, top: Polynomial, bottom: Polynomial) -> None:
        self.top, self.bottom = top, bottom

    def frozen(self) -> tuple[frozenset[tuple[Monomial, Fraction]], frozenset[tuple[Monomial, Fraction]]]:
        """A hashable form; equal for equal polynomials up to a rational factor of both."""
        scale = _leading(self.bottom)
        return (
            frozenset((m, c / scale) for m, c in self.top.items()),
            frozenset((m, c / scale) for m, c in self.bottom.items()),
        )


def equal(a: Node, b: Node) -> bool:
    """True where a = b is proved; False means not proved.

    >>> from algorist.verify.read import read
    >>> equal(read("(x+1)^2"), read("x^2+2x+1")), equal(read("x"), read("x+1"))
    (True, False)
    """
    try:
        left, right = convert(a), convert(b)
        difference = _subtract(_times(left.top, right.bottom), _times(right.top, left.bottom))
        return not difference and bool(left.bottom) and bool(right.bottom)
    except (TooLarge, Unreadable, RecursionError):
        return False


def equation(left: Node, right: Node) -> tuple[Polynomial, Polynomial] | None:
    """(numerator, denominator) of left - right, the numerator with leading coefficient 1; None where out of reach."""
    try:
        a, b = convert(left), convert(right)
        top = _subtract(_times(a.top, b.bottom), _times(b.top, a.bottom))
        bottom = _times(a.bottom, b.bottom)
    except (TooLarge, Unreadable, RecursionError):
        return None
    if not top or not bottom:
        return None
    scale = _leading(top)
    return {m: c / scale for m, c in top.items()}, bottom


def same_solutions(a: tuple[Polynomial, Polynomial], b: tuple[Polynomial, Polynomial]) -> bool:
    """True where two numerators agree and no denominator could hide a solution of the other."""
    if a[0] != b[0]:
        return False
    return all(len(side[1]) == 1 and _harmless(side[1], a[0]) for side in (a, b))


def _harmless(bottom: Polynomial, top: Polynomial) -> bool:
    """A monomial denominator x^k is harmless where the numerator does not vanish at x = 0 (xy = 1 against y = 1/x)."""
    (monomial,) = bottom
    for atom, _ in monomial:
        if isinstance(atom, Node) and (tree.is_positive(atom) or atom.op == "pow"):
            continue
        if {m for m in top if not any(name == atom for name, _ in m)} != {_ONE}:
            return False
    return True


def sign_factor(a: tuple[Node, Node], b: tuple[Node, Node]) -> int:
    """1 or -1 where (a0 - a1) is a positive or negative rational multiple of (b0 - b1), 0 otherwise."""
    try:
        first = convert(tree.add([a[0], tree.neg(a[1])]))
        second = convert(tree.add([b[0], tree.neg(b[1])]))
        x, y = _times(first.top, second.bottom), _times(second.top, first.bottom)
    except (TooLarge, Unreadable, RecursionError):
        return 0
    if not x or x.keys() != y.keys():
        return 0
    factors = {x[m] / y[m] for m in x}
    if len(factors) != 1:
        return 0
    return 1 if factors.pop() > 0 else -1


def _leading(p: Polynomial) -> Fraction:
    """Coefficient of the first monomial in a fixed order."""
    return p[min(p, key=lambda m: sorted((repr(atom), power) for atom, power in m))]


def convert(node: Node) -> Quotient:
    """The quotient of polynomials that a tree is."""
    if node.op == "num":
        return _constant(node.number)
    if node.op == "add":
        total = convert(node.args[0])
        for arg in node.args[1:]:
            total = _plus(total, convert(arg))
        return total
    if node.op == "mul":
        product = convert(node.args[0])
        for arg in node.args[1:]:
            factor = convert(arg)
            product = Quotient(_times(product.top, factor.top), _times(product.bottom, factor.bottom))
        return product
    if node.op == "pow":
        return _convert_power(node.args[0], node.args[1])
    if node.op == "deg":
        return convert(tree.mul([node.args[0], tree.PI, tree.num(Fraction(1, 180))]))
    if node.op == "pct":
        return convert(tree.mul([node.args[0], tree.num(Fraction(1, 100))]))
    if node.op == "fn" and node.name in ("tan", "cot", "sec", "csc"):
        sine, cosine = _function("sin", node.args), _function("cos", node.args)
        top, bottom = {"tan": (sine, cosine), "cot": (cosine, sine), "sec": (None, cosine), "csc": (None, sine)}[
            node.name
        ]
        return _over(top or _constant(Fraction(1)), bottom)
    if node.op == "fn" and not node.name.startswith(("op:", "app:")):
        return _function(node.name, node.args)
    if node.op in ("sym", "const", "fn"):
        if node == tree.INF:
            raise Unreadable("operator")
        return _atom(node, 1)
    raise Unreadable("operator")


def _constant(value: Fraction) -> Quotient:
    return Quotient({_ONE: value} if value else {}, {_ONE: Fraction(1)})


def _atom(atom: object, power: int) -> Quotient:
    one = {_ONE: Fraction(1)}
    mono = _reduce({frozenset({(atom, abs(power))}): Fraction(1)})
    return Quotient(mono, one) if power > 0 else Quotient(one, mono)


def _over(a: Quotient, b: Quotient) -> Quotient:
    return Quotient(_times(a.top, b.bottom), _times(a.bottom, b.top))


def _plus(a: Quotient, b: Quotient) -> Quotient:
    if a.bottom == b.bottom:
        return Quotient(_subtract(a.top, _negated(b.top)), a.bottom)
    top = _subtract(_times(a.top, b.bottom), _negated(_times(b.top, a.bottom)))
    return Quotient(top, _times(a.bottom, b.bottom))


def _negated(p: Polynomial) -> Polynomial:
    return {m: -c for m, c in p.items()}


def _subtract(p: Polynomial, q: Polynomial) -> Polynomial:
    out = dict(p)
    for m, c in q.items():
        value = out.get(m, Fraction(0)) - c
        if value:
            out[m] = value
        else:
            out.pop(m, None)
    return out


def _times(p: Polynomial, q: Polynomial) -> Polynomial:
    if len(p) * len(q) > MAX_TERMS * 4:
        raise TooLarge
    out: Polynomial = {}
    reduce = False
    for m, c in p.items():
        for n, d in q.items():
            if not m or not n:
                product = m or n
            else:
                powers = dict(m)
                for atom, power in n:
                    powers[atom] = powers.get(atom, 0) + power
                    reduce |= _has_rule(atom)
                product = frozenset(powers.items())
            value = out.get(product, Fraction(0)) + c * d
            if value:
                out[product] = value
            else:
                out.pop(product, None)
    if len(out) > MAX_TERMS:
        raise TooLarge
    return _reduce(out) if reduce else out


def _has_rule(atom: object) -> bool:
    if isinstance(atom, Node):
        return atom == tree.IMAGINARY or atom.op == "pow"
    return isinstance(atom, tuple) and atom[0] == "sin"


def _reduce(p: Polynomial, depth: int = 0) -> Polynomial:
    """Apply i^2 = -1, r^q = base and sin^2 = 1 - cos^2 until none fits."""
    if depth > 30:
        raise TooLarge
    for monomial in p:
        for atom, power in monomial:
            rule = _rule(atom, power)
            if rule is None:
                continue
            step, replacement = rule
            coefficient = p[monomial]
            rest = dict(monomial)
            rest[atom] = power - step
            if not rest[atom]:
                del rest[atom]
            without = {m: c for m, c in p.items() if m != monomial}
            reduced = _times({frozenset(rest.items()): coefficient}, replacement)
            return _reduce(_subtract(without, _negated(reduced)), depth + 1)
    return p


def _rule(atom: object, power: int) -> tuple[int, Polynomial] | None:
    """(k, p) with atom^k = p, where it applies to this power."""
    if isinstance(atom, Node):
        if atom == tree.IMAGINARY and power >= 2:
            return 2, {_ONE: Fraction(-1)}
        if atom.op == "pow" and atom.args[1].op == "num":
            q = atom.args[1].number.denominator
            if q > 1 and power >= q:
                base = convert(atom.args[0])
                if set(base.bottom) != {_ONE}:
                    return None
                scale = base.bottom[_ONE]
                return q, {m: c / scale for m, c in base.top.items()}
    elif isinstance(atom, tuple) and atom[0] == "sin" and power >= 2:
        cosine = ("cos", *atom[1:])
        return 2, {_ONE: Fraction(1), frozenset({(cosine, 2)}): Fraction(-1)}
    return None


def _function(name: str, args: tuple[Node, ...]) -> Quotient:
    """A function as an atom that is known by its name and the normal form of its arguments."""
    if name in ("sin", "cos") and len(args) == 1:
        inside = convert(args[0])
        flipped = Quotient(_negated(inside.top), inside.bottom)
        if inside.top and _leading(inside.top) / _leading(inside.bottom) < 0:
            value = _atom((name, flipped.frozen()), 1)
            return value if name == "cos" else Quotient(_negated(value.top), value.bottom)
    return _atom((name, *(convert(arg).frozen() for arg in args)), 1)


def _convert_power(base: Node, exponent: Node) -> Quotient:
    """base^(c + k1 t1 + ...) = base^c * product of (base^t)^k with whole k."""
    if exponent.op == "num" and exponent.number.denominator == 1:
        return _whole_power(convert(base), exponent.number.numerator)
    if base.op == "num" and base.number > 0 and exponent.op != "num":
        return _prime_powers(base.number, exponent)
    result = _constant(Fraction(1))
    for term in exponent.args if exponent.op == "add" else (exponent,):
        coefficient, rest = (term.number, tree.ONE) if term.op == "num" else tree.split_coefficient(term)
        power = coefficient.numerator
        if abs(power) > 40:
            raise TooLarge
        unit = tree.num(Fraction(1, coefficient.denominator))
        root = tree.mul([unit, rest])
        if root == tree.ONE:
            factor = _whole_power(convert(base), power)
        else:
            factor = _atom(Node("pow", (base, root)), power)
        result = Quotient(_times(result.top, factor.top), _times(result.bottom, factor.bottom))
    return result


def _prime_powers(base: Fraction, exponent: Node) -> Quotient:
    result = _constant(Fraction(1))
    for part, sign in ((base.numerator, 1), (base.denominator, -1)):
        for prime, multiplicity in tree.factor_small(part):
            scaled = tree.mul([tree.num(sign * multiplicity), exponent])
            for term in scaled.args if scaled.op == "add" else (scaled,):
                coefficient, rest = (term.number, tree.ONE) if term.op == "num" else tree.split_coefficient(term)
                if rest == tree.ONE:
                    factor = convert(tree.power(tree.num(prime), tree.num(coefficient)))
                else:
                    root = tree.mul([tree.num(Fraction(1, coefficient.denominator)), rest])
                    factor = _atom(Node("pow", (tree.num(prime), root)), coefficient.numerator)
                result = Quotient(_times(result.top, factor.top), _times(result.bottom, factor.bottom))
    return result


def _whole_power(q: Quotient, power: int) -> Quotient:
    if abs(power) > 64:
        raise TooLarge
    if power < 0:
        if not q.top:
            raise Unreadable("undefined")
        q, power = Quotient(q.bottom, q.top), -power
    result = _constant(Fraction(1))
    for _ in range(power):
        result = Quotient(_times(result.top, q.top), _times(result.bottom, q.bottom))
    return result
