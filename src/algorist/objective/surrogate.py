"""The token losses that several methods share, each beside its gradient coefficient.

A policy term times the importance correction, minus beta times the KL estimate where the KL is in the loss. All
arguments are cleaned first: values outside the mask are never read.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.objective import kl, ratio
from algorist.objective.knobs import CorrectionKnob, DualKnobs, KLKnobs, Level, SurrogateKnobs
from algorist.objective.spec import TokenBatch


def clipped_loss(batch: TokenBatch, cfg: SurrogateKnobs) -> Float[Tensor, "B T"]:
    """-w min(r A, clip(r) A) + beta KL per token, r the token ratio. DeepSeekMath eq. 3 inside its sums."""
    b = batch.clean()
    return -clipped_gain(b, cfg) + kl_loss(b, cfg)


def clipped_coefficient(batch: TokenBatch, cfg: SurrogateKnobs) -> Float[Tensor, "B T"]:
    """w r A where the clip lets it count, plus the KL pull: eq. 21 at pi_old = pi."""
    b = batch.clean()
    return clipped_push(b, cfg) + kl_coefficient(b, cfg)


def clipped_gain(b: TokenBatch, cfg: DualKnobs) -> Float[Tensor, "B T"]:
    """w min(r A, clip(r) A) of a cleaned batch."""
    gap = ratio.log_ratio(b.logp, b.logp_old, b.mask, "token", cfg.log_ratio_clamp)
    return correction(b, cfg) * ratio.clipped(gap, b.advantage, cfg.clip_low, cfg.clip_high, cfg.dual_clip)


def clipped_push(b: TokenBatch, cfg: DualKnobs) -> Float[Tensor, "B T"]:
    """d clipped_gain / d log pi."""
    gap = ratio.log_ratio(b.logp.detach(), b.logp_old, b.mask, "token", cfg.log_ratio_clamp)
    push = ratio.clipped_slope(gap, b.advantage, cfg.clip_low, cfg.clip_high, cfg.dual_clip)
    return correction(b, cfg) * push * open_gap(b, "token", cfg.log_ratio_clamp)


def kl_loss(b: TokenBatch, cfg: KLKnobs) -> Float[Tensor, "B T"]:
    """beta times the KL estimate of a cleaned batch; exactly 0 where beta is 0 or the KL is in the reward."""
    if cfg.beta == 0 or cfg.kl_place == "reward":
        return torch.zeros_like(b.logp)
    return cfg.beta * kl.estimate(cfg.kl, b.logp, reference(b), b.logp_old, cfg.kl_clamp)


def kl_coefficient(b: TokenBatch, cfg: KLKnobs) -> Float[Tensor, "B T"]:
    """-beta times the slope of the KL estimate, 0 outside the mask."""
    if cfg.beta == 0 or cfg.kl_place == "reward":
        return torch.zeros_like(b.advantage)
    pull = -cfg.beta * kl.slope(cfg.kl, b.logp.detach(), reference(b), b.logp_old, cfg.kl_clamp)
    return torch.where(b.mask, pull, 0.0)


def open_gap(b: TokenBatch, level: Level, clamp: float | None) -> Float[Tensor, "B T"]:
    """1 where the log ratio is inside its clamp and so carries gradient, else 0."""
    if clamp is None:
        return torch.ones_like(b.logp_old)
    raw = ratio.log_ratio(b.logp.detach(), b.logp_old, b.mask, level)
    return (raw.abs() <= clamp).to(b.logp_old.dtype)


def reference(b: TokenBatch) -> Float[Tensor, "B T"]:
    """logp_ref, which the trainer promised where cfg.needs has it."""
    assert b.logp_ref is not None, "this config needs logp_ref (cfg.needs says so)"
    return b.logp_ref


def correction(b: TokenBatch, cfg: CorrectionKnob) -> Float[Tensor, "B T"]:
    """The importance correction of a cleaned batch: what the policy term of each token is multiplied by."""
    return ratio.correction_weight(b.logp_old, b.logp_behaviour, b.mask, cfg.correction)
