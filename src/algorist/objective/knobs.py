"""The conventions a recipe can choose from, as sets of knobs that method configs combine. Imports no torch.

Public trainers differ on every one of these; a default with a source names it in parentheses. Combinations without a
meaning cannot be written down (KL has one `kl_place`, so it is never subtracted twice) or are refused with the reason.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from algorist.config import Config, impossible

Source = Literal["dataset", "sft_samples", "online"]
Need = Literal["logp_ref", "value", "step_rewards", "pairs"]
ReductionKind = Literal["sequence_mean", "token_mean", "group_token_mean", "constant", "pair_mean", "pair_sum"]
Reduction = Literal["sequence_mean", "token_mean", "group_token_mean", "constant"]
Std = Literal["population", "sample", "leave_one_out", "none"]
Baseline = Literal["mean", "leave_one_out", "none"]
KL = Literal["k1", "k2", "k3", "k3_plus", "k3_importance"]
Place = Literal["loss", "reward"]
Level = Literal["none", "token", "geometric", "product"]
Whiten = Literal["none", "population", "sample"]

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Unit = Annotated[float, Field(ge=0, le=1)]

THRESHOLD = "A row counts as correct above this reward, where no verdict is given."
BETA = "Weight of the divergence from the reference policy; 0 needs no reference."
WHITEN = "(A - mean) / std over all trained tokens of the batch."
REDUCTION = "How token losses become one number; see docs/algorithms.md."
CLIP_LOW = "The ratio counts down to 1 - clip_low."
CLIP_HIGH = "The ratio counts up to 1 + clip_high."


class Correction(Config):
    """Weight w = pi_old / mu: the trainer's policy at the start of the update against the stored behaviour log-probs.

    It multiplies the policy term only, carries no gradient, and leaves every denominator as it is.
    """

    kind: Literal["none", "truncate", "mask"] = Field(
        default="none", description="truncate: min(w, high), 0 below low; mask: w inside [low, high], else 0."
    )
    level: Literal["token", "geometric", "product"] = Field(
        default="token", description="One weight per token, or per response: geometric mean or product of its tokens'."
    )
    carry: Literal["level", "token", "one"] = Field(
        default="level", description="mask: survivors weigh the tested weight, their own token weight, or 1."
    )
    low: NonNegative = Field(default=0.0, description="Lower bound of w.")
    high: Positive = Field(default=2.0, description="Upper bound of w. (slime, Miles: 2)")
    veto: NonNegative = Field(
        default=0.0, description="A response with any token weight below this weighs 0 everywhere; 0: off."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise impossible(f"low must be below high: got {self.low} and {self.high}", "Lower low.", at=["low"])
        if self.kind != "mask" and self.carry != "level":
            raise impossible(
                f"carry is read by kind: mask only: got {self.carry} with kind: {self.kind}",
                "Remove it, or set kind: mask.",
                at=["carry"],
            )
        return self


class Redistribution(Config):
    """Groupwise quality redistribution among the correct responses of a mixed group (GAR). MiMo-V2.6 eq. 3."""

    cap: Annotated[float, Field(ge=1)] = Field(
        default=2.0, description="Largest factor lambda; the report caps it and does not say where."
    )
    threshold: float = Field(default=0.5, description=THRESHOLD)


class Objective(Config):
    """What every method has: how token losses become one number."""

    reduction_rows: Literal["scored", "nonempty", "all"] = Field(
        default="scored",
        description="Rows that row means divide by: those with a reward (empty responses count), those of them with a "
        "trained token, or every row of the batch, failed ones included.",
    )
    reduction_constant: int | None = Field(
        default=None, gt=0, description="Tokens per row that reduction: constant divides by. (Dr.GRPO: response budget)"
    )
    mask_truncated: bool = Field(
        default=False,
        description="Take truncated responses' tokens out of the loss and of its denominators. (DAPO overlong filter)",
    )

    @model_validator(mode="after")
    def _constant(self) -> Self:
        kind, constant = self.reduction_kind, self.reduction_constant
        if kind == "constant" and constant is None:
            raise impossible(
                "reduction_constant must be set for reduction: constant",
                "Set it to the response budget in tokens.",
                at=["reduction_constant"],
            )
        if kind != "constant" and constant is not None:
            raise impossible(
                f"reduction_constant is read by reduction: constant only: got {constant} with reduction: {kind}",
                "Remove it, or set reduction: constant.",
                at=["reduction_constant"],
            )
        if self.reduction_rows != "scored" and kind in ("token_mean", "pair_mean", "pair_sum"):
            raise impossible(
                f"reduction_rows is read by row and group means only: got {self.reduction_rows} with {kind}",
                "Remove it, or use another reduction.",
                at=["reduction_rows"],
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

    reduction: Reduction = Field(description=REDUCTION)

    @property
    def reduction_kind(self) -> ReductionKind:
        return self.reduction


class KLKnobs(Objective):
    """Divergence from a reference policy: one weight, one estimator, one place."""

    beta: NonNegative = Field(default=0.0, description=BETA)
    kl: KL = Field(default="k3", description="Estimator of the divergence, with its gradient. (DeepSeekMath eq. 4)")
    kl_place: Place = Field(default="loss", description="Where it is subtracted, once. (DeepSeekMath 4.1.1: the loss)")
    kl_clamp: Positive | None = Field(
        default=None, description="Clamp of each token's estimate, gradient 0 beyond it (others clamp at 10)."
    )

    @model_validator(mode="after")
    def _reward_kl(self) -> Self:
        if self.kl_place == "reward" and self.kl not in ("k1", "k2", "k3"):
            raise impossible(
                f"kl must be k1, k2 or k3 in the reward, as {self.kl} names a gradient and a reward has none",
                "Use k1, or kl_place: loss.",
                at=["kl"],
            )
        return self

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"logp_ref"}) if self.beta > 0 else frozenset()


class GroupKnobs(Objective):
    """A baseline made from the group."""

    group_of_one: Literal["refuse", "zero", "raw"] = Field(
        default="refuse", description="A problem with one rollout has no baseline: refuse, advantage 0, or raw reward."
    )
    flat_groups: Literal["count", "drop"] = Field(
        default="count", description="Groups of equal rewards have advantage 0 and stay in the denominators, or leave."
    )
    redistribution: Redistribution | None = Field(
        default=None, description="Move advantage among correct responses by their quality. (MiMo-V2.6 eq. 3)"
    )

    @property
    def min_group_size(self) -> int:
        return 2 if self.group_of_one == "refuse" else 1


class StdKnobs(GroupKnobs):
    """Division by the group's spread."""

    std: Std = Field(
        default="population",
        description="The spread. leave_one_out: mean and sample std of the others. (the paper leaves it open)",
    )
    std_epsilon: NonNegative = Field(
        default=0.0, description="Added to it; 0 is safe, as flat groups are found by max == min."
    )


class CorrectionKnob(Objective):
    """Importance correction against the stored behaviour log-probs."""

    correction: Correction = Field(default=Correction(), description="Importance correction of the policy term.")


class RatioKnobs(CorrectionKnob):
    """A ratio to the policy at the start of the update."""

    log_ratio_clamp: Positive | None = Field(
        default=None, description="Clamp of the log ratio before exp, gradient 0 beyond it (others clamp at 20)."
    )


class ClipKnobs(RatioKnobs):
    """The ratio counts inside [1 - clip_low, 1 + clip_high]."""

    clip_low: Unit = Field(default=0.2, description=f"{CLIP_LOW} (PPO 2017; DeepSeekMath states no value)")
    clip_high: NonNegative = Field(default=0.2, description=f"{CLIP_HIGH} (PPO 2017; DeepSeekMath states no value)")


class DualKnobs(ClipKnobs):
    """A further bound where the advantage is negative."""

    dual_clip: Annotated[float, Field(gt=1)] | None = Field(
        default=None, description="c: a negative advantage never counts with a ratio above c (verl: 3)."
    )


class SurrogateKnobs(ReductionKnob, KLKnobs, DualKnobs):
    """What the clipped surrogate of GRPO and its relatives reads."""


class RejectionKnobs(ReductionKnob):
    """Correct responses only."""

    reduction: Reduction = Field(default="sequence_mean", description=f"{REDUCTION} (DeepSeekMath eq. 8)")
    wrong_rows: Literal["zero", "drop"] = Field(
        default="zero",
        description="Wrong rows keep their place in the denominator, or leave it. (eq. 8, 9: they keep it)",
    )
    threshold: float = Field(default=0.5, description=THRESHOLD)
