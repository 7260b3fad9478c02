"""A look at somebody's problem file: which field is what. A guess with its reasons, for a recipe to be written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from algorist.errors import InputError
from algorist.problems.config import DatasetsConfig, JsonlConfig, ParquetConfig
from algorist.problems.rows import Row, last_boxed, raw_rows

_QUESTION = ("question", "problem", "prompt", "query", "instruction", "input", "text")
_ANSWER = (
    "answer", "final_answer", "gold", "gold_answer", "expected_answer", "final", "result", "target", "ground_truth", "label",
    "expected", "output", "value", "solution",
)  # fmt: skip
_SOLUTION = ("solution", "rationale", "steps", "reasoning", "explanation", "cot", "chain_of_thought")
_FAMILY = ("family", "type", "subject", "category", "topic", "subfield")
_ID = ("id", "unique_id", "uuid", "idx", "index", "problem_id")
_SAMPLE = 2_000
"""Rows that are looked at."""
_MOST = 0.9
"""Share of rows that must show a mark for it to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was found in a problem file."""

    source: JsonlConfig
    """Settings that read it, path as given."""
    fields: tuple[str, ...]
    """Fields of the first row."""
    rows: int
    """Rows looked at."""
    more: bool
    """True where the file goes on after them."""
    notes: tuple[str, ...]
    """The guesses and their reasons, in words."""


def look(path: Path) -> Look:
    """Guess how to read a .jsonl, .jsonl.gz or .parquet file, or a folder of `datasets`.

    Raises InputError where the file is malformed, or where no field can be taken for the question or the answer.
    """
    blank = _blank(path)
    sample = list(islice(raw_rows(blank, path), _SAMPLE + 1))
    more, sample = len(sample) > _SAMPLE, sample[:_SAMPLE]
    if not sample:
        raise InputError(f"{path}: holds no rows. Give a file with at least one problem.")
    fields = tuple(map(str, sample[0].value))
    question = _pick(_QUESTION, fields, sample)
    answer = _pick([name for name in _ANSWER if name != question], fields, sample)
    if question is None or answer is None:
        what = "question" if question is None else "answer"
        known = ", ".join(_QUESTION if question is None else _ANSWER)
        raise InputError(
            f"{path}: no field can be taken for the {what}; fields here: {', '.join(fields)}. "
            f"Rename one to {known}, or name it in problems.source.{what}."
        )
    notes = [f"question: field {question!r}", f"answer: field {answer!r}"]
    gold = _gold_mark([str(row.value[answer]) for row in sample])
    if gold != "as_is":
        mark = "what follows ####" if gold == "after_hashes" else "the last \\boxed{...}"
        notes.append(f"gold: {mark} in {answer!r}, which most rows have; the whole field serves as worked solution")
    found: dict[str, str | None] = {}
    for key, names in (("solution", _SOLUTION), ("family", _FAMILY), ("id", _ID)):
        found[key] = _pick([name for name in names if name not in (question, answer)], fields, sample)
    if found["id"] is not None and _repeats(found["id"], sample):
        notes.append(f"field {found['id']!r} repeats, so it is not used as id")
        found["id"] = None
    notes += [f"{key}: field {name!r}" for key, name in found.items() if name is not None]
    settings: Mapping[str, object] = {"question": question, "answer": answer, "gold": gold, **found}
    source = blank.model_copy(update=dict(settings))
    return Look(source=source, fields=fields, rows=len(sample), more=more, notes=tuple(notes))


def _blank(path: Path) -> JsonlConfig:
    if path.is_dir():
        return DatasetsConfig(path=str(path))
    return ParquetConfig(path=str(path)) if path.suffix == ".parquet" else JsonlConfig(path=str(path))


def _pick(names: Sequence[str], fields: Sequence[str], sample: Sequence[Row]) -> str | None:
    """The first of the usual names that most rows fill with a text or a number; upper and lower case are alike."""
    for name in names:
        for field in fields:
            if field.lower() == name and _filled(field, sample) >= _MOST:
                return field
    return None


def _filled(field: str, sample: Sequence[Row]) -> float:
    values = [row.value.get(field) for row in sample]
    good = sum(isinstance(v, str | int | float) and not isinstance(v, bool) and bool(str(v).strip()) for v in values)
    return good / len(sample)


def _gold_mark(answers: Sequence[str]) -> Literal["as_is", "after_hashes", "last_boxed"]:
    if sum("####" in text for text in answers) >= _MOST * len(answers):
        return "after_hashes"
    if sum(bool(last_boxed(text)) for text in answers) >= _MOST * len(answers):
        return "last_boxed"
    return "as_is"


def _repeats(field: str, sample: Sequence[Row]) -> bool:
    values = [str(row.value.get(field)) for row in sample]
    return len(set(values)) < len(values)
