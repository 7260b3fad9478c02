"""Step rewards of a batch, from texts to token indices."""

import torch

from algorist.flow import Batch, Finish, Group, Outcome, Problem, Reward, Rollout, Verdict
from algorist.objective.config import GRPOProcessConfig
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput
from algorist.stages.config import ProcessConfig
from algorist.stages.process import score_steps, steps_of

STOP = 0


def decode(ids) -> str:
    return "".join(map(chr, ids))


def rollout(text: str, sample: int) -> Rollout:
    ids = (*map(ord, text), STOP)
    T = len(ids)
    return Rollout(
        problem_id="p", sample=sample, prompt_ids=(1,), token_ids=ids, behaviour_logp=(-0.5,) * T,
        policy_version=(0,) * T, loss_mask=(True,) * T, finish=Finish.STOP, text=text, seed=sample,
    )  # fmt: skip


def batch_of(*answers: tuple[str, Outcome]) -> Batch:
    group = Group(
        problem_id="p",
        rollouts=tuple(rollout(text, i) for i, (text, _) in enumerate(answers)),
        verdicts=tuple(Verdict(verdict=outcome, reason="") for _, outcome in answers),
        rewards=tuple(Reward(value=float(outcome is Outcome.CORRECT)) for _, outcome in answers),
    )
    return Batch(index=0, policy_version=0, groups=(group,))


PROBLEMS = {"p": Problem(id="p", question="47+35", gold="82", source="s")}
CFG = ProcessConfig(separators=(",", ":"))
RIGHT = ("7+5=12,4+3+1=8:47+35=82", Outcome.CORRECT)
WRONG = ("7+5=13,4+3+1=8:47+35=83", Outcome.WRONG)


def test_each_step_is_scored_and_ends_at_its_own_token() -> None:
    scored = score_steps(batch_of(RIGHT, WRONG), PROBLEMS, CFG, decode, hidden={STOP})
    assert scored.ends.tolist() == [[5, 13, 23], [5, 13, 23]]
    assert scored.rewards.tolist() == [[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]
    assert scored.figures == {"steps/mean": 3.0, "steps/judged_share": 1.0, "steps/reward_mean": 4 / 6}


def test_a_token_is_worth_the_steps_that_end_at_or_after_it() -> None:
    batch = batch_of(RIGHT, WRONG)
    scored = score_steps(batch, PROBLEMS, CFG, decode, hidden={STOP})
    rows = CreditInput(
        rewards=torch.tensor([1.0, 0.0], dtype=torch.float64),
        group=torch.tensor([0, 0]),
        mask=torch.ones(2, 24, dtype=torch.bool),
        step_ends=scored.ends,
        step_rewards=scored.rewards,
    )
    advantage = METHODS["grpo_process"].credit(rows, GRPOProcessConfig(beta=0)).advantage
    up, down = 0.7071, -1.4142  # rewards 1,1,1,0,1,0: mean 2/3, spread 0.4714
    expected = [3 * up] * 6 + [2 * up] * 8 + [up] * 10, [down + up + down] * 6 + [up + down] * 8 + [down] * 10
    assert torch.allclose(advantage, torch.tensor(expected), atol=1e-3)


def test_a_blank_response_has_no_steps_and_no_credit() -> None:
    scored = score_steps(batch_of(RIGHT, ("", Outcome.UNSUPPORTED)), PROBLEMS, CFG, decode, hidden={STOP})
    assert scored.ends.tolist()[1] == [-1, -1, -1]
    assert bool(torch.isnan(scored.rewards[1]).all())


def test_an_unjudged_answer_leaves_the_last_step_to_its_own_equations() -> None:
    scored = score_steps(batch_of((RIGHT[0], Outcome.ERROR)), PROBLEMS, CFG, decode, hidden={STOP})
    assert scored.rewards.tolist() == [[1.0, 1.0, 1.0]]


def test_separators_cut_at_their_place_and_blank_parts_are_no_steps() -> None:
    steps = steps_of(",, 3+4=7 ,\n 2+2=4,", [","])
    assert [(s.start, s.end, s.text) for s in steps] == [(3, 8, "3+4=7"), (12, 17, "2+2=4")]
    assert steps_of("", [","]) == ()
    assert [s.text for s in steps_of("a=>b=c", ["=>", "="])] == ["a", "b", "c"]
