"""GRPO, process supervision: each token against the steps that follow it. DeepSeekMath 4.1.3."""

import torch

from algorist.errors import InputError
from algorist.objective.advantage import group_advantage, step_advantage
from algorist.objective.config import GRPOProcessConfig
from algorist.objective.credit import finish
from algorist.objective.spec import Credit, CreditInput, Method
from algorist.objective.surrogate import clipped_coefficient, clipped_loss


def credit(rows: CreditInput, cfg: GRPOProcessConfig) -> Credit:
    """A_it = sum of the normalised rewards of the steps that end at or after t."""
    if rows.step_ends is None or rows.step_rewards is None:
        raise InputError("grpo_process needs step_ends and step_rewards: split responses into steps and score them")
    group_advantage(rows.rewards, rows.group, group_of_one=cfg.group_of_one)  # refuses what outcome GRPO refuses
    tokens = step_advantage(
        rows.step_rewards,
        rows.step_ends,
        rows.group,
        rows.scored,
        rows.mask.shape[1],
        std=cfg.std,
        epsilon=cfg.std_epsilon,
    )
    flat = torch.zeros_like(rows.scored)
    for number in rows.group.unique():
        here = rows.group == number
        flat = flat | (here & ~(tokens[here] != 0).any())
    return finish(rows, cfg, tokens, drop=flat if cfg.flat_groups == "drop" else None)


METHOD = Method(
    name="grpo_process",
    paper="DeepSeekMath 4.1.3, A.1.6, eq. 3, 19 to 21",
    source="online",
    reward="Model: one reward per reasoning step",
    coefficient_text="A_t + beta (pi_ref / pi - 1), A_t = sum of the normalised rewards of the following steps",
    config=GRPOProcessConfig,
    credit=credit,
    loss=clipped_loss,
    coefficient=clipped_coefficient,
    example={},
)
