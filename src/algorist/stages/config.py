"""The settings of the loops. Read by `stages/`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from algorist.config import COSMETIC, PLACEMENT, Config, impossible
from algorist.objective.config import ObjectiveConfig
from algorist.objective.knobs import Source
from algorist.objective.shaping_config import ShapingConfig
from algorist.rollout.config import SamplingConfig
from algorist.train.config import OptimizerConfig

Quality = Literal["brevity", "arithmetic"]
OFFLINE: Mapping[str, Source] = MappingProxyType({"sft": "dataset", "rft": "sft_samples", "dpo": "sft_samples"})
"""Objectives whose responses are not sampled from the policy being trained; a test keeps it equal to Method.source."""


class SFTConfig(Config):
    """Supervised fine-tuning on worked solutions."""

    one_of: ClassVar[tuple[tuple[str, ...], ...]] = (("steps", "epochs"), ("batch_size", "batch_tokens"))

    steps: int | None = Field(default=None, ge=1, description="Updates.")
    epochs: float | None = Field(default=None, gt=0.0, description="Or passes over the SFT problems.")
    batch_size: int | None = Field(default=None, ge=1, description="Examples per update.")
    batch_tokens: int | None = Field(default=None, ge=1, description="Or tokens per update, packed whole.")
    micro_batch_tokens: int = Field(
        default=16384, ge=1, description="Most tokens in one forward pass.", json_schema_extra=PLACEMENT
    )
    target: Literal["solution", "gold"] = Field(
        default="solution", description="What is imitated: worked solution or bare answer."
    )
    optimizer: OptimizerConfig = Field(description="How weights move.")


class ReferenceConfig(Config):
    """The reference policy of the KL term, where the objective has one."""

    reset_every: int | None = Field(
        default=None,
        ge=1,
        description="Copy the policy into the reference every so many updates; null: never. (Algorithm 1, line 3)",
    )


class ReplayConfig(Config):
    """How closely the trainer must agree with the sampler on stored tokens."""

    statistic: Literal["mean", "p99", "max"] = Field(
        default="mean", description="Which statistic of the differences is bounded."
    )
    nats: float = Field(
        default=0.02, gt=0.0, le=1.0, description="Its bound, in nats per token; more than 1 would hold nothing."
    )
    every: int = Field(default=10, ge=1, description="Checked at update 0 and every so many batches.")


class ProcessConfig(Config):
    """Process supervision: how a response is split into steps, and what a step is worth. DeepSeekMath 4.1.3."""

    scorer: Literal["arithmetic"] = Field(
        default="arithmetic",
        description="arithmetic: 1 where every stated equation of a step holds, 0 where one does not; the last step also "
        "answers for the final answer.",
    )
    unchecked: float | None = Field(
        default=None, description="Reward of a step that states no equation; null: it takes no part."
    )
    separators: tuple[str, ...] = Field(
        default=(),
        description="Strings that end a step besides line ends; none: lines, or the sentences of a single line.",
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if "" in self.separators:
            raise impossible("separators must not hold an empty string", "Remove it.", at=["separators"])
        return self


class RLConfig(Config):
    """Reinforcement learning with verifiable rewards (DeepSeekMath Algorithm 1)."""

    updates: int = Field(ge=1, description="Rollout batches to train on, skipped ones included.")
    prompts_per_batch: int = Field(ge=1, description="P: problems per batch.")
    group_size: int = Field(ge=1, description="G: responses per problem.")
    sampling: SamplingConfig = Field(description="How responses are sampled.")
    objective: ObjectiveConfig = Field(description="The method, by its name, with its knobs.")
    optimizer: OptimizerConfig = Field(description="How weights move.")
    micro_batch_tokens: int = Field(
        default=16384, ge=1, description="Most tokens in one forward pass.", json_schema_extra=PLACEMENT
    )
    epochs_per_batch: int = Field(default=1, ge=1, description="mu: updates on each batch. (DeepSeekMath 4.2: one)")
    max_nonfinite_skips: int = Field(
        default=3, ge=1, description="So many non-finite batches in a row end the run (exit code 4)."
    )
    max_flat_batches: int | None = Field(
        default=20, ge=1, description="So many flat batches in a row end the run with their causes; null: never."
    )
    evaluate_every: int | None = Field(
        default=None, ge=1, description="Evaluate every so many updates; null: before and after only."
    )
    shaping: tuple[ShapingConfig, ...] = Field(
        default=(), description="Changes to the rewards before any baseline, each once; see docs/algorithms.md."
    )
    quality: Quality | None = Field(
        default=None,
        description="What objective.redistribution ranks correct responses by: brevity (shortest / own length) or "
        "arithmetic (share of stated equations that hold).",
    )
    process: ProcessConfig | None = Field(
        default=None, description="How steps are scored, for objectives with step rewards; null: the defaults."
    )
    reference: ReferenceConfig = Field(default=ReferenceConfig(), description="The reference policy of the KL term.")
    replay: ReplayConfig = Field(default=ReplayConfig(), description="The replay check.")

    @property
    def source(self) -> Source:
        """Where responses come from: the data set, the policy as RL found it, or the policy being trained."""
        return OFFLINE.get(self.objective.name, "online")

    @model_validator(mode="after")
    def _trainable_sampling(self) -> Self:
        if self.sampling.top_p < 1.0:
            raise impossible(
                f"sampling.top_p must be 1 in RL, as the trainer does not apply the mask: got {self.sampling.top_p}",
                "Set it to 1; use evaluate.top_p for evaluation.",
                at=["sampling", "top_p"],
            )
        if self.sampling.temperature == 0.0:
            raise impossible(
                "sampling.temperature must be > 0 in RL (greedy responses of a group are all the same): got 0",
                "Use 1.0.",
                at=["sampling", "temperature"],
            )
        return self


class RecordConfig(Config):
    """What a run writes down besides ledger, metrics and rollouts."""

    checkpoint_every: int = Field(
        default=10, ge=1, description="Updates between checkpoints.", json_schema_extra=PLACEMENT
    )
    keep: int = Field(
        default=2, ge=1, description="Checkpoints kept, besides the last verified one.", json_schema_extra=PLACEMENT
    )
    sinks: tuple[Literal["trackio", "wandb", "tensorboard"], ...] = Field(
        default=(),
        description="Further places metrics are copied to; metrics.jsonl is always written.",
        json_schema_extra=COSMETIC,
    )
