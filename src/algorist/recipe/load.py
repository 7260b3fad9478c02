"""A recipe file to a checked Recipe: the one way in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import ValidationError

from algorist.digest import JSON, canonical, sha256
from algorist.recipe.checks import check
from algorist.recipe.explain import explain
from algorist.recipe.failure import raise_all
from algorist.recipe.merge import apply_overrides, load_layers
from algorist.recipe.model import Recipe
from algorist.recipe.source import KeyPath, Written, dotted
from algorist.recipe.tree import alternatives_of

Stage = Literal["sft", "rl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A recipe with every default filled in, and where it came from."""

    recipe: Recipe
    """The settings."""
    canonical_json: bytes
    """RFC 8785 bytes of all settings, defaults included."""
    digest: str
    """sha256 of `canonical_json`."""
    path: Path
    """The file that was asked for; relative paths in the recipe start at its folder."""
    sources: tuple[Path, ...]
    """All files that were read, nearest first."""
    origins: Mapping[str, str]
    """Dotted key -> "file:line" or "--set text" of every value that was written; all others are defaults."""
    written: Written
    """The values as written, for errors that are found later."""

    @property
    def base_dir(self) -> Path:
        """Folder that relative paths of the recipe start at."""
        return self.path.parent


def load(path: str | Path, overrides: Sequence[str] = (), *, only: Stage | None = None) -> Resolved:
    """Read, compose, override, check.

    overrides: texts like "rl.updates=10", applied in order. only: leave the other training stage out; the split
    stays the whole recipe's, so that problems meant for SFT stay out of RL either way.
    Raises RecipeError (exit code 2); where several lines are wrong, RecipeErrors names them all.
    """
    path = Path(path)
    alternatives = alternatives_of(Recipe)
    written, files = load_layers(path, alternatives)
    written = apply_overrides(written, overrides, alternatives)
    recipe = validate(written)
    raise_all(check(recipe, written))
    recipe = recipe if only is None else with_only(recipe, only, written)
    resolved = to_json(recipe)
    document = canonical(resolved)
    origins = {
        dotted(at): str(written.origins[source]) for at, source in _written_leaves(resolved, written.value, (), ())
    }
    return Resolved(
        recipe=recipe,
        canonical_json=document,
        digest=sha256(document),
        path=path,
        sources=tuple(files),
        origins=MappingProxyType(origins),
        written=written,
    )


def _written_leaves(value: JSON, source: JSON, at: KeyPath, source_at: KeyPath) -> Iterator[tuple[KeyPath, KeyPath]]:
    """Resolved keys that were written, each with the key it was written as: one source may stand without brackets."""
    if isinstance(value, Mapping) and isinstance(source, Mapping):
        for key in value:
            if key in source:
                yield from _written_leaves(value[key], source[key], (*at, key), (*source_at, key))
    elif isinstance(value, Mapping) and isinstance(source, str):
        yield (*at, "name"), source_at
    elif isinstance(value, list) and isinstance(source, Mapping):
        yield from _written_leaves(value[0], source, (*at, 0), source_at)
    elif isinstance(value, list) and isinstance(source, Sequence) and any(isinstance(item, Mapping) for item in value):
        for index, (item, given) in enumerate(zip(value, source, strict=True)):
            yield from _written_leaves(item, given, (*at, index), (*source_at, index))
    else:
        yield at, source_at


def with_only(recipe: Recipe, stage: Stage, written: Written) -> Recipe:
    """The recipe with one training stage; evaluations keep the response budget they had.

    Raises RecipeError where the recipe has no such stage.
    """
    if (recipe.sft if stage == "sft" else recipe.rl) is None:
        raise written.origin(()).error(f"the recipe has no {stage} stage", f"Add `{stage}: ...`, or use algorist run.")
    budget = recipe.evaluate.response_tokens
    if budget is None and recipe.rl is not None:
        budget = recipe.rl.sampling.response_tokens
    evaluate = recipe.evaluate.model_copy(update={"response_tokens": budget})
    return recipe.model_copy(update={"evaluate": evaluate, "rl" if stage == "sft" else "sft": None})


def validate(written: Written) -> Recipe:
    """Plain values to a Recipe; raises all that is wrong, each with its place."""
    try:
        return Recipe.model_validate(_tuples(written.value), strict=True)
    except ValidationError as failure:
        raise_all(explain(failure, written, Recipe))
        raise


def to_json(recipe: Recipe) -> JSON:
    """Every setting as plain JSON values, defaults included."""
    return recipe.model_dump(mode="json")


def from_json(document: bytes) -> Recipe:
    """The recipe of a run folder's contract; inverse of `Resolved.canonical_json`."""
    return Recipe.model_validate(_tuples(json.loads(document)), strict=True)


def _tuples(value: JSON) -> JSON:
    """Lists as tuples: the models are frozen and strict."""
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_tuples(item) for item in value)
    return value
