"""The gradient coefficient of stored responses under several methods, side by side. DeepSeekMath eq. 5, Table 10."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.flow import Batch, Group, Problem
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput, TokenBatch
from algorist.report.comparison_data import Coefficients, GroupCoefficients
from algorist.stages.config import RLConfig
from algorist.stages.tokens import Decode, pieces
from algorist.stages.worth import judge


def side_by_side(
    batch: Batch,
    cfgs: Mapping[str, RLConfig],
    problems: Mapping[str, Problem],
    decode: Decode,
    *,
    stop_ids: frozenset[int],
    groups: int = 6,
) -> tuple[GroupCoefficients, ...]:
    """Some groups of a first batch (mixed ones first, then one all right, one all wrong) with every method's coefficients.

    batch: of policy version 0 with unshaped rewards, so that policy, old policy and reference are the same and the stored
    log-probabilities are theirs; the value head is 0 at that point. These are then the coefficients each method really used.
    """
    found = {label: coefficients(batch, cfg, problems, decode, stop_ids=stop_ids) for label, cfg in cfgs.items()}
    first = {id(group): sum(len(g.rollouts) for g in batch.groups[:i]) for i, group in enumerate(batch.groups)}
    result = []
    for group in _chosen(batch, groups):
        problem = problems[group.problem_id]
        responses = []
        for i, (rollout, verdict, reward) in enumerate(
            zip(group.rollouts, group.verdicts, group.rewards, strict=True), start=first[id(group)]
        ):
            parts = pieces(rollout.token_ids, rollout.text, decode, hidden=stop_ids)
            responses.append(
                Coefficients(
                    text=rollout.text,
                    verdict=str(verdict.verdict),
                    reward=reward.value,
                    by_label={label: _stretches(parts, values[i].tolist()) for label, values in found.items()},
                )
            )
        result.append(GroupCoefficients(question=problem.question, gold=problem.gold, responses=tuple(responses)))
    return tuple(result)


def coefficients(
    batch: Batch, cfg: RLConfig, problems: Mapping[str, Problem], decode: Decode, *, stop_ids: frozenset[int]
) -> Float[Tensor, "B T"]:
    """GC of every token of a batch sampled by the present policy, under a method and its shaping; 0 outside its mask."""
    method = METHODS[cfg.objective.name]
    worth = judge(batch, cfg, problems, decode, hidden=stop_ids)
    rows = worth.rows
    logp = rows.behaviour.double()
    credit = method.credit(
        CreditInput(
            rewards=rows.reward,
            group=rows.group,
            mask=rows.mask,
            correct=rows.correct,
            truncated=rows.truncated,
            quality=worth.quality,
            logp_old=logp,
            logp_ref=logp,
            value=torch.zeros_like(logp),
            step_ends=worth.step_ends,
            step_rewards=worth.step_rewards,
        ),
        cfg.objective,
    )
    tokens = TokenBatch(
        logp=logp,
        logp_old=logp,
        logp_behaviour=logp,
        logp_ref=logp,
        advantage=credit.advantage.double(),
        mask=credit.mask,
        value=torch.zeros_like(logp),
        value_old=torch.zeros_like(logp),
        returns=credit.returns,
        pair=credit.pair,
    )
    return method.coefficient(tokens, cfg.objective)


def unshaped(batch: Batch, names: Sequence[str]) -> Batch:
    """A stored batch with the named shaping parts taken out of its rewards again."""

    def plain(group: Group) -> Group:
        rewards = tuple(
            r
            if r.value is None
            else replace(
                r,
                value=r.value - sum(r.parts.get(name, 0.0) for name in names),
                parts={key: x for key, x in r.parts.items() if key not in names},
            )
            for r in group.rewards
        )
        return replace(group, rewards=rewards)

    return replace(batch, groups=tuple(plain(group) for group in batch.groups)) if names else batch


def _chosen(batch: Batch, count: int) -> list[Group]:
    mixed = [g for g in batch.groups if not g.flat]
    right = [g for g in batch.groups if g.flat and g.values and max(g.values) > 0][:1]
    wrong = [g for g in batch.groups if g.flat and g.values and max(g.values) <= 0][:1]
    return [*mixed[: count - len(right) - len(wrong)], *right, *wrong]


def _stretches(parts: Sequence[str], values: Sequence[float]) -> list[tuple[str, float]]:
    """Neighbouring tokens of one coefficient together.

    >>> _stretches(["1", "+1", "=2"], [0.5, 0.5, -1.0, 0.0])
    [('1+1', 0.5), ('=2', -1.0)]
    """
    found: list[tuple[str, float]] = []
    for part, value in zip(parts, values, strict=False):  # values are padded to the longest response
        if found and found[-1][1] == value:
            found[-1] = (found[-1][0] + part, value)
        else:
            found.append((part, value))
    return found
