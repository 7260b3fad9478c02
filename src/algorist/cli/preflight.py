"""`algorist preflight RECIPE`: every gate that can be judged before training, each with its cause and remedy."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit, say


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
    from algorist.cli.run import set_threads

    set_threads(arguments.threads)
    found = preflight(
        arguments.recipe,
        overrides=arguments.overrides,
        plugin=arguments.plugin,
        on_gate=None if arguments.json else lambda gate: say(gate.sentence),
    )
    code = found.exit_code
    if arguments.json:
        rows = [{**gate.payload(), "wall": dict(gate.wall)} for gate in found.gates]
        emit({"recipe_digest": found.recipe_digest, "passed": code == 0, "exit_code": code, "gates": rows})
        return code
    say("preflight: passed; nothing was written" if code == 0 else "preflight: failed; nothing was trained or written")
    return code
