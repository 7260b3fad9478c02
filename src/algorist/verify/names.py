"""Names on the left of an equation, what follows from them, and plus-minus signs."""

from __future__ import annotations

from collections.abc import Sequence

from algorist.verify import tree, vectors
from algorist.verify.lex import FUNCTION_WORDS, OPERATORS, Token
from algorist.verify.tree import Node, Unreadable, sym

MATH_WORDS = frozenset(
    [
        "pi",
        "theta",
        "alpha",
        "beta",
        "gamma",
        "delta",
        "lambda",
        "sigma",
        "omega",
        "phi",
        "inf",
        "infty",
        "infinity",
        "oo",
        "sqrt",
        "epsilon",
        "zeta",
        "kappa",
    ]
)
_FUNCTION_LETTERS = frozenset("fghpqPEFGHSTVANQRuvwBCDKLM")


def looks_like_product(run: str) -> bool:
    """Letter runs of four or more that are products of variables rather than words: one or two letters, or all
    capitals.

    >>> looks_like_product("aabb"), looks_like_product("Evelyn")
    (True, False)
    """
    if any(run.startswith(word) for word in FUNCTION_WORDS if len(word) > 2):
        return True
    return len(set(run)) <= 2 or run.isupper()


_SHORT_NOUNS = frozenset(
    {"men", "car", "cars", "toy", "toys", "hat", "hats", "cat", "cats", "dog", "dogs", "box", "pen", "pens", "bag"}
    | {"bags", "way", "ways", "boy", "boys", "egg", "eggs", "bus", "pie"}
)


def is_noun(run: str) -> bool:
    """A run of letters after a value that is a counted thing rather than a product: `42 apples`, but not `24abcd`.

    >>> is_noun("apples"), is_noun("abcd"), is_noun("xyz")
    (True, False, False)
    """
    if run in FUNCTION_WORDS or run in OPERATORS or run in MATH_WORDS or looks_like_product(run):
        return False
    return run in _SHORT_NOUNS or (len(run) >= 4 and list(run) != sorted(run))


def name(tokens: Sequence[Token]) -> Node | None:
    """The name that these tokens are, as one symbol; None where they are an expression.

    Names: x, x_1, f(x), y', AB, Area, \\text{area}, dy/dx, \\angle ABC. Not names: xy, x^2, 2x.
    """
    if not tokens or len(tokens) > 24:
        return None
    text = "".join(t.text for t in tokens)
    first = tokens[0]
    rest = [t.text for t in tokens[1:]]
    if all(t.kind == "word" for t in tokens):
        return sym(f"text:{text.casefold()}")
    if (
        first.text in (r"\angle", r"\triangle", r"\overline", r"\vec", r"\overrightarrow")
        and "+" not in text
        and "-" not in text
    ):
        return sym(f"text:{text}")
    if (
        first.text in (r"\sin", r"\cos", r"\tan")
        and len(tokens) == 2
        and (tokens[1].text.isupper() or tokens[1].kind == "cmd")
    ):
        return sym(f"text:{text}")
    if (
        first.text == "|" == tokens[-1].text
        and len(tokens) == 3
        and tokens[1].text.isupper()
        and len(tokens[1].text) == 2
    ):
        return sym(f"text:{text}")
    if first.kind != "let" and not (first.kind == "cmd" and first.text[1:].isalpha() and first.text not in _NO_NAME):
        return None
    if (
        first.text in FUNCTION_WORDS
        or first.text in OPERATORS
        or first.text.lstrip("\\") in (*FUNCTION_WORDS, *OPERATORS)
    ):
        return None
    if first.text in ("i", "e", "pi", r"\pi") and not rest:
        return None
    run = first.text
    if first.kind == "let" and len(run) > 1 and not _is_name_run(run):
        return None
    if first.kind == "let" and len(run) > 1 and all(t.kind in ("let", "word") for t in tokens):
        return sym(f"text:{text.casefold()}" if len(run) > 2 else text)
    if not rest:
        return sym(text)
    if rest[0] in ("_", "'", "^", "("):
        return _decorated(tokens, text)
    return None


_NO_NAME = frozenset({r"\frac", r"\sqrt", r"\begin", r"\binom", r"\text", r"\infty", r"\{", r"\lfloor", r"\lceil",
    r"\usd", r"\emptyset",
                      r"\ldots", r"\pm", r"\mp", r"\mathbb"})  # fmt: skip


def _is_name_run(run: str) -> bool:
    if run.isupper():
        return True
    return len(run) >= 4 or (len(run) == 3 and run[0].isupper())


def _decorated(tokens: Sequence[Token], text: str) -> Node | None:
    """x_1, y', f(x), f^{-1}(x): decorations and at most one bracket at the end."""
    index = 1
    first = tokens[0].text
    while index < len(tokens) and tokens[index].text in ("_", "'", "^"):
        mark = tokens[index].text
        index += 1
        if mark == "'":
            continue
        body = _body(tokens, index)
        if body > len(tokens):
            return None
        inside = "".join(t.text for t in tokens[index:body])
        if mark == "^" and inside.strip("{}") not in ("-1", r"\prime", "*", "'"):
            return None
        index = body
    if index == len(tokens):
        return sym("".join(t.text for t in tokens if t.text not in "{}"))
    if (
        tokens[index].text == "("
        and tokens[-1].text == ")"
        and (first in _FUNCTION_LETTERS or index > 1 or len(tokens) - index == 3)
    ):
        if first in ("x", "n", "z") and len(tokens) - index != 3:
            return None
        return sym(text)
    return None


def _body(tokens: Sequence[Token], index: int) -> int:
    if index < len(tokens) and tokens[index].text == "{":
        depth = 0
        for position in range(index, len(tokens)):
            depth += (tokens[position].text == "{") - (tokens[position].text == "}")
            if depth == 0:
                return position + 1
    return index + 1


def is_name(node: Node) -> bool:
    """True for a node that can be the left side of `name = value`."""
    if node.op == "sym":
        return True
    if node.op == "tuple" or (node.op == "interval" and node.value == "()"):
        return all(arg.op == "sym" for arg in node.args)
    return node.op == "fn" and node.name.startswith("app:")


def gather(members: Sequence[Node], separators: set[str]) -> Node:
    """A list; `x = 1 or x = 2` is x = {1, 2}, `x = 1, y = 2` gives two names their values, `n = -6, 9` shares its
    name."""
    flat: list[Node] = []
    for member in members:
        flat.extend(member.args if member.op == "list" else (member,))
    equations = [m.op == "rel" and m.value == "=" and is_name(m.args[0]) for m in flat]
    if all(equations):
        heads = [m.args[0] for m in flat]
        if len(set(heads)) == 1:
            return Node("rel", (heads[0], _flat_list([m.args[1] for m in flat])), "=")
        if len(set(heads)) == len(heads) and "or" not in separators:
            return Node("named", tuple(flat))
        return Node("list", tuple(flat))
    if equations[0] and not any(m.op in ("rel", "text", "raw") for m in flat[1:]):
        return Node("rel", (flat[0].args[0], _flat_list([flat[0].args[1], *flat[1:]])), "=")
    return Node("list", tuple(flat))


def _flat_list(members: Sequence[Node]) -> Node:
    flat: list[Node] = []
    for member in members:
        flat.extend(member.args if member.op == "list" else (member,))
    return Node("list", tuple(flat))


def expand_signs(node: Node) -> Node:
    """a +- b is the list a + b, a - b. Signs are linked where a minus-plus occurs, independent otherwise (at most
    four).

    >>> from algorist.verify.read import read
    >>> read(r"1 \\pm 2") == read("3, -1")
    True
    """
    signs = [part for part in tree.walk(node) if part.op == "fn" and part.value in ("pm", "mp")]
    if not signs:
        return node
    linked = any(part.value == "mp" for part in signs)
    count = 1 if linked else len(signs)
    if count > 4:
        raise Unreadable("bound")
    found: list[Node] = []
    for mask in range(1 << count):
        choice = _Choice(mask, linked)
        expanded = choice.apply(node)
        if expanded not in found:
            found.append(expanded)
    return Node("list", tuple(found))


class _Choice:
    """One choice of all signs of an expression, read from the bits of a mask in order of occurrence."""

    def __init__(self, mask: int, linked: bool) -> None:
        self.mask, self.linked, self.index = mask, linked, 0

    def apply(self, node: Node) -> Node:
        """The expression with its signs decided."""
        if node.op == "fn" and node.value in ("pm", "mp"):
            bit = self.mask & 1 if self.linked else self.mask >> self.index & 1
            self.index += 1
            inside = self.apply(node.args[0])
            return vectors.mul([tree.MINUS_ONE, inside]) if bit != (node.value == "mp") else inside
        if not node.args:
            return node
        args = [self.apply(arg) for arg in node.args]
        return rebuild(node, args)


def rebuild(node: Node, args: Sequence[Node]) -> Node:
    """The node with other arguments, canonical again."""
    if node.op == "add":
        return vectors.add(args)
    if node.op == "mul":
        return vectors.mul(args)
    if node.op == "pow":
        return tree.power(args[0], args[1])
    if node.op == "fn" and not node.name.startswith(("op:", "app:")):
        if node.value == "factorial":
            return tree.factorial(args[0])
        return tree.binomial(args[0], args[1]) if node.value == "binomial" else tree.fn(node.name, *args)
    return Node(node.op, tuple(args), node.value)


def spread(node: Node) -> Node:
    """A tuple with plus-minus entries is a list of tuples, the signs linked: (+-1, 2) is (1,2), (-1,2)."""
    lengths = {len(arg.args) for arg in node.args if arg.op == "list"}
    if not lengths:
        return node
    if len(lengths) > 1:
        raise Unreadable("grammar")
    count = lengths.pop()
    rows = [tuple(arg.args[k] if arg.op == "list" else arg for arg in node.args) for k in range(count)]
    return Node("list", tuple(Node(node.op, row, node.value) for row in rows))
