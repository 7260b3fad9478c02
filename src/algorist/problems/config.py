"""Where problems come from and how they are split. Read by `problems/`."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from algorist.config import Config, impossible

Kind = Literal["auto", "number", "expression", "choice", "blanks", "list"]

FAMILIES = (
    "add", "subtract", "multiply", "divide_exact", "chain_sum", "mixed_parentheses", "gcd", "lcm", "modulo",
    "fraction_add", "compare", "linear_equation", "column_addition", "multiply_partial",
)  # fmt: skip
"""Families of the arithmetic generator, in the order of `problems/arithmetic.py`."""


class FamilyConfig(Config):
    """One family of the arithmetic generator with its difficulty."""

    name: str = Field(description="add, subtract, multiply, ...; see docs/problems.md.")
    digits: tuple[int, ...] | None = Field(
        default=None, description="Digits of each operand, as [3, 1] for 3-digit times 1-digit; null: the family's own."
    )
    ranges: tuple[tuple[int, int], ...] | None = Field(
        default=None, description="Smallest and largest value of each operand, instead of digits."
    )
    terms: int | None = Field(default=None, ge=2, le=12, description="Terms of chain_sum and mixed_parentheses.")
    weight: float = Field(
        default=1.0, gt=0.0, description="Share of the problems, against the other families' weights."
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in FAMILIES:
            near = difflib.get_close_matches(name, FAMILIES, n=1)
            known = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(FAMILIES)}."
            raise impossible(f"is no family of the arithmetic generator: got {name!r}", known)
        return name

    @model_validator(mode="after")
    def _one_knob(self) -> Self:
        if self.digits is not None and self.ranges is not None:
            raise impossible("takes digits or ranges, not both", "Keep one of them.", at=["ranges"])
        if self.digits is not None and (not self.digits or any(not 1 <= d <= 12 for d in self.digits)):
            raise impossible(f"digits must be between 1 and 12: got {list(self.digits)}", "Use [2, 2].", at=["digits"])
        for low, high in self.ranges or ():
            if low > high:
                raise impossible(f"a range must rise: got [{low}, {high}]", f"Use [{high}, {low}].", at=["ranges"])
        return self


class ArithmeticConfig(Config):
    """Generated problems with exact answers and worked solutions."""

    kind: Literal["arithmetic"] = Field(default="arithmetic", description="The built-in generator.")
    families: tuple[FamilyConfig, ...] = Field(min_length=1, description="Names, or names with their difficulty.")
    count: int | None = Field(
        default=None, ge=1, description="Distinct problems to draw; null: every problem there is."
    )

    @field_validator("families", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple({"name": item} if isinstance(item, str) else item for item in value)
        return value


class ReasoningGymConfig(Config):
    """Any data set of reasoning-gym, by its name."""

    kind: Literal["reasoning_gym"] = Field(default="reasoning_gym", description="The package reasoning-gym.")
    dataset: str = Field(min_length=1, description="Its name there, for example chain_sum.")
    params: dict[str, JsonValue] = Field(default={}, description="Its own settings, passed on as they are.")
    count: int = Field(ge=1, description="Problems to draw.")


class JsonlConfig(Config):
    """One JSON object a line."""

    kind: Literal["jsonl"] = Field(default="jsonl", description="A text file of JSON objects.")
    path: str = Field(min_length=1, description="The file; relative to the recipe.")
    question: str = Field(default="question", description="Field that holds the question.")
    answer: str = Field(default="answer", description="Field that holds the reference answer.")
    solution: str | None = Field(default=None, description="Field with a worked solution, for SFT.")
    family: str | None = Field(default=None, description="Field with the family, for splits by family.")
    id: str | None = Field(
        default=None, description="Field with the source's own id; kept as metadata, must be unique."
    )
    gold: Literal["as_is", "after_hashes", "last_boxed"] = Field(
        default="as_is",
        description="What of the answer field is the gold: all, what follows ####, or the last boxed part.",
    )
    answer_kind: Kind = Field(default="auto", description="How golds are to be read.")
    limit: int | None = Field(default=None, ge=1, description="Read only the first so many rows.")


class ParquetConfig(JsonlConfig):
    """A Parquet file, fields as in jsonl."""

    kind: Literal["parquet"] = Field(default="parquet", description="A Parquet file.")  # type: ignore[assignment]


class DatasetsConfig(JsonlConfig):
    """A Hugging Face data set in a local folder."""

    kind: Literal["datasets"] = Field(default="datasets", description="A folder that datasets can open.")  # type: ignore[assignment]
    split: str | None = Field(default=None, description="Split to read, where the folder has several.")


SourceConfig = Annotated[
    ArithmeticConfig | ReasoningGymConfig | JsonlConfig | ParquetConfig | DatasetsConfig, Field(discriminator="kind")
]
"""Where problems come from, told by `kind`."""


def _as_list(value: Any) -> Any:
    """One source may be written without brackets."""
    return value if value is None or isinstance(value, tuple | list) else (value,)


Sources = Annotated[tuple[SourceConfig, ...], BeforeValidator(_as_list), Field(min_length=1)]
"""One source or several; problems keep the order of the list."""


class HeldoutConfig(Config):
    """The problems that no training stage ever sees."""

    one_of: ClassVar[tuple[tuple[str, ...], ...]] = (("count", "share"),)

    count: int | None = Field(default=None, ge=1, description="How many.")
    share: float | None = Field(default=None, gt=0.0, lt=1.0, description="Or which share of all.")
    by: Literal["content", "family"] = Field(
        default="content", description="content: no question is on both sides; family: no family is."
    )
    source: Sources | None = Field(
        default=None, description="A source of their own, or a list of them; null: split off the training source."
    )


class ProblemsConfig(Config):
    """Training and held-out problems."""

    source: Sources = Field(description="Where the problems come from: one source or a list of them.")
    heldout: HeldoutConfig = Field(description="What is kept out of training.")
    sft_count: int = Field(
        default=0, ge=0, description="Training problems used for SFT, with their solutions, and kept out of RL."
    )
