"""What `rl.shaping` in a recipe may say: one frozen model each, discriminated by `name`. Imports no torch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from algorist.config import Config, impossible
from algorist.objective.knobs import NonNegative, Positive, Unit


class LengthDeduction(Config):
    """Bounded deduction from long correct responses of groups that mostly succeed. MiMo-V2.6 eq. 4."""

    name: Literal["length_deduction"] = "length_deduction"
    minimum_pass_rate: Unit = Field(
        default=0.25, description="Only groups strictly above it: 2 of 4. (restart candidate)"
    )
    reference_quantile: Unit = Field(
        default=0.5, description="l* is this quantile of the correct lengths. (restart candidate)"
    )
    tolerated_excess: NonNegative = Field(
        default=0.1, description="Share above l* that costs nothing. (restart candidate)"
    )
    saturation_excess: Positive = Field(
        default=1.0, description="Share above l* that costs the most. (restart candidate)"
    )
    exponent: Annotated[float, Field(ge=1)] = Field(
        default=1.0, description="Shape between the two. (restart candidate)"
    )
    maximum_deduction: NonNegative = Field(default=0.1, description="The most that is deducted. (restart candidate)")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.saturation_excess <= self.tolerated_excess:
            raise impossible(
                f"saturation_excess must be above tolerated_excess: got {self.saturation_excess} and "
                f"{self.tolerated_excess}",
                "Raise saturation_excess.",
                at=["saturation_excess"],
            )
        return self


class Overlong(Config):
    """Linear penalty in the last buffer before the length limit. Yu et al. 2025 (DAPO), eq. 13."""

    name: Literal["overlong"] = "overlong"
    max_tokens: int = Field(gt=0, description="Length at which the penalty is full. (DAPO: 20480)")
    buffer_tokens: int = Field(gt=0, description="Tokens before max_tokens over which it grows from 0. (DAPO: 4096)")
    factor: NonNegative = Field(default=1.0, description="The full penalty. (DAPO)")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.buffer_tokens > self.max_tokens:
            raise impossible(
                f"buffer_tokens must not exceed max_tokens: got {self.buffer_tokens} and {self.max_tokens}",
                "Lower buffer_tokens.",
                at=["buffer_tokens"],
            )
        return self


class EffortLength(Config):
    """r_len = -min(C_max, k(b) l / L_norm), k falling exponentially with the effort b. DeepSeek-V4.1 eq. 9, 10.

    The report discloses none of the constants, so none has a default.
    """

    one_of: ClassVar[tuple[tuple[str, ...], ...]] = (("lam", "tau"),)

    name: Literal["effort_length"] = "effort_length"
    levels: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field(
        min_length=1, description="B: the effort levels of training."
    )
    k0: NonNegative = Field(description="k at the lowest level.")
    norm_tokens: Positive = Field(description="L_norm.")
    maximum: NonNegative = Field(description="C_max.")
    lam: Positive | None = Field(default=None, description="tau = lam times the mean distance of neighbouring levels.")
    tau: Positive | None = Field(default=None, description="Or tau itself; needed where there is one level only.")
    all_failed: Literal["keep", "off"] = Field(
        default="keep",
        description="Without a correct response, length is the only signal: keep it, or switch it off. (V4.1: keep)",
    )

    @model_validator(mode="after")
    def _levels(self) -> Self:
        if len(set(self.levels)) != len(self.levels):
            raise impossible(f"levels must differ: got {list(self.levels)}", "Name each level once.", at=["levels"])
        if self.tau is None and len(self.levels) < 2:
            raise impossible(
                "lam needs two levels or more (one has no mean distance to its neighbours): got one",
                "Give tau instead.",
                at=["lam"],
            )
        return self


ShapingConfig = Annotated[LengthDeduction | Overlong | EffortLength, Field(discriminator="name")]
"""What `rl.shaping` in a recipe holds: a list of these. All look at the rewards as given, so their order is free."""
