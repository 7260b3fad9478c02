"""Item to verdict: what can be said cheaply, and what must wait for a proof. Pure: no clock but for `ms`, no
processes."""

from __future__ import annotations

import dataclasses
import re
import time
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from algorist.flow import Outcome, Verdict
from algorist.verify import choices, compare, literals, normalise, numeric
from algorist.verify import gold as golds
from algorist.verify import read as reading
from algorist.verify.compare import Finding, Prover
from algorist.verify.extract import Extraction, boxes, extract
from algorist.verify.item import Item
from algorist.verify.read import fraction_of, read, strip
from algorist.verify.tree import Node, Unreadable

Key = tuple[str, str, str, float]
"""(gold, answer, kind, tolerance): what a verdict depends on once the answer is found."""

_OUTCOMES = {"equal": Outcome.CORRECT, "different": Outcome.WRONG, "unsure": Outcome.UNSUPPORTED}


@dataclass(frozen=True, slots=True)
class Result:
    """What comparing one answer with one gold came to."""

    outcome: Outcome
    reason: str
    method: str
    ms: float = 0.0

    def timed(self, ms: float) -> Result:
        """The same result with its cost."""
        return dataclasses.replace(self, ms=ms)


@dataclass(frozen=True, slots=True)
class Pending:
    """A row whose comparison needs a proof."""

    key: Key
    rule: str
    raw_correct: bool
    ms: float


def cheap(item: Item) -> Verdict | Pending:
    """The verdict on an item, or what has to be proved for one.

    >>> cheap(Item(gold=r"\\frac{1}{2}", response="The answer is 0.5.")).reason
    'equal'
    """
    began = time.perf_counter()
    found = extract(item)
    if found.answer is None:
        return _verdict(Outcome.UNSUPPORTED, found.reason, found, "", item, began)
    conflict = _conflict(found)
    if conflict:
        return _verdict(Outcome.UNSUPPORTED, conflict, found, "", item, began)
    answer = strip(found.answer)
    finding = _compare_cheaply(item.gold, answer, item.kind, item.tolerance)
    if finding.state == "pending":
        key = (item.gold, answer, item.kind, item.tolerance)
        return Pending(key, found.rule, raw_reading(item), (time.perf_counter() - began) * 1e3)
    if found.rule == "anchor" and finding.reason == "words":  # prose after "the answer is", not an answer in words
        finding = compare.unsure("no_answer")
    return _verdict(_OUTCOMES[finding.state], finding.reason, found, finding.method, item, began)


def _verdict(outcome: Outcome, reason: str, found: Extraction, method: str, item: Item, began: float) -> Verdict:
    raw = outcome is Outcome.CORRECT or raw_reading(item)
    ms = (time.perf_counter() - began) * 1e3
    return Verdict(
        verdict=outcome,
        reason=reason,
        rule=found.rule,
        method=method,
        extracted=found.answer or "",
        raw_correct=raw,
        ms=ms,
    )


def settle(row: Pending, result: Result) -> Verdict:
    """The verdict on a row once its proof is there."""
    return Verdict(
        verdict=result.outcome,
        reason=result.reason,
        rule=row.rule,
        method=result.method,
        extracted=row.key[1],
        raw_correct=row.raw_correct or result.outcome is Outcome.CORRECT,
        ms=row.ms + result.ms,
    )


def _conflict(found: Extraction) -> str:
    """Why the answers a response states do not agree; '' where they do."""
    assert found.answer is not None, "only a found answer has rivals"
    for rival in found.rivals:
        if _compare_cheaply(found.answer, rival, "auto", 0.0).state in ("different", "unsure"):
            return "conflict"
    for statement in found.statements:
        finding = _compare_cheaply(found.answer, statement, "auto", 0.0)
        if finding.state == "different" and finding.reason != "words" and not _is_formula(statement, found.answer):
            return "conflict"
    return ""


def _is_formula(statement: str, answer: str) -> bool:
    """ "The answer is m/n" does not contradict a boxed 7: it has unknowns that the answer has not."""
    try:
        stated, final = read(strip(statement)), read(strip(answer))
    except Unreadable:
        return False
    return bool(numeric.atoms(stated)) and not numeric.atoms(final)


@lru_cache(1 << 15)
def _compare_cheaply(gold: str, answer: str, kind: str, tolerance: float) -> Finding:
    return compare_texts(gold, answer, kind, tolerance)


def compare_texts(
    gold: str, answer: str, kind: str = "auto", tolerance: float = 0.0, prover: Prover = compare.wait
) -> Finding:
    """Compare two texts, both read by the same code. Symmetric for a given kind.

    Choice golds are compared as letters; everything else by `compare.same`. A comma between three-digit groups may be a
    separator: both readings are tried.
    """
    gold = golds.plain(gold, kind)
    letters = choices.of_gold(gold) if kind in ("auto", "choice") else None
    if letters is None and kind == "choice":
        letters = choices.of_answer(gold)
        if letters is None:
            return compare.unsure("not_a_choice")
    if letters is not None:
        picked = choices.of_answer(answer)
        if picked is not None:
            return compare.equal("string") if picked == letters else compare.different("string", "choice")
        if kind == "choice":
            return compare.unsure("not_a_choice")
    left, right = strip(gold), strip(answer)
    if not left or not right:
        return compare.unsure("empty")
    if left == right:
        return compare.equal("string")
    if literals.has_euler(left) or literals.has_euler(right):
        left, right = literals.with_euler(left), literals.with_euler(right)
    finding = _compare_trees(left, right, tolerance, prover, grouped=True)
    if finding.state == "different" and (_GROUPS.search(left) or _GROUPS.search(right)):
        second = _compare_trees(left, right, tolerance, prover, grouped=False)
        return second if second.state in ("equal", "pending") else finding
    return finding


_GROUPS = re.compile(r"\d,\d{3}(?!\d)")


def _compare_trees(left: str, right: str, tolerance: float, prover: Prover, *, grouped: bool) -> Finding:
    try:
        a, b = read(left, grouped=grouped), read(right, grouped=grouped)
        finding = compare.same(a, b, prover)
        if finding.state != "equal" and _are_words(a, b) and normalise.key(left) == normalise.key(right):
            return compare.equal("string")
    except Unreadable as why:
        return compare.unsure(why.reason)
    except RecursionError:
        return compare.unsure("bound")
    if tolerance > 0 and finding.state in ("different", "pending") and _within(a, b, tolerance):
        return compare.equal("numeric")
    return finding


_WORDY = re.compile(r"\\text *\{[A-Za-z0-9 ]+\}")


def _are_words(a: Node, b: Node) -> bool:
    """True where at least one side is words, so that fonts, spaces and case do not count: `\\text{March 3}`."""
    return any(side.op == "text" or (side.op == "raw" and _WORDY.fullmatch(side.name)) for side in (a, b))


def _within(a: Node, b: Node, tolerance: float) -> bool:
    """|a - b| <= tolerance for two constants: an evaluation option, never a reward."""
    a, b = (side.args[0] if side.op in ("unit", "deg", "pct") else side for side in (a, b))
    if a.op == b.op and a.op in ("list", "tuple", "set", "interval") and len(a.args) == len(b.args):
        return all(_within(x, y, tolerance) for x, y in zip(a.args, b.args, strict=True))
    x, y = numeric.constant(a), numeric.constant(b)
    return x is not None and y is not None and bool(abs(x - y) <= tolerance)


def prove(gold: str, answer: str, kind: str, tolerance: float) -> Result:
    """The whole comparison with the symbolic prover; runs in a worker."""
    from algorist.verify import symbolic

    finding = compare_texts(gold, answer, kind, tolerance, symbolic.prove)
    assert finding.state != "pending", "the symbolic prover always decides"
    return Result(_OUTCOMES[finding.state], finding.reason, finding.method)


def warm() -> None:
    """Import and use once what a proof needs, before the first deadline runs."""
    from algorist.verify import symbolic

    symbolic.prove(read("x+1"), read("1+x+0.5"))
    compare_texts(r"\sin 2x", r"2\sin x\cos x", "auto", 0.0, symbolic.prove)


_LAST_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_LOOSE = Fraction(1, 10_000)


def raw_reading(item: Item) -> bool:
    """The looser reading, never paid: the last box, else the last number, within a relative 1e-4, conflicts ignored.

    >>> raw_reading(Item(gold="1/3", response="about 0.33333"))
    True
    """
    tail = item.response[-4000:]
    found, _ = boxes(tail)
    if found:
        if _compare_cheaply(item.gold, found[-1].text, item.kind, 0.0).state == "equal":
            return True
        candidate = found[-1].text
    else:
        numbers = _LAST_NUMBER.findall(tail[-400:])
        if not numbers:
            return False
        candidate = numbers[-1].rstrip(",")
    return _loosely(item.gold, candidate)


@lru_cache(1 << 14)
def _loosely(gold: str, candidate: str) -> bool:
    values = []
    for text in (gold, candidate):
        try:
            node = read(strip(text))
        except Unreadable:
            return False
        exact = fraction_of(node.args[0] if node.op in ("unit", "deg", "pct") else node)
        value = exact if exact is not None else numeric.constant(node)
        if value is None:
            return False
        values.append(value if isinstance(value, Fraction) else Fraction(str(value)))
    return abs(values[0] - values[1]) <= _LOOSE * abs(values[0])


def clear_caches() -> None:
    """Forget all texts and comparisons of this process, so that a measurement starts cold."""
    for cached in (_compare_cheaply, _loosely, reading._read, normalise.tidy, normalise.key, numeric.constant):
        cached.cache_clear()


def gold_against_itself(gold: str, kind: str) -> Finding:
    """A gold compared with itself as if it were an answer: it must be readable, not only equal as a string.

    The finding is equal where the typed comparison proves it, `unsure` with reason `text_only` where only the string
    comparison does.
    """
    finding = compare_texts(gold, gold, kind)
    if finding.state != "equal":
        return finding
    text = golds.plain(gold, kind)
    if kind in ("auto", "choice") and choices.of_gold(text) is not None:
        return finding
    try:
        node = read(strip(text))
    except Unreadable as why:
        return compare.unsure(why.reason)
    return compare.unsure("text_only") if node.op == "raw" else compare.equal("typed")
