"""DPO on pairs of a correct and a wrong response to one problem. DeepSeekMath eq. 12 to 14; Rafailov et al. 2023.

The paper's form averages log ratios over each response, the original sums them; `length` names which. The printed
eq. 14 is not the gradient of eq. 12 (paper.eq_14 proves it); the coefficient here is.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from algorist.objective.advantage import check_groups
from algorist.objective.config import DPOConfig
from algorist.objective.credit import correct_rows, finish, per_row
from algorist.objective.spec import Credit, CreditInput, Method, TokenBatch
from algorist.objective.surrogate import reference


def pairs(correct: Bool[Tensor, "B"], usable: Bool[Tensor, "B"], group: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Pair number of each row: in each group the k-th correct with the k-th wrong row, -1 without a partner.

    >>> right, there = torch.tensor([True, False, False, True]), torch.ones(4, dtype=torch.bool)
    >>> pairs(right, there, torch.tensor([0, 0, 0, 1])).tolist()
    [0, 0, -1, -1]
    """
    out = torch.full(group.shape, -1, dtype=torch.int64, device=group.device)
    count = 0
    for number in group.unique():
        here = (group == number) & usable
        good, bad = (here & correct).nonzero().flatten(), (here & ~correct).nonzero().flatten()
        for i, j in zip(good.tolist(), bad.tolist(), strict=False):  # the surplus of the longer side has no partner
            out[i] = out[j] = count
            count += 1
    return out


def credit(rows: CreditInput, cfg: DPOConfig) -> Credit:
    """A = +1 on the correct, -1 on the wrong response of a pair; unpaired rows leave mask and denominator."""
    check_groups(rows.group)
    usable = rows.scored & rows.mask.any(-1)
    if cfg.mask_truncated and rows.truncated is not None:
        usable = usable & ~rows.truncated
    right = correct_rows(rows, cfg.threshold)
    pair = pairs(right, usable, rows.group)
    sign = torch.where(right, 1.0, -1.0)
    return finish(rows, cfg, per_row(sign, rows), drop=pair < 0, pair=pair)


def loss(batch: TokenBatch, cfg: DPOConfig) -> Float[Tensor, "B T"]:
    """-log sigma(z) of the pair, half on each response, spread over its tokens so that the reduction restores it."""
    b = batch.clean()
    half = -logsigmoid(_margin(b, cfg)) / 2
    if cfg.length == "sum":
        half = half / b.mask.sum(-1).clamp(min=1)
    return torch.where(b.mask, half[:, None], 0.0)


def coefficient(batch: TokenBatch, cfg: DPOConfig) -> Float[Tensor, "B T"]:
    """GC = +beta sigma(-z) on the correct, -beta sigma(-z) on the wrong response."""
    b = batch.clean()
    push = cfg.beta * torch.sigmoid(-_margin(b, cfg).detach())
    return b.advantage * push[:, None]


def _margin(b: TokenBatch, cfg: DPOConfig) -> Float[Tensor, "B"]:
    """z = beta (d+ - d-) of each row's pair, d the mean or summed log ratio to the reference; 0 for unpaired rows."""
    assert b.pair is not None, "DPO needs the pair numbers of Credit.pair"
    gap = b.advantage * torch.where(b.mask, b.logp - reference(b), 0.0)
    d = gap.sum(-1)
    if cfg.length == "mean":
        d = d / b.mask.sum(-1).clamp(min=1)
    same = (b.pair[:, None] == b.pair[None, :]) & (b.pair >= 0)[:, None]
    partners = same.sum(-1)
    assert bool(((partners == 2) | (b.pair < 0)).all()), "both responses of a pair must share a micro-batch"
    return cfg.beta * (same.to(d.dtype) @ d)


METHOD = Method(
    name="dpo",
    paper="DeepSeekMath A.1.4, eq. 12 to 14; Rafailov et al. 2023",
    source="sft_samples",
    reward="Rule: is the answer right",
    coefficient_text="+-beta sigma(-z), z = beta (d+ - d-), d the mean (or summed) log ratio to the reference",
    config=DPOConfig,
    credit=credit,
    loss=loss,
    coefficient=coefficient,
    together="pair",
    example={},
)
