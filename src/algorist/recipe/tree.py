"""The tree of settings models: what may stand where. For suggestions, for the reference page, for diffs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from algorist.config import Config
from algorist.recipe.source import KeyPath

TAGS = ("kind", "name")
"""Keys that tell the members of a union apart."""


def nested(annotation: Any) -> list[type[BaseModel]]:
    """The models that a type annotation mentions, in order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Annotated, Union, UnionType, tuple):
        return [found for part in get_args(annotation) for found in nested(part)]
    return []


def walk(model: type[BaseModel], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Every section of a recipe with its model, parents first; a union gives one entry per member.

    >>> from algorist.recipe.model import Recipe
    >>> [".".join(at) for at, _ in walk(Recipe)][:3]
    ['', 'policy', 'policy.new']
    """
    yield at, model
    for name, field in model.model_fields.items():
        for found in nested(field.annotation):
            yield from walk(found, (*at, name))


def tag_of(model: type[BaseModel]) -> str | None:
    """The value of `kind` or `name` that selects this member of a union; None for a model outside unions."""
    for key in TAGS:
        field = model.model_fields.get(key)
        if field is not None and isinstance(field.default, str) and getattr(field.annotation, "__args__", None):
            return field.default
    return None


def models_at(model: type[BaseModel], loc: Sequence[str | int]) -> list[type[BaseModel]]:
    """The models that may stand at a pydantic error location (union tags included in it)."""
    current = [model]
    for part in loc:
        if isinstance(part, int):
            continue
        inner = [
            found
            for candidate in current
            if part in candidate.model_fields
            for found in nested(candidate.model_fields[part].annotation)
        ]
        current = inner or [candidate for candidate in current if tag_of(candidate) == part] or current
    return current


def places_of(model: type[BaseModel], key: str) -> list[str]:
    """Dotted names of the sections in which a key is known."""
    found = [".".join((*at, key)) for at, section in walk(model) if key in section.model_fields]
    return list(dict.fromkeys(found))


def alternatives_of(model: type[BaseModel]) -> tuple[tuple[str, ...], ...]:
    """All sets of keys that exclude each other, anywhere in the tree."""
    found = [names for _, section in walk(model) if issubclass(section, Config) for names in section.one_of]
    return tuple(dict.fromkeys(found))


def affects(model: type[BaseModel], path: KeyPath) -> str:
    """What a key changes: mathematics (the default), placement (speed and memory only) or cosmetic.

    >>> from algorist.recipe.model import Recipe
    >>> affects(Recipe, ("rl", "optimizer", "lr")), affects(Recipe, ("policy", "device"))
    ('mathematics', 'placement')
    """
    current, result = [model], "mathematics"
    for part in path:
        fields = [candidate.model_fields[str(part)] for candidate in current if str(part) in candidate.model_fields]
        for field in fields:
            if isinstance(field.json_schema_extra, dict):
                result = str(field.json_schema_extra.get("affects", result))
        if fields:
            current = [found for field in fields for found in nested(field.annotation)]
    return result
