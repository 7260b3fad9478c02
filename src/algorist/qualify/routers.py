"""Router load of a mixture of experts: how evenly tokens reach experts. Hooks only look; they change nothing."""

import contextlib
from typing import Any, final

import torch
from torch import Tensor

from algorist.policy.model import CausalPolicy
from algorist.qualify.policy_gates import router_parameters

_COLD = 0.1


@final
class Load:
    """Counts tokens per expert in every forward pass since the last `figures`."""

    def __init__(self, policy: CausalPolicy) -> None:
        names = {name.rsplit(".", 1)[0] for name in router_parameters(policy)}
        config = policy.model.config
        keys = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k")
        self._k = next((int(v) for key in keys if (v := getattr(config, key, None))), 1)
        self._counts: dict[str, Tensor] = {}
        for name, module in policy.model.named_modules():
            if name in names:
                module.register_forward_hook(self._hook(name))

    def figures(self) -> dict[str, float]:
        """router/max_over_mean, router/load_cv and router/cold_share of the worst layer; empty where there is no router."""
        if not self._counts:
            return {}
        result = {"router/max_over_mean": 0.0, "router/load_cv": 0.0, "router/cold_share": 0.0}
        for counts in self._counts.values():
            load = counts.double()
            mean = load.mean().clamp(min=1e-12)
            result["router/max_over_mean"] = max(result["router/max_over_mean"], float(load.max() / mean))
            result["router/load_cv"] = max(result["router/load_cv"], float(load.std(unbiased=False) / mean))
            result["router/cold_share"] = max(result["router/cold_share"], float((load < _COLD * mean).double().mean()))
        self._counts.clear()
        return result

    def _hook(self, name: str) -> Any:
        def see(module: object, inputs: object, output: Any) -> None:
            with torch.no_grad(), contextlib.suppress(IndexError):
                logits = output[0] if isinstance(output, tuple) else output
                logits = logits.reshape(-1, logits.shape[-1])
                chosen = logits.topk(min(self._k, logits.shape[-1]), dim=-1).indices.flatten()
                counts = torch.bincount(chosen.cpu(), minlength=logits.shape[-1])
                self._counts[name] = self._counts[name] + counts if name in self._counts else counts

        return see
