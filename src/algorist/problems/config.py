"""Where problems come from and how they are split. Read by `problems/`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from algorist.config import Config, impossible

Kind = Literal["auto", "number", "expression", "choice", "blanks", "list"]

OPERANDS: Mapping[str, int | None] = {
    "add": 2, "subtract": 2, "multiply": 2, "divide_exact": 2, "chain_sum": None, "mixed_parentheses": None, "gcd": 2,
    "lcm": 2, "modulo": 2, "fraction_add": 4, "compare": 2, "linear_equation": 3, "column_addition": 2,
    "multiply_partial": 2,
}  # fmt: skip
"""Families of the arithmetic generator and how many operands each has; None: as many as `terms`."""
FAMILIES = tuple(OPERANDS)
DEFAULT_TERMS = 3


class FamilyConfig(Config):
    """One family of the arithmetic generator with its difficulty."""

    name: str = Field(description="One of: " + ", ".join(FAMILIES) + ".")
    digits: tuple[int, ...] | None = Field(
        default=None,
        description="Digits of each operand, as [3, 1]; one entry counts for all; null: the family's own.",
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

    @property
    def num_operands(self) -> int:
        """Operands of one problem."""
        return OPERANDS[self.name] or self.terms or DEFAULT_TERMS

    @model_validator(mode="after")
    def _knobs_fit(self) -> Self:
        if self.digits is not None and self.ranges is not None:
            raise impossible("takes digits or ranges, not both", "Keep one of them.", at=["ranges"])
        if self.terms is not None and OPERANDS[self.name] is not None:
            raise impossible(
                f"terms is a knob of chain_sum and mixed_parentheses: got it for {self.name}",
                "Remove it.",
                at=["terms"],
            )
        if self.name == "mixed_parentheses" and self.num_operands < 3:
            raise impossible("terms must be >= 3 for mixed_parentheses: got 2", "Set 3 or more.", at=["terms"])
        for key in ("digits", "ranges"):
            given = getattr(self, key)
            if given is not None and len(given) not in (1, self.num_operands):
                raise impossible(
                    f"{key} must have 1 or {self.num_operands} entries for {self.name}: got {len(given)}",
                    "Give one for all operands, or one for each.",
                    at=[key],
                )
        if any(not 1 <= d <= 12 for d in self.digits or ()):
            raise impossible(
                f"digits must be between 1 and 12: got {list(self.digits or ())}", "Use [2].", at=["digits"]
            )
        for low, high in self.ranges or ():
            if not 0 <= low <= high <= 10**12:
                raise impossible(
                    f"ranges must rise from 0 or more to 10^12 or less: got [{low}, {high}]",
                    "Write the smaller value first.",
                    at=["ranges"],
                )
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
    on_bad_row: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="A row without a usable question or answer: refuse the file, naming each, or drop it and count it.",
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
    efforts: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field(
        default=(),
        description="Levels of reasoning effort: every problem is asked once under each, as a group of its own, with the level in the "
        "prompt where it says {effort}. Empty: none. (DeepSeek-V4.1 eq. 8)",
    )

    @field_validator("efforts")
    @classmethod
    def _distinct(cls, efforts: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(efforts)) < len(efforts):
            raise impossible(f"must differ from each other: got {list(efforts)}", "Name each level once.")
        return efforts
