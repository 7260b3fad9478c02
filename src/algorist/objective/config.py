"""What a recipe may say about an objective: one frozen model per method, discriminated by `name`. Imports no torch.

Every knob is a convention on which public trainers differ; every default names its origin. Combinations that have no
meaning cannot be written down (one `kl_place`, so KL is never subtracted twice) or are refused with the reason.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

Source = Literal["dataset", "sft_samples", "online"]
Need = Literal["logp_ref", "value", "step_rewards", "pairs"]
ReductionKind = Literal["sequence_mean", "token_mean", "group_token_mean", "constant", "pair_mean", "pair_sum"]
Reduction = Literal["sequence_mean", "token_mean", "group_token_mean", "constant"]
Std = Literal["population", "sample", "leave_one_out", "none"]
Baseline = Literal["mean", "leave_one_out", "none"]
KL = Literal["k1", "k2", "k3", "k3_plus", "k3_importance"]
Level = Literal["none", "token", "geometric", "product"]

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Unit = Annotated[float, Field(ge=0, le=1)]


class Frozen(BaseModel):
    """A frozen model that refuses unknown keys, nan and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Correction(Frozen):
    """Weight w = pi_old / mu of the trainer's policy at the start of the update against the stored behaviour log-probs.

    It multiplies the policy term only, carries no gradient, and leaves every denominator as it is.
    """

    kind: Literal["none", "truncate", "mask"] = "none"
    """truncate: min(w, high), and 0 below low. mask: w inside [low, high], else 0."""
    level: Literal["token", "geometric", "product"] = "token"
    """One weight per token, or one per response: the geometric mean or the product of its token weights."""
    carry: Literal["level", "token", "one"] = "level"
    """What a survivor of kind: mask is multiplied by: the tested weight, its own token weight, or 1."""
    low: NonNegative = 0.0
    high: Positive = 2.0  # slime and Miles --tis-clip
    veto: NonNegative = 0.0
    """A response with any token weight below this gets weight 0 everywhere; 0 switches it off."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"correction.low must be below correction.high: got {self.low} and {self.high}")
        if self.kind != "mask" and self.carry != "level":
            raise ValueError(f"correction.carry is read by kind: mask only: got {self.carry} with kind: {self.kind}")
        return self


class Redistribution(Frozen):
    """Groupwise quality redistribution among the correct responses of a mixed group (GAR). MiMo-V2.6 eq. 3."""

    cap: Annotated[float, Field(ge=1)] = 2.0
    """Largest factor lambda; the report says it is capped and not at what."""
    threshold: float = 0.5
    """A row counts as correct above this reward, where no verdict is given."""


class Objective(Frozen):
    """What every method has: how token losses become one number."""

    reduction_rows: Literal["scored", "nonempty", "all"] = "scored"
    """Rows a row mean divides by: those with a reward (an empty response counts), those of them with a trained token,
    or every row of the batch, failed ones included."""
    reduction_constant: int | None = Field(default=None, gt=0)
    """Tokens per row that reduction: constant divides by; the response budget in Dr.GRPO."""
    mask_truncated: bool = False
    """Take the tokens of truncated responses out of the loss and out of its denominator (DAPO overlong filtering)."""

    @model_validator(mode="after")
    def _constant(self) -> Self:
        kind, constant = self.reduction_kind, self.reduction_constant
        if (kind == "constant") != (constant is not None):
            raise ValueError(
                "reduction: constant and reduction_constant (tokens per row, usually the response budget) go together: "
                f"got reduction: {kind} with reduction_constant: {constant}"
            )
        return self

    @property
    def reduction_kind(self) -> ReductionKind:
        """How token losses are weighted; fixed by the method where it has no `reduction` knob."""
        raise NotImplementedError

    @property
    def needs(self) -> frozenset[Need]:
        """What the trainer must supply beyond rewards, groups, mask, logp, logp_old and logp_behaviour."""
        return frozenset()

    @property
    def min_group_size(self) -> int:
        """Fewest rollouts per problem this method can learn from."""
        return 1

    @property
    def reuse(self) -> bool:
        """True where more than one update on the same rollouts is sound (a ratio to logp_old, or offline data)."""
        return True


class ReductionKnob(Objective):
    """The reduction is the recipe's choice."""

    reduction: Reduction

    @property
    def reduction_kind(self) -> ReductionKind:
        return self.reduction


class KLKnobs(Objective):
    """Divergence from a reference policy: one weight, one estimator, one place."""

    beta: NonNegative = 0.0
    """Weight of the divergence from the reference policy; 0 needs no reference."""
    kl: KL = "k3"  # DeepSeekMath eq. 4
    kl_place: Literal["loss", "reward"] = "loss"  # DeepSeekMath 4.1.1: in the loss, not in the reward
    kl_clamp: Positive | None = None
    """Clamp of each token's estimate; its gradient is 0 beyond it (others clamp at 10)."""

    @model_validator(mode="after")
    def _reward_kl(self) -> Self:
        if self.kl_place == "reward" and self.kl not in ("k1", "k2", "k3"):
            raise ValueError(f"kl: {self.kl} names a gradient, and a reward has none: use k1, k2 or k3 in the reward")
        return self

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp_ref"}) if self.beta > 0 else frozenset()


class GroupKnobs(Objective):
    """A baseline made from the group."""

    group_of_one: Literal["refuse", "zero", "raw"] = "refuse"
    """A problem with one rollout has no baseline: refuse it, give it 0, or give it its raw reward."""
    flat_groups: Literal["count", "drop"] = "count"
    """Groups whose rewards are all equal have advantage 0; count: they stay in the denominators, drop: they leave."""
    redistribution: Redistribution | None = None
    """Move advantage among correct responses by their quality."""

    @property
    def min_group_size(self) -> int:
        return 2 if self.group_of_one == "refuse" else 1


class StdKnobs(GroupKnobs):
    """Division by the group's spread."""

    std: Std = "population"  # the paper does not say; its worked example in the annotated seed uses this one
    std_epsilon: NonNegative = 0.0
    """Added to the standard deviation; 0 is safe because flat groups are found by max == min."""


class CorrectionKnob(Objective):
    """Importance correction against the stored behaviour log-probs."""

    correction: Correction = Correction()


class RatioKnobs(CorrectionKnob):
    """A ratio to the policy at the start of the update."""

    log_ratio_clamp: Positive | None = None
    """Clamp of the log ratio before exp, gradient 0 beyond it (others clamp at 20)."""


class ClipKnobs(RatioKnobs):
    """The ratio counts inside [1 - clip_low, 1 + clip_high]."""

    clip_low: Unit = 0.2  # PPO (Schulman et al. 2017); DeepSeekMath does not state its epsilon
    clip_high: NonNegative = 0.2


class DualKnobs(ClipKnobs):
    """A further bound where the advantage is negative."""

    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """c: a negative advantage never counts with a ratio above c (3 in verl)."""


class SurrogateKnobs(ReductionKnob, KLKnobs, DualKnobs):
    """What the clipped surrogate of GRPO and its relatives reads."""


class SFTConfig(ReductionKnob):
    """Supervised fine-tuning. DeepSeekMath eq. 6, 7."""

    name: Literal["sft"] = "sft"
    reduction: Reduction = "sequence_mean"  # eq. 6


class RejectionKnobs(ReductionKnob):
    """Correct responses only."""

    reduction: Reduction = "sequence_mean"  # eq. 8
    wrong_rows: Literal["zero", "drop"] = "zero"
    """zero: wrong rows keep their place in the denominator (eq. 8, 9 as printed); drop: they leave it."""
    threshold: float = 0.5
    """A row counts as correct above this reward, where no verdict is given."""


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
    beta: Positive = 0.1  # Rafailov et al. 2023; DeepSeekMath states none
    length: Literal["mean", "sum"] = "mean"
    """mean: log ratios averaged over each response (eq. 12); sum: the original DPO."""
    threshold: float = 0.5
    """A row counts as correct above this reward, where no verdict is given."""

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
    reduction: Reduction = "sequence_mean"  # eq. 1
    beta: NonNegative = 0.04  # DeepSeekMath 4.2 states it for GRPO
    gamma: Unit = 1.0
    lam: Unit = 0.95  # Schulman et al. 2016
    holes: Literal["jump", "zero"] = "jump"
    """GAE over tokens the policy did not choose: jump over them, or treat them as steps of value 0."""
    whiten: Literal["none", "population", "sample"] = "none"
    """Advantages over all trained tokens of the batch: (A - mean) / std."""
    value_weight: NonNegative = 0.5
    """Factor before (V - return)^2."""
    value_clip: Positive | None = None

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp_ref", "value"}) if self.beta > 0 else frozenset({"value"})


class GRPOConfig(SurrogateKnobs, StdKnobs):
    """GRPO with outcome supervision. DeepSeekMath eq. 3, 4, 4.1.2, 21."""

    name: Literal["grpo"] = "grpo"
    reduction: Reduction = "sequence_mean"  # eq. 3
    beta: NonNegative = 0.04  # DeepSeekMath 4.2


class GRPOProcessConfig(SurrogateKnobs, StdKnobs):
    """GRPO with process supervision: step rewards. DeepSeekMath 4.1.3."""

    name: Literal["grpo_process"] = "grpo_process"
    reduction: Reduction = "sequence_mean"  # eq. 3
    beta: NonNegative = 0.04  # DeepSeekMath 4.2
    kl_place: Literal["loss"] = "loss"
    redistribution: None = None

    @property
    def needs(self) -> frozenset[Need]:
        return super().needs | {"step_rewards"}


class RLOOConfig(ReductionKnob, KLKnobs, GroupKnobs, RatioKnobs):
    """REINFORCE with a leave-one-out baseline. Kool et al. 2019; Ahmadian et al. 2024."""

    name: Literal["rloo"] = "rloo"
    reduction: Reduction = "token_mean"
    kl_place: Literal["loss", "reward"] = "reward"  # Ahmadian et al. 2024
    kl: KL = "k1"  # Ahmadian et al. 2024
    ratio: Level = "none"
    """none: the plain score-function gradient; else an unclipped ratio to logp_old, so that rollouts can be reused."""

    @property
    def reuse(self) -> bool:
        return self.ratio != "none"


class ReinforceConfig(ReductionKnob, KLKnobs, CorrectionKnob):
    """REINFORCE, with no baseline or the batch mean. Williams 1992."""

    name: Literal["reinforce"] = "reinforce"
    reduction: Reduction = "token_mean"
    kl_place: Literal["loss", "reward"] = "reward"
    kl: KL = "k1"
    baseline: Literal["none", "batch_mean"] = "none"
    whiten: Literal["none", "population", "sample"] = "none"
    """(A - mean) / std over all trained tokens of the batch, as REINFORCE++ does."""

    @property
    def reuse(self) -> bool:
        return False


class DrGRPOConfig(SurrogateKnobs, GroupKnobs):
    """GRPO without its two biases: no division by the spread, a constant denominator. Liu et al. 2025 (Dr.GRPO)."""

    name: Literal["dr_grpo"] = "dr_grpo"
    reduction: Reduction = "constant"  # Liu et al. 2025: divide by the response budget


class DAPOConfig(SurrogateKnobs, StdKnobs):
    """Clip-higher, token mean, no KL, flat groups dropped. Yu et al. 2025 (DAPO). Overlong shaping: `rl.shaping`."""

    name: Literal["dapo"] = "dapo"
    reduction: Reduction = "token_mean"  # Yu et al. 2025, eq. 8
    clip_high: NonNegative = 0.28  # Yu et al. 2025, section 4.1
    flat_groups: Literal["count", "drop"] = "drop"  # dynamic sampling keeps mixed groups only


class GSPOConfig(ReductionKnob, KLKnobs, StdKnobs, ClipKnobs):
    """A clipped sequence ratio: the geometric mean of the token ratios. Zheng et al. 2025 (GSPO)."""

    name: Literal["gspo"] = "gspo"
    reduction: Reduction = "sequence_mean"  # Zheng et al. 2025, eq. 5
    clip_low: Unit = 3e-4  # Zheng et al. 2025, section 5.1
    clip_high: NonNegative = 4e-4  # Zheng et al. 2025, section 5.1


class CISPOConfig(ReductionKnob, KLKnobs, StdKnobs, ClipKnobs):
    """Clipped importance weight without gradient times log-probability. MiniMax-M1 2025 (CISPO)."""

    name: Literal["cispo"] = "cispo"
    reduction: Reduction = "token_mean"  # MiniMax-M1 2025, eq. 4
    clip_low: Unit = 1.0  # MiniMax-M1: no lower bound
    clip_high: NonNegative = 0.28
    """A delta: the weight is capped at 1 + clip_high (TRL states the cap itself: 1.28)."""


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
    """The config a mapping with a `name` describes.

    Raises pydantic.ValidationError naming the key and what must hold.

    >>> parse({"name": "rloo"}).reduction_kind
    'token_mean'
    """
    return _ADAPTER.validate_python(value)
