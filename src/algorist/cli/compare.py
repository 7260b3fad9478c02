"""`algorist compare RECIPE --methods a,b,c --seeds 0,1,2 --out DIR`: methods on equal terms, one report."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorist.cli.common import add_json, emit, say, stop_on_request
from algorist.errors import GateFailed, InputError

if TYPE_CHECKING:
    from algorist.launch.compare import Compared


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "run several methods on equal terms over several seeds, and write one report"
    parser = subparsers.add_parser(
        "compare",
        help=text,
        description=text,
        epilog="The recipe's sft stage runs once a seed and is shared; its rl stage runs once for every method and seed, with the same "
        "problems, order and number of sampled responses. The same command goes on where it was stopped.",
    )
    parser.add_argument("recipe", type=Path, help="a YAML recipe with an rl stage")
    parser.add_argument("--methods", default="", help="names separated by commas; see algorist explain")
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="'LABEL=METHOD key=value ...'",
        help="a method under a name of its own with settings of its own",
    )
    parser.add_argument("--seeds", default="0,1,2", help="whole numbers separated by commas")
    parser.add_argument("--out", type=Path, required=True, help="folder of the comparison; new, or to go on with")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=c", dest="overrides", help="override one key, for every run"
    )
    parser.add_argument("--plugin", metavar="MODULE", help="module that defines the reward the recipe names")
    parser.add_argument("--threads", type=int, help="CPU threads (default: the cores this process may use)")
    add_json(parser)
    parser.set_defaults(func=start)


def start(arguments: argparse.Namespace) -> int:
    """Exit code 0; 4 where a run did not finish (the report is written all the same), 75 where a person stopped it."""
    from algorist.api.qualify import compare
    from algorist.cli.progress import Terminal
    from algorist.cli.run import set_threads

    names = [name.strip() for name in arguments.methods.split(",") if name.strip()]
    set_threads(arguments.threads)
    with Terminal() as listener, stop_on_request(listener.say) as asked:
        done = compare(
            arguments.recipe,
            [*names, *arguments.variant],
            arguments.out,
            seeds=seeds_of(arguments.seeds),
            listener=listener,
            overrides=arguments.overrides,
            plugin=arguments.plugin,
            stop_requested=asked,
        )
    if arguments.json:
        emit({"report": str(done.page), "data": str(done.data), **done.document})
    else:
        say(text_table(done))
        say(f"report: {done.page}\ndata:   {done.data}")
    lost = [f"{run.label} (seed {run.seed})" for run in done.comparison.runs if run.failed]
    if lost:
        raise GateFailed(
            f"{len(lost)} runs did not finish and are not in the table: {', '.join(lost)}. See {done.page}."
        )
    return 0


def seeds_of(text: str) -> list[int]:
    """Seeds as given on the command line.

    >>> seeds_of("0,1, 2")
    [0, 1, 2]
    """
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise InputError(f"--seeds must be whole numbers separated by commas: got {text!r}.") from error
    if any(seed < 0 for seed in seeds):
        raise InputError(f"--seeds must not be negative: got {text!r}.")
    return seeds


def text_table(done: "Compared") -> str:
    """The final table for a terminal: greedy and mean@n after training, with intervals, and the gain."""
    from algorist.report.comparison_data import table

    found: dict[str, dict[str, Any]] = table(done.comparison)
    lines = [f"{'method':<16} {'measure':<8} {'start':>7} {'after (interval)':>26} {'gain':>8}"]
    for label, rows in found.items():
        for name, row in rows.items():
            if name != "greedy" and not name.startswith("mean@"):
                continue
            after, before, gain = row["after"], row.get("before"), row.get("gain")
            told = f"{100 * after['value']:.1f}% ({100 * after['low']:.1f} to {100 * after['high']:.1f})"
            was = "" if before is None else f"{100 * before['value']:.1f}%"
            rose = "" if gain is None else f"{100 * gain['value']:+.1f}"
            lines.append(f"{label:<16} {name:<8} {was:>7} {told:>26} {rose:>8}")
    return "\n".join(lines)
