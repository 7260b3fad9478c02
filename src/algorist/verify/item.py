"""What is handed to the verifier: one gold, one response, and where the final answer is to be found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AnswerFormat = Literal["auto", "last_number", "first_line", "boxed", "hashes"]
"""Where a task says its final answer stands.

auto         the anchors of `extract`: boxes, ####, "the answer is", 答案是, <answer>, a final JSON object
boxed        the last \\boxed or \\fbox of the final part, nothing else
hashes       the text after #### , nothing else
first_line   the first non-empty line, whole
last_number  the text after the last '=' of the last non-empty line
"""

FORMATS: tuple[AnswerFormat, ...] = ("auto", "last_number", "first_line", "boxed", "hashes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One response to be checked against one gold.

    Example:
        >>> Item(gold="42", response="#### 42").kind
        'auto'
    """

    gold: str
    """The reference answer, as its data set writes it."""
    response: str
    """The whole response; text only."""
    kind: str = "auto"
    """How the gold is read: auto, number, expression, choice, blanks, list."""
    truncated: bool = False
    """True where the sampler ended the response at its budget (finish reason `length`)."""
    answer_format: AnswerFormat = "auto"
    """Where the final answer stands, as the task declares it."""
    tolerance: float = 0.0
    """Absolute tolerance for constants: an option of evaluation sets that state one. A reward leaves it at 0."""
