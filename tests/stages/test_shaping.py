"""Shaping in the loop: parts kept apart, failures without a signal, efforts never compared."""

import pytest
import torch

from algorist.errors import InputError
from algorist.flow import Batch, Finish, Group, Outcome, Problem, Reward, Rollout, Verdict
from algorist.objective.advantage import group_advantage
from algorist.objective.shaping_config import EffortLength, LengthDeduction, Overlong
from algorist.stages.shaping import group_numbers, qualities, reasoning_tokens, shape_batch
from algorist.train.rows import from_batch

RIGHT, WRONG, FAILED = Outcome.CORRECT, Outcome.WRONG, Outcome.ERROR
EFFORT = EffortLength(levels=(20, 60), k0=0.5, norm_tokens=10, maximum=0.4, lam=1.0)


def decode(ids) -> str:
    return "".join(map(chr, ids))


def row(problem: str, sample: int, text: str) -> Rollout:
    T = len(text)
    return Rollout(
        problem_id=problem, sample=sample, prompt_ids=(1,), token_ids=tuple(map(ord, text)), behaviour_logp=(-0.5,) * T,
        policy_version=(0,) * T, loss_mask=(True,) * T, finish=Finish.STOP, text=text, seed=sample,
    )  # fmt: skip


def batch_of(**groups: list[tuple[str, Outcome]]) -> Batch:
    def group(name: str, answers: list[tuple[str, Outcome]]) -> Group:
        return Group(
            problem_id=name,
            rollouts=tuple(row(name, i, text) for i, (text, _) in enumerate(answers)),
            verdicts=tuple(Verdict(verdict=o, reason="", extracted=text[-1:]) for text, o in answers),
            rewards=tuple(
                Reward(value=None, error="verifier: timeout")
                if o is FAILED
                else Reward(value=float(o is RIGHT), parts={"correct": float(o is RIGHT)})
                for _, o in answers
            ),
        )

    return Batch(index=0, policy_version=0, groups=tuple(group(name, answers) for name, answers in groups.items()))


def problems(**efforts: int | None) -> dict[str, Problem]:
    return {
        name: Problem(id=name, question="?", gold="7", source="s", metadata=() if e is None else (("effort", str(e)),))
        for name, e in efforts.items()
    }


def values(batch: Batch) -> list[list[float | None]]:
    return [[r.value for r in g.rewards] for g in batch.groups]


def test_nothing_configured_changes_nothing() -> None:
    batch = batch_of(a=[("7", RIGHT), ("8", WRONG)])
    shaped = shape_batch(batch, (), problems(a=None), decode, hidden=())
    assert shaped.batch is batch
    assert shaped.figures == {}


def test_each_part_is_kept_by_name_and_the_reward_is_their_sum() -> None:
    batch = batch_of(a=[("7", RIGHT), ("7", RIGHT), ("1111117", RIGHT), ("8", WRONG)])
    cfgs = (LengthDeduction(), Overlong(max_tokens=8, buffer_tokens=4, factor=0.5))
    shaped = shape_batch(batch, cfgs, problems(a=None), decode, hidden=())
    long = shaped.batch.groups[0].rewards[2]
    assert dict(long.parts) == {"correct": 1.0, "length_deduction": -0.1, "overlong": -0.375}
    assert long.value == pytest.approx(0.525)
    assert values(shaped.batch)[0] == pytest.approx([1.0, 1.0, 0.525, 0.0])
    assert shaped.figures["reward/unshaped_mean"] == 0.75
    assert shaped.figures["reward/length_deduction_mean"] == pytest.approx(-0.025)
    assert shaped.figures["reward/overlong_share"] == 0.25


def test_a_group_without_a_correct_response_gets_no_length_signal() -> None:
    batch = batch_of(a=[("111111", WRONG), ("1", WRONG)], b=[("111111", WRONG), ("7", RIGHT)])
    cfgs = (LengthDeduction(), Overlong(max_tokens=6, buffer_tokens=4))
    shaped = shape_batch(batch, cfgs, problems(a=None, b=None), decode, hidden=())
    assert values(shaped.batch) == [[0.0, 0.0], [-1.0, 1.0]]
    assert shaped.figures["groups/all_failed"] == 1


@pytest.mark.parametrize("all_failed", ["keep", "off"])
def test_the_effort_length_term_alone_reaches_failures_and_can_be_switched_off(all_failed) -> None:
    batch = batch_of(a=[("11118", WRONG), ("18", WRONG)])
    cfg = EFFORT.model_copy(update={"all_failed": all_failed})
    shaped = shape_batch(batch, (cfg,), problems(a=20), decode, hidden=())
    assert values(shaped.batch)[0] == pytest.approx([-0.2, -0.05] if all_failed == "keep" else [0.0, 0.0])
    assert shaped.figures["groups/length_signal_only"] == (1 if all_failed == "keep" else 0)


def test_a_failed_row_stays_without_a_reward_and_out_of_every_mean() -> None:
    batch = batch_of(a=[("7", RIGHT), ("8", FAILED)])
    shaped = shape_batch(batch, (LengthDeduction(),), problems(a=None), decode, hidden=())
    assert shaped.batch.groups[0].rewards[1] == batch.groups[0].rewards[1]
    assert shaped.figures["reward/unshaped_mean"] == 1.0


def test_a_higher_effort_pays_less_for_its_reasoning() -> None:
    batch = batch_of(low=[("11117", RIGHT), ("7", RIGHT)], high=[("11117", RIGHT), ("7", RIGHT)])
    shaped = shape_batch(batch, (EFFORT,), problems(low=20, high=60), decode, hidden=())
    low, high = (g.rewards[0].parts["effort_length"] for g in shaped.batch.groups)
    assert low == pytest.approx(-0.2)
    assert high == pytest.approx(-0.2 / 2.718281828)
    assert [g.rewards[1].parts["effort_length"] for g in shaped.batch.groups] == [0.0, 0.0]  # no reasoning tokens


def test_efforts_are_centred_apart() -> None:
    batch = batch_of(a=[("7", RIGHT), ("8", WRONG)], b=[("7", RIGHT), ("7", RIGHT)])
    known = problems(a=20, b=60)
    number = group_numbers(batch, (EFFORT,), known)
    assert number.tolist() == [0, 0, 1, 1]
    rewards = from_batch(batch).reward
    assert group_advantage(rewards, number, std="none").tolist() == [0.5, -0.5, 0.0, 0.0]


def test_a_problem_without_an_effort_is_refused_by_name() -> None:
    batch = batch_of(a=[("7", RIGHT), ("8", WRONG)])
    with pytest.raises(InputError, match=r"problem a: .* needs an effort"):
        shape_batch(batch, (EFFORT,), problems(a=None), decode, hidden=())


def test_reasoning_ends_where_the_answer_begins_or_with_its_closing_mark() -> None:
    right = Verdict(verdict=RIGHT, reason="equal", extracted="7")
    none = Verdict(verdict=Outcome.UNSUPPORTED, reason="no_answer")
    assert reasoning_tokens(row("a", 0, "7 or 3+4=7"), right, decode) == 9
    assert reasoning_tokens(row("a", 0, "3+4</think>7 is it"), right, decode) == 11
    assert reasoning_tokens(row("a", 0, "hmm"), none, decode) == 3


def test_quality_ranks_correct_responses_only() -> None:
    batch = batch_of(a=[("7", RIGHT), ("1+1=7", RIGHT), ("8", WRONG)])
    brevity, arithmetic = qualities(batch, "brevity"), qualities(batch, "arithmetic")
    assert brevity[:2].tolist() == [1.0, 0.2]
    assert arithmetic[:2].tolist() == [1.0, 0.5]
    assert bool(torch.isnan(brevity[2]))
    assert bool(torch.isnan(arithmetic[2]))
