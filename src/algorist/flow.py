"""The types that flow, in pipeline order; one arrow between neighbours, nothing flows back.

    Problem -> Prompt -> Rollout -> Verdict -> Reward -> Group -> Batch -> Update

Everything is a frozen, slotted, keyword-only dataclass of plain Python values (no tensors), so each can be written to
a file and read back unchanged. Token ids are the truth; text is derived from them and never tokenised again.

Letters used all over the code: P problems, G rollouts per problem, B = P*G rows, T response tokens, L whole length,
V vocabulary, K reasoning steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with an answer that can be checked.

    Example:
        >>> Problem(id="9f2c", question="What is 17 + 25?", gold="42", source="arithmetic", family="add").gold
        '42'
    """

    id: str
    """Content id: equal questions with equal golds have equal ids, in every run and on every machine."""
    question: str
    """What is asked, as the user wrote it; no template yet."""
    gold: str
    """The reference answer, as the source wrote it. Never shown to the policy outside SFT."""
    source: str
    """Name of the source that made it."""
    family: str = ""
    """Family within the source, '' where the source has none; splits keep families apart when asked to."""
    kind: str = "auto"
    """How the gold is to be read: auto, number, expression, choice, blanks, list."""
    solution: str = ""
    """A worked solution to imitate in SFT; '' where there is none."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Further fields of the source (level, effort, unit, tolerance), sorted by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem as the token ids that the policy will see.

    Example:
        >>> Prompt(problem_id="9f2c", token_ids=(1, 48, 55), text="Q: 17 + 25\\nA:").token_ids
        (1, 48, 55)
    """

    problem_id: str
    """Id of the problem it renders."""
    token_ids: tuple[int, ...]
    """[L_prompt] token ids, special tokens included."""
    text: str
    """The same as text, for people."""


class Finish(StrEnum):
    """Why a rollout ended. Told by the sampler, never guessed from lengths or padding."""

    STOP = "stop"
    """A stop id was sampled; it is the last token and is part of the response."""
    LENGTH = "length"
    """The response budget ran out first: the response is truncated."""
    ERROR = "error"
    """The engine failed on this row; it leaves its group before any baseline is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled response with what was known when it was sampled.

    Example:
        >>> r = Rollout(problem_id="9f2c", sample=0, prompt_ids=(1, 48), token_ids=(52, 50, 2), text="42", seed=7,
        ...             behaviour_logp=(-0.1, -0.7, -0.2), policy_version=(3, 3, 3), loss_mask=(True, True, True),
        ...             finish=Finish.STOP)
        >>> len(r.token_ids), r.truncated
        (3, False)
    """

    problem_id: str
    """Id of the problem; rollouts of one problem form a group."""
    sample: int
    """Index within the group, 0 <= sample < G."""
    prompt_ids: tuple[int, ...]
    """[L_prompt] token ids the response was conditioned on."""
    token_ids: tuple[int, ...]
    """[T] response token ids, a final stop id included. The truth; never re-tokenised."""
    behaviour_logp: tuple[float, ...]
    """[T] log-probability, in nats, of each token under the distribution it was really sampled from (temperature and
    top-p applied)."""
    policy_version: tuple[int, ...]
    """[T] number of applied updates of the weights that sampled each token."""
    loss_mask: tuple[bool, ...]
    """[T] True where the policy chose the token and may be trained on it; False for tool output."""
    finish: Finish
    """Told by the sampler."""
    text: str
    """Decoded response without special tokens; derived."""
    seed: int
    """Seed of this row's random stream."""

    def __post_init__(self) -> None:
        T = len(self.token_ids)
        lengths = (len(self.behaviour_logp), len(self.policy_version), len(self.loss_mask))
        assert lengths == (T, T, T), f"per-token fields must have length {T}, got {lengths}"

    @property
    def truncated(self) -> bool:
        """True where the response budget ended the response."""
        return self.finish is Finish.LENGTH


class Outcome(StrEnum):
    """What checking a response can come to. Only a reward may merge two of these."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNSUPPORTED = "unsupported"
    """No single final answer could be read (empty, truncated, conflicting, outside the grammar). Not paid."""
    ERROR = "error"
    """The checker failed (deadline, memory, worker death). Says nothing about the response: excluded from its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the verifier found out about one response.

    Example:
        >>> v = Verdict(verdict=Outcome.CORRECT, reason="equal", rule="boxed", method="rational", extracted="42")
        >>> v.verdict
        <Outcome.CORRECT: 'correct'>
    """

    verdict: Outcome
    """The outcome."""
    reason: str
    """A short code: equal, different, truncated, no_answer, conflict, timeout, ..."""
    rule: str = ""
    """The extraction rule that found the answer: boxed, hashes, final_answer, ..."""
    method: str = ""
    """How it was compared: string, rational, symbolic or numeric."""
    extracted: str = ""
    """The answer as read from the response."""
    raw_correct: bool | None = None
    """The looser reading (any right final number), kept apart and never paid; None where it was not computed."""
    ms: float = 0.0
    """Wall-clock milliseconds; no digest covers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A number for one rollout, or the statement that there is none.

    Example:
        >>> Reward(value=0.9, parts={"correct": 1.0, "length": -0.1}).value
        0.9
        >>> Reward(value=None, error="verifier: timeout").value is None
        True
    """

    value: float | None
    """The reward; None where it could not be computed: the rollout then leaves its group before the baseline."""
    parts: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    """Named summands of `value`."""
    error: str = ""
    """Why there is no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All rollouts of one problem in one batch, with their verdicts and rewards, index by index.

    Example:
        >>> r = Rollout(problem_id="p", sample=0, prompt_ids=(1,), token_ids=(2,), behaviour_logp=(-0.5,), policy_version=(0,),
        ...             loss_mask=(True,), finish=Finish.STOP, text="4", seed=1)
        >>> v = Verdict(verdict=Outcome.WRONG, reason="different")
        >>> g = Group(problem_id="p", rollouts=(r,), verdicts=(v,), rewards=(Reward(value=0.0),))
        >>> g.flat
        True
    """

    problem_id: str
    """The one problem all rollouts answer."""
    rollouts: tuple[Rollout, ...]
    """[G]"""
    verdicts: tuple[Verdict, ...]
    """[G]"""
    rewards: tuple[Reward, ...]
    """[G]"""

    def __post_init__(self) -> None:
        assert len(self.rollouts) == len(self.verdicts) == len(self.rewards), (
            "rollouts, verdicts, rewards: equal length"
        )
        strangers = {r.problem_id for r in self.rollouts} - {self.problem_id}
        assert not strangers, f"a group holds one problem only ({self.problem_id}), got {sorted(strangers)}"

    @property
    def values(self) -> tuple[float, ...]:
        """Rewards that exist; errors are left out, before any baseline."""
        return tuple(r.value for r in self.rewards if r.value is not None)

    @property
    def flat(self) -> bool:
        """True where no two rewards differ (max == min), so that no baseline method learns from it."""
        values = self.values
        return not values or max(values) == min(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The groups of one rollout batch.

    Example:
        >>> Batch(index=0, policy_version=0, groups=()).num_rollouts
        0
    """

    index: int
    """Rollout batches so far in this run; not the number of updates."""
    policy_version: int
    """Applied updates of the weights that sampled it."""
    groups: tuple[Group, ...]
    """[P]"""

    @property
    def num_rollouts(self) -> int:
        """B, over all groups."""
        return sum(len(group.rollouts) for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one optimizer step did, or why it was not taken.

    Example:
        >>> Update(batch=4, applied=False, cause="flat", policy_version=3, lr=1e-5).applied
        False
    """

    batch: int
    """Index of the rollout batch."""
    applied: bool
    """False: weights, moments, learning rate and schedule position are bit for bit what they were."""
    policy_version: int
    """Applied updates after this one."""
    lr: float
    """Learning rate used; of a skipped update, the one that stays in force."""
    cause: str = ""
    """Why it was skipped: flat, nonfinite_loss, nonfinite_gradient, no_tokens."""
    metrics: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    """Flat names with units: loss, grad_norm, tokens, ..."""
