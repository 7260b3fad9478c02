"""Prior exposure: problems the policy has seen before are taken out of training, each with its place and reason."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.load import ProblemSet
from algorist.problems.rows import Dropped
from algorist.problems.split import question_key


def exclude(problems: ProblemSet, files: Sequence[str], base: Path) -> ProblemSet:
    """`problems` without those that a file lists by id or by question, in training, SFT and held-out parts alike.

    A file holds one id or question a line, or JSON objects with `id` or `question`. Raises InputError for a file that is
    missing, empty or malformed, and for exclusions that leave nothing to train on.
    """
    if not files:
        return problems
    ids: dict[str, str] = {}
    for name in files:
        for place, key in _entries(base / name):
            ids.setdefault(key, place)

    def listed(problem: Problem) -> str | None:
        known = dict(problem.metadata)
        of_any_effort = problem.id.removesuffix(f"-e{known.get('effort', '')}")
        keys = (of_any_effort, problem.id, known.get("id", ""), question_key(problem.question))
        return next((ids[key] for key in keys if key and key in ids), None)

    dropped: list[Dropped] = []

    def keep(part: tuple[Problem, ...]) -> tuple[Problem, ...]:
        kept = []
        for problem in part:
            place = listed(problem)
            if place is None:
                kept.append(problem)
            else:
                detail = f"listed at {place}"
                dropped.append(Dropped(reason="prior_exposure", where=f"{problem.source} {problem.id}", detail=detail))
        return tuple(kept)

    train, sft, heldout = keep(problems.train), keep(problems.sft), keep(problems.heldout)
    if not train and not sft:
        raise InputError(
            f"qualify.data.exclusions: the {len(ids)} listed problems leave nothing to train on. Give more problems, or check "
            "that the lists are those of this policy."
        )
    report = replace(
        problems.report,
        train=len(train),
        sft=len(sft),
        heldout=len(heldout),
        dropped=(*problems.report.dropped, *dropped),
    )
    return replace(problems, train=train, sft=sft, heldout=heldout, report=report)


def _entries(path: Path) -> list[tuple[str, str]]:
    """(place, key) of every line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: must be a readable list of seen problems (qualify.data.exclusions): {error}. Give the file, or drop it."
        ) from error
    found = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        keys = [] if not text else _of_json(text, f"{path}:{number}") if text.startswith("{") else [_of_text(text)]
        found += [(f"{path.name}:{number}", key) for key in keys]
    if not found:
        raise InputError(
            f"{path}: must list at least one seen problem, it is empty. Drop it from qualify.data.exclusions."
        )
    return found


def _of_text(text: str) -> str:
    """An id as it is; of a question what makes two questions the same."""
    return text if len(text) == 16 and " " not in text else question_key(text)


def _of_json(text: str, place: str) -> list[str]:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise InputError(f"{place}: must be a JSON object with id or question: {error}") from error
    keys = [str(row["id"])] if type(row.get("id")) in (str, int) and row["id"] != "" else []
    keys += [question_key(row["question"])] if isinstance(row.get("question"), str) else []
    if not keys:
        raise InputError(f"{place}: must hold id or question, it holds {', '.join(map(str, row)) or 'nothing'}.")
    return keys
