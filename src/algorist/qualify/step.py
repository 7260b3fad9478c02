"""Is the optimizer step the one that the contract's formulas give? Looked at before a weight moves, and after.

Before: loss and gradient are computed once more from the method's stated coefficient. After: on a few entries of every
parameter AdamW is followed in float64, so that clipping, moments, rate, decay and the number of steps are all seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn

from algorist.flow import Update
from algorist.objective.reduce import weights_of
from algorist.objective.registry import METHODS
from algorist.objective.spec import TokenBatch
from algorist.qualify.rollouts import Fault
from algorist.train.config import OptimizerConfig
from algorist.train.schedule import learning_rate
from algorist.train.trainer import Assigned, Computed, Trainer

_METHODS: Final = dict(METHODS)
_ENTRIES = 8
"""Entries of each parameter that are followed."""
_TENSORS = 8
"""Small parameters whose whole gradient is computed again."""
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
        index = torch.linspace(0, parameter.numel() - 1, min(_ENTRIES, parameter.numel())).long()
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
        steps = max((s.steps for s in self._shadows.values()), default=0)
        if steps != self.trainer.applied:
            return _fault(
                "moments",
                f"{self.trainer.applied} updates were applied, the optimizer's moments know of {steps}",
                "Save and restore the optimizer's state with the weights; without it the next steps are other ones.",
            )
        return None

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
        moved = self.at_rest()
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
        norm = torch.stack([p.grad.detach().norm() for p in self._named.values() if p.grad is not None]).norm()
        if not bool(torch.isfinite(norm)):
            return None  # skipped, too
        fault = self._gradient(assigned) if self._first else None
        self._first = False
        limit = self.cfg.clip_norm
        scale = 1.0 if limit is None else min(1.0, limit / (float(norm) + 1e-6))
        self._pending = {n: s.pick(g) * scale for n, s in self._shadows.items() if (g := s.parameter.grad) is not None}
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
        fault = self._counted(self._applied + 1) or self._frozen_moved() or self._moved_as_expected(pending)
        self._applied = self.trainer.applied
        for shadow in self._shadows.values():
            shadow.look()
        return fault

    # -- inside -----------------------------------------------------------------------------------------------------

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
        """loss = sum of weight * token loss over the whole batch, from the log-probabilities of this very step."""
        objective, credit = self.trainer.objective, assigned.credit
        if "value" in objective.needs:
            return None  # the value head's output is not kept
        weight = weights_of(objective, credit, assigned.rows.group)
        tokens = _METHODS[self.trainer.method.name].loss(_tokens(assigned, computed.logp), objective).double() * weight
        mine, size = float(tokens.sum()), float(tokens.abs().sum())
        if not math.isfinite(mine) or abs(mine - computed.loss) <= 1e-4 * size + 1e-6:
            return None
        return _fault(
            "loss",
            f"the loss of {self.trainer.method.name} on this batch is {mine:.6g}, the step computed {computed.loss:.6g}",
            "One mask and one set of weights for the whole batch, whatever the micro-batches; no factor for accumulation.",
        )

    def _gradient(self, assigned: Assigned) -> Fault | None:
        """d loss / d theta = - sum of weight * coefficient * d log pi / d theta (DeepSeekMath eq. 5), for a few small tensors."""
        chosen = _small(self._named)
        mine = self._again(assigned, list(chosen.values()))
        theirs = torch.cat([g.detach().double().cpu().flatten() for p in chosen.values() if (g := p.grad) is not None])
        apart, size = float((theirs - mine).norm()), float(mine.norm())
        if apart <= _NEAR * size + 1e-9:
            return None
        cosine = float(theirs @ mine) / max(1e-300, float(theirs.norm()) * size)
        return _fault(
            "gradient",
            f"the gradient of {self.trainer.method.name} must be that of its coefficient (eq. 5): its norm is "
            f"{float(theirs.norm()) / max(1e-300, size):.3g} times that, its direction agrees to {cosine:.3f}",
            "Compare Method.loss with Method.coefficient: sign, scale, mask, and what carries gradient.",
        )

    def _again(self, assigned: Assigned, parameters: Sequence[nn.Parameter]) -> Tensor:
        trainer, policy, credit = self.trainer, self.trainer.policy, assigned.credit
        objective, method = trainer.objective, _METHODS[trainer.method.name]
        weight = weights_of(objective, credit, assigned.rows.group)
        trained = credit.mask & (credit.advantage != 0) if not objective.needs else credit.mask
        rows = trained.any(1).nonzero().squeeze(1).tolist()
        tokens = [assigned.rows.tokens[i] for i in rows]
        pair = None if credit.pair is None or method.together == "row" else credit.pair[torch.tensor(rows)].tolist()
        size = trainer.micro_batch_tokens
        batches = (
            policy.micro_batches(tokens, max_tokens=size)
            if pair is None
            else policy.paired_micro_batches(tokens, pair, max_tokens=size)
        )
        total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        for batch in batches:
            with policy.compute():
                scores = policy.score(
                    batch, tokens, temperature=trainer.temperature, num_tokens=assigned.rows.num_tokens
                )
            index = torch.tensor([rows[i] for i in scores.rows])
            part = _tokens(assigned, None, index, scores.logp, scores.value)
            share = weight[index].to(policy.device)
            if "value" in objective.needs:  # the value loss has no coefficient
                loss = (method.loss(part, objective) * share).sum()
            else:
                loss = -(method.coefficient(part, objective).detach() * share * scores.logp).sum()
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
            flat = [
                torch.zeros(p.numel()) if g is None else g.flatten().cpu()
                for p, g in zip(parameters, grads, strict=True)
            ]
            total += torch.cat(flat).double()
        return total


def _tokens(
    assigned: Assigned,
    logp: Tensor | None,
    index: Tensor | None = None,
    scored: Tensor | None = None,
    value: Tensor | None = None,
) -> TokenBatch:
    """The rows `index` (all) as the objective sees them; log-probabilities of the step, or those just scored."""
    live = logp if scored is None else scored
    assert live is not None, "one of logp and scored"
    device = live.device

    def pick(x: Tensor) -> Tensor:
        return (x if index is None else x[index]).to(device)

    def maybe(x: Tensor | None) -> Tensor | None:
        return None if x is None else pick(x)

    credit = assigned.credit
    return TokenBatch(
        logp=live,
        logp_old=live.detach() if assigned.logp_old is None else pick(assigned.logp_old),
        logp_behaviour=pick(assigned.rows.behaviour),
        advantage=pick(credit.advantage),
        mask=pick(credit.mask),
        logp_ref=maybe(assigned.logp_ref),
        value=value,
        value_old=maybe(assigned.value_old),
        returns=maybe(credit.returns),
        pair=maybe(credit.pair),
    )


def _small(named: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """A few small tensors, spread over the depth of the model; norms, in most."""
    having = [(name, p) for name, p in named.items() if p.grad is not None]
    limit = sorted(p.numel() for _, p in having)[min(len(having), 2 * _TENSORS) - 1]
    small = [(name, p) for name, p in having if p.numel() <= limit]
    step = max(1, len(small) // _TENSORS)
    return dict(small[::step])


def _fault(code: str, words: str, remedy: str) -> Fault:
    return Fault(code=code, words=words, remedy=remedy)
