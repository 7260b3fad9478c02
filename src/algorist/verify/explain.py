"""Verdicts in words."""

from __future__ import annotations

from algorist.flow import Outcome, Verdict

WHY = {
    "equal": "the answer equals the gold",
    "different": "the answer differs from the gold",
    "choice": "another option was chosen",
    "size": "the number of members differs",
    "shape": "one is a list and the other a point, an interval or a matrix of another shape",
    "unit": "the units differ",
    "name": "a value is given to another name",
    "relation": "the relations differ or cannot be brought together",
    "words": "one is words and the other is a value",
    "base": "the number bases differ",
    "no_answer": "no final answer was found: no box, no ####, no \"the answer is\", no final JSON",
    "empty": "the answer is empty",
    "truncated": "the response ends before its final answer is complete",
    "unclosed_think": "the reasoning part is never closed, so there is no final part",
    "only_in_think": "an answer stands only inside the reasoning part",
    "conflict": "the response states different final answers",
    "hedge": "the final answer is hedged",
    "retracted": "the response takes its final answer back",
    "outside_grammar": "the text is outside the grammar of answers",
    "text_only": "the text is outside the grammar of answers, so only an identical text could match it",
    "grammar": "the text is outside the grammar of answers",
    "bound": "the expression is over a size bound",
    "undefined": "the expression has no value",
    "operator": "an operation is left unevaluated that the gold does not have",
    "code": "the text looks like program code",
    "equation": "an equation was given where a value is asked, or the other way round",
    "chain": "the members of the equality chain differ from each other",
    "set": "the sets cannot be compared",
    "not_a_choice": "no option letter was found",
    "unproved": "both sides agree at all test points, but no proof was found",
    "timeout": "the proof did not end within the deadline",
    "worker_death": "the proving process ended",
    "internal": "the checker itself failed; the log has the cause",
    "worker_start": "no proving process could be started",
    "worker_memory": "the proof needed more memory than allowed",
}  # fmt: skip
"""Reason codes in words."""

_PAID = {
    Outcome.CORRECT: "It is paid.",
    Outcome.WRONG: "It is not paid.",
    Outcome.UNSUPPORTED: "It is not paid, and it is not counted as wrong.",
    Outcome.ERROR: "This says nothing about the response: it leaves its group before any baseline.",
}


def explain(gold: str, verdict: Verdict) -> str:
    """A verdict in a few sentences.

    >>> v = Verdict(verdict=Outcome.WRONG, reason="different", rule="boxed", method="rational", extracted="41")
    >>> print(explain("42", v))
    wrong: the answer differs from the gold.
    Gold: 42
    Answer: 41 (found by rule boxed, compared by method rational)
    It is not paid.
    """
    lines = [f"{verdict.verdict.value}: {WHY.get(verdict.reason, verdict.reason)}.", f"Gold: {gold}"]
    if verdict.extracted:
        how = f", compared by method {verdict.method}" if verdict.method else ""
        lines.append(f"Answer: {verdict.extracted} (found by rule {verdict.rule}{how})")
    lines.append(_PAID[verdict.verdict])
    if verdict.raw_correct and verdict.verdict is not Outcome.CORRECT:
        lines.append("A looser reading of the response would match the gold; that is recorded apart and never paid.")
    return "\n".join(lines)
