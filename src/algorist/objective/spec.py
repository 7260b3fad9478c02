"""What a method declares: data source, reward, gradient coefficient (DeepSeekMath eq. 5), plus its loss and its reduction.

The trainer never learns a method's name. It asks a `Method` for token advantages of a batch of groups, builds one
`TokenBatch` per micro-batch, sums `loss(batch, cfg) * weight` and steps. `weight` comes from `objective.reduce` with counts
of the WHOLE batch, so that micro-batches change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import BaseModel
from torch import Tensor

Source = Literal["dataset", "sft_samples", "online"]
Need = Literal["logp_ref", "values", "pairs", "step_rewards", "entropy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Per-token tensors of B rows, right-padded to T response tokens; all log-probabilities in nats, float32 or float64."""

    logp: Float[Tensor, "B T"]
    """Of the current policy under the sampling distribution; carries the gradient."""
    logp_old: Float[Tensor, "B T"]
    """Of the policy at the start of this update, scored by the trainer; no gradient. Equal to `logp` on the first epoch."""
    logp_behaviour: Float[Tensor, "B T"]
    """As stored by the sampler."""
    logp_ref: Float[Tensor, "B T"] | None = None
    """Of the reference policy; None unless the method needs it."""
    advantage: Float[Tensor, "B T"]
    """Token credit; constant over a row for outcome supervision."""
    mask: Bool[Tensor, "B T"]
    """True where a token is trained."""
    group: Int[Tensor, "B"]
    """Group number of each row."""
    reward: Float[Tensor, "B"]
    """Outcome reward of each row."""
    value: Float[Tensor, "B T"] | None = None
    """Value head output with gradient; None unless needed."""
    value_old: Float[Tensor, "B T"] | None = None
    """Value head output at the start of the update."""
    returns: Float[Tensor, "B T"] | None = None
    """Value targets."""
    truncated: Bool[Tensor, "B"] | None = None
    """Rows that the response budget ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Advantages of a whole batch of rows, before any micro-batch."""

    advantage: Float[Tensor, "B T"]
    """Token credit, exactly 0 outside the mask and in flat groups."""
    returns: Float[Tensor, "B T"] | None = None
    """Value targets, where the method has a value head."""


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
    """Which reward function, in words."""
    config: type[BaseModel]
    """Frozen pydantic model with its knobs; each default names its origin."""
    needs: frozenset[Need]
    """What the trainer must supply beyond logp, logp_old, advantage and mask."""
    credit: Callable[..., Credit]
    """(rows: CreditInput, cfg) -> Credit. Pure."""
    loss: Callable[[TokenBatch, Any], Float[Tensor, "B T"]]
    """Per-token loss, unweighted; its sum times the reduction weight is what is minimised. Pure."""
    coefficient: Callable[[TokenBatch, Any], Float[Tensor, "B T"]]
    """GC of eq. 5: -d loss_t / d logp_t, per token, before the reduction weight. Pure, no gradient."""
    formula: Callable[[Any], Mapping[str, str]]
    """The formulas that run under this config, in words and symbols, for the ledger and the report."""
