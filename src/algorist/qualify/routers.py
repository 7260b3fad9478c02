"""Router load of a mixture of experts: how evenly tokens reach experts. Hooks only look; they change nothing.

What is counted is the choice itself, the expert numbers a layer hands to its experts: a router may add a bias or look at
groups of experts first, so its logits alone do not tell. Padding is not counted, nor a pass that only repeats another.
"""

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor, nn

from algorist.policy.model import CausalPolicy

_COLD: Final = 0.1
"""An expert is cold below this share of the mean load. (MiMo-V2.6 4.3)"""


def num_experts(policy: CausalPolicy) -> int:
    """Routed experts of a layer; 0 for a dense model."""
    config = policy.model.config
    found = (getattr(config, key, None) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    return next((int(count) for count in found if count), 0)


@final
class Load:
    """Counts tokens per expert in every forward pass since the last `figures`."""

    def __init__(self, policy: CausalPolicy) -> None:
        self._policy, self._experts = policy, num_experts(policy)
        self._layers: list[str] = []
        self._counts: dict[str, Tensor] = {}
        for name, module in policy.model.named_modules() if self._experts else ():
            if name.rpartition(".")[2] == "experts":
                self._layers.append(name)
                module.register_forward_pre_hook(self._hook(name))

    def figures(self) -> dict[str, float]:
        """router/max_over_mean, router/load_cv and router/cold_share of the worst layer; empty for a dense model.

        router/layers_unread counts layers whose choice could not be seen; it is there only where there are some.
        """
        if not self._experts:
            return {}
        loads = [counts.double() for counts in self._counts.values()]
        means = [load.mean() for load in loads]
        result: dict[str, float] = {}
        if loads:
            result["router/max_over_mean"] = max(float(x.max() / m) for x, m in zip(loads, means, strict=True))
            result["router/load_cv"] = max(float(x.std(unbiased=False) / m) for x, m in zip(loads, means, strict=True))
            result["router/cold_share"] = max(
                float((x < _COLD * m).double().mean()) for x, m in zip(loads, means, strict=True)
            )
        unread = max(1, len(self._layers)) - len(loads)
        if unread:
            result["router/layers_unread"] = unread
        self._counts.clear()
        return result

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[object, ...]], None]:
        @torch.no_grad()
        def see(module: nn.Module, inputs: tuple[object, ...]) -> None:
            chosen = inputs[1] if len(inputs) > 1 else None
            real = self._policy.real
            if (
                real is None
                or not isinstance(chosen, Tensor)
                or chosen.is_floating_point()
                or chosen.dtype == torch.bool
            ):
                return
            counts = torch.bincount(chosen.reshape(len(real), -1)[real].flatten(), minlength=self._experts)
            self._counts[name] = self._counts[name] + counts if name in self._counts else counts

        return see
