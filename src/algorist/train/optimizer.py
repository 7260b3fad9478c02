"""AdamW over a policy's parameters, and its state as plain named tensors (no pickle)."""

import torch
from torch import Tensor, nn

from algorist.policy.model import CausalPolicy
from algorist.train.config import OptimizerConfig


def make_optimizer(policy: CausalPolicy, cfg: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW with decoupled decay on matrices only; norms, biases and other vectors are not decayed.

    The fused kernel does one pass over weights, gradients and moments; on CPU it is the same arithmetic.
    """
    matrices = [p for p in policy.parameters() if p.ndim >= 2]
    vectors = [p for p in policy.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": cfg.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas, eps=cfg.eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The rate of the next step, for every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def moments(policy: CausalPolicy, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Optimizer state by parameter name: `exp_avg.NAME`, `exp_avg_sq.NAME`, `step.NAME`. Empty before the first step."""
    named: dict[str, Tensor] = {}
    for name, parameter in policy.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            named[f"{key}.{name}"] = value.detach().reshape(value.shape or (1,)).contiguous()
    return named


def load_moments(policy: CausalPolicy, optimizer: torch.optim.Optimizer, named: dict[str, Tensor]) -> None:
    """The inverse of `moments`. Every tensor must belong to a parameter and every parameter must find all of its own."""
    if not named:
        optimizer.state.clear()
        return
    left = dict(named)
    for name, parameter in policy.named_parameters():
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = left.pop(f"{key}.{name}", None)
            if value is None:
                continue
            state[key] = value.reshape(()).clone() if key == "step" else _fitting(value, parameter, name)
        assert len(state) in (0, 3), f"optimizer state of {name} is incomplete: {sorted(state)}"
        if state:
            optimizer.state[parameter] = state
    assert not left, f"optimizer state for unknown parameters: {sorted(left)[:3]}"


def _fitting(value: Tensor, parameter: nn.Parameter, name: str) -> Tensor:
    assert value.shape == parameter.shape, (
        f"moment of {name} has shape {tuple(value.shape)}, not {tuple(parameter.shape)}"
    )
    return value.to(parameter.device).clone()
