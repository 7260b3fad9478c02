"""Response to verdict: extract the final answer, compare it exactly with the gold, prove hard cases in a worker.

    >>> from algorist.verify import check
    >>> check("42", r"So the total is \\boxed{42}.").verdict
    <Outcome.CORRECT: 'correct'>

Importing this room loads neither sympy nor torch; sympy lives in the workers of `algorist.verify.pool`.
"""

from __future__ import annotations

from algorist.verify.identity import version
from algorist.verify.item import AnswerFormat, Item
from algorist.verify.single import check, check_gold

__all__ = ["AnswerFormat", "Item", "check", "check_gold", "version"]
