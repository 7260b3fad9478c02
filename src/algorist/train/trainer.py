"""Loss to update: one optimizer step over the rows of a batch. Knows methods only through `objective.spec.Method`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algorist.flow import Update
from algorist.objective import kl, reduce
from algorist.objective.config import Objective
from algorist.objective.spec import Credit, CreditInput, Method, TokenBatch
from algorist.policy.model import CausalPolicy
from algorist.policy.trie import Trie
from algorist.train.config import OptimizerConfig
from algorist.train.optimizer import make_optimizer, set_learning_rate
from algorist.train.rows import Rows
from algorist.train.schedule import learning_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """|trainer's log-probability - stored behaviour log-probability| in nats per token, over `num_tokens` tokens.

    Example:
        >>> Difference.of(torch.tensor([0.0, 0.5])).max_nats
        0.5
    """

    mean_nats: float
    p99_nats: float
    max_nats: float
    num_tokens: int

    @classmethod
    def of(cls, gaps: Float[Tensor, "N"]) -> "Difference":
        """Statistics of the absolute values; all 0 where there are none."""
        gaps = gaps.abs().double()
        if not len(gaps):
            return cls(mean_nats=0.0, p99_nats=0.0, max_nats=0.0, num_tokens=0)
        p99 = gaps.sort().values[min(len(gaps) - 1, math.ceil(0.99 * len(gaps)) - 1)]
        return cls(mean_nats=float(gaps.mean()), p99_nats=float(p99), max_nats=float(gaps.max()), num_tokens=len(gaps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A batch with its advantages, ready for one or more steps."""

    rows: Rows
    """All rows of the batch."""
    credit: Credit
    """What each token is worth."""
    logp_old: Float[Tensor, "B T"] | None
    """Scored before the first step; None where the first step's own log-probabilities serve (one epoch, no KL fee)."""
    logp_ref: Float[Tensor, "B T"] | None
    """Of the reference policy, where the method has one."""
    value_old: Float[Tensor, "B T"] | None
    """Of the value head before the first step, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A policy's view of stored tokens; 0 where nothing was scored."""

    logp: Float[Tensor, "B T"]
    """Log-probabilities in nats."""
    below: Float[Tensor, "B T"]
    """Probability of all token ids below the stored one: where its draw by inverse CDF begins."""
    entropy: Float[Tensor, "B T"]
    """Of the distribution that the token was drawn from, in nats."""
    value: Float[Tensor, "B T"] | None
    """Of the value head, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What a step has computed before any weight moves. Gradients lie in the parameters' `.grad`, not clipped yet."""

    loss: float
    """Summed over all micro-batches."""
    logp: Float[Tensor, "B T"]
    """Log-probabilities in nats of the rows with gradient under the policy before the step; 0 elsewhere."""
    below: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]
    """Both as in `Scored`, of the same tokens."""
    scored: Bool[Tensor, "B T"]
    """True where `logp` holds one."""
    difference: Difference
    """To the stored behaviour log-probabilities, over `scored`."""


@dataclass(slots=True, kw_only=True)
class _Sums:
    """What one pass over the micro-batches adds up."""

    logp: Float[Tensor, "B T"]
    below: Float[Tensor, "B T"]
    entropies: Float[Tensor, "B T"]
    scored: Bool[Tensor, "B T"]
    loss: float = 0.0
    entropy: float = 0.0
    ref_kl: float = 0.0
    tokens: int = 0


@final
class Trainer:
    """The one mutable object of a run: policy, optimizer, number of applied updates."""

    def __init__(
        self,
        *,
        policy: CausalPolicy,
        optimizer_cfg: OptimizerConfig,
        method: Method,
        objective: Objective,
        total_updates: int,
        temperature: float,
        micro_batch_tokens: int,
        epochs: int = 1,
        reference: CausalPolicy | None = None,
    ) -> None:
        self.policy, self.reference = policy, reference
        self.method, self.objective = method, objective
        self.optimizer_cfg, self.total_updates = optimizer_cfg, total_updates
        self.temperature, self.micro_batch_tokens, self.epochs = temperature, micro_batch_tokens, epochs
        if "value" in objective.needs:
            policy.add_value_head()
        self.optimizer = make_optimizer(policy, optimizer_cfg)
        self.applied = 0
        """Applied updates: the policy version."""

    @property
    def lr(self) -> float:
        """Rate of the next step."""
        return learning_rate(self.optimizer_cfg, self.applied, self.total_updates)

    def assign(
        self,
        rows: Rows,
        *,
        step_ends: Int[Tensor, "B K"] | None = None,
        step_rewards: Float[Tensor, "B K"] | None = None,
        quality: Float[Tensor, "B"] | None = None,
    ) -> Assigned:
        """Advantages of a whole batch under the method, before any micro-batch. Changes nothing.

        step_ends, step_rewards: for process supervision. quality: for redistribution among correct responses.
        """
        needs = self.objective.needs
        every = rows.mask.any(1)
        old, value, ref = None, None, None
        if needs - {"step_rewards"} or self.epochs > 1:
            scored = self._score(self.policy, rows, every)
            old, value = scored.logp, scored.value
        if "logp_ref" in needs:
            assert self.reference is not None, f"{self.method.name} needs a reference policy"
            ref = self._score(self.reference, rows, every).logp
        inputs = CreditInput(
            rewards=rows.reward,
            group=rows.group,
            mask=rows.mask,
            correct=rows.correct,
            truncated=rows.truncated,
            quality=quality,
            logp_old=old,
            logp_ref=ref,
            value=value,
            step_ends=step_ends,
            step_rewards=step_rewards,
        )
        credit = self.method.credit(inputs, self.objective)
        return Assigned(rows=rows, credit=credit, logp_old=old, logp_ref=ref, value_old=value)

    def step(
        self, assigned: Assigned, *, batch: int, look: Callable[[Computed], None] | None = None
    ) -> tuple[Update, Difference | None]:
        """One optimizer step, or a recorded skip that leaves weights, moments and learning rate bit for bit as they were.

        Skips: no_tokens (nothing to train), flat (no token has credit), nonfinite_loss, nonfinite_gradient. The
        difference to the stored behaviour log-probabilities, over the rows with gradient, is that of the policy before
        the step; None where nothing was scored. `look` sees loss and gradients before a weight moves, and may raise.
        """
        rows, credit, lr = assigned.rows, assigned.credit, self.lr
        trained = credit.mask & (credit.advantage != 0) if not self.objective.needs else credit.mask
        active = trained.any(1)  # a row without credit has no gradient unless a KL or value term gives it one
        if credit.flat or not active.any():
            cause = "flat" if credit.mask.any() else "no_tokens"
            return Update(batch=batch, applied=False, cause=cause, policy_version=self.applied, lr=lr), None
        weight = reduce.weights_of(self.objective, credit, rows.group)
        sums = self._accumulate(assigned, weight, active)
        difference = Difference.of((sums.logp - rows.behaviour)[sums.scored])
        if look is not None:
            look(
                Computed(
                    loss=sums.loss,
                    logp=sums.logp,
                    below=sums.below,
                    entropy=sums.entropies,
                    scored=sums.scored,
                    difference=difference,
                )
            )
        max_norm = self.optimizer_cfg.clip_norm or math.inf
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self.policy.parameters(), max_norm))
        finite = math.isfinite(sums.loss) and math.isfinite(grad_norm)
        if finite:
            set_learning_rate(self.optimizer, lr)
            self.optimizer.step()
            self.applied += 1
        self.optimizer.zero_grad(set_to_none=True)
        cause = "" if finite else "nonfinite_gradient" if math.isfinite(sums.loss) else "nonfinite_loss"
        metrics = _metrics(credit, weight, sums, grad_norm, with_reference=assigned.logp_ref is not None)
        update = Update(batch=batch, applied=finite, cause=cause, policy_version=self.applied, lr=lr, metrics=metrics)
        return update, difference

    def score(self, rows: Rows, which: Bool[Tensor, "B"]) -> Scored:
        """The chosen rows under the present policy. No gradient."""
        return self._score(self.policy, rows, which)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _accumulate(self, assigned: Assigned, weight: Float[Tensor, "B T"], active: Bool[Tensor, "B"]) -> _Sums:
        """Gradient of sum(loss * weight) over the active rows, micro-batch by micro-batch."""
        rows, credit = assigned.rows, assigned.credit
        shape, scored = rows.mask.shape, credit.mask & active[:, None]
        sums = _Sums(logp=torch.zeros(shape), below=torch.zeros(shape), entropies=torch.zeros(shape), scored=scored)
        chosen = active.nonzero().squeeze(1).tolist()
        tokens = [rows.tokens[i] for i in chosen]
        for batch in self._micro_batches(tokens, credit, chosen):
            with self.policy.compute():
                scores = self.policy.score(batch, tokens, temperature=self.temperature, num_tokens=rows.num_tokens)
            index = torch.tensor([chosen[i] for i in scores.rows])

            def pick(x: Tensor, index: Tensor = index) -> Tensor:
                return x[index].to(self.policy.device)

            def maybe(x: Tensor | None, index: Tensor = index) -> Tensor | None:
                return None if x is None else pick(x, index)

            part = TokenBatch(
                logp=scores.logp,
                logp_old=scores.logp.detach() if assigned.logp_old is None else pick(assigned.logp_old),
                logp_behaviour=pick(rows.behaviour),
                advantage=pick(credit.advantage),
                mask=pick(credit.mask),
                logp_ref=maybe(assigned.logp_ref),
                value=scores.value,
                value_old=maybe(assigned.value_old),
                returns=maybe(credit.returns),
                pair=maybe(credit.pair),
            )
            loss = (self.method.loss(part, self.objective) * pick(weight)).sum()
            loss.backward()
            with torch.no_grad():
                sums.loss += float(loss)
                sums.tokens += int(part.mask.sum())
                sums.entropy += float(scores.entropy[part.mask].double().sum())
                sums.logp[index], sums.below[index] = part.logp.cpu(), scores.below.cpu()
                sums.entropies[index] = scores.entropy.cpu()
                if part.logp_ref is not None:
                    estimate = kl.estimate("k3", part.logp, part.logp_ref, part.logp_old, None)
                    sums.ref_kl += float(estimate[part.mask].double().sum())
        return sums

    def _micro_batches(
        self, tokens: Sequence[tuple[Sequence[int], Sequence[int]]], credit: Credit, chosen: list[int]
    ) -> list[list[Trie]]:
        if self.method.together == "row" or credit.pair is None:
            return self.policy.micro_batches(tokens, max_tokens=self.micro_batch_tokens)
        return self.policy.paired_micro_batches(
            tokens, credit.pair[torch.tensor(chosen)].tolist(), max_tokens=self.micro_batch_tokens
        )

    @torch.no_grad()
    def _score(self, policy: CausalPolicy, rows: Rows, which: Bool[Tensor, "B"]) -> Scored:
        logp, below, entropy = (torch.zeros(rows.mask.shape) for _ in range(3))
        value = None if policy.value_head is None else torch.zeros(rows.mask.shape)
        chosen = which.nonzero().squeeze(1).tolist()
        tokens = [rows.tokens[i] for i in chosen]
        with policy.compute():
            for batch in policy.micro_batches(tokens, max_tokens=self.micro_batch_tokens) if chosen else ():
                scores = policy.score(batch, tokens, temperature=self.temperature, num_tokens=rows.num_tokens)
                index = torch.tensor([chosen[i] for i in scores.rows])
                logp[index], below[index], entropy[index] = scores.logp.cpu(), scores.below.cpu(), scores.entropy.cpu()
                if value is not None and scores.value is not None:
                    value[index] = scores.value.cpu()
        return Scored(logp=logp, below=below, entropy=entropy, value=value)


def _metrics(
    credit: Credit, weight: Float[Tensor, "B T"], sums: _Sums, grad_norm: float, *, with_reference: bool
) -> dict[str, float]:
    mass = (credit.advantage * weight).double()
    metrics = {
        "loss": sums.loss,
        "grad_norm": grad_norm,
        "tokens/trained": float(credit.mask.sum()),
        "tokens/with_gradient": float(sums.tokens),
        "policy/entropy_nats": sums.entropy / max(1, sums.tokens),
        "advantage/positive_mass": float(mass.clamp(min=0).sum()),
        "advantage/negative_mass": float(-mass.clamp(max=0).sum()),
    }
    if with_reference:
        metrics["kl/ref_nats"] = sums.ref_kl / max(1, sums.tokens)
    return metrics


def gate_value(difference: Difference, statistic: str) -> float:
    """The statistic that a contract bounds: mean, p99 or max.

    >>> gate_value(Difference(mean_nats=0.1, p99_nats=0.2, max_nats=0.3, num_tokens=9), "p99")
    0.2
    """
    values: Mapping[str, float] = {
        "mean": difference.mean_nats,
        "p99": difference.p99_nats,
        "max": difference.max_nats,
    }
    return values[statistic]
