"""`algorist init MODEL_OR_- PROBLEMS`: look at both, say what was found, write a commented recipe that passes `recipe check`."""

import argparse
import math
import os.path
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from algorist.cli.common import add_json, emit, say
from algorist.errors import AlgoristError, InputError

if TYPE_CHECKING:
    from algorist.cli.look_model import ModelFacts
    from algorist.cli.look_problems import ProblemFacts
    from algorist.cli.write_recipe import Choices
    from algorist.digest import JSON


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "write a commented recipe for your own model and problems, after looking at both"
    parser = subparsers.add_parser("init", help=text, description=text)
    parser.add_argument("model", help="a Hugging Face model folder, or - for a small model from random weights")
    parser.add_argument("problems", type=Path, help="a jsonl or parquet file with questions and answers")
    parser.add_argument(
        "--out", type=Path, default=Path("recipe.yaml"), help="the recipe to write (default recipe.yaml)"
    )
    parser.add_argument("--question", metavar="FIELD", help="field with the question (default: guessed, and said)")
    parser.add_argument(
        "--answer", metavar="FIELD", help="field with the reference answer (default: guessed, and said)"
    )
    add_json(parser)
    parser.set_defaults(func=init_verb)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths in tokens: [median, 95th percentile, longest]."""

    question: tuple[int, int, int]
    answer: tuple[int, int, int]
    """Of worked solutions where there are any, else of golds."""
    of: str
    """solution or gold."""


def init_verb(arguments: argparse.Namespace) -> int:
    """Look, say, write."""
    out: Path = arguments.out
    if out.exists():
        raise InputError(f"{out}: exists, and is never overwritten. Choose another --out.")
    from algorist.cli.look_model import look_at_model
    from algorist.cli.look_problems import examine, look_at_problems
    from algorist.cli.write_recipe import choose, text_of

    fields = look_at_problems(arguments.problems, question=arguments.question, answer=arguments.answer)
    problems = examine(arguments.problems, fields)
    model = None if arguments.model == "-" else look_at_model(Path(arguments.model))
    lengths = measure(problems, model)
    for line in [*(model.lines() if model else ["model: a small one from random weights"]), *problems.lines()]:
        say(line)
    unit = "tokens" if model else "characters (one token each)"
    q, a = lengths.question, lengths.answer
    say(
        f"lengths in {unit}, median / 95 % / longest: question {q[0]} / {q[1]} / {q[2]}, {lengths.of} {a[0]} / {a[1]} / {a[2]}"
    )
    choices = choose(out=out, model=model, problems=problems, lengths=lengths, file=arguments.problems)
    for note in choices.notes:
        say(f"note: {note}")
    write_checked(out, text_of(choices))
    if arguments.json:
        emit(_as_json(out, model, problems, lengths, choices))
        return 0
    print(f"{out}: written. Next:\n  algorist recipe check {out}\n  algorist run {out} --dry-run\n  algorist run {out}")
    return 0


def measure(problems: "ProblemFacts", model: "ModelFacts | None") -> Lengths:
    """Token lengths of questions and answers under the model's tokenizer; characters for a model that is still to come."""
    questions = [p.question for p in problems.problems]
    solved = [p.solution for p in problems.problems if p.solution]
    answers = solved or [p.gold for p in problems.problems]
    return Lengths(
        question=_quantiles(_lengths(questions, model)),
        answer=_quantiles(_lengths(answers, model)),
        of="solution" if solved else "gold",
    )


def _lengths(texts: Sequence[str], model: "ModelFacts | None") -> list[int]:
    if model is None:
        return [len(text) for text in texts]
    return [len(ids) for ids in model.tokenizer(list(texts), add_special_tokens=False).input_ids]


def _quantiles(lengths: Sequence[int]) -> tuple[int, int, int]:
    ordered = sorted(lengths)
    last = len(ordered) - 1
    return ordered[last // 2], ordered[math.ceil(0.95 * last)], ordered[last]


def write_checked(out: Path, text: str) -> None:
    """Put the recipe in place only after it passed what `recipe check` looks at."""
    from algorist.api.runs import load_recipe
    from algorist.record.storage import failures_are_told

    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder. Make it, or choose another --out.")
    trial = out.with_name(f".{out.name}.tmp-{os.getpid()}")
    try:
        with failures_are_told(out):
            trial.write_text(text, encoding="utf-8")
        load_recipe(trial)
        os.link(trial, out)  # fails where somebody else made the file meanwhile
    except FileExistsError as error:
        raise InputError(f"{out}: exists, and is never overwritten. Choose another --out.") from error
    except InputError as error:
        if not str(error).startswith(str(trial)):
            raise
        raise AlgoristError(
            f"init wrote a recipe that does not pass its own check; please report this: {error}"
        ) from error
    finally:
        trial.unlink(missing_ok=True)


def _as_json(
    out: Path, model: "ModelFacts | None", problems: "ProblemFacts", lengths: Lengths, choices: "Choices"
) -> "dict[str, JSON]":
    from collections import Counter

    return {
        "recipe": str(out),
        "model": model.to_json() if model else None,
        "problems": {
            "rows": problems.rows,
            "usable": len(problems.problems),
            "dropped": dict(Counter(row.reason for row in problems.dropped)),
            "question": problems.fields.question,
            "answer": problems.fields.answer,
            "solution": problems.fields.solution,
            "gold": problems.fields.gold,
            "unused": list(problems.fields.unused),
            "first": {"question": problems.problems[0].question, "gold": problems.problems[0].gold},
            "answers": dict(problems.kinds),
        },
        "question_tokens": list(lengths.question),
        f"{lengths.of}_tokens": list(lengths.answer),
        "notes": list(choices.notes),
    }
