"""`algorist sample MODEL_OR_RUN "question"`: try a trained model; without a question, a conversation of single questions."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from algorist.cli.common import add_json, emit, say
from algorist.cli.run import set_threads
from algorist.errors import InputError

if TYPE_CHECKING:
    from algorist.api.ask import Answer
    from algorist.digest import JSON


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "ask a trained model, prompted as in its training"
    parser = subparsers.add_parser("sample", help=text, description=text)
    parser.add_argument("model", type=Path, help="a run folder, its export, or a Hugging Face model folder")
    parser.add_argument("question", nargs="?", help="what to ask; without it, lines of standard input are asked")
    parser.add_argument("-n", "--n", type=int, default=4, help="responses per question (default 4)")
    parser.add_argument("--greedy", action="store_true", help="the likeliest response only")
    parser.add_argument("--temperature", type=float, default=1.0, help="default 1")
    parser.add_argument("--top-p", type=float, default=1.0, help="default 1")
    parser.add_argument("--response-tokens", type=int, help="most tokens of a response (default: as in the run)")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal responses")
    parser.add_argument("--gold", help="the right answer: each response gets its verdict")
    parser.add_argument(
        "--effort", type=int, help="the level to ask for, where the model was trained with problems.efforts"
    )
    parser.add_argument("--show-prompt", action="store_true", help="print the prompt as the model sees it")
    parser.add_argument("--threads", type=int, help="CPU threads (default: the cores this process may use)")
    add_json(parser)
    parser.set_defaults(func=sample_verb)


def sample_verb(arguments: argparse.Namespace) -> int:
    """Ask and show."""
    if arguments.question is None and arguments.json and sys.stdin.isatty():
        raise InputError("sample --json needs a question, or questions on standard input, one a line.")
    from algorist.api.ask import sample
    from algorist.api.model import open_model

    set_threads(arguments.threads)
    model = open_model(arguments.model)
    say(f"model: {model.folder}, prompts {model.prompt_from}")
    shown: list[JSON] = []
    wrong = 0
    single = arguments.question is not None
    for question in _questions(arguments.question):
        try:
            answers = sample(
                model,
                question,
                n=1 if arguments.greedy else arguments.n,
                temperature=0.0 if arguments.greedy else arguments.temperature,
                top_p=arguments.top_p,
                response_tokens=arguments.response_tokens,
                gold=arguments.gold,
                effort=arguments.effort,
                seed=arguments.seed,
            )
        except InputError as error:
            if single:
                raise
            say(f"algorist: {error}")  # in a conversation the next question may be better
            wrong += 1
            continue
        if arguments.show_prompt:
            say(model.renderer.text(question, str(arguments.effort or "")))
        if arguments.json:
            shown.append({"question": question, "answers": _as_json(answers)})
        else:
            _print(question if not single else "", answers)
    if arguments.json:
        emit({"model": str(model.folder), "prompts": model.prompt_from, "questions": shown})
    return 2 if wrong and not sys.stdin.isatty() else 0


def _questions(given: str | None) -> Iterator[str]:
    """The question, or lines from standard input; on a terminal they are asked for until an empty line."""
    if given is not None:
        yield given
        return
    terminal = sys.stdin.isatty()
    if not terminal:
        say("reading questions from standard input, one a line, to its end")
    if terminal:
        say("Ask a question; an empty line or Ctrl-D ends.")
    while True:
        if terminal:
            sys.stderr.write("? ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line or (terminal and not line.strip()):
            return
        if line.strip():
            yield line.strip()


def _print(question: str, answers: "Sequence[Answer]") -> None:
    if question:
        print(question)
    width = len(str(len(answers)))
    for number, answer in enumerate(answers, start=1):
        lines = answer.text.strip("\n").splitlines() or [""]
        mark = ""
        if answer.verdict is not None:
            mark = f"  [{answer.verdict.verdict.value}: {answer.verdict.reason}]"
        end = (
            ""
            if answer.finish == "stop"
            else "  [cut off at the response budget]"
            if answer.finish == "length"
            else "  [error]"
        )
        indent = " " * (width + 2)
        body = f"\n{indent}".join(lines)
        print(f"{number:>{width}}  {body}{end}{mark}")


def _as_json(answers: "Sequence[Answer]") -> "list[JSON]":
    return [
        {
            "text": a.text,
            "finish": a.finish.value,
            "tokens": a.num_tokens,
            "logp": a.logp,
            "verdict": None if a.verdict is None else a.verdict.verdict.value,
            "reason": None if a.verdict is None else a.verdict.reason,
            "extracted": None if a.verdict is None else a.verdict.extracted,
        }
        for a in answers
    ]
