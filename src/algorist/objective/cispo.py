"""CISPO: a clipped importance weight without gradient, so that every token keeps its push. MiniMax-M1 2025."""

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.objective import grpo, ratio
from algorist.objective.config import CISPOConfig
from algorist.objective.spec import Method, TokenBatch
from algorist.objective.surrogate import correction, kl_coefficient, kl_loss


def loss(batch: TokenBatch, cfg: CISPOConfig) -> Float[Tensor, "B T"]:
    """-w clip(r) A log pi, with no gradient through clip(r)."""
    b = batch.clean()
    return -_push(b, cfg) * b.logp + kl_loss(b, cfg)


def coefficient(batch: TokenBatch, cfg: CISPOConfig) -> Float[Tensor, "B T"]:
    """w clip(r) A."""
    b = batch.clean()
    return _push(b, cfg) + kl_coefficient(b, cfg)


def _push(b: TokenBatch, cfg: CISPOConfig) -> Float[Tensor, "B T"]:
    gap = ratio.log_ratio(b.logp.detach(), b.logp_old, b.mask, "token", cfg.log_ratio_clamp)
    weight = torch.exp(gap).clamp(1 - cfg.clip_low, 1 + cfg.clip_high)
    return correction(b, cfg) * weight * b.advantage


METHOD = Method(
    name="cispo",
    paper="MiniMax 2025 (MiniMax-M1), section 3.1",
    source="online",
    reward="Rule or Model: one reward per response",
    coefficient_text="clip(pi / pi_old) A, A = (r - mean r) / std r within the group",
    config=CISPOConfig,
    credit=grpo.credit,
    loss=loss,
    coefficient=coefficient,
    example={},
)
