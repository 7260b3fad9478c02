"""What a verdict is worth. Read by `reward/`."""

from __future__ import annotations

from pydantic import Field

from algorist.config import PLACEMENT, Config


class RewardConfig(Config):
    """The reward, by name, and the limits of the verifier behind it."""

    name: str = Field(
        default="exact",
        pattern=r"^[A-Za-z][A-Za-z0-9_-]*$",
        description="exact: 1 for a supported right final answer, else 0. Any other name is an installed entry point "
        "of the group algorist.rewards or a function of the module given with --plugin.",
    )
    deadline_s: float = Field(default=2.0, gt=0.0, description="Seconds after which checking one answer is killed.")
    workers: int = Field(default=1, ge=1, description="Verifier processes.", json_schema_extra=PLACEMENT)
