"""Item to verdict: what can be said cheaply, and what must wait for a proof."""

from __future__ import annotations

import dataclasses
import re
import time
from dataclasses import dataclass
from fractions import Fraction

from algorist.flow import Outcome, Verdict
from algorist.verify.item import Item


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
    """A row whose comparison needs a proof: `key` is (gold, answer, kind)."""

    key: tuple[str, str, str]
    rule: str
    raw_correct: bool | None
    ms: float


def cheap(item: Item) -> Verdict | Pending:
    began = time.perf_counter()
    rule, answer = _extract(item)
    ms = (time.perf_counter() - began) * 1e3
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?", item.response[-4000:])
    raw = bool(numbers) and _equal(item.gold, numbers[-1])
    if answer is None:
        reason = "truncated" if item.truncated else "no_answer"
        return Verdict(verdict=Outcome.UNSUPPORTED, reason=reason, raw_correct=raw, ms=ms)
    same = _equal(item.gold, answer)
    return Verdict(
        verdict=Outcome.CORRECT if same else Outcome.WRONG,
        reason="equal" if same else "different",
        rule=rule,
        method="rational",
        extracted=answer,
        raw_correct=raw or same,
        ms=ms,
    )


def settle(row: Pending, result: Result) -> Verdict:
    return Verdict(
        verdict=result.outcome,
        reason=result.reason,
        rule=row.rule,
        method=result.method,
        extracted=row.key[1],
        raw_correct=row.raw_correct or result.outcome is Outcome.CORRECT,
        ms=row.ms + result.ms,
    )


def prove(gold: str, answer: str, kind: str) -> Result:
    same = _equal(gold, answer)
    return Result(Outcome.CORRECT if same else Outcome.WRONG, "equal" if same else "different", "rational")


def warm() -> None:
    """Import what a proof needs."""


def gold_against_itself(gold: str, kind: str) -> Verdict:
    row = cheap(Item(gold=gold, response=f"\\boxed{{{gold}}}", kind=kind))
    assert isinstance(row, Verdict)
    return row


def _extract(item: Item) -> tuple[str, str | None]:
    text = item.response.rpartition("</think>")[2]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    fmt = item.answer_format
    if fmt == "first_line":
        complete = len(lines) > 1 or not item.truncated
        return fmt, lines[0] if lines and complete else None
    if fmt == "last_number":
        return fmt, None if item.truncated or not lines else lines[-1].rpartition("=")[2].strip() or None
    if fmt in ("auto", "boxed"):
        found = re.findall(r"\\(?:boxed|fbox)\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", text)
        if found or fmt == "boxed":
            return "boxed", found[-1] if found else None
    found = re.findall(r"####\s*(\S.*)", text)
    if found or fmt == "hashes":
        return "hashes", found[-1].strip() if found else None
    found = re.findall(r"(?i)answer(?: is|:)\s*(\S.*)", text)
    return "answer_is", found[-1].strip().rstrip(".") if found else None


def _equal(gold: str, answer: str) -> bool:
    a, b = ("".join(s.replace("$", "").replace(",", "").split()) for s in (gold, answer))
    try:
        return Fraction(a) == Fraction(b)
    except (ValueError, ZeroDivisionError):
        return a == b
