"""Known answers: right ones are right in every format, wrong ones wrong, and a reward that prefers them is told so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.flow import Outcome, Problem, Verdict
from algorist.prompts.config import PromptConfig
from algorist.qualify.canary import as_answer, known_answers, spoilt
from algorist.verify.item import FORMATS, Item
from algorist.verify.pool import first_look

GOLDS = ["42", "-7", "3/4", "0.5", "1,450,000", "B", r"\frac{1}{2}", "50%", "2^{10}", "x=5", r"\text{east}"]


def problem(gold: str) -> Problem:
    return Problem(id="p", question="?", gold=gold, source="s")


@pytest.mark.parametrize("answer_format", FORMATS)
@pytest.mark.parametrize("gold", GOLDS)
def test_every_known_answer_is_judged_as_it_must_be(gold, answer_format) -> None:
    cfg = PromptConfig(answer_format=answer_format)
    for known in known_answers(problem(gold), cfg, ""):
        verdict = first_look(Item(gold=gold, response=known.text, answer_format=answer_format))
        assert isinstance(verdict, Verdict)
        assert (verdict.verdict is Outcome.CORRECT) is known.right, (known, verdict)


@given(number=st.integers(-(10**9), 10**9))
def test_a_spoilt_number_is_another_number(number) -> None:
    verdict = first_look(Item(gold=str(number), response=f"\\boxed{{{spoilt(str(number))}}}"))
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is not Outcome.CORRECT


def test_an_answer_is_boxed_once_where_the_target_boxes_it_already() -> None:
    assert as_answer("42", PromptConfig(target=r"so \boxed{{answer}}", answer_format="boxed")) == r"so \boxed{42}"
    assert as_answer("42", PromptConfig(answer_format="hashes")) == " #### 42"
