"""Problems and prompts: what says its own answer, and what a template must leave as it is."""

import pytest

from algorist.flow import Problem
from algorist.qualify.data import ends_with_its_answer, says_its_answer


def problem(question: str, gold: str = "13") -> Problem:
    return Problem(id="p", question=question, gold=gold, source="s")


@pytest.mark.parametrize(
    "question",
    [
        "What is 6 + 7? Answer: 13",
        "6 + 7 = ? #### 13",
        r"Compute. \boxed{13}",
        "The answer is 13. What is 6+7?",
        "answer=13",
    ],
)
def test_a_question_that_says_its_answer_is_noticed(question) -> None:
    assert says_its_answer(problem(question))


@pytest.mark.parametrize(
    "question", ["Is 13 a prime?", "What is 6 + 7?", "Answer: 130 or 131?", "What is 13 + 0?", "#### 1,300 or less?"]
)
def test_a_question_that_merely_holds_the_number_is_not(question) -> None:
    assert not says_its_answer(problem(question))


def test_the_last_word_counts_for_numbers_only() -> None:
    assert ends_with_its_answer(problem("6 + 7 13"))
    assert not ends_with_its_answer(problem("Is it odd or even", "even"))
    assert not ends_with_its_answer(problem("13"))
