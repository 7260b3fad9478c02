"""Supervised fine-tuning: push every token of the data by 1. DeepSeekMath eq. 6, 7."""

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.objective.config import SFTConfig
from algorist.objective.credit import finish
from algorist.objective.knobs import Objective
from algorist.objective.spec import Credit, CreditInput, Method, TokenBatch


def credit(rows: CreditInput, cfg: SFTConfig) -> Credit:
    """A = 1 on every trained token."""
    return finish(rows, cfg, torch.ones(rows.mask.shape, dtype=torch.float64, device=rows.mask.device))


def loss(batch: TokenBatch, cfg: Objective) -> Float[Tensor, "B T"]:
    """-A log pi. Eq. 6."""
    b = batch.clean()
    return -b.advantage * b.logp


def coefficient(batch: TokenBatch, cfg: Objective) -> Float[Tensor, "B T"]:
    """GC = A: 1 on data, eq. 7; 1 or 0 where the data were filtered, eq. 10."""
    return batch.clean().advantage


METHOD = Method(
    name="sft",
    paper="DeepSeekMath A.1.1, eq. 6, 7",
    source="dataset",
    reward="none: the data were chosen by people",
    coefficient_text="1",
    config=SFTConfig,
    credit=credit,
    loss=loss,
    coefficient=coefficient,
    example={},
)
