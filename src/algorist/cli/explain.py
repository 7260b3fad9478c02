"""`algorist explain [METHOD]`: what a method really computes, before a run is spent on it."""

import argparse
import difflib
import json
from collections.abc import Mapping
from typing import Any

from algorist.cli.common import add_json, emit
from algorist.errors import InputError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb; torch is imported only when it runs."""
    parser = subparsers.add_parser(
        "explain", help="what a method computes: source, reward, coefficient, loss, defaults"
    )
    parser.add_argument("method", nargs="?", help="name of a method; without one, all of them in a table")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", dest="keys", help="change a default")
    add_json(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Exit code 0; InputError (exit code 2) for an unknown method or a setting it does not have."""
    from algorist.objective.registry import METHODS

    if options.method is None:
        return _list(METHODS, options)
    if options.method not in METHODS:
        near = difflib.get_close_matches(options.method, METHODS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(METHODS)}."
        raise InputError(f"there is no method {options.method}. {hint}")
    from algorist.objective.card import card

    content = _checked(card, options.method, _settings(options.keys))
    if options.json:
        emit(content)
    else:
        print(_text(content))
    return 0


def _list(methods: Mapping[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        emit({name: method.coefficient_text for name, method in methods.items()})
        return 0
    width = max(map(len, methods))
    for name, method in methods.items():
        print(f"{name:{width}}  {method.source:11}  {method.coefficient_text}")
    return 0


def _settings(pairs: list[str]) -> dict[str, Any]:
    """key=value pairs as a nested mapping; values are read as YAML, as in recipes."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    settings: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise InputError(f"--set needs key=value: got {pair!r}. Write, for example, --set beta=0")
        *path, last = key.split(".")
        place = settings
        for part in path:
            place = place.setdefault(part, {})
        try:
            place[last] = YAML(typ="safe", pure=True).load(text)
        except YAMLError as error:
            raise InputError(f"--set {key}: the value is no YAML: got {text!r}") from error
    return settings


def _checked(card: Any, name: str, settings: dict[str, Any]) -> Mapping[str, Any]:
    from pydantic import ValidationError

    try:
        content: Mapping[str, Any] = card(name, **settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"][1:]]
        where = ".".join([name, *path])
        if first["type"] == "extra_forbidden":
            raise InputError(f"unknown key {where}. {_nearest(name, path)}") from error
        begin, message = "Input should be ", first["msg"].removeprefix("Value error, ")
        if message.startswith(begin):
            got = json.dumps(first["input"], default=str)
            raise InputError(f"{where} must be {message.removeprefix(begin)}: got {got}. Change the value.") from error
        raise InputError(f"{where}: {message}") from error
    return content


def _nearest(name: str, path: list[str]) -> str:
    """The key that an unknown one may have meant, at its place in the method's settings."""
    from pydantic import BaseModel

    from algorist.objective.registry import METHODS

    model: type[BaseModel] = METHODS[name].config
    for part in path[:-1]:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return f"`algorist explain {name}` lists its settings."
        model = inner
    near = difflib.get_close_matches(path[-1], model.model_fields, n=1)
    return (
        f"Did you mean {near[0]}?"
        if near
        else f"Known here: {', '.join(k for k in model.model_fields if k != 'name')}."
    )


def _text(content: Mapping[str, Any]) -> str:
    lines = [f"{content['name']}: {content['summary']}", f"  from         {content['paper']}"]
    for key in ("source", "reward", "coefficient", "credit", "loss", "reduction", "group_size", "reuse"):
        lines.append(f"  {key:12} {content[key]}")
    lines.append(f"  needs        {', '.join(content['needs']) or 'nothing beyond rewards and log-probs'}")
    lines.append("formulas that run:")
    lines += [f"  {key:17} {value}" for key, value in content["formula"].items()]
    lines.append("settings:")
    for row in content["defaults"]:
        value = json.dumps(row["value"]) if not row["required"] else f"{json.dumps(row['value'])} (required)"
        lines.append(f"  {row['key']} = {value}    {row['meaning']}")
    return "\n".join(lines)
