"""The command line. Each verb is one thin module; nothing heavy is imported before its verb runs."""

import argparse
import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn, final

from algorist.errors import InputError

VERBS = {
    "init": "init",
    "run": "run",
    "resume": "run",
    "sft": "run",
    "rl": "run",
    "eval": "evaluate",
    "sample": "sample",
    "report": "report",
    "preflight": "preflight",
    "calibrate": "calibrate",
    "audit": "audit",
    "why": "why",
    "receipt": "receipt",
    "recipe": "recipe",
    "model": "model",
    "verify": "verify",
    "explain": "explain",
    "compare": "compare",
    "doctor": "doctor",
}
"""Verb -> module that registers it, in the order `--help` shows them."""


@final
class Parser(argparse.ArgumentParser):
    """A parser whose complaints are InputErrors like all others: one message, exit code 2, JSON where it was asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)  # a script must not break when a longer option is added
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise what `main` turns into a message."""
        raise InputError(f"{message.rstrip('.?')}{'?' if message.endswith('?') else '.'} See: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        options = [str(choice) for choice in action.choices]
        near = difflib.get_close_matches(str(value), options, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentError(action, f"must be one of {', '.join(options)}, got {value!r}.{hint}")


def build_parser() -> argparse.ArgumentParser:
    """The parser with all verbs."""
    parser = Parser(
        prog="algorist",
        description="Train language models to do mathematics with rewards that can be checked, and prove every step.",
        epilog="Exit codes: 0 done, 1 unexpected, 2 recipe or input, 3 admission refused, 4 gate failed, 5 resume mismatch, "
        "75 stopped on request or paused, to be resumed. Every verb takes --json.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for module in dict.fromkeys(VERBS.values()):
        if not Path(__file__).with_name(f"{module}.py").exists():
            continue  # a verb whose room is not there yet
        importlib.import_module(f"algorist.cli.{module}").add_parser(verbs)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code; every error a user can cause is one message on standard error."""
    from algorist.cli.common import guarded, refuse

    # Idle OpenMP threads spin, which on a machine with other work makes small matrix products several times slower.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # read once, when torch is imported
    argv = sys.argv[1:] if argv is None else argv
    parser = build_parser()
    try:
        arguments = parser.parse_args(argv)
    except InputError as error:
        return refuse(error, wants_json="--json" in argv)
    if arguments.version:
        from importlib.metadata import version

        print(f"algorist {version('algorist')}")
        return 0
    if arguments.verb is None:
        parser.print_help()
        return 0
    return guarded(arguments)


def entry() -> None:
    """The console script."""
    sys.exit(main())
