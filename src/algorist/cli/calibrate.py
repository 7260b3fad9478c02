"""`algorist calibrate RECIPE`: which completion budget and group size the starting policy needs."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit, say

_BAR = 12
"""Characters of a full bar."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "sample once with a long budget and recommend rl.sampling.response_tokens and rl.group_size"
    parser = subparsers.add_parser("calibrate", help=text, description=text)
    parser.add_argument("recipe", type=Path, help="a YAML recipe with an rl stage")
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=c", dest="overrides", help="override one key"
    )
    parser.add_argument("--problems", type=int, default=32, help="problems to sample (default: 32)")
    parser.add_argument("--samples", type=int, default=16, help="responses to each (default: 16)")
    parser.add_argument("--longest", type=int, help="largest budget to try (default: what the context allows)")
    parser.add_argument("--plugin", metavar="MODULE", help="module that defines the reward the recipe names")
    parser.add_argument("--threads", type=int, help="CPU threads (default: the cores this process may use)")
    add_json(parser)
    parser.set_defaults(func=calibrate_verb)


def calibrate_verb(arguments: argparse.Namespace) -> int:
    """Print the curves and what they recommend. Writes nothing."""
    from algorist.api.qualify import calibrate
    from algorist.cli.run import set_threads

    set_threads(arguments.threads)
    found = calibrate(
        arguments.recipe,
        problems=arguments.problems,
        samples=arguments.samples,
        longest=arguments.longest,
        overrides=arguments.overrides,
        plugin=arguments.plugin,
    )
    if arguments.json:
        emit(found.to_json())
        return 0
    if found.before_sft:
        say(
            "note: the recipe fine-tunes first; these figures are of the policy before that. After a run, try its export:"
        )
        say(
            "      algorist calibrate RECIPE --set sft=null --set problems.sft_count=0 --set policy='{path: RUN/export}'"
        )
    say(f"{found.problems} problems, {found.samples} responses each")
    say(f"  {'budget':>10}  {'finished':<{_BAR + 7}}  {'right':<{_BAR + 7}}  mixed groups")
    for b in found.budgets:
        shares = (b.finished_share, b.success_share, b.mixed_share)
        say(f"{_mark(b.response_tokens, found.response_tokens)}{b.response_tokens:10d}  {'  '.join(map(_bar, shares))}")
    say(f"  {'group size':>10}  {'mixed groups, with 95 % interval':<{_BAR + 25}}  predicted peak")
    for s in found.sizes:
        interval = f"({s.mixed.low:.1%} to {s.mixed.high:.1%})"
        say(
            f"{_mark(s.group_size, found.group_size)}{s.group_size:10d}  {_bar(s.mixed.value)} {interval:<17}  "
            f"{s.memory_gib:8.3f} GiB"
        )
    say(found.words)
    if found.sizes and not any(size.mixed.value for size in found.sizes):
        say(
            "recommended: nothing. No group of any size has both kinds of answers, so no budget and no size would help."
        )
        return 0
    say(f"recommended: rl.sampling.response_tokens={found.response_tokens}  rl.group_size={found.group_size}")
    return 0


def _mark(value: int, recommended: int) -> str:
    return "> " if value == recommended else "  "


def _bar(share: float) -> str:
    """A share as a bar and a number.

    >>> _bar(0.5)
    '██████░░░░░░  50.0%'
    """
    full = round(_BAR * share)
    return "█" * full + "░" * (_BAR - full) + f" {share:6.1%}"
