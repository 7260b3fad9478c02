"""What a run must prove before, while and after it trains. Read by `qualify/`; imports no torch."""

from __future__ import annotations

import difflib
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from algorist.config import PLACEMENT, Config, impossible

Action = Literal["report", "pause", "stop"]


class DataConfig(Config):
    """What must hold for the problems."""

    exclusions: tuple[str, ...] = Field(
        default=(),
        description="Files of problems the policy has seen before (one id or question a line, or jsonl with either "
        "field); they are taken out of training and counted. Relative to the recipe.",
    )
    max_refused_share: float = Field(
        default=0.2, ge=0.0, le=1.0, description="Most rows that may be dropped for a gold that cannot be checked."
    )
    contamination_words: int = Field(
        default=13, ge=4, description="Held-out questions sharing so many words in a row with training are counted."
    )
    max_contaminated_share: float | None = Field(
        default=None, ge=0.0, le=1.0, description="Most held-out questions that may; null: counted only."
    )


class CanaryConfig(Config):
    """Known right and known wrong answers, sent through verifier and reward."""

    problems: int = Field(default=16, ge=1, description="Training problems whose gold is tried, right and spoilt.")


class LengthsConfig(Config):
    """What must hold for prompt lengths."""

    max_dropped_share: float = Field(
        default=0.2, ge=0.0, le=1.0, description="Most problems that may be dropped because they cannot be shown."
    )


class SignalConfig(Config):
    """Whether the rewards of the policy that RL starts from can teach it anything."""

    prompts: int = Field(
        default=32,
        ge=1,
        description="Problems judged by before a run is refused; the first batch counts, more are sampled only if needed.",
    )
    minimum_useful_share: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="Smallest share of groups with unequal rewards. Where the first batch shows less than twice as many, "
        "`prompts` problems are judged.",
    )
    action: Literal["refuse", "report"] = Field(default="refuse", description="What a smaller share does.")


class DeclaredMemory(Config):
    """Memory figures that stand in for a measurement: for a machine that is not here."""

    total_gib: float = Field(gt=0.0, description="Memory of the device.")
    free_gib: float = Field(ge=0.0, description="What the driver reports free before the trainer allocates anything.")
    peak_gib: float = Field(gt=0.0, description="The trainer's peak, measured elsewhere or predicted.")
    tensor: str = Field(default="", description="What dominates that peak.")


class MemoryConfig(Config):
    """Admission: what the machine must offer before the first update."""

    trainer_allocator_cap_gib: float | None = Field(
        default=None, gt=0.0, description="The trainer never allocates more; null: no cap.", json_schema_extra=PLACEMENT
    )
    driver_free_memory_gib: float = Field(
        default=0.0,
        ge=0.0,
        description="What must stay free on the device beside a trainer that uses its whole cap.",
        json_schema_extra=PLACEMENT,
    )
    activation_offload: bool = Field(
        default=False,
        description="Keep only the inputs of decoder layers, off the device, and compute the rest again.",
        json_schema_extra=PLACEMENT,
    )
    declared: DeclaredMemory | None = Field(
        default=None,
        description="Figures instead of a measurement; a run admitted by them alone is never called qualified.",
        json_schema_extra=PLACEMENT,
    )


class CacheConfig(Config):
    """Step-by-step decoding with the key-value cache against one plain forward pass."""

    prompts: int = Field(default=4, ge=1, description="Prompts decoded for the comparison.")
    tokens: int = Field(default=32, ge=1, description="Most response tokens of each.")
    nats: float = Field(default=0.02, gt=0.0, description="Bound on the mean difference per token, in nats.")


class Float32Config(Config):
    """Sharper bounds for float32 policies, where only the order of summation differs (measured: 3e-6 nats, at most 1e-4)."""

    mean_nats: float = Field(default=2e-4, gt=0.0, description="Bound on the mean difference per token, in nats.")
    max_nats: float = Field(default=0.01, gt=0.0, description="Bound on the difference at any token, in nats.")


class Bfloat16Config(Config):
    """A further bound for bfloat16 policies, where rounding is large on single tokens (measured: 0.015 nats, at most 0.2)."""

    row_nats: float = Field(
        default=0.5, gt=0.0, description="Bound on the mean difference over any one response, in nats per token."
    )


class ParametersConfig(Config):
    """Which parameters are trained."""

    frozen: tuple[str, ...] = Field(
        default=(), description="Name patterns of parameters that must not move, as *.mlp.gate.* for routers."
    )


class ParentsConfig(Config):
    """The checkpoints a run starts from; all must carry the same weights as policy.path."""

    step: int | None = Field(default=None, ge=0, description="Training step the parents were saved at.")
    weights: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="Weights digest that policy, reference and serving must have.",
    )
    reference: str | None = Field(default=None, min_length=1, description="Folder of the reference checkpoint.")
    serving: str | None = Field(default=None, min_length=1, description="Folder of the copy that the sampler serves.")


class WatchRule(Config):
    """A figure of metrics.jsonl that must stay on one side of a threshold."""

    one_of: ClassVar[tuple[tuple[str, ...], ...]] = (("above", "below"),)

    figure: str = Field(min_length=1, description="Its name in metrics.jsonl, as response/truncated_share.")
    above: float | None = Field(default=None, description="Trips when the figure is larger.")
    below: float | None = Field(default=None, description="Or when it is smaller.")
    relative: bool = Field(default=False, description="Compare with the mean of the first five batches, as a factor.")
    batches: int = Field(default=5, ge=1, description="Batches in a row before it trips.")
    action: Action = Field(default="report", description="report; pause: save and end with 75; stop: end with 4.")


FIGURES: frozenset[str] = frozenset(
    {
        "advantage/negative_mass", "advantage/positive_mass", "grad_norm", "groups/all_failed", "groups/all_right",
        "groups/all_wrong", "groups/excluded_rows", "groups/length_signal_only", "groups/mixed", "groups/mixed_share",
        "groups/total", "kl/ref_nats", "loss", "lr", "policy/entropy_nats", "policy_version", "response/duplicate_share",
        "response/tokens_max", "response/tokens_mean", "response/truncated_share", "rollouts", "tokens/sampled",
        "tokens/trained", "tokens/with_gradient", "verdict/error_share", "verdict/unsupported_share",
    }
)  # fmt: skip
"""Figures of an RL row of metrics.jsonl that a rule may watch."""
_OPEN = ("drift/", "memory/", "quality/", "replay/", "reward/", "router/", "steps/", "time/")
"""Beginnings of figures whose names follow the recipe."""

DEFAULT_WATCH: tuple[WatchRule, ...] = (
    WatchRule(figure="groups/mixed_share", below=0.05),
    WatchRule(figure="policy/entropy_nats", below=0.01),
    WatchRule(figure="policy/entropy_nats", above=3.0, relative=True),
    WatchRule(figure="response/tokens_mean", above=2.0, relative=True),
    WatchRule(figure="response/truncated_share", above=0.5),
    WatchRule(figure="response/duplicate_share", above=0.9),
    WatchRule(figure="verdict/error_share", above=0.05, batches=2, action="stop"),
    WatchRule(figure="reward/missing_share", above=0.05, batches=2, action="stop"),
    WatchRule(figure="kl/ref_nats", above=10.0),
    WatchRule(figure="grad_norm", above=100.0, relative=True),
    WatchRule(figure="router/max_over_mean", above=8.0),
)
"""What is watched where a recipe says nothing."""


class QualifyConfig(Config):
    """Gates, admission and watch. The replay tolerance is rl.replay."""

    data: DataConfig = Field(default=DataConfig(), description="Problems.")
    canary: CanaryConfig = Field(default=CanaryConfig(), description="Verifier and reward.")
    lengths: LengthsConfig = Field(default=LengthsConfig(), description="Prompt lengths.")
    signal: SignalConfig = Field(default=SignalConfig(), description="Reward contrast at the start of RL.")
    memory: MemoryConfig = Field(default=MemoryConfig(), description="Admission.")
    cache: CacheConfig = Field(default=CacheConfig(), description="Incremental decoding.")
    float32: Float32Config = Field(default=Float32Config(), description="Replay of float32 policies.")
    bfloat16: Bfloat16Config = Field(default=Bfloat16Config(), description="Replay of bfloat16 policies.")
    parameters: ParametersConfig = Field(default=ParametersConfig(), description="The trainable set.")
    parents: ParentsConfig = Field(default=ParentsConfig(), description="Matched starting checkpoints.")
    watch: tuple[WatchRule, ...] = Field(
        default=DEFAULT_WATCH, description="Figures watched in every batch; a list replaces the default one."
    )

    @model_validator(mode="after")
    def _distinct_rules(self) -> Self:
        seen: set[tuple[str, bool, bool]] = set()
        for rule in self.watch:
            key = (rule.figure, rule.above is not None, rule.relative)
            if key in seen:
                raise impossible(
                    f"watch must name a figure once for each side: got {rule.figure} twice", "Keep one.", at=["watch"]
                )
            seen.add(key)
            if rule.figure not in FIGURES and not rule.figure.startswith(_OPEN):
                near = difflib.get_close_matches(rule.figure, FIGURES, n=1)
                raise impossible(
                    f"watch must name a figure of metrics.jsonl: {rule.figure} is none, and would never trip",
                    f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(FIGURES))}.",
                    at=["watch"],
                )
        return self
