"""What `rl.objective` in a recipe may say: one frozen model per method, discriminated by `name`. Imports no torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from algorist.config import impossible
from algorist.objective.knobs import (
    BETA,
    CLIP_HIGH,
    CLIP_LOW,
    KL,
    REDUCTION,
    THRESHOLD,
    WHITEN,
    ClipKnobs,
    Correction,
    CorrectionKnob,
    DualKnobs,
    GroupKnobs,
    KLKnobs,
    Level,
    Need,
    NonNegative,
    Objective,
    Place,
    Positive,
    RatioKnobs,
    Redistribution,
    Reduction,
    ReductionKind,
    ReductionKnob,
    RejectionKnobs,
    StdKnobs,
    SurrogateKnobs,
    Unit,
    Whiten,
)

__all__ = [
    "CISPOConfig",
    "Correction",
    "DAPOConfig",
    "DPOConfig",
    "DrGRPOConfig",
    "GRPOConfig",
    "GRPOProcessConfig",
    "GSPOConfig",
    "Objective",
    "ObjectiveConfig",
    "OnlineRFTConfig",
    "PPOConfig",
    "RFTConfig",
    "RLOOConfig",
    "Redistribution",
    "ReinforceConfig",
    "SFTConfig",
    "parse",
]


class SFTConfig(ReductionKnob):
    """Supervised fine-tuning. DeepSeekMath eq. 6, 7."""

    name: Literal["sft"] = "sft"
    reduction: Reduction = Field(default="sequence_mean", description=f"{REDUCTION} (DeepSeekMath eq. 6)")


class RFTConfig(RejectionKnobs):
    """Rejection-sampling fine-tuning on responses sampled once, from the SFT model. DeepSeekMath eq. 8 to 10."""

    name: Literal["rft"] = "rft"


class OnlineRFTConfig(RejectionKnobs):
    """Rejection-sampling fine-tuning on responses of the policy being trained. DeepSeekMath eq. 11."""

    name: Literal["online_rft"] = "online_rft"

    @property
    def reuse(self) -> bool:
        return False


class DPOConfig(Objective):
    """Direct preference optimization on (correct, wrong) pairs. DeepSeekMath eq. 12 to 14."""

    name: Literal["dpo"] = "dpo"
    beta: Positive = Field(
        default=0.1, description="Factor of the log ratios inside sigma. (Rafailov et al. 2023; DeepSeekMath: none)"
    )
    length: Literal["mean", "sum"] = Field(
        default="mean",
        description="Log ratios averaged over each response, or summed as in the original. (DeepSeekMath eq. 12: mean)",
    )
    threshold: float = Field(default=0.5, description=THRESHOLD)

    @property
    def reduction_kind(self) -> ReductionKind:
        return "pair_mean" if self.length == "mean" else "pair_sum"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp_ref", "pairs"})

    @property
    def min_group_size(self) -> int:
        return 2


class PPOConfig(ReductionKnob, DualKnobs):
    """PPO with a value head, GAE and the KL fee in the reward. DeepSeekMath eq. 1, 2, 15 to 18."""

    name: Literal["ppo"] = "ppo"
    reduction: Reduction = Field(default="sequence_mean", description=f"{REDUCTION} (DeepSeekMath eq. 1)")
    beta: NonNegative = Field(
        default=0.04, description="KL fee per token in the reward. (DeepSeekMath 4.2 states it for GRPO)"
    )
    gamma: Unit = Field(default=1.0, description="Discount per token.")
    lam: Unit = Field(default=0.95, description="lambda of GAE. (Schulman et al. 2016)")
    holes: Literal["jump", "zero"] = Field(
        default="jump", description="GAE over tokens the policy did not choose: jump over them, or value 0 there."
    )
    whiten: Whiten = Field(default="none", description=WHITEN)
    value_weight: NonNegative = Field(default=0.5, description="Factor before (V - return)^2.")
    value_clip: Positive | None = Field(
        default=None, description="Hold V this close to its start in a second loss, and take the larger. (PPO2)"
    )

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp_ref", "value"}) if self.beta > 0 else frozenset({"value"})


class GRPOConfig(SurrogateKnobs, StdKnobs):
    """GRPO with outcome supervision. DeepSeekMath eq. 3, 4, 4.1.2, 21."""

    name: Literal["grpo"] = "grpo"
    reduction: Reduction = Field(default="sequence_mean", description=f"{REDUCTION} (DeepSeekMath eq. 3)")
    beta: NonNegative = Field(default=0.04, description=f"{BETA} (DeepSeekMath 4.2)")


class GRPOProcessConfig(SurrogateKnobs, StdKnobs):
    """GRPO with process supervision: step rewards. DeepSeekMath 4.1.3."""

    name: Literal["grpo_process"] = "grpo_process"
    reduction: Reduction = Field(default="sequence_mean", description=f"{REDUCTION} (DeepSeekMath eq. 3)")
    beta: NonNegative = Field(default=0.04, description=f"{BETA} (DeepSeekMath 4.2)")
    kl_place: Literal["loss"] = Field(default="loss", description="In the loss only: steps have no response reward.")
    std: Literal["population", "sample", "none"] = Field(
        default="population", description="The spread of all step rewards of the group. (the paper leaves it open)"
    )
    redistribution: None = Field(default=None, description="Not defined for step rewards.")

    @property
    def needs(self) -> frozenset[Need]:
        return super().needs | {"step_rewards"}


class RLOOConfig(ReductionKnob, KLKnobs, GroupKnobs, RatioKnobs):
    """REINFORCE with a leave-one-out baseline, no clip. Kool et al. 2019; Ahmadian et al. 2024."""

    name: Literal["rloo"] = "rloo"
    reduction: Reduction = Field(default="token_mean", description=REDUCTION)
    kl: KL = Field(default="k1", description="Estimator of the divergence. (Ahmadian et al. 2024)")
    kl_place: Place = Field(default="reward", description="Where it is subtracted, once. (Ahmadian et al. 2024)")
    ratio: Level = Field(
        default="none",
        description="none: the plain score-function gradient; else an unclipped ratio, so that rollouts can be reused.",
    )

    clip: Unit | None = Field(
        default=None, description="PPO clip of the ratio; null: none, which is RLOO. (TRL clips the product at 0.2)"
    )

    @model_validator(mode="after")
    def _needs_ratio(self) -> Self:
        for key, value in (("log_ratio_clamp", self.log_ratio_clamp), ("clip", self.clip)):
            if self.ratio == "none" and value is not None:
                raise impossible(
                    f"{key} needs a ratio: got {value} with ratio: none",
                    "Remove it, or set ratio: token.",
                    at=[key],
                )
        return self

    @property
    def reuse(self) -> bool:
        return self.ratio != "none"


class ReinforceConfig(ReductionKnob, KLKnobs, CorrectionKnob):
    """REINFORCE, with no baseline or the batch mean. Williams 1992."""

    name: Literal["reinforce"] = "reinforce"
    reduction: Reduction = Field(default="token_mean", description=REDUCTION)
    kl: KL = Field(default="k1", description="Estimator of the divergence, with its gradient.")
    kl_place: Place = Field(default="reward", description="Where it is subtracted, once.")
    baseline: Literal["none", "batch_mean"] = Field(
        default="none", description="Subtracted from each reward: nothing, or the mean of the batch's scored rows."
    )
    whiten: Whiten = Field(default="none", description=f"{WHITEN} (REINFORCE++)")

    @property
    def reuse(self) -> bool:
        return False


class DrGRPOConfig(SurrogateKnobs, GroupKnobs):
    """GRPO without its two biases: no division by the spread, a constant denominator. Liu et al. 2025 (Dr.GRPO)."""

    name: Literal["dr_grpo"] = "dr_grpo"
    reduction: Reduction = Field(default="constant", description=f"{REDUCTION} (Liu et al. 2025)")


class DAPOConfig(SurrogateKnobs, StdKnobs):
    """Clip-higher, token mean, no KL, mixed groups only. Yu et al. 2025 (DAPO). Overlong shaping: `rl.shaping`."""

    name: Literal["dapo"] = "dapo"
    reduction: Reduction = Field(default="token_mean", description=f"{REDUCTION} (Yu et al. 2025, eq. 8)")
    clip_high: NonNegative = Field(default=0.28, description=f"{CLIP_HIGH} (Yu et al. 2025, 4.1)")
    flat_groups: Literal["count", "drop"] = Field(
        default="drop", description="Groups of equal rewards stay in the denominators, or leave. (Yu et al. 2025, 3.2)"
    )


class GSPOConfig(ReductionKnob, KLKnobs, StdKnobs, ClipKnobs):
    """A clipped sequence ratio: the geometric mean of the token ratios. Zheng et al. 2025 (GSPO)."""

    name: Literal["gspo"] = "gspo"
    reduction: Reduction = Field(default="sequence_mean", description=f"{REDUCTION} (Zheng et al. 2025, eq. 5)")
    clip_low: Unit = Field(default=3e-4, description=f"{CLIP_LOW} (Zheng et al. 2025, 5.1)")
    clip_high: NonNegative = Field(default=4e-4, description=f"{CLIP_HIGH} (Zheng et al. 2025, 5.1)")


class CISPOConfig(ReductionKnob, KLKnobs, StdKnobs, ClipKnobs):
    """Clipped importance weight without gradient times log-probability. MiniMax-M1 2025 (CISPO)."""

    name: Literal["cispo"] = "cispo"
    reduction: Reduction = Field(default="token_mean", description=f"{REDUCTION} (MiniMax-M1, eq. 4)")
    clip_low: Unit = Field(default=1.0, description=f"{CLIP_LOW} 1: no lower bound. (MiniMax-M1)")
    clip_high: NonNegative = Field(
        default=0.28, description="The weight is capped at 1 + clip_high (TRL states the cap itself: 1.28)."
    )


ObjectiveConfig = Annotated[
    SFTConfig
    | RFTConfig
    | OnlineRFTConfig
    | DPOConfig
    | PPOConfig
    | GRPOConfig
    | GRPOProcessConfig
    | RLOOConfig
    | ReinforceConfig
    | DrGRPOConfig
    | DAPOConfig
    | GSPOConfig
    | CISPOConfig,
    Field(discriminator="name"),
]
"""What `rl.objective` in a recipe holds."""

_ADAPTER: TypeAdapter[Objective] = TypeAdapter(ObjectiveConfig)


def parse(value: object) -> Objective:
    """The config that a mapping with a `name` describes.

    Raises pydantic.ValidationError naming the key and what must hold.

    >>> parse({"name": "rloo"}).reduction_kind
    'token_mean'
    """
    return _ADAPTER.validate_python(value)
