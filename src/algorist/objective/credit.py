"""The common end of every method's credit: which tokens are trained, which rows count, and exact zeros elsewhere."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algorist.errors import InputError
from algorist.objective import kl
from algorist.objective.advantage import check_groups, flat_rows, group_advantage
from algorist.objective.knobs import KL, Baseline, GroupKnobs, KLKnobs, Objective, Std
from algorist.objective.shaping import redistribute
from algorist.objective.spec import Credit, CreditInput


def finish(
    rows: CreditInput,
    cfg: Objective,
    advantage: Float[Tensor, "B T"],
    *,
    reward: Float[Tensor, "B"] | None = None,
    drop: Bool[Tensor, "B"] | None = None,
    returns: Float[Tensor, "B T"] | None = None,
    pair: Int[Tensor, "B"] | None = None,
) -> Credit:
    """Credit with one mask for numerator and denominator: scored rows without dropped (and truncated) ones.

    `drop` rows leave the mask and the row count. Truncated rows (mask_truncated) leave the mask only: they were part
    of their group's baseline and stay counted rows.
    """
    check_groups(rows.group)
    counted = rows.scored if drop is None else rows.scored & ~drop
    mask = rows.mask & counted[:, None]
    if cfg.mask_truncated:
        if rows.truncated is None:
            raise InputError("mask_truncated needs to know which responses were truncated: give CreditInput.truncated")
        mask = mask & ~rows.truncated[:, None]
    return Credit(
        advantage=torch.where(mask, advantage, 0.0).to(torch.float32),
        mask=mask,
        counted=counted,
        reward=rows.rewards if reward is None else reward,
        returns=None if returns is None else torch.where(mask, returns, 0.0).to(torch.float32),
        pair=pair,
    )


def group_credit(
    rows: CreditInput, cfg: GroupKnobs, kl_knobs: KLKnobs, *, baseline: Baseline, std: Std, epsilon: float
) -> Credit:
    """Outcome supervision against the group, with the KL fee in the reward and redistribution where asked.

    `cfg` and `kl_knobs` are the same config seen as two sets of knobs.
    """
    reward = reward_with_kl(rows, kl_knobs)
    advantage = group_advantage(
        reward, rows.group, baseline=baseline, std=std, epsilon=epsilon, group_of_one=cfg.group_of_one
    )
    if cfg.redistribution is not None:
        if rows.quality is None:
            raise InputError("redistribution needs a quality of every correct response: give CreditInput.quality")
        right = correct_rows(rows, cfg.redistribution.threshold)
        advantage = redistribute(advantage, right, rows.scored, rows.group, rows.quality, cfg.redistribution)
    drop = flat_rows(reward, rows.group) if cfg.flat_groups == "drop" else None
    return finish(rows, cfg, per_row(advantage, rows), reward=reward, drop=drop)


def per_row(advantage: Float[Tensor, "B"], rows: CreditInput) -> Float[Tensor, "B T"]:
    """Outcome supervision: every token of a response gets the response's advantage."""
    return advantage[:, None].expand(rows.mask.shape)


def reward_with_kl(rows: CreditInput, cfg: KLKnobs) -> Float[Tensor, "B"]:
    """r - beta * sum_t KL_t of each response where kl_place is "reward" (Ahmadian et al. 2024), else r."""
    if cfg.beta == 0 or cfg.kl_place == "loss":
        return rows.rewards
    fee = token_kl(rows, cfg.kl, cfg.kl_clamp).sum(-1)
    return rows.rewards.to(torch.float64) - cfg.beta * fee


def token_kl(rows: CreditInput, kind: KL, clamp: float | None) -> Float[Tensor, "B T"]:
    """KL estimates of the policy at the start of the update, 0 outside the mask, float64, no gradient."""
    if rows.logp_old is None or rows.logp_ref is None:
        raise InputError("KL in the reward needs logp_old and logp_ref of every token: give CreditInput both")
    old = torch.where(rows.mask, rows.logp_old.detach(), 0.0).to(torch.float64)
    ref = torch.where(rows.mask, rows.logp_ref.detach(), 0.0).to(torch.float64)
    return kl.estimate(kind, old, ref, old, clamp)


def correct_rows(rows: CreditInput, threshold: float) -> Bool[Tensor, "B"]:
    """I(o): the verdict where there is one, else reward > threshold; False for rows without a reward."""
    known = rows.rewards > threshold if rows.correct is None else rows.correct
    return known & rows.scored
