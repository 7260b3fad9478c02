"""What a problem file holds: which fields are question and answer, what the golds look like, what cannot be used."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.config import JsonlConfig, ParquetConfig
from algorist.problems.rows import Dropped, read_file
from algorist.problems.split import distinct

_LOOKED_AT = 200
"""Rows that the guess is made from."""
_QUESTION = ("question", "problem", "prompt", "query", "input", "instruction", "task", "text")
_ANSWER = (
    "answer", "gold", "gold_answer", "final_answer", "expected_answer", "ground_truth", "final", "result", "target", "label",
    "expected", "output", "response", "value",
)  # fmt: skip
_SOLUTION = ("solution", "rationale", "worked_solution", "reasoning", "cot", "chain_of_thought", "steps", "explanation")
_SHORT = 40
"""Characters of the longest value of a field that could be an answer."""
_ID = ("id", "uid", "problem_id", "unique_id")
_KINDS = (
    ("whole number", re.compile(r"[-+]?\d{1,3}(,\d{3})+|[-+]?\d+")),
    ("decimal", re.compile(r"[-+]?\d*\.\d+")),
    ("fraction", re.compile(r"[-+]?\d+\s*/\s*\d+|[-+]?\\d?frac\{\d+\}\{\d+\}")),
    ("percent", re.compile(r"[-+]?[\d.]+\s*\\?%")),
    ("choice letter", re.compile(r"\(?[A-Z]\)?")),
)
"""Shapes of short golds; each pattern reads its text once."""

GoldMode = Literal["as_is", "after_hashes", "last_boxed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemFields:
    """Which fields a file keeps its problems in."""

    question: str
    answer: str
    solution: str | None
    id: str | None
    gold: GoldMode
    """Which part of the answer field is the gold."""
    fields: tuple[str, ...]
    """All fields of the first rows."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Fields that nothing is read from."""
        return tuple(name for name in self.fields if name not in (self.question, self.answer, self.solution))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemFacts:
    """What a whole file came to."""

    fields: ProblemFields
    rows: int
    problems: tuple[Problem, ...]
    """One per question, each gold verifying against itself."""
    dropped: tuple[Dropped, ...]
    kinds: Mapping[str, int]
    """Shape of the golds -> how many."""
    num_solutions: int
    """Problems that carry a worked solution."""

    def lines(self) -> list[str]:
        """For people."""
        f = self.fields
        solution = f", worked solution in {f.solution!r} ({self.num_solutions})" if f.solution else ""
        mode = {"as_is": "", "after_hashes": " after ####", "last_boxed": " in the last \\boxed{}"}[f.gold]
        found = [
            f"problems: {self.rows} rows; question in {f.question!r}, answer in {f.answer!r}{mode}{solution}",
            "answers: " + ", ".join(f"{count} {kind}" for kind, count in self.kinds.items()),
        ]
        first_problem = self.problems[0]
        found.append(f"the first: question {_brief(first_problem.question)}, gold {_brief(first_problem.gold)}")
        if unused := f.unused:
            found.append(f"fields not used: {', '.join(unused)}")
        reasons = Counter(row.reason for row in self.dropped)
        for reason, count in reasons.most_common():
            first = next(row for row in self.dropped if row.reason == reason)
            detail = f", {first.detail}" if first.detail else ""
            found.append(f"cannot be used, {reason}: {count} (first: {first.where}{detail})")
        if not self.dropped:
            found.append("every row can be used: no duplicates, no empty fields, every gold verifies against itself")
        return found


def look_at_problems(path: Path, *, question: str | None = None, answer: str | None = None) -> ProblemFields:
    """Guess the fields from names and content of the first rows; given names are taken as they are.

    Raises InputError where the file cannot be read, or where the guess fails: the fields are then listed.
    """
    if not path.is_file():
        got = "that is a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: must be a jsonl or parquet file of problems: {got}. Check the path.")
    rows = _first_rows(path)
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    solution = _named(names, _SOLUTION)
    found_question = question or _named(names, _QUESTION) or _longest(rows, names)
    found_answer = answer or _named(names, _ANSWER)
    if found_answer is None and solution is not None and _holds_the_gold(rows, solution, names, found_question):
        found_answer, solution = solution, None  # the gold stands inside the worked solution
    for given, what in ((found_question, "question"), (found_answer, "answer")):
        if given is None or given not in names:
            got = "no field looks like it" if given is None else f"there is no field {given!r}"
            raise InputError(
                f"{path}: which field holds the {what}? {got}; fields: {', '.join(names) or 'none'}. Say --{what} FIELD."
            )
    assert found_question is not None, "checked above"
    assert found_answer is not None, "checked above"
    return ProblemFields(
        question=found_question,
        answer=found_answer,
        solution=solution if solution != found_answer else None,
        id=_unique(rows, _named(names, _ID)),
        gold=_gold_mode([str(row.get(found_answer, "")) for row in rows]),
        fields=names,
    )


def source_config(
    fields: ProblemFields, path: Path, *, limit: int | None = None, drop: bool = False, shown: str | None = None
) -> JsonlConfig:
    """The recipe's source section for a file. `shown`: the path as the recipe writes it."""
    settings: dict[str, Any] = {
        "path": shown or str(path),
        "question": fields.question,
        "answer": fields.answer,
        "solution": fields.solution,
        "gold": fields.gold,
        "on_bad_row": "drop" if drop else "refuse",
        "limit": limit,
    }
    kind = ParquetConfig if path.suffix == ".parquet" else JsonlConfig
    return kind(**settings)


def examine(path: Path, fields: ProblemFields) -> ProblemFacts:
    """Read the whole file, as a run would. Raises InputError where no row can be used."""
    from algorist.verify import check_gold

    read = read_file(source_config(fields, path.absolute(), drop=True), Path())
    kept, repeated = distinct(read.problems)
    dropped = [*read.dropped, *repeated]
    problems: list[Problem] = []
    for problem, where in kept:
        reason = check_gold(problem.gold, problem.kind)
        if reason is None:
            problems.append(problem)
        else:
            dropped.append(Dropped(reason="gold_refused", where=where, detail=f"gold {problem.gold!r}: {reason}"))
    if not problems:
        first = dropped[0]
        raise InputError(
            f"{path}: no row can be used ({len(dropped)} dropped; first: {first.where}, {first.reason}, {first.detail}). "
            "Correct the file."
        )
    kinds = Counter(kind_of(problem.gold) for problem in problems)
    return ProblemFacts(
        fields=fields,
        rows=len(problems) + len(dropped),
        problems=tuple(problems),
        dropped=tuple(dropped),
        kinds=dict(kinds.most_common()),
        num_solutions=sum(bool(problem.solution) for problem in problems),
    )


def kind_of(gold: str) -> str:
    """The shape of a gold, for people.

    >>> [kind_of(gold) for gold in ("1,204", "-0.5", "3/4", "(B)", "x^2+1", "red")]
    ['whole number', 'decimal', 'fraction', 'choice letter', 'expression', 'text']
    """
    text = gold.strip().strip("$").strip()
    for name, pattern in _KINDS:
        if len(text) < 64 and pattern.fullmatch(text):
            return name
    return "expression" if any(sign in text for sign in "\\^=+*/_{}()[],0123456789") else "text"


def _first_rows(path: Path) -> list[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            batch = next(pq.ParquetFile(path).iter_batches(batch_size=_LOOKED_AT), None)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{path}: is not a readable Parquet file ({error}).") from error
        return [] if batch is None else batch.to_pylist()
    config = JsonlConfig(path=str(path.absolute()), limit=_LOOKED_AT, on_bad_row="drop")
    try:
        read_file(config, Path())  # says what is wrong with encoding, JSON and objects, with the line
    except InputError as error:
        raise InputError(str(error).replace("problems.source.path is relative to the recipe's folder.", "")) from error
    import gzip

    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        lines = (line.decode("utf-8-sig") for line in file if line.strip())
        return [json.loads(line) for line in islice(lines, _LOOKED_AT)]


def _named(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The first wanted name that is there, whatever its case."""
    by_key = {name.casefold(): name for name in reversed(names)}
    return next((by_key[name] for name in wanted if name in by_key), None)


def _longest(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str | None:
    """The text field with the longest texts, where there are several; a question is seldom the shortest."""
    texts = [name for name in names if all(isinstance(row.get(name, ""), str) for row in rows)]
    return max(texts, key=lambda name: sum(len(row.get(name, "")) for row in rows)) if len(texts) > 1 else None


def _holds_the_gold(
    rows: Sequence[Mapping[str, Any]], solution: str, names: Sequence[str], question: str | None
) -> bool:
    """True where worked solutions mark the gold, are golds themselves, or no other field could hold a short answer."""
    texts = [str(row.get(solution, "")) for row in rows]
    if _gold_mode(texts) != "as_is" or all(len(text) <= _SHORT and "=" not in text for text in texts):
        return True
    others = [name for name in names if name not in (solution, question, _named(names, _ID))]
    return not any(all(len(str(row.get(name, ""))) <= _SHORT for row in rows) for name in others)


def _brief(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _unique(rows: Sequence[Mapping[str, Any]], name: str | None) -> str | None:
    if name is None:
        return None
    values = [str(row.get(name, "")) for row in rows]
    return name if len(set(values)) == len(values) and all(values) else None


def _gold_mode(answers: Sequence[str]) -> GoldMode:
    def share(mark: str) -> float:
        return sum(mark in answer for answer in answers) / max(1, len(answers))

    if share("####") >= 0.8:
        return "after_hashes"
    return "last_boxed" if share("\\boxed{") >= 0.8 else "as_is"
