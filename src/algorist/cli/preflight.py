"""`algorist preflight RECIPE`: every gate that can be judged before training, each with its cause and remedy."""

import argparse
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from algorist.cli.common import add_json, emit, say

if TYPE_CHECKING:
    from algorist.qualify.gate import Gate

_MARKS = {"passed": "ok", "failed": "FAILED", "reported": "note", "deferred": "later", "absent": "-"}
_INDENT = 26


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "judge every gate that needs no training: data, verifier, prompts, template, parents, memory, cache, signal"
    parser = subparsers.add_parser("preflight", help=text, description=text)
    parser.add_argument("recipe", type=Path, help="a YAML recipe")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=c", dest="overrides", help="override one key"
    )
    parser.add_argument("--plugin", metavar="MODULE", help="module that defines the reward the recipe names")
    parser.add_argument("--threads", type=int, help="CPU threads (default: the cores this process may use)")
    add_json(parser)
    parser.set_defaults(func=preflight_verb)


def preflight_verb(arguments: argparse.Namespace) -> int:
    """Exit code 0 where nothing failed, 3 where only memory did, 4 otherwise. Writes nothing."""
    from algorist.api.qualify import preflight
    from algorist.cli.progress import Terminal
    from algorist.cli.run import set_threads

    set_threads(arguments.threads)
    with Terminal(force_plain=True) as listener:
        found = preflight(
            arguments.recipe,
            overrides=arguments.overrides,
            plugin=arguments.plugin,
            listener=listener,
            on_gate=None if arguments.json else show,
        )
    code = found.exit_code
    if arguments.json:
        rows = [{**gate.payload(), "wall": dict(gate.wall)} for gate in found.gates]
        emit({"recipe_digest": found.recipe_digest, "passed": code == 0, "exit_code": code, "gates": rows})
        return code
    say("preflight: passed; nothing was written" if code == 0 else "preflight: failed; nothing was trained or written")
    return code


def show(gate: "Gate") -> None:
    """One gate for people: verdict, name, what it found; then cause and remedy, where there are any."""
    from algorist.qualify.picture import found

    width = max(60, shutil.get_terminal_size((140, 24)).columns)
    parts = [part for part in (found(gate), gate.cause, gate.remedy) if part]
    lines = [line for part in parts for line in textwrap.wrap(part, width - _INDENT)] or [""]
    head = f"{_MARKS[str(gate.verdict)]:>6}  {gate.name:<{_INDENT - 8}}"
    say("\n".join([(head + lines[0]).rstrip(), *(" " * _INDENT + line for line in lines[1:])]))
