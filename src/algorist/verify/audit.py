"""A second opinion on the verdicts of a run: math-verify on a sample of its rollouts, and where the two disagree."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorist.errors import InputError
from algorist.verify.second import SecondOpinion

COLUMNS = ("problem_id", "sample", "gold", "text", "verdict", "reason", "rule", "extracted", "raw_correct")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One stored verdict.

    Example:
        >>> Row(problem_id="p", sample=0, gold="4", text="#### 4", verdict="correct", reason="equal", rule="hashes",
        ...     extracted="4", raw_correct=True).paid
        True
    """

    problem_id: str
    sample: int
    gold: str
    text: str
    verdict: str
    reason: str
    rule: str
    extracted: str
    raw_correct: bool | None

    @property
    def paid(self) -> bool:
        """True where the verdict earns the reward."""
        return self.verdict == "correct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A row that one side pays and the other does not.

    Example:
        >>> row = Row(problem_id="p", sample=0, gold="4", text="", verdict="wrong", reason="different",
        ...     rule="", extracted="5", raw_correct=False)
        >>> Disagreement(row=row, second=True).second
        True
    """

    row: Row
    second: bool
    """What math-verify says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result: how often each verdict met each opinion, and the disagreements.

    Example:
        >>> Audit(rows=2, sampled=2, table={("correct", "yes"): 2}, disagreements=()).agreement
        1.0
    """

    rows: int
    """Rows the run holds with a gold."""
    sampled: int
    """Rows looked at."""
    table: dict[tuple[str, str], int]
    """(verdict, second opinion: yes, no or failed) to count."""
    disagreements: tuple[Disagreement, ...]

    @property
    def agreement(self) -> float:
        """Share of rows with an opinion on which both sides agree about paying."""
        judged = sum(count for (_, second), count in self.table.items() if second != "failed")
        return 1.0 if not judged else 1 - len(self.disagreements) / judged


def load(run: Path) -> list[Row]:
    """All rollouts of a run that carry a gold. Raises InputError where there are none."""
    import pyarrow.parquet as pq

    folder = run / "rollouts" if (run / "rollouts").is_dir() else run
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise InputError(f"{folder}: a run to audit has rollouts/*.parquet: found none. Give the run folder.")
    rows: list[Row] = []
    for file in files:
        known = set(pq.read_schema(file).names)
        missing = sorted(set(COLUMNS) - known)
        if missing:
            raise InputError(
                f"{file}: a rollout file has the columns {', '.join(COLUMNS)}: missing {', '.join(missing)}."
            )
        for record in pq.read_table(file, columns=list(COLUMNS)).to_pylist():
            if record["gold"] is not None:
                rows.append(_row(record))
    if not rows:
        raise InputError(
            f"{folder}: no rollout carries its gold, so nothing can be graded again. Store problems with the rollouts."
        )
    return rows


def _row(record: dict[str, Any]) -> Row:
    return Row(
        problem_id=record["problem_id"],
        sample=record["sample"],
        gold=record["gold"],
        text=record["text"] or "",
        verdict=record["verdict"] or "",
        reason=record["reason"] or "",
        rule=record["rule"] or "",
        extracted=record["extracted"] or "",
        raw_correct=record["raw_correct"],
    )


def run(rows: Sequence[Row], sample: int, seed: int) -> Audit:
    """Ask math-verify about a random sample. It reads the whole response, or the extracted answer where the task
    declared
    a format that math-verify does not know."""
    picked = list(rows) if len(rows) <= sample else random.Random(seed).sample(list(rows), sample)
    table: dict[tuple[str, str], int] = {}
    found: list[Disagreement] = []
    with SecondOpinion() as second:
        pairs = [(row.gold, _shown(row)) for row in picked]
        for row, opinion in zip(picked, second.ask(pairs), strict=True):
            word = "failed" if opinion is None else "yes" if opinion else "no"
            table[row.verdict, word] = table.get((row.verdict, word), 0) + 1
            if opinion is not None and opinion != row.paid:
                found.append(Disagreement(row=row, second=opinion))
    return Audit(rows=len(rows), sampled=len(picked), table=table, disagreements=tuple(found))


def _shown(row: Row) -> str:
    return f"\\boxed{{{row.extracted}}}" if row.rule in ("first_line", "last_number") else row.text
