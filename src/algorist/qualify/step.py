"""Is the optimizer step the one that the contract's formulas give? Looked at before a weight moves, and after.

Before: loss and gradient are computed once more from the method's stated coefficient. After: on a few entries of every
parameter AdamW is followed in float64, so that clipping, moments, rate, decay and the number of steps are all seen.
"""

import math
from typing import final

import torch
from torch import Tensor

from algorist.flow import Update
from algorist.qualify.gradient import gradient_again, loss_again, small
from algorist.qualify.rollouts import Fault
from algorist.qualify.shadow import Shadow
from algorist.qualify.shadow import spread_entries as spread_entries
from algorist.train.config import OptimizerConfig
from algorist.train.schedule import learning_rate
from algorist.train.trainer import Assigned, Computed, Trainer

_NEAR = 1e-2
"""Relative difference of two gradients that only the order of summation, or bfloat16, explains."""


@final
class StepCheck:
    """Follows one trainer. Every method returns the first thing that does not hold, or None."""

    def __init__(self, trainer: Trainer, cfg: OptimizerConfig, total: int) -> None:
        self.trainer, self.cfg, self.total = trainer, cfg, total
        self._named = dict(trainer.policy.named_parameters())
        self._trained = Shadow(self._named, cfg.weight_decay, trainer.optimizer.state)
        frozen = {n: p for n, p in trainer.policy.model.named_parameters() if not p.requires_grad}
        self._frozen = Shadow(frozen, 0.0, {})
        self._applied = trainer.applied
        self._pending: tuple[Tensor, Tensor] | None = None
        """Gradients of the followed entries, and which there are, between the two looks at a step."""
        self._first = True

    def start(self) -> Fault | None:
        """The optimizer holds exactly the trainable parameters, and the moments of every update so far."""
        steps = int(self._trained.steps.max()) if self._named else 0
        if steps != self.trainer.applied:
            return _fault(
                "moments",
                f"{self.trainer.applied} updates were applied, the optimizer's moments know of {steps}",
                "Save and restore the optimizer's state with the weights; without it the next steps are other ones.",
            )
        return self._held()

    def at_rest(self) -> Fault | None:
        """No weight has moved since the last step: sampling, evaluating and saving only read them."""
        moved = self._trained.touched() + self._frozen.touched()
        if not moved:
            return None
        return _fault(
            "moved",
            f"weights must move in optimizer steps only: {len(moved)} of {len(self._named)} tensors changed "
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
        self._pending = self._trained.pick(p.grad for p in self._named.values())
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
        gradient, there = pending
        fault = (
            self._counted(self._applied + 1) or self._frozen_moved() or self._moved_as_expected(gradient * scale, there)
        )
        self._applied = self.trainer.applied
        self._trained.look()
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
        moved = self._frozen.touched()
        if not moved:
            return None
        return _fault(
            "frozen",
            f"frozen parameters must not move: {len(moved)} of {len(self._frozen.names)} did (first: {moved[0]})",
            "Keep them out of the optimizer, and write to them nowhere.",
        )

    def _moved_as_expected(self, gradient: Tensor, there: Tensor) -> Fault | None:
        lr = learning_rate(self.cfg, self._applied, self.total)
        shadow, before = self._trained, self._trained.value
        now, _ = shadow.pick(shadow.parameters)
        expected = shadow.expect(gradient, there, self.cfg, lr)
        # float32 keeps 24 bits of a weight; moments and quotient lose a few more
        slack = 4 * torch.finfo(torch.float32).eps * torch.maximum(before.abs(), expected.abs()) + 5e-3 * lr
        off = shadow.named(torch.where(there, ~((now - expected).abs() <= slack), now != before))
        state = self.trainer.optimizer.state
        known, kept = shadow.pick(state.get(p, {}).get("exp_avg") for p in shadow.parameters)
        scale = torch.maximum(shadow.mean.abs(), shadow.square.sqrt())
        moments = shadow.named(there & kept & ~((known - shadow.mean).abs() <= 1e-2 * scale + 1e-12))
        if torch.equal(now, before):
            return _fault(
                "still",
                f"an applied update must move weights: none did (rate {lr:.3g})",
                "A rate below 1e-9 is lost in float32; raise optimizer.lr. Else look whether optimizer.step is called.",
            )
        if off:
            return _fault(
                "moved",
                f"the step must be AdamW's at rate {lr:.3g} with the promised betas, decay and clipping, once: "
                f"{len(off)} of {len(self._named)} tensors moved elsewhere (first: {off[0]})",
                "Look for another optimizer, a rate that follows batches instead of applied updates, lost moments, a second step.",
            )
        if moments:
            return _fault(
                "moments",
                f"the optimizer's moments must be those of the clipped gradients: {len(moments)} of "
                f"{len(self._named)} tensors have others (first: {moments[0]})",
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


def _fault(code: str, words: str, remedy: str) -> Fault:
    return Fault(code=code, words=words, remedy=remedy)
