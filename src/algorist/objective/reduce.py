"""From token losses to one number: weights over the WHOLE batch, so that micro-batches and ranks change nothing.

loss = sum over all tokens of token_loss * weight. Weights are constants: no gradient flows through them.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algorist.objective.knobs import Objective, ReductionKind
from algorist.objective.spec import Credit


def weights(
    kind: ReductionKind,
    mask: Bool[Tensor, "B T"],
    group: Int[Tensor, "B"],
    *,
    counted: Bool[Tensor, "B"] | None = None,
    rows: str = "scored",
    constant: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "B T"]:
    """w_it, with |o_i| trained tokens in row i and R rows: one convention of six.

    sequence_mean     1 / (R |o_i|)                 DeepSeekMath eq. 3: each response weighs the same
    token_mean        1 / sum_i |o_i|               DAPO: each token weighs the same
    group_token_mean  1 / (P sum_{j in group} |o_j|)  each problem weighs the same (MiMo-V2.6 eq. 1); P problems
    constant          1 / (R constant)              Dr.GRPO: no length enters
    pair_mean         1 / (pairs |o_i|)             DPO of DeepSeekMath eq. 12
    pair_sum          1 / pairs                     the original DPO

    R and P count `rows`: "scored" rows (`counted`, empty ones included), the "nonempty" ones among them (at least one
    trained token), or "all" rows given. Token counts come from `mask` alone. A batch without a trained token has
    weight 0 everywhere (never 0/0); the caller records it as a skip.

    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> weights("sequence_mean", mask, torch.tensor([0, 0])).tolist()
    [[0.25, 0.25], [0.5, 0.0]]
    >>> weights("token_mean", mask, torch.tensor([0, 0])).sum().item()
    1.0
    """
    counted = torch.ones(mask.shape[0], dtype=torch.bool, device=mask.device) if counted is None else counted
    lengths = mask.sum(-1).to(torch.float64)
    nonempty = lengths > 0
    chosen = {"scored": counted, "nonempty": counted & nonempty, "all": torch.ones_like(counted)}[rows]
    num_rows = chosen.sum().to(torch.float64)
    per_row = _inverse(lengths)
    if kind == "sequence_mean":
        row = per_row * _inverse(num_rows)
    elif kind == "token_mean":
        row = _inverse(lengths.sum()).expand_as(lengths)
    elif kind == "group_token_mean":
        row = _inverse(_group_tokens(lengths, group)) * _inverse(_num_groups(group[chosen]))
    elif kind == "constant":
        assert constant is not None, "reduction: constant needs its constant (checked by the config)"
        row = (_inverse(num_rows) / constant).expand_as(lengths)
    else:
        pairs = counted.sum().to(torch.float64) / 2
        row = _inverse(pairs) * (per_row if kind == "pair_mean" else torch.ones_like(lengths))
    return torch.where(mask, row[:, None], 0.0).to(dtype)


def weights_of(
    cfg: Objective, credit: Credit, group: Int[Tensor, "B"], *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "B T"]:
    """The weights a config asks for, over the batch (or mini-batch) that one optimizer step sees.

    >>> from algorist.objective.config import SFTConfig
    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> credit = Credit(advantage=torch.ones(1, 2), mask=mask, counted=torch.tensor([True]), reward=torch.ones(1))
    >>> weights_of(SFTConfig(), credit, torch.tensor([0])).tolist()
    [[0.5, 0.5]]
    """
    return weights(
        cfg.reduction_kind,
        credit.mask,
        group,
        counted=credit.counted,
        rows=cfg.reduction_rows,
        constant=cfg.reduction_constant,
        dtype=dtype,
    )


def _inverse(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0 / x.clamp(min=1e-300), 0.0)


def _num_groups(group: Tensor) -> Tensor:
    return torch.tensor(float(group.unique().numel()), dtype=torch.float64, device=group.device)


def _group_tokens(lengths: Tensor, group: Tensor) -> Tensor:
    _, index = group.unique(return_inverse=True)
    sums = torch.zeros(int(index.max()) + 1 if index.numel() else 0, dtype=lengths.dtype, device=lengths.device)
    return sums.index_add(0, index, lengths)[index]
