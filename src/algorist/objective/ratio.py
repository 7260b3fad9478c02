"""How far the policy has moved: ratios to the policy at the start of the update, clips, and importance correction.

Everything works on log ratios; exp is taken of the tokens that count only, so that an inactive token with a gap of
200 nats cannot turn the gradient into nan.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from algorist.objective.knobs import Correction, Level


def log_ratio(
    logp: Float[Tensor, "B T"],
    logp_old: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    level: Level = "token",
    clamp: float | None = None,
) -> Float[Tensor, "B T"]:
    """log(pi / pi_old): per token, or one value per response: the geometric mean (GSPO) or the product of its tokens.

    A response-level value is repeated on the row's tokens, each with 1 / |o| (geometric) or all (product) of its
    gradient. clamp cuts to [-clamp, clamp] with gradient 0 beyond; the raw gap is what a ledger should keep.

    >>> p, old, m = torch.tensor([[-1.0, -3.0]]), torch.tensor([[-2.0, -1.0]]), torch.tensor([[True, True]])
    >>> [log_ratio(p, old, m, level).tolist() for level in ("token", "geometric", "product")]
    [[[1.0, -2.0]], [[-0.5, -0.5]], [[-1.0, -1.0]]]
    """
    gap = torch.where(mask, logp - logp_old, 0.0)
    if level in ("geometric", "product"):
        total = gap.sum(-1, keepdim=True)
        if level == "geometric":
            total = total / mask.sum(-1, keepdim=True).clamp(min=1)
        gap = torch.where(mask, total.expand_as(gap), 0.0)
    return gap if clamp is None else gap.clamp(-clamp, clamp)


def clipped(
    gap: Float[Tensor, "B T"],
    advantage: Float[Tensor, "B T"],
    low: float,
    high: float,
    dual: float | None = None,
) -> Float[Tensor, "B T"]:
    """min(r A, clip(r, 1 - low, 1 + high) A), r = exp(gap). PPO (Schulman et al. 2017, eq. 7); oracle paper.clip_term.

    dual: for A < 0 the value stays at dual * A once r > dual, without gradient (Ye et al. 2020).

    >>> clipped(torch.tensor([1.1, 1.4]).log(), torch.tensor([0.5, 0.5]), 0.2, 0.2).tolist()
    [0.550000011920929, 0.6000000238418579]
    """
    active = _active(gap, advantage, low, high, dual)
    r = torch.exp(torch.where(active, gap, 0.0))
    edge = torch.where(advantage > 0, torch.full_like(gap, 1 + high), torch.full_like(gap, 1 - low))
    if dual is not None:
        edge = torch.where((advantage < 0) & (gap > math.log(dual)), torch.full_like(gap, dual), edge)
    return torch.where(active, r, edge) * advantage


def clipped_slope(
    gap: Float[Tensor, "B T"],
    advantage: Float[Tensor, "B T"],
    low: float,
    high: float,
    dual: float | None = None,
) -> Float[Tensor, "B T"]:
    """d clipped / d gap = r A where the ratio counts, else 0.

    >>> clipped_slope(torch.tensor([1.1, 1.4]).log(), torch.tensor([0.5, 0.5]), 0.2, 0.2).tolist()
    [0.550000011920929, 0.0]
    """
    active = _active(gap, advantage, low, high, dual)
    return torch.where(active, torch.exp(torch.where(active, gap, 0.0)) * advantage, 0.0)


def correction_weight(
    logp_old: Float[Tensor, "B T"],
    logp_behaviour: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    cfg: Correction,
) -> Float[Tensor, "B T"]:
    """w = pi_old / mu of what the trainer scores against what the sampler stored; no gradient; 0 drops a token.

    kind: none is 1 everywhere. truncate: min(w, high), 0 below low. mask: 0 outside [low, high], survivors keep
    `carry`. level: token, or one geometric mean / product per response. veto: one token weight below it drops the
    response. Dropped tokens stay in every denominator.

    >>> old, mu, m = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]])
    >>> correction_weight(old, mu, m, Correction(kind="truncate", high=2.0)).tolist()
    [[1.0, 2.0]]
    >>> correction_weight(old, mu, m, Correction(kind="mask", level="geometric", high=2.0)).tolist()
    [[0.0, 0.0]]
    """
    gap = torch.where(mask, (logp_old - logp_behaviour).detach(), 0.0)
    if cfg.kind == "none":
        weight = torch.ones_like(gap)
    else:
        tested = torch.exp(log_ratio(gap, torch.zeros_like(gap), mask, cfg.level))
        keep = tested >= cfg.low
        if cfg.kind == "truncate":
            weight = torch.where(keep, tested.clamp(max=cfg.high), 0.0)
        else:
            carried = {"level": tested, "token": torch.exp(gap), "one": torch.ones_like(gap)}[cfg.carry]
            weight = torch.where(keep & (tested <= cfg.high), carried, 0.0)
    if cfg.veto > 0:
        vetoed = (mask & (gap < math.log(cfg.veto))).any(-1, keepdim=True)
        weight = torch.where(vetoed, 0.0, weight)
    return torch.where(mask, weight, 0.0)


def fresh_mask(policy_version: Tensor, current: int, max_age: int, mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """mask without tokens sampled more than max_age applied updates ago. DeepSeek-V4.1 report 5.2: stale tokens masked.

    policy_version: [B, T] applied updates of the weights that sampled each token. The result goes into
    CreditInput.mask, so numerator and denominator lose the same tokens.

    >>> fresh_mask(torch.tensor([[1, 4, 5]]), 5, 2, torch.ones(1, 3, dtype=torch.bool)).tolist()
    [[False, True, True]]
    """
    return mask & (current - policy_version <= max_age)


def _active(gap: Tensor, advantage: Tensor, low: float, high: float, dual: float | None) -> Tensor:
    too_high = gap > math.log1p(high)
    too_low = gap < (math.log1p(-low) if low < 1 else -math.inf)
    out = ~torch.where(advantage > 0, too_high, too_low & (advantage < 0))
    return out if dual is None else out & ~((advantage < 0) & (gap > math.log(dual)))
