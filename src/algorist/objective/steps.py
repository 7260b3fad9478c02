"""Steps as tensors: what process supervision reads from CreditInput."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


def pad(
    ends: Sequence[Sequence[int]], rewards: Sequence[Sequence[float | None]]
) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B K"]]:
    """(step_ends, step_rewards) of B rows, right-padded to the most steps with -1 and nan; None becomes nan.

    A step without a reward takes no part in the normalisation; its tokens are credited with the steps after it.

    >>> pad([[1, 4], [2]], [[1.0, None], [0.0]])
    (tensor([[ 1,  4], [ 2, -1]]), tensor([[1., nan], [0., nan]], dtype=torch.float64))
    """
    K = max((len(row) for row in ends), default=0)
    step_ends = torch.full((len(ends), K), -1, dtype=torch.int64)
    step_rewards = torch.full((len(ends), K), torch.nan, dtype=torch.float64)
    for b, (row, scores) in enumerate(zip(ends, rewards, strict=True)):
        assert len(row) == len(scores), f"row {b} has {len(row)} steps and {len(scores)} rewards"
        for k, (end, score) in enumerate(zip(row, scores, strict=True)):
            step_ends[b, k] = end
            step_rewards[b, k] = torch.nan if score is None else score
    return step_ends, step_rewards
