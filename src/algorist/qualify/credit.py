"""What a batch is worth on its way to the step: the same rows, the parts of each reward, and the advantages."""

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from algorist.flow import Batch, Reward
from algorist.objective.registry import METHODS
from algorist.objective.spec import Credit, CreditInput
from algorist.qualify.rollouts import Decode, Fault
from algorist.qualify.subject import Subject
from algorist.qualify.worth import Outcome, worth
from algorist.stages.config import ProcessConfig
from algorist.stages.process import score_steps
from algorist.stages.shaping import group_numbers, qualities, shape_batch
from algorist.train.rows import Rows, from_batch
from algorist.train.trainer import Assigned

_METHODS: Final = dict(METHODS)
_SAME = 1e-5
"""Relative difference of two advantages: sums in float64, kept in float32."""


def same_rows(subject: Subject, batch: Batch, rows: Rows) -> Fault | None:
    """The tensors that are trained are those of the rollouts, row by row."""
    own, rl = from_batch(batch), subject.rl
    assert rl is not None, "a batch comes from RL"
    same = {
        "tokens": own.tokens == rows.tokens,
        "loss mask": torch.equal(own.mask, rows.mask),
        "rewards": torch.equal(own.reward.nan_to_num(nan=1e300), rows.reward.nan_to_num(nan=1e300)),
        "log-probabilities": torch.equal(own.behaviour, rows.behaviour),
        "truncations": torch.equal(own.truncated, rows.truncated),
        "groups": torch.equal(group_numbers(batch, rl.shaping, subject.task.by_id), rows.group),
    }
    wrong = [name for name, holds in same.items() if not holds]
    if not wrong:
        return None
    return Fault(
        code="rows",
        words=f"batch {batch.index}: the {wrong[0]} of the trained rows must be those of the stored rollouts, row by row",
        remedy="Build rows once, from the batch; keep masks, rewards and groups in the order of the rollouts.",
    )


def same_shaping(subject: Subject, batch: Batch, decode: Decode) -> Fault | None:
    """What rl.shaping adds to each reward is what its formulas give."""
    rl, task = subject.rl, subject.task
    assert rl is not None, "a batch comes from RL"
    if not rl.shaping:
        return None
    names: set[str] = {cfg.name for cfg in rl.shaping}
    bare = [replace(g, rewards=tuple(_bare(r, names) for r in g.rewards)) for g in batch.groups]
    again = shape_batch(replace(batch, groups=tuple(bare)), rl.shaping, task.by_id, decode, hidden=task.stop_ids).batch
    for group, mine in zip(batch.groups, again.groups, strict=True):
        for rollout, paid, due in zip(group.rollouts, group.rewards, mine.rewards, strict=True):
            if paid.value is not None and due.value is not None and abs(paid.value - due.value) > 1e-9:
                return Fault(
                    code="reward",
                    words=f"batch {batch.index}, problem {rollout.problem_id}, sample {rollout.sample}: rl.shaping makes the "
                    f"reward {due.value:.6g} ({len(rollout.token_ids)} tokens), it is {paid.value:.6g}",
                    remedy="Shape rewards once, by the formulas of docs/algorithms.md, before any baseline.",
                )
    return None


def credited(subject: Subject, batch: Batch | None, assigned: Assigned, decode: Decode) -> Fault | None:
    """Advantages are what rewards and groups give, and 0 where nothing is trained. batch: None where targets are imitated."""
    credit, rows = assigned.credit, assigned.rows
    if not bool(torch.isfinite(credit.advantage).all()):
        return _wrong(
            "an advantage must be a finite number", "Look for a division by a spread of 0, and for lost rewards."
        )
    if bool((credit.advantage[~credit.mask] != 0).any()):
        return _wrong("a token that is not trained must have advantage 0", "Mask advantages as tokens are masked.")
    if bool((credit.mask & ~rows.mask).any()):
        return _wrong(
            "only tokens of the responses may be trained: prompt or padding is in the loss mask",
            "Take the mask from the rollouts; a method may only take tokens out.",
        )
    if batch is None:
        right = bool((credit.advantage[credit.mask] == 1).all()) and torch.equal(credit.mask, rows.mask)
        return (
            None
            if right
            else _wrong(
                "every token of a target is trained, with weight 1",
                "Shift logits by one against tokens, and leave out the prompt alone.",
            )
        )
    return same_rows(subject, batch, rows) or _advantages(subject, batch, assigned, decode)


# -- inside ---------------------------------------------------------------------------------------------------------


def _bare(reward: Reward, names: set[str]) -> Reward:
    """Without the parts that shaping adds."""
    if reward.value is None:
        return reward
    parts = {name: part for name, part in reward.parts.items() if name not in names}
    return replace(
        reward, value=reward.value - sum(part for name, part in reward.parts.items() if name in names), parts=parts
    )


def _advantages(subject: Subject, batch: Batch, assigned: Assigned, decode: Decode) -> Fault | None:
    rl, credit = subject.rl, assigned.credit
    assert rl is not None, "a batch comes from RL"
    mask, advantage = _plain(subject, assigned) or _by_method(subject, batch, assigned, decode)
    where = _first(~(mask == credit.mask).all(1)) if mask.any() else None
    if where is not None:
        return _wrong(
            f"batch {batch.index}: row {where} must train {int(mask[where].sum())} tokens, it trains "
            f"{int(credit.mask[where].sum())}",
            "One mask for numerator and denominator: rows with a reward, tokens the policy chose, the last one included.",
        )
    close = (advantage - credit.advantage).abs() <= _SAME * advantage.abs().clamp(min=1.0)
    where = _first(~close.all(1))
    if where is None:
        return None
    t = int((~close[where]).nonzero()[0])
    return _wrong(
        f"batch {batch.index}: row {where} has advantage {float(credit.advantage[where, t]):.6g}, its group's rewards "
        f"give {float(advantage[where, t]):.6g} ({rl.objective.name})",
        "One baseline and one normalisation, over the rows of one problem; rewards in the order of their rows.",
    )


def _plain(subject: Subject, assigned: Assigned) -> tuple[Tensor, Tensor] | None:
    """(mask, advantages) in plain floats; None where rewards and groups do not settle them."""
    rl, rows = subject.rl, assigned.rows
    assert rl is not None, "a batch comes from RL"
    assert rows.correct is not None, "rollouts have verdicts"
    columns = (rows.group.tolist(), rows.reward.tolist(), rows.correct.tolist(), rows.truncated.tolist())
    known = [
        Outcome(group=g, reward=None if r != r else r, correct=c, truncated=t)
        for g, r, c, t in zip(*columns, strict=True)
    ]
    found = worth(rl.objective, known)
    if found is None:
        return None
    mask = rows.mask & torch.tensor([w.trained for w in found])[:, None]
    return mask, torch.where(mask, torch.tensor([w.advantage for w in found])[:, None], 0.0)


def _by_method(subject: Subject, batch: Batch, assigned: Assigned, decode: Decode) -> tuple[Tensor, Tensor]:
    """The same by the method itself, from rows and steps made anew and the scores that the step was given."""
    rl, rows, task = subject.rl, assigned.rows, subject.task
    assert rl is not None, "a batch comes from RL"
    steps = None
    if "step_rewards" in rl.objective.needs:
        steps = score_steps(batch, task.by_id, rl.process or ProcessConfig(), decode, hidden=task.stop_ids)
    inputs = CreditInput(
        rewards=rows.reward,
        group=rows.group,
        mask=rows.mask,
        correct=rows.correct,
        truncated=rows.truncated,
        quality=None if rl.quality is None else qualities(batch, rl.quality),
        logp_old=assigned.logp_old,
        logp_ref=assigned.logp_ref,
        value=assigned.value_old,
        step_ends=None if steps is None else steps.ends,
        step_rewards=None if steps is None else steps.rewards,
    )
    credit: Credit = _METHODS[rl.objective.name].credit(inputs, rl.objective)
    return credit.mask, credit.advantage


def _first(rows: Tensor) -> int | None:
    found = rows.nonzero()
    return int(found[0]) if len(found) else None


def _wrong(words: str, remedy: str) -> Fault:
    return Fault(code="advantage", words=words, remedy=remedy)
