"""GSPO: one clipped ratio per response, the geometric mean of its token ratios. Zheng et al. 2025."""

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.objective import grpo, ratio
from algorist.objective.config import GSPOConfig
from algorist.objective.spec import Method, TokenBatch
from algorist.objective.surrogate import correction, kl_coefficient, kl_loss, open_gap


def loss(batch: TokenBatch, cfg: GSPOConfig) -> Float[Tensor, "B T"]:
    """-w min(s A, clip(s) A) on every token of the response, s = (prod_t pi / pi_old)^(1 / |o|)."""
    b = batch.clean()
    gap = ratio.log_ratio(b.logp, b.logp_old, b.mask, "geometric", cfg.log_ratio_clamp)
    return -correction(b, cfg) * ratio.clipped(gap, b.advantage, cfg.clip_low, cfg.clip_high) + kl_loss(b, cfg)


def coefficient(batch: TokenBatch, cfg: GSPOConfig) -> Float[Tensor, "B T"]:
    """w s A where the clip lets it count, the row's mean on each of its tokens."""
    b = batch.clean()
    gap = ratio.log_ratio(b.logp.detach(), b.logp_old, b.mask, "geometric", cfg.log_ratio_clamp)
    push = correction(b, cfg) * ratio.clipped_slope(gap, b.advantage, cfg.clip_low, cfg.clip_high)
    push = push * open_gap(b, "geometric", cfg.log_ratio_clamp)
    mean = push.sum(-1, keepdim=True) / b.mask.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(b.mask, mean, 0.0) + kl_coefficient(b, cfg)


METHOD = Method(
    name="gspo",
    paper="Zheng et al. 2025 (GSPO), eq. 5 to 10",
    source="online",
    reward="Rule or Model: one reward per response",
    coefficient_text="s A, s the geometric mean of the response's ratios, where the clip lets it count",
    config=GSPOConfig,
    credit=grpo.credit,
    loss=loss,
    coefficient=coefficient,
    example={},
)
