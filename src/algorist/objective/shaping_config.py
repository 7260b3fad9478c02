"""What a recipe may say about reward shaping: one frozen model each, discriminated by `name`. Imports no torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from algorist.objective.config import Frozen, NonNegative, Positive, Unit


class LengthDeduction(Frozen):
    """Bounded deduction from long correct responses of groups that mostly succeed. MiMo-V2.6 eq. 4."""

    name: Literal["length_deduction"] = "length_deduction"
    minimum_pass_rate: Unit = 0.25  # restart candidate; strictly above: 2 of 4
    reference_quantile: Unit = 0.5  # restart candidate
    tolerated_excess: NonNegative = 0.1  # restart candidate
    saturation_excess: Positive = 1.0  # restart candidate
    exponent: Annotated[float, Field(ge=1)] = 1.0  # restart candidate
    maximum_deduction: NonNegative = 0.1  # restart candidate

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.saturation_excess <= self.tolerated_excess:
            raise ValueError(
                "saturation_excess must be above tolerated_excess: "
                f"got {self.saturation_excess} and {self.tolerated_excess}"
            )
        return self


class Overlong(Frozen):
    """Linear penalty in the last buffer before the length limit. Yu et al. 2025 (DAPO), eq. 13."""

    name: Literal["overlong"] = "overlong"
    max_tokens: int = Field(gt=0)
    """Length at which the penalty is full (DAPO: 20480)."""
    buffer_tokens: int = Field(gt=0)
    """Tokens before max_tokens over which it grows from 0 (DAPO: 4096)."""
    factor: NonNegative = 1.0  # Yu et al. 2025

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.buffer_tokens > self.max_tokens:
            raise ValueError(
                f"buffer_tokens must not exceed max_tokens: got {self.buffer_tokens} and {self.max_tokens}"
            )
        return self


class EffortLength(Frozen):
    """r_len = -min(C_max, k(b) l / L_norm), k falling exponentially with the effort b. DeepSeek-V4.1 eq. 9, 10.

    The report discloses none of the constants, so none has a default.
    """

    name: Literal["effort_length"] = "effort_length"
    levels: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field(min_length=1)
    """B: the effort levels of training."""
    k0: NonNegative
    """k at the lowest level."""
    norm_tokens: Positive
    """L_norm."""
    maximum: NonNegative
    """C_max."""
    lam: Positive | None = None
    """tau = lam times the mean distance of neighbouring levels."""
    tau: Positive | None = None
    """tau itself; needed where there is one level only."""
    all_failed: Literal["keep", "off"] = "keep"
    """Without a correct response, length is a subgroup's only signal: keep it (as the report does), or switch it off."""

    @model_validator(mode="after")
    def _tau(self) -> Self:
        if len(set(self.levels)) != len(self.levels):
            raise ValueError(f"levels must differ: got {self.levels}")
        if (self.lam is None) == (self.tau is None):
            raise ValueError("give exactly one of lam and tau")
        if self.tau is None and len(self.levels) < 2:
            raise ValueError("lam needs at least two levels (their mean distance is undefined for one): give tau")
        return self


ShapingConfig = Annotated[LengthDeduction | Overlong | EffortLength, Field(discriminator="name")]
"""What `rl.shaping` in a recipe holds: a list of these, applied in order, before the objective's baseline."""
