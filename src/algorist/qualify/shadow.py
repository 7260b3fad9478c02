"""A few entries of every parameter, followed through AdamW in float64: cheap enough to look at in every step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from algorist.train.config import OptimizerConfig

_ENTRIES = 8
"""Entries of each parameter that are followed."""
_NOTHING: Mapping[str, Tensor] = {}


@final
class Shadow:
    """Entries of all tensors side by side in one vector of N, each with its own moments and steps.

    One gather for each tensor and one transfer in all: no work for each parameter apart, and on a device no wait for each.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], decay: float, state: Mapping[Tensor, Mapping[str, Tensor]]):
        """decay: of matrices; vectors have none. state: the optimizer's, which may know nothing of a parameter yet."""
        self.names, self.parameters = list(named), list(named.values())
        self._index = [spread_entries(p.numel()).to(p.device) for p in self.parameters]
        sizes = torch.tensor([len(index) for index in self._index], dtype=torch.int64)
        self._owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        known = [state.get(p, _NOTHING) for p in self.parameters]
        self.decay = self._spread([decay if p.ndim >= 2 else 0.0 for p in self.parameters])
        self.steps = self._spread([float(s["step"]) if s else 0.0 for s in known])
        self.mean, _ = self.pick(s.get("exp_avg") for s in known)
        self.square, _ = self.pick(s.get("exp_avg_sq") for s in known)
        self.look()

    def pick(self, tensors: Iterable[Tensor | None]) -> tuple[Float[Tensor, "N"], Bool[Tensor, "N"]]:
        """Their entries in float64, 0 for a tensor that is not there, and which entries are there."""
        given = list(tensors)
        parts = [
            torch.zeros(len(index), device=index.device) if x is None else x.detach().reshape(-1)[index]
            for x, index in zip(given, self._index, strict=True)
        ]
        if len({part.device for part in parts}) > 1:
            parts = [part.cpu() for part in parts]
        there = self._spread([float(x is not None) for x in given]) > 0
        return (torch.cat(parts).double().cpu() if parts else torch.zeros(0, dtype=torch.float64)), there

    def look(self) -> None:
        """Take the parameters as they are now."""
        self.value, _ = self.pick(self.parameters)
        self._versions = [p._version for p in self.parameters]

    def touched(self) -> list[str]:
        """Names of parameters that something wrote to since the last look."""
        now, _ = self.pick(self.parameters)
        written = {
            n for n, p, v in zip(self.names, self.parameters, self._versions, strict=True) if p._version != v
        } | set(self.named(now != self.value))
        return [name for name in self.names if name in written]

    def named(self, entries: Bool[Tensor, "N"]) -> list[str]:
        """Names of the parameters that the marked entries are of."""
        return [self.names[i] for i in self._owner[entries].unique().tolist()]

    def expect(
        self, gradient: Float[Tensor, "N"], there: Bool[Tensor, "N"], cfg: OptimizerConfig, lr: float
    ) -> Float[Tensor, "N"]:
        """w' = (1 - lr wd) w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps). Loshchilov & Hutter 2019, Algorithm 2.

        Where there is no gradient nothing moves: neither weight nor moments nor steps.
        """
        b1, b2 = cfg.betas
        self.steps = self.steps + there
        self.mean = torch.where(there, b1 * self.mean + (1 - b1) * gradient, self.mean)
        self.square = torch.where(there, b2 * self.square + (1 - b2) * gradient**2, self.square)
        m, v = self.mean / (1 - b1**self.steps), self.square / (1 - b2**self.steps)
        return torch.where(there, (1 - lr * self.decay) * self.value - lr * m / (v.sqrt() + cfg.eps), self.value)

    def _spread(self, of_each: Sequence[float]) -> Float[Tensor, "N"]:
        """A value of each parameter for each of its entries."""
        return torch.tensor(of_each, dtype=torch.float64)[self._owner]


def spread_entries(size: int) -> Int[Tensor, "n"]:
    """Places of a few entries of a tensor of `size`, first and last among them.

    >>> spread_entries(15).tolist(), spread_entries(2).tolist()
    ([0, 2, 4, 6, 8, 10, 12, 14], [0, 1])
    """
    n = min(_ENTRIES, size)
    return torch.arange(n) * (size - 1) // max(1, n - 1)
