"""REINFORCE: the reward itself, or its distance from the batch mean. Williams 1992."""

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.objective.advantage import whiten
from algorist.objective.config import ReinforceConfig
from algorist.objective.credit import finish, per_row, reward_with_kl
from algorist.objective.spec import Credit, CreditInput, Method, TokenBatch
from algorist.objective.surrogate import correction, kl_coefficient, kl_loss


def credit(rows: CreditInput, cfg: ReinforceConfig) -> Credit:
    """A = r, or r - mean over the scored rows of the batch; whitened over all trained tokens where asked."""
    reward = reward_with_kl(rows, cfg)
    known = reward[rows.scored].to(torch.float64)
    advantage = torch.where(rows.scored, reward.to(torch.float64), 0.0)
    if cfg.baseline == "batch_mean" and len(known):
        differs = bool(known.max() > known.min())
        advantage = torch.where(rows.scored, advantage - known.mean(), 0.0) if differs else torch.zeros_like(advantage)
    tokens = per_row(advantage, rows)
    if cfg.whiten != "none":
        tokens = whiten(tokens, rows.mask & rows.scored[:, None], cfg.whiten)
    return finish(rows, cfg, tokens, reward=reward)


def loss(batch: TokenBatch, cfg: ReinforceConfig) -> Float[Tensor, "B T"]:
    """-w A log pi + beta KL."""
    b = batch.clean()
    weight = correction(b, cfg)
    return -weight * b.advantage * b.logp + kl_loss(b, cfg)


def coefficient(batch: TokenBatch, cfg: ReinforceConfig) -> Float[Tensor, "B T"]:
    """w A, plus the KL pull."""
    b = batch.clean()
    weight = correction(b, cfg)
    return weight * b.advantage + kl_coefficient(b, cfg)


METHOD = Method(
    name="reinforce",
    paper="Williams 1992; whitening as REINFORCE++ (Hu 2025)",
    source="online",
    reward="Rule or Model: one reward per response",
    coefficient_text="A, A = r (minus the batch mean)",
    config=ReinforceConfig,
    credit=credit,
    loss=loss,
    coefficient=coefficient,
    example={},
)
