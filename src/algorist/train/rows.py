"""Rollouts as tensors: what the objective and the trainer see of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algorist.flow import Batch, Outcome
from algorist.policy.model import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """B responses, right-padded to T tokens; failed rows are still there, with a nan reward."""

    tokens: list[Row]
    """[B] (prompt ids, response ids)."""
    group: Int[Tensor, "B"]
    """Number of the problem within the batch, by problem id."""
    mask: Bool[Tensor, "B T"]
    """True where the policy chose the token and the row did not fail."""
    reward: Float[Tensor, "B"]
    """float64; nan where there is none."""
    behaviour: Float[Tensor, "B T"]
    """Stored log-probabilities in nats, 0 at padding."""
    truncated: Bool[Tensor, "B"]
    """Rows that the response budget ended."""
    correct: Bool[Tensor, "B"] | None
    """Verdict is `correct`."""
    texts: list[str]
    """Derived text, for step scorers."""

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.mask.shape[1]


def from_batch(batch: Batch) -> Rows:
    """The rows of a rollout batch, group after group.

    Rows are grouped by problem id, not by place; a row with an empty response or without a reward keeps its place but
    is masked out whole.
    """
    rollouts = [r for g in batch.groups for r in g.rollouts]
    rewards = [r for g in batch.groups for r in g.rewards]
    verdicts = [v for g in batch.groups for v in g.verdicts]
    numbers: dict[str, int] = {}
    group = [numbers.setdefault(r.problem_id, len(numbers)) for r in rollouts]
    B, T = len(rollouts), max((len(r.token_ids) for r in rollouts), default=1) or 1
    mask = np.zeros((B, T), dtype=bool)
    behaviour = np.zeros((B, T), dtype=np.float32)
    for b, (rollout, reward) in enumerate(zip(rollouts, rewards, strict=True)):
        length = len(rollout.token_ids)
        mask[b, :length] = np.array(rollout.loss_mask, dtype=bool) & (reward.value is not None)
        behaviour[b, :length] = rollout.behaviour_logp
    return Rows(
        tokens=[(r.prompt_ids, r.token_ids) for r in rollouts],
        group=torch.tensor(group, dtype=torch.int64),
        mask=torch.from_numpy(mask),
        reward=torch.tensor([float("nan") if r.value is None else r.value for r in rewards], dtype=torch.float64),
        behaviour=torch.from_numpy(behaviour),
        truncated=torch.tensor([r.truncated for r in rollouts], dtype=torch.bool),
        correct=torch.tensor([v.verdict is Outcome.CORRECT for v in verdicts], dtype=torch.bool),
        texts=[r.text for r in rollouts],
    )


def from_targets(targets: Sequence[Row]) -> Rows:
    """Rows to imitate (SFT): each its own group, reward 1, behaviour unknown (0)."""
    B, T = len(targets), max(len(response) for _, response in targets)
    mask = torch.zeros(B, T, dtype=torch.bool)
    for b, (_, response) in enumerate(targets):
        mask[b, : len(response)] = True
    return Rows(
        tokens=list(targets),
        group=torch.arange(B),
        mask=mask,
        reward=torch.ones(B, dtype=torch.float64),
        behaviour=torch.zeros(B, T),
        truncated=torch.zeros(B, dtype=torch.bool),
        correct=None,
        texts=[],
    )
