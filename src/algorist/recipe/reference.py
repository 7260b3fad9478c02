"""docs/recipe.md, written from the settings models: every key with its type, default and meaning.

python -m algorist.recipe.reference [--check] docs/recipe.md
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from algorist.digest import canonical
from algorist.recipe.model import Recipe
from algorist.recipe.tree import nested, tag_of

_HEAD = """# The recipe, key by key

<!-- Generated from the settings models by `python -m algorist.recipe.reference docs/recipe.md`; do not edit. -->

A recipe is a YAML 1.2 file. `extends: other.yaml` (or a list) builds on other recipes, relative to the file; mappings
merge key by key, everything else is replaced, and a mapping that names another `kind` or `name` replaces the inherited
one whole. `--set rl.updates=10` overrides one key from the command line; its value is read as YAML. Unknown keys, wrong
types and impossible combinations are refused with file and line.

- `algorist recipe check RECIPE` checks it and prints what follows from it,
- `algorist recipe show RECIPE` prints every value with the place it came from,
- `algorist recipe diff A B` groups what differs into mathematics, placement and cosmetic.

Keys marked *placement* change speed and memory, never a result; *cosmetic* keys change neither. A default with a source
names it in parentheses.
"""


def render() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    done: set[type[BaseModel]] = set()
    queue: list[tuple[str, type[BaseModel]]] = [("", Recipe)]
    while queue:
        at, model = queue.pop(0)
        if model in done:
            continue
        done.add(model)
        parts.append(_section(at, model))
        inner = []
        for name, field in model.model_fields.items():
            inner += [(f"{at}.{name}" if at else name, found) for found in nested(field.annotation)]
        queue = inner + queue
    return "\n".join(parts).rstrip() + "\n"


def _section(at: str, model: type[BaseModel]) -> str:
    tag = tag_of(model)
    title = f"`{at}`" + (f": {tag}" if tag else "") if at else "Top level"
    lines = [f"## {title}", "", _first_paragraph(model), "", "| key | type | default | meaning |", "|---|---|---|---|"]
    notes = _attribute_notes(model)
    for name, field in model.model_fields.items():
        meaning = field.description or notes.get(name) or ("Which one." if field.default == tag else "")
        extra = field.json_schema_extra
        if isinstance(extra, dict) and "affects" in extra:
            meaning += f" *{extra['affects']}*"
        cells = (f"`{name}`", type_name(field.annotation, field), _default(field), meaning)
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _first_paragraph(model: type[BaseModel]) -> str:
    return " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split())


def type_name(annotation: Any, field: FieldInfo | None = None) -> str:
    """A type in the words of a recipe.

    >>> type_name(int | None), type_name(tuple[int, ...]), type_name(Literal["a", "b"])
    ('whole number or null', 'list of whole number', 'a, b')
    """
    bounds = _bounds(field) if field is not None else ""
    origin, args = get_origin(annotation), get_args(annotation)
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false", NoneType: "null"}
    if annotation in plain:
        return plain[annotation] + bounds
    if origin is Annotated:
        return type_name(args[0]) + bounds
    if origin is Literal:
        return ", ".join(str(arg) for arg in args)
    if origin in (Union, UnionType):
        named = list(dict.fromkeys(type_name(arg) for arg in args))
        return " or ".join(named) + bounds
    if origin is tuple:
        return "list of " + " and ".join(dict.fromkeys(type_name(arg) for arg in args if arg is not Ellipsis)) + bounds
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "section"
    return "mapping" if origin is dict else "any value"


def _bounds(field: FieldInfo) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = []
    for item in field.metadata:
        found += [
            f"{sign} {getattr(item, key):g}" for key, sign in signs.items() if getattr(item, key, None) is not None
        ]
    return " " + ", ".join(found) if found else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, tuple) and value and all(isinstance(item, BaseModel) for item in value):
        return f"{len(value)} of them"
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, str):
        return f"`{value!r}`" if value != value.strip() or not value or "\n" in value else f"`{value}`"
    return f"`{canonical(value).decode()}`"


def _attribute_notes(model: type[BaseModel]) -> Mapping[str, str]:
    """Docstrings below the fields of a model and of its bases, with the source a trailing comment names."""
    notes: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if cls is BaseModel or not issubclass(cls, BaseModel):
            continue
        source = textwrap.dedent(inspect.getsource(cls))
        lines, body = source.splitlines(), ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef), "the source of a class is a class"
        for index, node in enumerate(body.body):
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            after = body.body[index + 1] if index + 1 < len(body.body) else None
            text = ""
            if (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                text = " ".join(after.value.value.split())
            _, hash_sign, origin = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")
            if hash_sign and not origin.startswith(("type:", "noqa")):
                text = f"{text} ({origin.strip()})".strip()
            if text:
                notes[node.target.id] = text
    return notes


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --check say whether it is current (exit code 1 if not)."""
    parser = argparse.ArgumentParser(description="Write the recipe reference.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not current")
    options = parser.parse_args(arguments)
    text = render()
    if not options.check:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(text, encoding="utf-8")
        return 0
    current = options.page.is_file() and options.page.read_text(encoding="utf-8") == text
    if not current:
        sys.stderr.write(f"{options.page} is not current: run python -m algorist.recipe.reference {options.page}\n")
    return 0 if current else 1


if __name__ == "__main__":
    raise SystemExit(main())
