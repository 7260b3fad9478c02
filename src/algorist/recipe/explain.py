"""Pydantic's findings in words: what must hold, what was got, where, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from algorist.digest import JSON
from algorist.errors import RecipeError
from algorist.recipe.source import KeyPath, Written, dotted

_TYPES = {
    "int_type": "a whole number", "int_from_float": "a whole number", "int_parsing": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a finite number",
    "string_type": "a text", "bool_type": "true or false", "tuple_type": "a list", "dict_type": "a mapping",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "mapping_type": "a mapping",
}  # fmt: skip
_BOUNDS = {"greater_than": (">", "gt"), "greater_than_equal": (">=", "ge"), "less_than": ("<", "lt"), "less_than_equal": ("<=", "le")}  # fmt: skip


def explain(failure: ValidationError, written: Written, model: type[BaseModel]) -> list[RecipeError]:
    """One RecipeError per wrong place, in the order of the file."""
    found: dict[str, tuple[int, RecipeError]] = {}
    for detail in failure.errors(include_url=False):
        path = _real_path(detail, written.value)
        error = _explain_one(detail, path, written, model)
        found.setdefault(str(error), (error.line or 0, error))
    return [error for _, error in sorted(found.values(), key=lambda pair: pair[0])]


def _real_path(detail: ErrorDetails, value: JSON) -> KeyPath:
    """The location without the names of union members that pydantic puts between the keys."""
    path: list[str | int] = []
    loc = detail["loc"]
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(value, Mapping):
            if part in value and not (last and detail["type"] == "impossible" and part in (value.get("kind"), value.get("name"))):
                path.append(part)
                value = value[str(part)]
            elif last and detail["type"] == "missing":
                path.append(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(part, int):
            path.append(part)
            value = value[part] if part < len(value) else None
    return tuple(path)


def _explain_one(detail: ErrorDetails, path: KeyPath, written: Written, model: type[BaseModel]) -> RecipeError:
    kind, context, got = detail["type"], detail.get("ctx", {}), detail["input"]
    where = written.origin(path)
    name = dotted(path) or "the recipe"
    if kind == "impossible":
        where = written.origin((*path, *context["at"]))
        return where.error(_qualified(name, path, context["message"]), context["fix"])
    if kind == "extra_forbidden":
        return where.error(f"unknown key {name}", _nearest(detail, path, model))
    if kind == "missing":
        parent = dotted(path[:-1])
        return written.origin(path[:-1]).error(f"{name} is missing", f"Add {path[-1]}: ... under {parent}." if parent else f"Add {path[-1]}: ...")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _explain_tag(kind, context, path, written, name)
    if kind in _BOUNDS:
        sign, key = _BOUNDS[kind]
        return where.error(f"{name} must be {sign} {context[key]}: got {show(got)}", "Change the value.")
    if kind == "literal_error":
        return where.error(f"{name} must be {context['expected']}: got {show(got)}", _closest(str(got), context["expected"]))
    if kind in _TYPES:
        return where.error(f"{name} must be {_TYPES[kind]}: got {show(got)}", _type_fix(kind, got))
    return where.error(f"{name}: {detail['msg'][:1].lower()}{detail['msg'][1:]}: got {show(got)}", "Change the value.")


def _qualified(name: str, path: KeyPath, message: str) -> str:
    """Put the section's name before a message of the section's own validator."""
    return f"{name}.{message}" if path and " must " in message.split(":")[0] and message.split()[0].islower() and message.split()[1] == "must" else f"{name}: {message}" if path else message


def _explain_tag(kind: str, context: Mapping[str, Any], path: KeyPath, written: Written, name: str) -> RecipeError:
    key = str(context["discriminator"]).strip("'")
    if kind == "union_tag_not_found":
        return written.origin(path).error(f"{name} needs {key}, which says what it is", f"Add {key}: ...")
    expected = context["expected_tags"]
    return written.origin((*path, key)).error(
        f"{name}.{key} must be one of {expected}: got {context['tag']!r}", _closest(context["tag"], expected)
    )


def _closest(got: str, expected: str) -> str:
    options = [part.strip(" '") for part in expected.replace(" or ", ",").split(",")]
    near = difflib.get_close_matches(got, options, n=1)
    return f"Did you mean {near[0]}?" if near else "Use one of these."


def _nearest(detail: ErrorDetails, path: KeyPath, model: type[BaseModel]) -> str:
    from algorist.recipe.tree import keys_at  # the tree of models is walked only when something is wrong

    known, elsewhere = keys_at(model, detail["loc"])
    key = str(path[-1]) if path else ""
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    places = elsewhere.get(key, [])
    if places:
        return f"It belongs to {places[0]}."
    return "Known here: " + ", ".join(known) + "." if known else "Remove it."


def _type_fix(kind: str, got: object) -> str:
    if kind.startswith(("int", "float")) and isinstance(got, str):
        return "Write the number without quotes or unit."
    if kind == "bool_type" and isinstance(got, str):
        return "YAML 1.2 spells it true or false."
    if kind == "tuple_type":
        return "Write it as [a, b]."
    if kind in ("model_type", "model_attributes_type", "mapping_type", "dict_type"):
        return "Give its keys, indented, on the lines below."
    if kind == "string_type":
        return "Put it in quotes."
    return "Change the value."


def show(value: object) -> str:
    """A short spelling of what was got."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
