"""`algorist preflight RECIPE`: every gate that can be judged before training, each with its cause and remedy."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from algorist.cli.common import add_json, emit, say

if TYPE_CHECKING:
    from algorist.qualify.gate import Gate


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
    from algorist.api.runs import import_plugin, load_recipe
    from algorist.cli.run import set_threads
    from algorist.launch.preflight import judge_all
    from algorist.launch.prepare import prepare, subject_of
    from algorist.stages.listener import Silent

    if arguments.plugin is not None:
        import_plugin(arguments.plugin)
    resolved = load_recipe(arguments.recipe, arguments.overrides)
    set_threads(arguments.threads)
    prepared = prepare(resolved.recipe, base=resolved.base_dir, plugin=arguments.plugin, listener=Silent())
    try:
        gates = list(judge_all(subject_of(prepared)))
    finally:
        prepared.close()
    code = exit_code(gates)
    if arguments.json:
        rows = [{**gate.payload(), "wall": dict(gate.wall)} for gate in gates]
        emit({"recipe_digest": resolved.digest, "passed": code == 0, "exit_code": code, "gates": rows})
        return code
    for gate in gates:
        say(gate.sentence)
    say("preflight: passed; nothing was written" if code == 0 else "preflight: failed; nothing was trained or written")
    return code


def exit_code(gates: "list[Gate]") -> int:
    """What the gates come to."""
    failed = [gate for gate in gates if not gate.passed]
    return 0 if not failed else 3 if all(gate.name == "memory" for gate in failed) else 4
