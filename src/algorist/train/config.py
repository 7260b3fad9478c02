"""How weights move. Read by `train/`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from algorist.config import Config, impossible


class OptimizerConfig(Config):
    """AdamW with a learning-rate schedule that advances with applied updates only."""

    lr: float = Field(gt=0.0, description="Peak learning rate.")
    betas: tuple[float, float] = Field(
        default=(0.9, 0.95), description="Decay of the two moments. (DeepSeekMath 2.3: 0.9, 0.95)"
    )
    eps: float = Field(default=1e-8, gt=0.0, description="Added to the root of the second moment. (Adam's own default)")
    weight_decay: float = Field(
        default=0.0, ge=0.0, description="Decoupled decay of matrices; norms and biases have none."
    )
    clip_norm: float | None = Field(
        default=1.0,
        gt=0.0,
        description="Largest gradient norm over all parameters; null: no clipping. (DeepSeek LLM: 1.0)",
    )
    schedule: Literal["constant", "cosine", "multi_step"] = Field(
        default="constant", description="Shape after the warm-up."
    )
    warmup_updates: int = Field(default=0, ge=0, description="Updates over which the rate rises linearly to lr.")
    milestones: tuple[float, ...] = Field(
        default=(0.8, 0.9),
        description="multi_step: shares of all updates after which the rate drops. (DeepSeekMath 2.3)",
    )
    gamma: float = Field(
        default=0.316,
        gt=0.0,
        le=1.0,
        description="multi_step: factor of each drop; two make 10 %. (DeepSeekMath 2.3: 31.6 %)",
    )
    final_share: float = Field(default=0.0, ge=0.0, le=1.0, description="cosine: share of lr left at the last update.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise impossible(f"betas must lie in [0, 1): got {list(self.betas)}", "Use [0.9, 0.95].", at=["betas"])
        stones = self.milestones
        if any(not 0.0 < m < 1.0 for m in stones) or list(stones) != sorted(set(stones)):
            raise impossible(
                f"milestones must be rising shares between 0 and 1: got {list(stones)}",
                "Use [0.8, 0.9].",
                at=["milestones"],
            )
        return self
