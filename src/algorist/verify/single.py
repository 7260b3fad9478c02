"""`check` and `check_gold`: the verifier for one response, without a pool to look after."""

from __future__ import annotations

import atexit
import threading

from algorist.flow import Verdict
from algorist.verify import judge
from algorist.verify.explain import WHY
from algorist.verify.gold import KINDS
from algorist.verify.item import AnswerFormat, Item
from algorist.verify.judge import Pending
from algorist.verify.pool import VerifierPool, first_look

_lock = threading.Lock()
_shared: list[VerifierPool] = []


def check(
    gold: str, response: str, *, kind: str = "auto", truncated: bool = False, answer_format: AnswerFormat = "auto"
) -> Verdict:
    """Verdict on one response.

    The cheap stages run here; a comparison that needs a proof runs in one shared worker process with a deadline of 2 s,
    started on first need and ended with the interpreter. For batches use `pool.VerifierPool`.

    >>> check("1/2", "The answer is 0.5.").verdict.value
    'correct'
    >>> v = check("1/2", "Half of it, I think"); v.verdict.value, v.reason
    ('unsupported', 'no_answer')
    """
    item = Item(gold=gold, response=response, kind=kind, truncated=truncated, answer_format=answer_format)
    row = first_look(item)
    return _pool().check(item) if isinstance(row, Pending) else row


def check_gold(gold: str, kind: str = "auto") -> str | None:
    """None where a gold verifies against itself, else the reason in words; such a row is kept out and counted.

    >>> check_gold("42", "number") is None
    True
    >>> check_gold("", "auto")
    'the gold is empty'
    """
    if not gold.strip():
        return "the gold is empty"
    if kind not in KINDS:
        return f"the kind must be one of {', '.join(KINDS)}: got {kind!r}"
    finding = judge.gold_against_itself(gold, kind)
    if finding.state == "equal":
        return None
    return f"the gold does not verify against itself: {WHY.get(finding.reason, finding.reason)}"


def _pool() -> VerifierPool:
    with _lock:
        if not _shared:
            _shared.append(VerifierPool())
            atexit.register(_shared[0].close)
        return _shared[0]
