"""What is qualified: the settings, problems, prompts, policy and engine of one run, ready to be looked at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from algorist.flow import Problem
from algorist.policy.model import CausalPolicy, Row
from algorist.problems.load import ProblemSet
from algorist.prompts.render import Renderer
from algorist.qualify.config import QualifyConfig
from algorist.rollout.engine import RolloutEngine, SamplingPlan
from algorist.stages.config import RLConfig, SFTConfig
from algorist.stages.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One prepared run."""

    cfg: QualifyConfig
    rl: RLConfig | None
    has_sft: bool
    """SFT comes before RL, so that the starting policy says nothing about the signal."""
    seed: int
    base: Path
    """Folder that relative paths of the recipe start at."""
    policy_path: str | None
    """policy.path, where the policy is a folder."""
    problems: ProblemSet
    """As loaded, prompts that cannot be shown taken out."""
    dropped_notes: tuple[str, ...]
    """What was dropped, in words."""
    policy: CausalPolicy
    engine: RolloutEngine
    renderer: Renderer
    task: Task
    response_tokens: int
    """Budget of evaluations; of RL where there is RL."""
    reward_name: str
    sft: SFTConfig | None = None
    targets: tuple[Row, ...] = ()
    """What SFT imitates."""
    evaluated_rows: int = 0
    """Responses of one evaluation."""
    start: Callable[[], CausalPolicy] | None = None
    """Loads the starting policy again, to see whether a sampler still holds it."""

    @property
    def trained(self) -> tuple[Problem, ...]:
        """Problems that a stage trains on."""
        return (*self.problems.train, *self.problems.sft)

    @property
    def plan(self) -> SamplingPlan:
        """How RL samples; greedy-free defaults where there is no RL."""
        if self.rl is None:
            return SamplingPlan(temperature=1.0, response_tokens=self.response_tokens, stop_ids=self.task.stop_ids)
        return SamplingPlan(
            temperature=self.rl.sampling.temperature,
            top_p=self.rl.sampling.top_p,
            response_tokens=self.rl.sampling.response_tokens,
            stop_ids=self.task.stop_ids,
        )

    @property
    def prompt_ids(self) -> Mapping[str, tuple[int, ...]]:
        """Problem id -> prompt token ids."""
        return {name: prompt.token_ids for name, prompt in self.task.prompts.items()}
