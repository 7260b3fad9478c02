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
from algorist.recipe.tree import TAGS, models_at, places_of

_MUST_BE = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUND = {
    "greater_than": ("> ", "gt"),
    "greater_than_equal": (">= ", "ge"),
    "less_than": ("< ", "lt"),
    "less_than_equal": ("<= ", "le"),
    "string_too_short": ("of length >= ", "min_length"),
    "too_short": ("of length >= ", "min_length"),
    "too_long": ("of length <= ", "max_length"),
}


def explain(failure: ValidationError, written: Written, model: type[BaseModel]) -> list[RecipeError]:
    """One RecipeError per wrong place, in the order of the file; the same place is reported once."""
    found: dict[KeyPath, RecipeError] = {}
    for detail in failure.errors(include_url=False):
        path = _real_path(detail, written.value)
        error = _explain_one(detail, path, written, model)
        found.setdefault(path if detail["type"] != "impossible" else (*path, *detail["ctx"]["at"]), error)
    return sorted(found.values(), key=lambda error: (str(error.path or ""), error.line or 0))


def _real_path(detail: ErrorDetails, value: JSON) -> KeyPath:
    """The location without what pydantic adds: union tags, and the 0 of a list of one written without brackets."""
    path: list[str | int] = []
    loc = detail["loc"]
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(value, Mapping):
            is_tag = any(value.get(tag) == part for tag in TAGS) and not (last and detail["type"] == "extra_forbidden")
            if last and detail["type"] == "missing":
                path.append(part)
            elif part in value and not is_tag:
                path.append(part)
                value = value[str(part)]
        elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(part, int):
            path.append(part)
            value = value[part] if part < len(value) else None
    return tuple(path)


def _explain_one(detail: ErrorDetails, path: KeyPath, written: Written, model: type[BaseModel]) -> RecipeError:
    kind, context, got = detail["type"], detail.get("ctx", {}), detail["input"]
    where, name = written.origin(path), dotted(path) or "the recipe"
    if kind == "impossible":
        return impossible_error(written, path, context)
    if kind == "value_error":
        message = detail["msg"].removeprefix("Value error, ")
        return where.error(f"{name}: {message}", "Change one of them.")
    if kind == "extra_forbidden":
        return where.error(f"unknown key {name}", _nearest_key(str(path[-1]), detail["loc"], model))
    if kind == "missing":
        fix = f"Add `{path[-1]}: ...`" + (f" to {dotted(path[:-1])}." if path[:-1] else ".")
        return written.origin(path[:-1]).error(f"{name} is missing", fix)
    if kind == "union_tag_not_found":
        key = str(context["discriminator"]).strip("'")
        return where.error(f"{name} needs {key}, which says what it is", f"Add `{key}: ...`.")
    if kind == "union_tag_invalid":
        key, expected = str(context["discriminator"]).strip("'"), str(context["expected_tags"])
        message = f"{name}.{key} must be one of {expected}: got {show(context['tag'])}"
        return written.origin((*path, key)).error(message, _closest(context["tag"], expected))
    if kind == "literal_error":
        expected = str(context["expected"])
        return where.error(f"{name} must be {expected}: got {show(got)}", _closest(got, expected))
    if kind in _BOUND:
        sign, key = _BOUND[kind]
        return where.error(f"{name} must be {sign}{context[key]}: got {show(got)}", "Change the value.")
    if kind in _MUST_BE:
        return where.error(f"{name} must be {_MUST_BE[kind]}: got {show(got)}", _type_fix(kind, got))
    if kind == "string_pattern_mismatch":
        message = f"{name} must be a plain word (letters, digits, _ and -): got {show(got)}"
        return where.error(
            message, "A recipe names code, it never points into a module." if "." in str(got) else "Rename it."
        )
    return where.error(f"{name}: {detail['msg']}: got {show(got)}", "Change the value.")


def impossible_error(written: Written, section: KeyPath, context: Mapping[str, Any]) -> RecipeError:
    """An `algorist.config.impossible` finding of the section at a path, pointing at the key it names."""
    at, message = tuple(context["at"]), str(context["message"])
    if section:
        joint = "." if at and message.split(" ", 1)[0] == dotted(at) else " "
        message = f"{dotted(section)}{joint}{message}"
    return written.origin((*section, *at)).error(message, context["fix"])


def _closest(got: object, expected: str) -> str:
    options = [part.strip(" '") for part in expected.replace(" or ", ", ").split(",")]
    near = difflib.get_close_matches(str(got), options, n=1)
    return f"Did you mean {near[0]}?" if near else "Choose one of these."


def _nearest_key(key: str, loc: Sequence[str | int], model: type[BaseModel]) -> str:
    known = [name for candidate in models_at(model, loc[:-1]) for name in candidate.model_fields]
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    places = places_of(model, key)
    if places:
        return f"The key exists as {' and '.join(places[:3])}."
    return f"Known here: {', '.join(dict.fromkeys(known))}."


def _type_fix(kind: str, got: object) -> str:
    if kind.startswith(("int", "float")) and isinstance(got, str):
        return "Write a plain number, without quotes or unit."
    if kind == "bool_type" and isinstance(got, str):
        return "YAML 1.2 spells it true or false."
    if kind == "tuple_type":
        return "Write it in brackets: [a, b]."
    if _MUST_BE[kind] == "a mapping":
        return "Give its keys, indented, on the lines below."
    return "Put it in quotes." if kind == "string_type" else "Change the value."


def show(value: object) -> str:
    """A short spelling of what was got.

    >>> show(None), show(True), show("x")
    ('null', 'true', "'x'")
    """
    if isinstance(value, tuple):
        value = list(value)
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
