"""Gold adapters: what each data set writes as its reference answer, to one text and a kind.

`plain` undoes wrappers that carry no meaning (dollars, Python or JSON lists); the functions named after data sets take
a row and say what its gold is.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from algorist.verify import choices

KINDS = ("auto", "number", "expression", "choice", "blanks", "list")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """A reference answer ready to be compared.

    Example:
        >>> Gold(text="42").kind
        'auto'
    """

    text: str
    """The answer."""
    kind: str = "auto"
    """One of KINDS."""
    tolerance: float = 0.0
    """Absolute tolerance for evaluation; a reward ignores it."""


def plain(gold: str, kind: str) -> str:
    """The gold without its container: `['3', '5']` and `["3", "5"]` of kind `list` are `3, 5`.

    >>> plain("['3', '5']", "list")
    '3, 5'
    """
    if kind == "list" and gold.lstrip().startswith("["):
        members = _literal_list(gold)
        if members is not None:
            return ", ".join(members)
    return gold


def is_choice(gold: str) -> bool:
    """True where a gold of kind auto is read as option letters.

    >>> is_choice("(B)"), is_choice("AC"), is_choice("x")
    (True, True, False)
    """
    return choices.of_gold(gold) is not None


def _literal_list(text: str) -> list[str] | None:
    """The strings of a JSON or Python list literal; nothing is evaluated."""
    if len(text) > 4000:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return [str(member) for member in value] if isinstance(value, list) else None


def gsm8k(answer: str) -> Gold:
    """The number after the last ####.

    >>> gsm8k("2+2=<<2+2=4>>4\\n#### 4").text
    '4'
    """
    return Gold(text=answer.rpartition("####")[2].strip(), kind="number")


def olympiadbench(
    final_answer: Sequence[str], *, unit: str | None = None, error: str | None = None, multiple: bool = False
) -> Gold:
    """OlympiadBench: a list of answers, a unit and a tolerance (`error`), any of them missing.

    Several answers, or an entry with commas, are an unordered list. The unit is appended where the text has none.

    >>> olympiadbench(["3", "5"], multiple=True).text
    '3, 5'
    """
    text = ", ".join(entry.strip().strip("$") for entry in final_answer)
    if unit and unit not in text:
        text = f"{text} \\text{{ {unit} }}"
    tolerance = 0.0
    if error:
        try:
            tolerance = float(error.split(",")[0])
        except ValueError:
            tolerance = 0.0
    return Gold(text=text, kind="list" if multiple else "auto", tolerance=tolerance)


def choice(label: str) -> Gold:
    """A letter or several.

    >>> choice("A B D").kind
    'choice'
    """
    return Gold(text=label, kind="choice")


def boxed(solution: str) -> Gold | None:
    """The last box of a worked solution, as MATH has it; None where there is none."""
    from algorist.verify.extract import boxes

    found, _ = boxes(solution)
    return Gold(text=found[-1].text) if found else None


def of_row(row: Mapping[str, object]) -> Gold | None:
    """A guess from field names, for files that nobody described: gold, answer, target, ground_truth, label,
    solution."""
    for name in ("gold", "final_answer", "answer", "target", "ground_truth", "golden", "label", "Answer", "correct"):
        value = row.get(name)
        if isinstance(value, list):
            return olympiadbench([str(member) for member in value], multiple=len(value) > 1)
        if isinstance(value, str | int | float) and str(value).strip():
            text = str(value)
            return gsm8k(text) if "####" in text else Gold(text=text)
    solution = row.get("solution")
    return boxed(solution) if isinstance(solution, str) else None
