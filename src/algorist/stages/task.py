"""What a policy is asked and how answers are paid: problems, prompts, checking, reward."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from algorist.flow import Problem, Prompt, Reward, Rollout, Verdict
from algorist.reward.reward import RewardFunction, apply
from algorist.verify.item import AnswerFormat, Item
from algorist.verify.pool import VerifierPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Problem sets with their prompts, and the road from a rollout to its reward."""

    train: tuple[Problem, ...]
    """Problems of RL."""
    heldout: tuple[Problem, ...]
    """Problems of evaluation; never trained on."""
    prompts: Mapping[str, Prompt]
    """By problem id, for train and heldout."""
    stop_ids: frozenset[int]
    """Token ids that end a response."""
    answer_format: AnswerFormat
    """Where the final answer stands in a response."""
    verifier: VerifierPool
    """Checks answers."""
    reward: RewardFunction
    """Pays verdicts."""
    canonical: Callable[[str], str]
    """What an extracted answer votes for in maj@k."""
    solutions: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Worked solutions of RL problems as token ids, by problem id; filled where rl.objective learns from them."""

    @property
    def by_id(self) -> Mapping[str, Problem]:
        """Training and held-out problems by id."""
        return {problem.id: problem for problem in (*self.train, *self.heldout)}

    def grade(self, problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> list[Verdict]:
        """One verdict per rollout, in order."""
        items = [
            Item(
                gold=problem.gold,
                response=rollout.text,
                kind=problem.kind,
                truncated=rollout.truncated,
                answer_format=self.answer_format,
            )
            for problem, rollout in zip(problems, rollouts, strict=True)
        ]
        return self.verifier.check_many(items)

    def pay(
        self, problems: Sequence[Problem], rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]
    ) -> list[Reward]:
        """One reward per rollout, in order; failures are rewards without a value."""
        rows = zip(problems, rollouts, verdicts, strict=True)
        return [apply(self.reward, problem, rollout, verdict) for problem, rollout, verdict in rows]
