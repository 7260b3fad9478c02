"""Problems and prompts: what says its own answer, and what a template must leave as it is."""

from dataclasses import replace

import pytest

from algorist.flow import Problem
from algorist.launch.prepare import prepare, subject_of
from algorist.qualify.data import data_gate, ends_with_its_answer, says_its_answer, template_gate
from algorist.qualify.gate import Verdict
from algorist.recipe.load import load
from algorist.stages.listener import Silent


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


@pytest.fixture(scope="module")
def subject(start_recipe):
    sft = ("problems.sft_count=20", "sft={target: gold, steps: 2, batch_size: 4, optimizer: {lr: 1e-5}}")
    recipe = load(start_recipe, sft).recipe
    prepared = prepare(recipe, base=start_recipe.parent, listener=Silent())
    yield subject_of(prepared)
    prepared.close()


def test_problems_and_targets_as_they_were_read_are_right(subject) -> None:
    assert data_gate(subject).passed
    assert template_gate(subject).verdict is Verdict.PASSED


@pytest.mark.parametrize("part", ["train", "heldout"])
def test_a_problem_that_is_not_the_one_that_was_read_is_found(subject, part) -> None:
    first, *rest = getattr(subject.task, part)
    task = replace(subject.task, **{part: (replace(first, gold="99"), *rest)})
    gate = data_gate(replace(subject, task=task))
    assert not gate.passed
    assert "read otherwise" in gate.cause


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [(p, t[:-1]) for p, t in rows], "never to stop"),
        (lambda rows: [(p, other) for (p, _), (_, other) in zip(rows, [*rows[3:], *rows[:3]], strict=True)], "do not say their answer"),
        (lambda rows: rows[1:], "19 targets for 20 problems"),
        (lambda rows: [(p[:-1], t) for p, t in rows], "differs from prompt to prompt"),
    ],
)  # fmt: skip
def test_a_target_must_be_the_whole_answer_to_its_prompt(subject, change, words) -> None:
    gate = template_gate(replace(subject, targets=tuple(change(list(subject.targets)))))
    assert not gate.passed
    assert words in gate.cause


def test_a_tokenizer_with_more_tokens_than_the_model_is_mentioned(subject) -> None:
    class More:
        def __init__(self, inner) -> None:
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def __len__(self) -> int:
            return len(self.inner) + 7

    policy = subject.policy
    own, policy.tokenizer = policy.tokenizer, More(policy.tokenizer)
    try:
        gate = template_gate(subject)
    finally:
        policy.tokenizer = own
    assert gate.verdict is Verdict.REPORTED
    assert "the tokenizer knows" in gate.cause
