"""How a policy is measured. Read by `evaluate/`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from algorist.config import Config, impossible


class EvaluateConfig(Config):
    """Greedy accuracy, mean@k, pass@k and maj@k on held-out problems."""

    problems: int | None = Field(default=None, ge=1, description="Held-out problems to use; null: all of them.")
    samples: int = Field(default=4, ge=1, description="Sampled responses per problem, besides the greedy one.")
    ks: tuple[int, ...] = Field(default=(1, 4), description="The k of pass@k and maj@k; none above samples.")
    greedy: bool = Field(default=True, description="Also measure the likeliest response.")
    temperature: float = Field(default=1.0, gt=0.0, description="Temperature of the sampled responses.")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="Top-p of the sampled responses.")
    response_tokens: int | None = Field(
        default=None, ge=1, description="Response budget; null: the one of rl.sampling."
    )
    confidence: float = Field(default=0.95, gt=0.0, lt=1.0, description="Coverage of every interval.")
    bootstrap: int = Field(
        default=2000, ge=100, description="Resamples over problems for the intervals of sampled measures."
    )

    @model_validator(mode="after")
    def _ks_fit(self) -> Self:
        if not self.ks or min(self.ks) < 1 or list(self.ks) != sorted(set(self.ks)):
            raise impossible(
                f"ks must be rising whole numbers from 1 on: got {list(self.ks)}", "Use [1, 4].", at=["ks"]
            )
        if max(self.ks) > self.samples:
            raise impossible(
                f"ks must not exceed samples ({self.samples}): got {max(self.ks)}",
                f"Set samples to {max(self.ks)} or drop that k.",
                at=["ks"],
            )
        return self
