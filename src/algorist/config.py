"""What all settings have in common: frozen, strict, unknown keys refused. Torch-free."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator
from pydantic_core import PydanticCustomError

PLACEMENT: dict[str, JsonValue] = {"affects": "placement"}
"""json_schema_extra of a key that changes speed and memory, never a result."""
COSMETIC: dict[str, JsonValue] = {"affects": "cosmetic"}
"""json_schema_extra of a key that changes neither."""


class Config(BaseModel):
    """Base of every settings model. Values are not coerced: "3" is no number, 1 is no truth value; an int is a float.

    >>> class Example(Config):
    ...     rate: float = 1.0
    >>> Example(rate=2)
    Example(rate=2.0)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Sets of keys of which exactly one must be given. Giving one drops the others that a recipe inherits."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        for names in self.one_of:
            given = [name for name in names if getattr(self, name) is not None]
            if len(given) != 1:
                got = "none" if not given else " and ".join(given)
                fix = "Keep one of them." if given else "Add one of them."
                raise impossible(f"needs exactly one of {', '.join(names)}: got {got}", fix, at=given[-1:])
        return self


def impossible(message: str, fix: str, at: list[str] | tuple[str, ...] = ()) -> PydanticCustomError:
    """A combination of values that cannot work, for a validator to raise.

    at: path, below the raising model, of the key to point at. A message that starts with that path reads as
    "section.key must ..."; any other reads as "section message".
    """
    context = {"message": message, "fix": fix, "at": tuple(at)}
    return PydanticCustomError("impossible", "{message}. {fix}", context)
