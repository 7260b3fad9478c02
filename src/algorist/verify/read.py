"""Text of an answer to a tree: blanks, lists, relations, sets, quantities, words; scalars are left to `parse`.

Above the operations of `tree` these appear:

    list set tuple blanks ratio     members; `list` and `set` are unordered
    interval                        two members, value '()' '[)' '(]' '[]'; '()' is a point as well
    union inter minus and           sets, and conditions that hold together
    builder                         a condition with its symbol: {x | x < 2}
    rel                             members, value: relations between neighbours ('=' '<' '<=' '~' 'in' ...)
    named                           equations that give different names their values
    unit text raw time base choice  a value with its unit; words; what the grammar does not know; 3:30 pm; 52_8
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from algorist.verify import lex, literals, names, sets, tree, wordnumbers
from algorist.verify.element import element, is_words
from algorist.verify.lex import Token
from algorist.verify.normalise import key, tidy
from algorist.verify.parse import Parser, matching
from algorist.verify.tree import Node, Unreadable, num

MAX_CHARACTERS = 2000

_RELATIONS = {"=": "=", "<": "<", ">": ">", r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\approx": "~", r"\equiv": "==",
              r"\in": "in", r"\notin": "notin", r"\to": "to", r"\sim": "~", r"\simeq": "~", r"\cong": "~",
              r"\subset": "sub",
              r"\subseteq": "sub"}  # fmt: skip
_SEPARATORS = {",": ",", r"\comma": ",", "or": "or", "and": "and", "或": "or", "或者": "or", "和": "and", "以及": "and",
    "及": "and",
               "与": "and", r"\&": "and"}  # fmt: skip
_CODE = re.compile(
    r"__|(?<!\\)\blambda\b|\bimport\b|\b(?:eval|exec|print|open|getattr|compile|system|globals)\s*\(|\\(?:def|let|newcommand|input|include|write|csname|catcode)\b"
)


def read(text: str, *, grouped: bool = True) -> Node:
    """The tree of an answer or gold. Raises Unreadable for empty, oversized, undefined or code-like texts.

    `grouped`: a comma between three-digit groups joins them (1,200 is a number); otherwise it separates.

    >>> read("1/2") == read(r"\\frac{2}{4}")
    True
    >>> read("(2,3]").value
    '(]'
    """
    found = _read(text, grouped)
    if isinstance(found, str):
        raise Unreadable(found)
    return found


@lru_cache(1 << 14)
def _read(text: str, grouped: bool) -> Node | str:
    try:
        return tree.check_size(_readable(strip(text), grouped))
    except Unreadable as why:
        return why.reason
    except RecursionError:
        return "bound"


_WRAPPERS = ("**", "__", "`", '"', "''", "*")
_LEAD = re.compile(
    r"(?:\\text *\{ *)?(?:the )?(?:final |correct )?(?:answer|solution|result)s?(?: (?:is|are))?"
    r"(?: *[:=] *\}? *| +(?=\d|\[)(?<=is )\}? *)",
    re.IGNORECASE,
)
_BOX = re.compile(r"^\\(?:boxed|fbox) *\{")


def strip(text: str) -> str:
    """The normalised text without quotes, emphasis, sentence marks and boxes around it."""
    text = tidy(text)
    before = None
    while text != before:
        before = text
        text = text.strip(" ").rstrip(".,;:")  # not !, which is a factorial
        if text.endswith("\\"):
            text = text[:-1]
        for mark in _WRAPPERS:
            if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
                text = text[len(mark) : -len(mark)]
        lead = _LEAD.match(text)
        if lead and lead.end() < len(text):
            text = text[lead.end() :]
        if text.startswith("{") and len(text) > 2 and text.endswith("}") and _closed(text, 0):
            text = text[1:-1]
        box = _BOX.match(text)
        if box and text.endswith("}") and _closed(text, box.end() - 1):
            text = text[box.end() : -1]
    return text


def _closed(text: str, start: int) -> bool:
    """True where the brace at `start` closes at the end of the text: {1,2} is 1,2."""
    try:
        return lex.matching_brace(text, start) == len(text) - 1
    except Unreadable:
        return False


def _readable(text: str, grouped: bool) -> Node:
    if not text:
        raise Unreadable("empty")
    if len(text) > MAX_CHARACTERS:
        raise Unreadable("bound")
    if _CODE.search(text):
        raise Unreadable("code")
    found = literals.whole(text)
    if found is not None:
        return found
    value = wordnumbers.value(text)
    if value is not None:
        return num(value)
    tokens = lex.tokens(text, grouped=grouped)
    if is_words(tokens):
        return Node("text", (), key(text))
    try:
        return _circled(blanks(tokens, 0))
    except Unreadable as why:
        if why.reason != "grammar":
            raise
        return Node("raw", (), text)


def _circled(node: Node) -> Node:
    """(1)(3)(4), the numbers of right statements, are a list."""
    if node.op == "mul" and all(arg.op == "sym" and arg.name.startswith("(") for arg in node.args):
        return Node("list", node.args)
    return node


# containers


def split(tokens: Sequence[Token], at: frozenset[str] | dict[str, str]) -> tuple[list[list[Token]], list[str]]:
    """Parts between top-level tokens whose text is in `at`, and those texts."""
    parts: list[list[Token]] = [[]]
    found = []
    index = bars = 0
    while index < len(tokens):
        token = tokens[index]
        if token.text in ("(", "[", "{", r"\{", r"\langle", r"\lfloor", r"\lceil"):
            end = matching(tokens, index)
            parts[-1].extend(tokens[index : end + 1])
            index = end + 1
            continue
        if token.text == r"\begin":
            end = _end_of_environment(tokens, index)
            parts[-1].extend(tokens[index:end])
            index = end
            continue
        bars += token.text == "|"
        if token.text in at and bars % 2 == 0:
            parts.append([])
            found.append(token.text)
        else:
            parts[-1].append(token)
        index += 1
    return parts, found


def _end_of_environment(tokens: Sequence[Token], start: int) -> int:
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index].text == r"\begin") - (tokens[index].text == r"\end")
        if depth == 0:
            return min(index + 4, len(tokens))
    raise Unreadable("grammar")


def blanks(tokens: Sequence[Token], depth: int) -> Node:
    """`a; b`: ordered blanks; otherwise a list."""
    parts, _ = split(tokens, frozenset({";"}))
    filled = [part for part in parts if part]
    if len(filled) > 1:
        members = tuple(listing(part, depth + 1) for part in filled)
        heads = {member.args[0] for member in members if member.op == "rel" and member.name == "="}
        solutions = len(heads) == 1 and all(member.op == "rel" for member in members)  # x = 5; x = -3
        return names.gather(members, {";"}) if solutions else Node("blanks", members)
    return listing(filled[0] if filled else tokens, depth)


def listing(tokens: Sequence[Token], depth: int) -> Node:
    """`a, b and c`: an unordered list, a union or conjunction of conditions, or one member."""
    if depth > tree.MAX_DEPTH:
        raise Unreadable("bound")
    parts, marks = split(tokens, _SEPARATORS)
    filled = [part for part in parts if part]
    if not filled:
        raise Unreadable("grammar")
    if len(filled) == 1:
        return relation(filled[0], depth)
    members = [relation(part, depth + 1) for part in filled]
    kinds = {_SEPARATORS[mark] for mark in marks}
    if any(_is_condition(member) for member in members) and all(map(_is_restriction, members)):
        together = Node("and", tuple(members))
        apart = "or" in kinds or (kinds == {","} and sets.equal(together, Node("set", ())) is True)
        return Node("union", tuple(members)) if apart else together
    return names.gather(members, kinds)


def _is_condition(node: Node) -> bool:
    return node.op == "rel" and bool(set(node.name.split()) & {"<", ">", "<=", ">=", "!="})


def _is_restriction(node: Node) -> bool:
    """A condition, or `x = 5` beside conditions."""
    return _is_condition(node) or (node.op == "rel" and node.name in ("=", "in") and node.args[0].op == "sym")


def relation(tokens: Sequence[Token], depth: int) -> Node:
    """`a = b < c`: a chain; without relations a set expression."""
    tokens = _without_full_stop(tokens)
    parts, marks = split(tokens, _RELATIONS)
    if not marks:
        return setwise(tokens, depth)
    ops = [_RELATIONS[mark] for mark in marks]
    if not parts[0] and ops[0] == "~" and len(parts) == 2:
        return setwise(parts[1], depth)
    if not all(parts):
        raise Unreadable("grammar")
    if ops[-1] == "==" and _has_modulus(parts[-1]):
        raise Unreadable("grammar")
    first = (not _capitals(parts) and names.name(parts[0])) or setwise(parts[0], depth + 1)
    members = [
        first,
        *(names.name(part) or setwise(part, depth + 1) for part in parts[1:-1]),
        setwise(parts[-1], depth + 1),
    ]
    return Node("rel", tuple(members), " ".join(ops))


def _capitals(parts: Sequence[Sequence[Token]]) -> bool:
    """MR = MC and M R = M C: both sides are read alike, not as a name and a product."""
    runs = ["".join(token.text for token in part if token.kind == "let") for part in parts]
    return all(
        len(run) > 1 and run.isupper() and len(run) == sum(len(token.text) for token in part)
        for run, part in zip(runs, parts, strict=True)
    )


def _has_modulus(tokens: Sequence[Token]) -> bool:
    return any(t.text in (r"\pmod", r"\mod", r"\bmod", "mod") for t in tokens)


def _without_full_stop(tokens: Sequence[Token]) -> Sequence[Token]:
    while tokens and tokens[-1].text in (".", ","):
        tokens = tokens[:-1]
    while tokens and tokens[0].text in (",", ":"):
        tokens = tokens[1:]
    return tokens


def setwise(tokens: Sequence[Token], depth: int) -> Node:
    """Unions, intersections and differences of sets; otherwise a ratio or an element."""
    for mark, op in ((r"\cup", "union"), ("U", "union"), (r"\cap", "inter"), (r"\setminus", "minus")):
        if mark == "U" and not _bracketed_union(tokens):
            continue
        parts, found = split(tokens, frozenset({mark}))
        if found:
            if not all(parts):
                raise Unreadable("grammar")
            return Node(op, tuple(setwise(part, depth + 1) for part in parts))
    if len(tokens) > 2:
        for index in range(1, len(tokens) - 1):
            if tokens[index].text == "-" and tokens[index + 1].text == r"\{":
                return Node("minus", (setwise(tokens[:index], depth + 1), setwise(tokens[index + 1 :], depth + 1)))
    parts, found = split(tokens, frozenset({":", "to"}))
    if found and all(parts):
        return Node("ratio", tuple(element(part, inner, depth + 1) for part in parts))
    return element(tokens, inner, depth)


def _bracketed_union(tokens: Sequence[Token]) -> bool:
    """(a,b) U (c,d): the letter stands for the sign between brackets only."""
    marks = [i for i, t in enumerate(tokens) if t.text == "U"]
    return bool(marks) and all(
        0 < i < len(tokens) - 1 and tokens[i - 1].text in ")]" and tokens[i + 1].text in "([" for i in marks
    )


def inner(tokens: Sequence[Token], opening: str, closing: str, depth: int) -> Node:
    """What a bracket holds: a scalar in parentheses, a tuple, an interval, a set."""
    if depth > tree.MAX_DEPTH:
        raise Unreadable("bound")
    if opening == r"\{":
        return _set(tokens, depth)
    parts, marks = split(tokens, frozenset({",", ";", r"\comma"}))
    if not marks:
        if not tokens:
            raise Unreadable("grammar")
        if opening + closing in ("[)", "(]"):
            raise Unreadable("grammar")
        return _parenthesised(tokens, depth)
    if all(any(token.text == "=" for token in part) for part in parts):  # [x = 1, y = 2]
        return names.gather([relation(part, depth + 1) for part in parts], {","})
    members = [setwise(part, depth + 1) for part in parts if part]
    if len(members) != len(parts):
        raise Unreadable("grammar")
    if opening == r"\langle":
        opening, closing = "(", ")"
    return names.spread(
        Node("interval", tuple(members), opening + closing) if len(members) == 2 else _tuple(members, opening + closing)
    )


def _tuple(members: list[Node], brackets: str) -> Node:
    if brackets not in ("()", "[]"):
        raise Unreadable("grammar")
    return Node("tuple", tuple(members))


def _parenthesised(tokens: Sequence[Token], depth: int) -> Node:
    parser = Parser(tokens, inner, depth)
    node = parser.expression()
    if not parser.at_end():
        raise Unreadable("grammar")
    return node


def _set(tokens: Sequence[Token], depth: int) -> Node:
    if not tokens:
        return Node("set", ())
    for index, token in enumerate(tokens):
        if (
            token.text in ("|", r"\mid", ":", ";")
            and 0 < index < len(tokens) - 1
            and tokens[0].kind in ("let", "cmd", "op")
        ):
            condition = listing(tokens[index + 1 :], depth + 1)
            return Node("builder", (relation(tokens[:index], depth + 1), condition))
    node = listing(tokens, depth + 1)
    return Node("set", node.args if node.op == "list" else (node,))


def fraction_of(node: Node) -> Fraction | None:
    """The exact rational value of a tree, or None."""
    if node.op == "num":
        return node.number
    if node.op == "pct":
        inside = fraction_of(node.args[0])
        return None if inside is None else inside / 100
    return None
