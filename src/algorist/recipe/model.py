"""A recipe: everything a run needs to know, as one frozen tree of the rooms' settings."""

from __future__ import annotations

from pydantic import Field

from algorist.config import COSMETIC, Config
from algorist.evaluate.config import EvaluateConfig
from algorist.policy.config import PolicyConfig
from algorist.problems.config import ProblemsConfig
from algorist.prompts.config import PromptConfig
from algorist.qualify.config import QualifyConfig
from algorist.reward.config import RewardConfig
from algorist.stages.config import RecordConfig, RLConfig, SFTConfig


class Recipe(Config):
    """What a person writes, complete with defaults."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="Short name; run folders are named after it.",
        json_schema_extra=COSMETIC,
    )
    description: str = Field(default="", description="One sentence for people.", json_schema_extra=COSMETIC)
    seed: int = Field(default=0, ge=0, le=2**53 - 1, description="Every random number of the run derives from it.")
    policy: PolicyConfig = Field(description="The starting model.")
    problems: ProblemsConfig = Field(description="Training and held-out problems.")
    prompt: PromptConfig = Field(default=PromptConfig(), description="How a problem becomes a prompt.")
    reward: RewardConfig = Field(default=RewardConfig(), description="What a verdict is worth.")
    sft: SFTConfig | None = Field(default=None, description="Supervised fine-tuning before RL; null: none.")
    rl: RLConfig | None = Field(default=None, description="Reinforcement learning; null: none.")
    evaluate: EvaluateConfig = Field(default=EvaluateConfig(), description="How the policy is measured.")
    record: RecordConfig = Field(default=RecordConfig(), description="What is written down.")
    qualify: QualifyConfig = Field(default=QualifyConfig(), description="What the run must prove.")
