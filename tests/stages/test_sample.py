"""Engine, verifier and reward answer in the shape that was asked for, or the run ends in words."""

import time

import pytest

from algorist.errors import GateFailed, InputError
from algorist.flow import Finish, Problem, Reward, Rollout
from algorist.stages.sample import Unanswered, attempt, one_each, whole_groups

PROBLEMS = [Problem(id=name, question=name, gold="1", source="s") for name in "ab"]


def rollout(name: str, sample: int) -> Rollout:
    return Rollout(
        problem_id=name, sample=sample, prompt_ids=(1,), token_ids=(), behaviour_logp=(), policy_version=(), loss_mask=(),
        finish=Finish.ERROR, text="", seed=sample,
    )  # fmt: skip


def groups(*names: str) -> list[list[Rollout]]:
    return [[rollout(name, i) for i in range(2)] for name in names]


def test_whole_groups_in_the_order_of_the_prompts_are_taken() -> None:
    whole_groups(groups("a", "b"), PROBLEMS, 2, "batch 0")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "NoneType"),
        ([], "got 0 groups"),
        (groups("a"), "got 1 groups"),
        (groups("b", "a"), "holds a rollout of problem b"),
        ([groups("a")[0][:1], groups("b")[0]], "has 1"),
        ([["text", "text"], groups("b")[0]], "holds a str"),
        (groups("a")[0], "no list of lists"),
    ],
)
def test_another_shape_is_told_with_what_was_asked_for(answer, words) -> None:
    with pytest.raises(GateFailed, match="2 prompts with 2 rollouts each") as caught:
        whole_groups(answer, PROBLEMS, 2, "batch 3")
    assert words in str(caught.value)
    assert "batch 3" in str(caught.value)


@pytest.mark.parametrize("got", [None, "ab", [Reward(value=1.0)], [Reward(value=1.0), 1.0]])
def test_one_answer_of_the_right_kind_for_each_response(got) -> None:
    with pytest.raises(GateFailed, match="one Reward for each of the 2 responses"):
        one_each("the reward", Reward, got, groups("a")[0], "batch 0")


def test_what_other_code_raises_is_named_and_our_own_errors_pass() -> None:
    with pytest.raises(Unanswered, match=r"batch 1: it must answer: it ended with ZeroDivisionError: division by zero"):
        attempt("it must answer", "batch 1", lambda: 1 / 0)

    def own() -> None:
        raise InputError("ours")

    with pytest.raises(InputError, match="ours"):
        attempt("it must answer", "batch 1", own)


def test_what_hangs_is_ended_and_named() -> None:
    began = time.monotonic()
    with pytest.raises(Unanswered, match=r"no answer within 0\.05 s"):
        attempt("it must answer", "batch 1", lambda: time.sleep(5), 0.05)
    assert time.monotonic() - began < 4


def test_the_ledger_line_is_that_of_a_broken_rule() -> None:
    payload = Unanswered("rollouts: nothing came").payload()
    assert (payload["name"], payload["passed"], payload["verdict"]) == ("rollouts", False, "failed")
