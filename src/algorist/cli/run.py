"""`algorist run | sft | rl RECIPE` and `algorist resume RUN`."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorist.cli.common import add_json, emit, say, stop_on_request, talking

if TYPE_CHECKING:
    from algorist.digest import JSON
    from algorist.launch.execute import Finished
    from algorist.recipe.load import Resolved

_HELP = {
    "run": "run all stages of a recipe",
    "sft": "run a recipe's supervised fine-tuning only",
    "rl": "run a recipe's reinforcement learning only, from its policy as it is",
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verbs."""
    for verb, text in _HELP.items():
        parser = subparsers.add_parser(verb, help=text, description=text)
        parser.add_argument("recipe", type=Path, help="a YAML recipe")
        parser.add_argument("--out", type=Path, help="new run folder (default: runs/NAME-DATE-TIME)")
        parser.add_argument(
            "--set", action="append", default=[], metavar="a.b=c", dest="overrides", help="override one key"
        )
        parser.add_argument("--plugin", metavar="MODULE", help="module that defines the reward the recipe names")
        parser.add_argument(
            "--dry-run", action="store_true", help="load everything, do one step in memory, print what it would take"
        )
        parser.add_argument("--threads", type=int, help="CPU threads (default: the cores this process may use)")
        add_json(parser)
        parser.set_defaults(func=start)
    parser = subparsers.add_parser("resume", help="go on with a stopped or killed run")
    parser.add_argument("run", type=Path, help="its folder")
    parser.add_argument(
        "--amend",
        action="store_true",
        help="go on under a new contract that names the old one, where something differs",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=c", dest="overrides", help="with --amend: override one key"
    )
    parser.add_argument("--threads", type=int, help="CPU threads; must equal those of the run")
    add_json(parser)
    parser.set_defaults(func=go_on)


def start(arguments: argparse.Namespace) -> int:
    """Run or rehearse a recipe."""
    from algorist.recipe.checks import check_files
    from algorist.recipe.failure import raise_all
    from algorist.recipe.load import load

    only = arguments.verb if arguments.verb in ("sft", "rl") else None
    resolved = load(arguments.recipe, arguments.overrides, only=only)
    raise_all(check_files(resolved.recipe, resolved.written, resolved.base_dir))
    if arguments.dry_run:
        return _rehearse(arguments, resolved)
    out = arguments.out or _default_folder(resolved.recipe.name)
    from algorist.cli.progress import Terminal

    set_threads(arguments.threads)
    with Terminal() as listener, stop_on_request(listener.say) as asked:
        from algorist.api.runs import run

        listener.say(f"recipe {resolved.recipe.name} ({resolved.digest[:12]}), run folder {out}")
        finished = run(resolved, out, listener=listener, plugin=arguments.plugin, stop_requested=asked)
    return _close(finished, wants_json=arguments.json)


def go_on(arguments: argparse.Namespace) -> int:
    """Resume a run."""
    import json

    from algorist.cli.progress import Terminal
    from algorist.record.run_folder import RunFolder

    folder = RunFolder.open(arguments.run)
    threads = arguments.threads
    if threads is None and folder.contract.is_file():  # the summation order of matrix products follows the thread count
        threads = json.loads(folder.contract.read_bytes()).get("numerics", {}).get("threads")
    set_threads(threads)
    with Terminal() as listener, stop_on_request(listener.say) as asked:
        from algorist.api.runs import resume

        finished = resume(
            arguments.run, listener=listener, stop_requested=asked, amend=arguments.amend, overrides=arguments.overrides
        )
    return _close(finished, wants_json=arguments.json)


def set_threads(threads: int | None) -> None:
    """Threads of matrix products: as asked, else the cores this process may use."""
    import os

    import torch

    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))


def _default_folder(name: str) -> Path:
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    number, folder = 1, base
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _rehearse(arguments: argparse.Namespace, resolved: "Resolved") -> int:
    from dataclasses import asdict

    from algorist.cli.progress import Terminal
    from algorist.launch.dry_run import MEASURED, rehearse
    from algorist.launch.prepare import prepare
    from algorist.recipe.derived import WORDS, derived

    if arguments.plugin is not None:
        from algorist.api.runs import import_plugin

        import_plugin(arguments.plugin)
    set_threads(arguments.threads)
    with Terminal(force_plain=True) as listener:
        prepared = prepare(resolved.recipe, base=resolved.base_dir, plugin=arguments.plugin, listener=listener)
        try:
            measured = rehearse(prepared, listener)
        finally:
            prepared.close()
    figures: dict[str, Any] = {**derived(resolved.recipe), **asdict(measured)}
    if arguments.json:
        emit({"dry_run": True, "recipe_digest": resolved.digest, "notes": list(prepared.notes), "figures": figures})
        return 0
    told = {WORDS.get(name) or MEASURED[name]: value for name, value in figures.items()}
    width = max(len(name) for name in told)
    for name, value in told.items():
        say(f"  {name:<{width}}  {value:,.2f}" if isinstance(value, float) else f"  {name:<{width}}  {value:,}")
    say("dry run: everything loads and one step works; nothing was written")
    return 0


def _close(finished: "Finished", *, wants_json: bool) -> int:
    if wants_json:
        emit(as_json(finished))
        return 0
    from rich.console import Console

    from algorist.report import summary_table

    with talking(sys.stderr):
        Console(stderr=True).print(summary_table(finished.folder))
    say(f"report: {finished.report}\nmodel:  {finished.export}")
    return 0


def as_json(finished: "Finished") -> "dict[str, JSON]":
    """The one object that `--json` prints for a finished run."""
    from algorist.evaluate.result import EvaluationResult

    def figures(result: EvaluationResult | None) -> "JSON":
        if result is None:
            return None
        return {k: v for k, v in result.to_json().items() if k != "per_problem"}

    return {
        "run": str(finished.folder),
        "before": figures(finished.before),
        "after": figures(finished.after),
        "counts": {
            "rollout_batches": finished.counts.rollout_batches,
            "updates_applied": finished.counts.updates_applied,
            "updates_skipped": finished.counts.updates_skipped,
            "evaluations_completed": finished.counts.evaluations_completed,
        },
        "cost": None if finished.cost is None else finished.cost.to_json(),
        "export": str(finished.export),
        "report": str(finished.report),
    }
