"""How responses are sampled. Read by `rollout/`."""

from __future__ import annotations

from pydantic import Field

from algorist.config import PLACEMENT, Config


class SamplingConfig(Config):
    """The sampling distribution and the response budget."""

    temperature: float = Field(default=1.0, ge=0.0, description="0 takes the likeliest token; RL needs more than 0.")
    top_p: float = Field(
        default=1.0, gt=0.0, le=1.0, description="Keep the smallest set of tokens with this much probability."
    )
    response_tokens: int = Field(ge=1, description="Most tokens a response may have, its stop token included.")
    rows: int = Field(default=256, ge=1, description="Rows decoded side by side.", json_schema_extra=PLACEMENT)
