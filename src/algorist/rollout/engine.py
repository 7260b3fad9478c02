"""What every rollout engine offers to the loops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from algorist.flow import Prompt, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """How responses are drawn.

    Example:
        >>> SamplingPlan(temperature=1.0, top_p=1.0, response_tokens=16, stop_ids=frozenset({2})).response_tokens
        16
    """

    temperature: float
    """Logits are divided by it; 0 means greedy."""
    top_p: float = 1.0
    """Smallest set of tokens whose probability reaches this; 1 keeps all."""
    response_tokens: int
    """Budget of response tokens; a response that needs more is truncated and says so."""
    stop_ids: frozenset[int]
    """Token ids that end a response, the sampled one included in it."""


class RolloutEngine(Protocol):
    """Prompts to rollouts."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        plan: SamplingPlan,
        policy_version: int,
        seed: int,
        salt: str = "",
    ) -> list[list[Rollout]]:
        """`num_samples` rollouts per prompt, in prompt order, then sample order.

        Each row's randomness is derive(seed, "rollout", salt, policy_version, problem_id, sample) and nothing else: its t-th
        token is min{v : F_t(v) > u_t}, u_t the t-th uniform number of that stream (`rollout.local.sample`). The gates of a run
        hold tokens against it (`qualify.draws`).
        """
        ...
