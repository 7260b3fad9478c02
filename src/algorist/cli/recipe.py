"""`algorist recipe check | show | diff`: what a recipe says, where each value comes from, how two differ."""

from __future__ import annotations

import argparse
import json
import os.path
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from algorist.cli.common import add_json, emit
from algorist.digest import JSON

if TYPE_CHECKING:
    from algorist.recipe.load import Resolved


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb; nothing heavy is imported before it runs."""
    parser = subparsers.add_parser("recipe", help="check, show or compare recipes")
    verbs = parser.add_subparsers(dest="recipe_verb", required=True, metavar="check|show|diff")
    check = verbs.add_parser(
        "check", help="resolve a recipe, report everything that is wrong with it, print what follows from it"
    )
    show = verbs.add_parser("show", help="print every resolved value and where it was written")
    diff = verbs.add_parser("diff", help="what differs between two recipes: mathematics, placement, cosmetic")
    for verb in (check, show):
        verb.add_argument("recipe", type=Path, help="a YAML file")
        verb.set_defaults(func=run_check if verb is check else run_show)
    diff.add_argument("first", type=Path, help="a YAML file")
    diff.add_argument("second", type=Path, help="the YAML file to compare it with")
    diff.set_defaults(func=run_diff)
    for verb in (check, show, diff):
        verb.add_argument(
            "--set", action="append", default=[], metavar="a.b=c", dest="overrides", help="override one key"
        )
        add_json(verb)


def run_check(options: argparse.Namespace) -> int:
    """Exit code 0 for a recipe that can run; RecipeError (exit code 2) names everything that is wrong."""
    from algorist.recipe.checks import check_files
    from algorist.recipe.derived import WORDS, derived
    from algorist.recipe.failure import raise_all
    from algorist.recipe.load import load

    resolved = load(options.recipe, options.overrides)
    raise_all(check_files(resolved.recipe, resolved.written, resolved.base_dir))
    notes = list(_notes(resolved))
    figures = derived(resolved.recipe)
    if options.json:
        emit({"ok": True, **_identity(resolved), "derived": dict(figures), "notes": notes})
        return 0
    print(f"{options.recipe}: fine. Recipe {resolved.recipe.name}, sha256 {resolved.digest}")
    _print_table({WORDS[name]: value for name, value in figures.items()})
    for note in notes:
        print(f"note: {note}")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print every resolved value with its origin."""
    from algorist.recipe.load import load

    resolved = load(options.recipe, options.overrides)
    value = json.loads(resolved.canonical_json)
    if options.json:
        emit({**_identity(resolved), "recipe": value, "origins": dict(resolved.origins)})
        return 0
    rows = [
        (key, json.dumps(item, ensure_ascii=False), resolved.origins.get(key, "default"))
        for key, item in _leaves(value)
    ]
    wide = max(len(f"{key}: {item}") for key, item, _ in rows)
    for key, item, origin in rows:
        print(f"{f'{key}: {item}':<{min(wide, 72)}}  # {origin}")
    print(f"# sha256 {resolved.digest}")
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs, grouped; the exit code is 0 either way."""
    from algorist.recipe.diff import GROUPS, diff
    from algorist.recipe.load import load

    first, second = (load(path, options.overrides) for path in (options.first, options.second))
    changes = diff(first.recipe, second.recipe)
    if options.json:
        rows = {
            group: [{"key": c.key, "first": c.before, "second": c.after} for c in changes if c.group == group]
            for group in GROUPS
        }
        emit({"first": first.digest, "second": second.digest, "changes": rows})
        return 0
    if not changes:
        print(f"the same: sha256 {first.digest}")
    for group in GROUPS:
        found = [change for change in changes if change.group == group]
        if found:
            print(f"{group}:")
        for change in found:
            print(f"  {change.key}: {json.dumps(change.before)} -> {json.dumps(change.after)}")
    return 0


def _identity(resolved: Resolved) -> dict[str, JSON]:
    return {"name": resolved.recipe.name, "digest": resolved.digest, "files": [str(path) for path in resolved.sources]}


def _notes(resolved: Resolved) -> Iterator[str]:
    """What does not stop a check but will stop a run on this machine."""
    path = resolved.recipe.policy.path
    if path is not None and not (resolved.base_dir / path).is_dir():
        folder = os.path.normpath(resolved.base_dir / path)
        yield f"policy.path is no folder here: {folder}. Set another with --set policy.path=DIR."


def _leaves(value: JSON, at: str = "") -> Iterator[tuple[str, JSON]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{at}[{index}]")
    else:
        yield at, value


def _print_table(figures: Mapping[str, float]) -> None:
    wide = max(len(name) for name in figures)
    for name, value in figures.items():
        print(f"  {name:<{wide}}  {value:>12,g}" if value < 1e6 else f"  {name:<{wide}}  {value:>12,.0f}")
