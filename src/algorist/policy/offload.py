"""Keep only the input of each decoder layer, in host memory, and compute the layer again on the way back.

Activations of a long micro-batch dominate a trainer's peak; with this, one layer's are on the device at a time. Costs one
more forward pass. Numbers are those of the plain pass: the same operations on the same inputs.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from algorist.errors import InputError
from algorist.policy.model import CausalPolicy


def offload_layers(policy: CausalPolicy) -> int:
    """Recompute every decoder layer in the backward pass; returns how many. Sampling and scoring are not changed.

    Raises InputError where the architecture keeps its layers elsewhere than in `layers`.
    """
    layers = getattr(policy.model.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise InputError(
            "qualify.memory.activation_offload needs a decoder with a list of layers: "
            f"{policy.model.config.model_type!r} has none. Switch it off."
        )
    classes = {kind: _recomputed(kind) for kind in {type(layer) for layer in layers}}
    for layer in layers:  # another class, not another `forward`: a copy of the layer must read the copy's weights
        layer.__class__ = classes[type(layer)]
    return len(layers)


@contextlib.contextmanager
def plain_layers(policy: CausalPolicy) -> Iterator[None]:
    """Inside, nothing is recomputed: to count what a plain pass keeps."""
    layers = [module for module in policy.model.modules() if getattr(module, "recompute", False)]
    for layer in layers:
        layer.recompute = False
    try:
        yield
    finally:
        for layer in layers:
            layer.recompute = True


def _recomputed(kind: type[nn.Module]) -> type[nn.Module]:
    """The class of a layer that is computed again; itself, for a class that already is."""
    if getattr(kind, "recompute", False):
        return kind

    class Recomputed(kind):  # type: ignore[misc, valid-type]
        recompute = True

        def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
            forward = super().forward
            if not (self.recompute and torch.is_grad_enabled()):
                return forward(hidden, *args, **kwargs)
            # a ticket that wants a gradient, so that backward is called for frozen inputs too
            ticket = torch.zeros((), device=hidden.device, requires_grad=True)
            return _Layer.apply(lambda x: _first(forward(x, *args, **kwargs)), hidden, ticket)

    return Recomputed


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor], Tensor], hidden: Tensor, ticket: Tensor) -> Tensor:
        """Without gradient; the input leaves the device."""
        ctx.run, ctx.device = run, hidden.device
        ctx.dtype = (
            torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else None
        )
        ctx.kept = hidden.detach().to("cpu", copy=True)
        with torch.no_grad():
            return run(hidden.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor | None, None]:
        """The layer once more, with gradient; those of its weights are added to .grad as usual."""
        hidden = ctx.kept.to(ctx.device).requires_grad_(True)
        with torch.enable_grad(), torch.autocast(ctx.device.type, dtype=ctx.dtype, enabled=ctx.dtype is not None):
            output = ctx.run(hidden)
        torch.autograd.backward(output, gradients[0])
        return None, hidden.grad, None
