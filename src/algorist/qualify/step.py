"""Is the optimizer step the one that the contract's formulas give? Looked at before a weight moves, and after.

Before: loss and gradient are computed once more from the method's stated coefficient. After: on a few entries of every
parameter AdamW is followed in float64, so that clipping, moments, rate, decay and the number of steps are all seen.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor, nn

from algorist.flow import Update
from algorist.qualify.gradient import gradient_again, loss_again, small
from algorist.qualify.rollouts import Fault
from algorist.train.config import OptimizerConfig
from algorist.train.schedule import learning_rate
from algorist.train.trainer import Assigned, Computed, Trainer

_ENTRIES = 8
"""Entries of each parameter that are followed."""
_NEAR = 1e-2
"""Relative difference of two gradients that only the order of summation, or bfloat16, explains."""


@dataclass(slots=True, kw_only=True)
class _Shadow:
    """A few entries of one parameter, with their own moments in float64."""

    parameter: nn.Parameter
    index: Tensor
    decay: float
    value: Tensor
    mean: Tensor
    square: Tensor
    steps: int
    version: int

    @classmethod
    def of(cls, parameter: nn.Parameter, decay: float, state: dict[str, Tensor]) -> "_Shadow":
        index = spread_entries(parameter.numel())
        found = cls(
            parameter=parameter,
            index=index.to(parameter.device),
            decay=decay,
            value=torch.zeros(0),
            mean=torch.zeros(len(index)),
            square=torch.zeros(len(index)),
            steps=int(state["step"]) if state else 0,
            version=0,
        )
        found.mean = found.pick(state["exp_avg"]) if state else torch.zeros(len(index), dtype=torch.float64)
        found.square = found.pick(state["exp_avg_sq"]) if state else torch.zeros(len(index), dtype=torch.float64)
        found.look()
        return found

    def pick(self, x: Tensor) -> Tensor:
        return x.detach().reshape(-1)[self.index].double().cpu()

    def look(self) -> None:
        self.value, self.version = self.pick(self.parameter), self.parameter._version

    @property
    def touched(self) -> bool:
        """Something wrote into the parameter since the last look."""
        return self.parameter._version != self.version or not torch.equal(self.pick(self.parameter), self.value)

    def expect(self, gradient: Tensor, cfg: OptimizerConfig, lr: float) -> Tensor:
        """w' = (1 - lr wd) w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps). Loshchilov & Hutter 2019, Algorithm 2."""
        b1, b2 = cfg.betas
        self.steps += 1
        self.mean = b1 * self.mean + (1 - b1) * gradient
        self.square = b2 * self.square + (1 - b2) * gradient**2
        m, v = self.mean / (1 - b1**self.steps), self.square / (1 - b2**self.steps)
        return (1 - lr * self.decay) * self.value - lr * m / (v.sqrt() + cfg.eps)


@final
class StepCheck:
    """Follows one trainer. Every method returns the first thing that does not hold, or None."""

    def __init__(self, trainer: Trainer, cfg: OptimizerConfig, total: int) -> None:
        self.trainer, self.cfg, self.total = trainer, cfg, total
        self._named = dict(trainer.policy.named_parameters())
        state = trainer.optimizer.state
        self._shadows = {
            name: _Shadow.of(p, cfg.weight_decay if p.ndim >= 2 else 0.0, state.get(p, {}))
            for name, p in self._named.items()
        }
        frozen = {n: p for n, p in trainer.policy.model.named_parameters() if not p.requires_grad}
        self._frozen = {name: _Shadow.of(p, 0.0, {}) for name, p in frozen.items()}
        self._applied = trainer.applied
        self._pending: dict[str, Tensor] | None = None
        self._first = True

    def start(self) -> Fault | None:
        """The optimizer holds exactly the trainable parameters, and the moments of every update so far."""
        steps = max((s.steps for s in self._shadows.values()), default=0)
        if steps != self.trainer.applied:
            return _fault(
                "moments",
                f"{self.trainer.applied} updates were applied, the optimizer's moments know of {steps}",
                "Save and restore the optimizer's state with the weights; without it the next steps are other ones.",
            )
        return self._held()

    def at_rest(self) -> Fault | None:
        """No weight has moved since the last step: sampling, evaluating and saving only read them."""
        moved = [name for name, shadow in (self._shadows | self._frozen).items() if shadow.touched]
        if not moved:
            return None
        return _fault(
            "moved",
            f"weights must move in optimizer steps only: {len(moved)} of {len(self._shadows)} tensors changed "
            f"between two steps (first: {moved[0]})",
            "Look for code that writes to the policy while it samples, evaluates or saves.",
        )

    def before(self, assigned: Assigned, computed: Computed) -> Fault | None:
        """The loss is that of the method, and every trainable tensor has the gradient that the coefficient gives it."""
        if self._pending is not None:
            return _fault(
                "steps",
                "two steps were begun where the contract promises one",
                "Call Trainer.step once for each update.",
            )
        moved = self.at_rest() or self._held()
        if moved is not None:
            return moved
        self._pending = {}
        wrong_loss = self._loss(assigned, computed)
        if wrong_loss is not None or not math.isfinite(computed.loss):
            return wrong_loss  # a loss that has to be what it is, and is no number, is skipped by the trainer
        without = [n for n, p in self._named.items() if p.grad is None and "expert" not in n]
        if without:
            return _fault(
                "gradient",
                f"{len(without)} of {len(self._named)} trainable tensors got no gradient (first: {without[0]})",
                "Look for a detach or no_grad between loss and weights; what is not meant to be trained belongs in "
                "qualify.parameters.frozen.",
            )
        fault = self._gradient(assigned) if self._first else None
        self._first = False
        self._pending = {n: s.pick(g) for n, s in self._shadows.items() if (g := s.parameter.grad) is not None}
        return fault

    def after(self, update: Update) -> Fault | None:
        """The weights are where AdamW takes them, once; or bit for bit where they were, when the update was skipped."""
        pending, self._pending = self._pending, None
        if not update.applied:
            return self.at_rest() or self._counted(self._applied)
        if pending is None:
            return _fault(
                "steps",
                "an update was called applied, and nothing was computed for it",
                "Call Trainer.step for each update.",
            )
        limit, norm = self.cfg.clip_norm, update.metrics.get("grad_norm", math.nan)
        scale = 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))  # as torch clips
        clipped = {name: gradient * scale for name, gradient in pending.items()}
        fault = self._counted(self._applied + 1) or self._frozen_moved() or self._moved_as_expected(clipped)
        self._applied = self.trainer.applied
        for shadow in self._shadows.values():
            shadow.look()
        return fault

    # -- inside -----------------------------------------------------------------------------------------------------

    def _held(self) -> Fault | None:
        held = {id(p) for group in self.trainer.optimizer.param_groups for p in group["params"]}
        missing = [name for name, p in self._named.items() if id(p) not in held]
        extra = len(held) + len(missing) - len(self._named)
        if missing or extra:
            what = f"{missing[0]} is not in it" if missing else f"it holds {extra} tensors that are not trainable"
            return _fault(
                "optimizer",
                f"the optimizer must hold exactly the {len(self._named)} trainable parameters: {what}",
                "Build it from policy.parameters() after everything is frozen or thawed.",
            )
        return None

    def _counted(self, applied: int) -> Fault | None:
        if self.trainer.applied == applied:
            return None
        return _fault(
            "counts",
            f"{applied} updates were applied, the trainer counts {self.trainer.applied}",
            "The schedule and the version stamps follow applied updates: count each once, and skipped ones never.",
        )

    def _frozen_moved(self) -> Fault | None:
        moved = [name for name, shadow in self._frozen.items() if shadow.touched]
        if not moved:
            return None
        return _fault(
            "frozen",
            f"frozen parameters must not move: {len(moved)} of {len(self._frozen)} did (first: {moved[0]})",
            "Keep them out of the optimizer, and write to them nowhere.",
        )

    def _moved_as_expected(self, gradients: dict[str, Tensor]) -> Fault | None:
        lr = learning_rate(self.cfg, self._applied, self.total)
        still, off, moments = 0, [], []
        for name, shadow in self._shadows.items():
            now = shadow.pick(shadow.parameter)
            still += int(torch.equal(now, shadow.value))
            if name not in gradients:
                off += [] if torch.equal(now, shadow.value) else [name]
                continue
            before = shadow.value
            expected = shadow.expect(gradients[name], self.cfg, lr)
            # float32 keeps 24 bits of a weight; moments and quotient lose a few more
            slack = 4 * torch.finfo(torch.float32).eps * torch.maximum(before.abs(), expected.abs()) + 5e-3 * lr
            off += [] if bool(((now - expected).abs() <= slack).all()) else [name]
            state = self.trainer.optimizer.state.get(shadow.parameter, {})
            if "exp_avg" in state:
                known = shadow.pick(state["exp_avg"])
                scale = torch.maximum(shadow.mean.abs(), shadow.square.sqrt())
                moments += [] if bool(((known - shadow.mean).abs() <= 1e-2 * scale + 1e-12).all()) else [name]
        if still == len(self._shadows):
            return _fault(
                "still",
                f"an applied update must move weights: none did (rate {lr:.3g})",
                "A rate below 1e-9 is lost in float32; raise optimizer.lr. Else look whether optimizer.step is called.",
            )
        if off:
            return _fault(
                "moved",
                f"the step must be AdamW's at rate {lr:.3g} with the promised betas, decay and clipping, once: "
                f"{len(off)} of {len(self._shadows)} tensors moved elsewhere (first: {off[0]})",
                "Look for another optimizer, a rate that follows batches instead of applied updates, lost moments, a second step.",
            )
        if moments:
            return _fault(
                "moments",
                f"the optimizer's moments must be those of the clipped gradients: {len(moments)} of "
                f"{len(self._shadows)} tensors have others (first: {moments[0]})",
                "Look for a scale between backward and step (accumulation, ranks), and for moments that are reset.",
            )
        return None

    def _loss(self, assigned: Assigned, computed: Computed) -> Fault | None:
        again = loss_again(self.trainer, assigned, computed.logp)
        if again is None or not math.isfinite(again[0]) or abs(again[0] - computed.loss) <= 1e-4 * again[1] + 1e-6:
            return None
        name = self.trainer.method.name
        return _fault(
            "loss",
            f"the loss of {name} on this batch is {again[0]:.6g}, the step computed {computed.loss:.6g}",
            "One mask and one set of weights for the whole batch, whatever the micro-batches; no factor for accumulation.",
        )

    def _gradient(self, assigned: Assigned) -> Fault | None:
        chosen = small(self._named)
        theirs = torch.cat([g.detach().double().cpu().flatten() for p in chosen.values() if (g := p.grad) is not None])
        mine = gradient_again(self.trainer, assigned, chosen)
        apart, size = float((theirs - mine).norm()), float(mine.norm())
        if apart <= _NEAR * size + 1e-9 or not math.isfinite(size):
            return None
        cosine = float(theirs @ mine) / max(1e-300, float(theirs.norm()) * size)
        return _fault(
            "gradient",
            f"the gradient of {self.trainer.method.name} must be that of its coefficient (eq. 5): its norm is "
            f"{float(theirs.norm()) / max(1e-300, size):.3g} times that, its direction agrees to {cosine:.3f}",
            "Compare Method.loss with Method.coefficient: sign, scale, mask, and what carries gradient.",
        )


def spread_entries(size: int) -> Int[Tensor, "n"]:
    """Places of a few entries of a tensor of `size`, first and last among them.

    >>> spread_entries(15).tolist(), spread_entries(2).tolist()
    ([0, 2, 4, 6, 8, 10, 12, 14], [0, 1])
    """
    n = min(_ENTRIES, size)
    return torch.arange(n) * (size - 1) // max(1, n - 1)


def _fault(code: str, words: str, remedy: str) -> Fault:
    return Fault(code=code, words=words, remedy=remedy)
