"""What a method declares: data source, reward, gradient coefficient (DeepSeekMath eq. 5), plus its loss.

The trainer never learns a method's name. For a whole rollout batch it does

    credit = method.credit(rows, cfg)                          # advantages, final mask, rows that count
    weight = reduce.weights_of(cfg, credit, rows.group)        # counts of the WHOLE batch
    for micro in batches:                                      # rows of one pair stay together (method.together)
        loss = (method.loss(tokens, cfg) * weight[micro]).sum()

so the number of micro-batches or ranks changes nothing. `cfg` carries what the trainer must know beforehand: `needs`,
`min_group_size`, `reuse`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algorist.errors import InputError
from algorist.objective.describe import formula
from algorist.objective.knobs import Objective, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditInput:
    """All rows of one rollout batch, before any micro-batch. B rows, T response tokens, K steps.

    Example:
        >>> rows = CreditInput(rewards=torch.tensor([1.0, 0.0], dtype=torch.float64), group=torch.tensor([0, 0]),
        ...                    mask=torch.ones(2, 3, dtype=torch.bool))
        >>> rows.scored.tolist()
        [True, True]
    """

    rewards: Float[Tensor, "B"]
    """Outcome reward of each row; nan where there is none (errors): the row leaves its group before the baseline."""
    group: Int[Tensor, "B"]
    """Group number of each row, >= 0; rows of one group need not be neighbours."""
    mask: Bool[Tensor, "B T"]
    """True where a token may be trained."""
    correct: Bool[Tensor, "B"] | None = None
    """Verdict of each row where one exists; else correctness is read from the reward."""
    truncated: Bool[Tensor, "B"] | None = None
    """Rows that the response budget ended."""
    quality: Float[Tensor, "B"] | None = None
    """Quality in (0, 1] of correct responses, for redistribution; nan where the grader gave none."""
    logp_old: Float[Tensor, "B T"] | None = None
    """Of the policy at the start of the update; needed for KL in the reward."""
    logp_ref: Float[Tensor, "B T"] | None = None
    """Of the reference policy."""
    value: Float[Tensor, "B T"] | None = None
    """Value head output at the start of the update."""
    step_ends: Int[Tensor, "B K"] | None = None
    """Index of the last token of each step, rising within a row; -1 where a row has fewer steps."""
    step_rewards: Float[Tensor, "B K"] | None = None
    """Reward of each step; nan where there is none."""

    def __post_init__(self) -> None:
        B = self.mask.shape[0]
        assert self.rewards.shape == (B,) == self.group.shape, (
            f"rewards and group must have {B} rows, got {tuple(self.rewards.shape)} and {tuple(self.group.shape)}"
        )
        wild = torch.isinf(self.rewards).nonzero().flatten()
        if len(wild):
            raise InputError(
                f"rewards must be finite (or nan where there is none): row {int(wild[0])} has "
                f"{float(self.rewards[wild[0]])}. Bound the reward function"
            )

    @property
    def scored(self) -> Bool[Tensor, "B"]:
        """Rows that have a reward."""
        return torch.isfinite(self.rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What each token of a whole batch is worth, and which tokens and rows count."""

    advantage: Float[Tensor, "B T"]
    """float32 token credit; exactly 0 outside `mask` and in flat groups."""
    mask: Bool[Tensor, "B T"]
    """Tokens that are trained: the only mask, for numerator and denominator alike."""
    counted: Bool[Tensor, "B"]
    """Rows that enter row denominators."""
    reward: Float[Tensor, "B"]
    """The rewards the advantage was made from (KL fee included), nan where there is none."""
    returns: Float[Tensor, "B T"] | None = None
    """Value targets, where the method has a value head."""
    pair: Int[Tensor, "B"] | None = None
    """Pair number of each row, -1 for rows without a partner; None where the method has no pairs."""

    @property
    def flat(self) -> bool:
        """True where no token has any credit: the optimizer step is skipped and recorded."""
        return not bool((self.advantage != 0).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Per-token tensors of some rows, right-padded to T response tokens; log-probs in nats, float32 or float64."""

    logp: Float[Tensor, "B T"]
    """Of the current policy under the sampling distribution; carries the gradient."""
    logp_old: Float[Tensor, "B T"]
    """Of the policy at the start of this update, scored by the trainer. Equal to `logp` in the first epoch."""
    logp_behaviour: Float[Tensor, "B T"]
    """As stored by the sampler."""
    advantage: Float[Tensor, "B T"]
    """Credit.advantage of these rows."""
    mask: Bool[Tensor, "B T"]
    """Credit.mask of these rows."""
    logp_ref: Float[Tensor, "B T"] | None = None
    """Of the reference policy; None unless cfg.needs has it."""
    value: Float[Tensor, "B T"] | None = None
    """Value head output with gradient; None unless cfg.needs has it."""
    value_old: Float[Tensor, "B T"] | None = None
    """Value head output at the start of the update."""
    returns: Float[Tensor, "B T"] | None = None
    """Credit.returns of these rows."""
    pair: Int[Tensor, "B"] | None = None
    """Credit.pair of these rows."""

    def clean(self) -> "TokenBatch":
        """The same with 0 wherever the mask is False, so that garbage at padding reaches neither loss nor gradient."""

        def zero(x: Tensor) -> Tensor:
            return torch.where(self.mask, x, torch.zeros((), dtype=x.dtype, device=x.device))

        def maybe(x: Tensor | None) -> Tensor | None:
            return None if x is None else zero(x.detach())

        return replace(
            self,
            logp=zero(self.logp),
            logp_old=zero(self.logp_old.detach()),
            logp_behaviour=zero(self.logp_behaviour.detach()),
            advantage=zero(self.advantage.detach()),
            logp_ref=maybe(self.logp_ref),
            value=None if self.value is None else zero(self.value),
            value_old=maybe(self.value_old),
            returns=maybe(self.returns),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One objective, stated as the paper's equation 5 states it."""

    name: str
    """Name in recipes."""
    paper: str
    """Where it comes from: paper, section, equation."""
    source: Source
    """Where responses come from."""
    reward: str
    """Which reward function, in words (Rule, Model, none)."""
    coefficient_text: str
    """The gradient coefficient as a formula."""
    config: type[Objective]
    """Config pydantic model with its knobs."""
    credit: Callable[[CreditInput, Any], Credit]
    """Pure."""
    loss: Callable[[TokenBatch, Any], Float[Tensor, "B T"]]
    """Per-token loss; its sum times the reduction weight is what is minimised. Exactly 0 outside the mask. Pure."""
    coefficient: Callable[[TokenBatch, Any], Float[Tensor, "B T"]]
    """GC of eq. 5: -(d weighted loss / d logp_t) / weight_t. Exactly 0 outside the mask. Pure, no gradient."""
    together: Literal["row", "pair"] = "row"
    """Rows that must share a micro-batch."""
    example: Mapping[str, Any]
    """The keys of the smallest valid recipe entry besides `name`."""

    def formula(self, cfg: Objective) -> Mapping[str, str]:
        """The formulas that run under this config, in words and symbols, for ledger and report."""
        return formula(cfg)
