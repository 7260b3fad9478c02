"""What differs between two recipes, grouped by what it changes: mathematics, placement or cosmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from algorist.digest import JSON
from algorist.recipe.load import to_json
from algorist.recipe.model import Recipe
from algorist.recipe.source import KeyPath, dotted
from algorist.recipe.tree import affects

GROUPS = ("mathematics", "placement", "cosmetic")
"""In the order of their weight: what is computed, how fast and in how much memory, neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key that differs."""

    key: str
    """Dotted."""
    before: JSON
    """Value in the first recipe; None where it has none."""
    after: JSON
    """Value in the second."""
    group: str
    """One of GROUPS."""


def diff(first: Recipe, second: Recipe) -> tuple[Change, ...]:
    """All keys whose resolved values differ, heaviest group first. Defaults count: they are part of the recipe."""
    changes = [
        Change(key=dotted(path), before=before, after=after, group=affects(Recipe, path))
        for path, before, after in _differences(to_json(first), to_json(second), ())
    ]
    return tuple(sorted(changes, key=lambda change: GROUPS.index(change.group)))


def _differences(a: JSON, b: JSON, at: KeyPath) -> Iterator[tuple[KeyPath, JSON, JSON]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in [*a, *(key for key in b if key not in a)]:
            yield from _differences(a.get(key), b.get(key), (*at, key))
    elif _is_list(a) and _is_list(b) and len(a) == len(b):  # type: ignore[arg-type]
        for index, (left, right) in enumerate(zip(a, b, strict=True)):  # type: ignore[arg-type]
            yield from _differences(left, right, (*at, index))
    elif a != b:
        yield at, a, b


def _is_list(value: JSON) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
