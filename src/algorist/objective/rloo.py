"""RLOO: each response against the mean of the others, no clip. Kool et al. 2019; Ahmadian et al. 2024."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.objective import ratio
from algorist.objective.config import RLOOConfig
from algorist.objective.credit import group_credit
from algorist.objective.spec import Credit, CreditInput, Method, TokenBatch
from algorist.objective.surrogate import correction, kl_coefficient, kl_loss, open_gap


def credit(rows: CreditInput, cfg: RLOOConfig) -> Credit:
    """A_i = r_i - mean of the other rewards = G / (G - 1) (r_i - mean r)."""
    return group_credit(rows, cfg, cfg, baseline="leave_one_out", std="none", epsilon=0.0)


def loss(batch: TokenBatch, cfg: RLOOConfig) -> Float[Tensor, "B T"]:
    """-w A log pi, or -w A pi / pi_old where `ratio` is set; plus beta KL where the KL is in the loss."""
    b = batch.clean()
    if cfg.ratio == "none":
        gain = b.advantage * b.logp
    else:
        gap = ratio.log_ratio(b.logp, b.logp_old, b.mask, cfg.ratio, cfg.log_ratio_clamp)
        gain = ratio.clipped(gap, b.advantage, *_bounds(cfg))
    return -correction(b, cfg) * gain + kl_loss(b, cfg)


def coefficient(batch: TokenBatch, cfg: RLOOConfig) -> Float[Tensor, "B T"]:
    """w A, times the ratio where `ratio` is set (and times |o| for the product of a response)."""
    b = batch.clean()
    push = b.advantage
    if cfg.ratio != "none":
        gap = ratio.log_ratio(b.logp.detach(), b.logp_old, b.mask, cfg.ratio, cfg.log_ratio_clamp)
        push = ratio.clipped_slope(gap, push, *_bounds(cfg)) * open_gap(b, cfg.ratio, cfg.log_ratio_clamp)
    push = correction(b, cfg) * push
    if cfg.ratio in ("geometric", "product"):
        push = row_total(push, b) / (b.mask.sum(-1, keepdim=True).clamp(min=1) if cfg.ratio == "geometric" else 1)
    return push + kl_coefficient(b, cfg)


def _bounds(cfg: RLOOConfig) -> tuple[float, float]:
    return (1.0, math.inf) if cfg.clip is None else (cfg.clip, cfg.clip)


def row_total(push: Float[Tensor, "B T"], b: TokenBatch) -> Float[Tensor, "B T"]:
    """Sum over a row, on each of its tokens: every token's loss depends on every log-prob of the row."""
    return torch.where(b.mask, push.sum(-1, keepdim=True), 0.0)


METHOD = Method(
    name="rloo",
    paper="Kool et al. 2019; Ahmadian et al. 2024, section 3.3",
    source="online",
    reward="Rule or Model: one reward per response",
    coefficient_text="A, A = r - mean of the other rewards of the group",
    config=RLOOConfig,
    credit=credit,
    loss=loss,
    coefficient=coefficient,
    example={},
)
