"""`extends:` and `--set`: later values over earlier ones, each keeping the place it was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from algorist.digest import JSON
from algorist.errors import RecipeError
from algorist.recipe.source import KeyPath, Origin, Written, dotted, read, read_override

_VARIANT_KEYS = ("kind", "name")


def load_layers(path: Path, alternatives: Sequence[tuple[str, ...]]) -> tuple[Written, list[Path]]:
    """The recipe at `path` over everything it extends; and the files that were read, nearest first.

    alternatives: sets of keys that exclude each other; a later file that gives one of a set drops the inherited others.
    Raises RecipeError for a file that extends itself, directly or not.
    """
    return _load(path, alternatives, ())


def _load(path: Path, alternatives: Sequence[tuple[str, ...]], above: tuple[Path, ...]) -> tuple[Written, list[Path]]:
    here = read(path)
    if here.value is None:
        raise RecipeError("the recipe is empty", path=path, fix="Start from one in recipes/.")
    if not isinstance(here.value, Mapping):
        raise RecipeError(
            "a recipe is a mapping of keys to values", path=path, line=1, fix="Start it with `name: ...`."
        )
    parents = here.value.get("extends")
    if parents is None:
        return _without_extends(here), [path]
    names = [parents] if isinstance(parents, str) else parents
    where = here.origin(("extends",))
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise where.error("extends must be a file name or a list of them", "Write `extends: other.yaml`.")
    base = Written(value={})
    files = [path]
    for name in names:
        parent = path.parent / str(name)
        chain = (*above, path.resolve())
        if parent.resolve() in chain:
            raise where.error(f"extends leads back to {name}", "Break the circle.")
        if not parent.is_file():
            raise where.error(
                f"extends names a file that does not exist: {parent}", "Give a path relative to this file."
            )
        loaded, read_files = _load(parent, alternatives, chain)
        base = over(base, loaded, alternatives)
        files += [file for file in read_files if file not in files]
    return over(base, _without_extends(here), alternatives), files


def _without_extends(written: Written) -> Written:
    assert isinstance(written.value, Mapping), "checked by the caller"
    value = {key: item for key, item in written.value.items() if key != "extends"}
    origins = {path: origin for path, origin in written.origins.items() if path[:1] != ("extends",)}
    return Written(value=value, origins=MappingProxyType(origins))


def over(base: Written, top: Written, alternatives: Sequence[tuple[str, ...]] = ()) -> Written:
    """`top` over `base`: mappings merge key by key, everything else is replaced.

    A mapping that names another `kind` or `name` replaces the inherited one whole, since its keys mean something else.

    >>> over(Written(value={"rl": {"updates": 3, "lr": 1.0}}), Written(value={"rl": {"updates": 5}})).value
    {'rl': {'updates': 5, 'lr': 1.0}}
    >>> over(Written(value={"o": {"name": "grpo", "beta": 0.1}}), Written(value={"o": {"name": "rloo"}})).value
    {'o': {'name': 'rloo'}}
    """
    origins: dict[KeyPath, Origin] = {}

    def take(source: Written, at: KeyPath) -> None:
        origins.update({path: origin for path, origin in source.origins.items() if path[: len(at)] == at})

    def merge(low: JSON, high: JSON, at: KeyPath) -> JSON:
        if not (isinstance(low, Mapping) and isinstance(high, Mapping)) or (at and _other_variant(low, high)):
            take(top, at)
            return high
        if at in top.origins or at in base.origins:
            origins[at] = top.origins.get(at) or base.origins[at]
        dropped = {
            name
            for names in alternatives
            if any(high.get(name) is not None for name in names)
            for name in names
            if name not in high
        }
        result: dict[str, JSON] = {}
        for key in [*low, *(key for key in high if key not in low)]:
            if key in dropped:
                continue
            if key in low and key in high:
                result[key] = merge(low[key], high[key], (*at, key))
            else:
                take(top if key in high else base, (*at, key))
                result[key] = high[key] if key in high else low[key]
        return result

    return Written(value=merge(base.value, top.value, ()), origins=MappingProxyType(origins))


def _other_variant(low: Mapping[str, JSON], high: Mapping[str, JSON]) -> bool:
    return any(key in low and key in high and low[key] != high[key] for key in _VARIANT_KEYS)


def apply_overrides(base: Written, overrides: Iterable[str], alternatives: Sequence[tuple[str, ...]]) -> Written:
    """Apply `a.b=c` texts in order; the value is read as YAML and replaces what was there, mappings included.

    >>> apply_overrides(Written(value={"rl": {"updates": 3}}), ["rl.updates=10"], ()).value
    {'rl': {'updates': 10}}
    """
    value = base.value
    assert isinstance(value, Mapping), "the root of a recipe is a mapping"
    for text in overrides:
        key, equals, raw = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(part.strip() for part in parts):
            raise Origin(override=text).error(
                "must look like key.key=value", "Write, for example, --set rl.updates=10."
            )
        path: KeyPath = tuple(int(part) if part.isdigit() else part for part in parts)
        written = read_override(raw, text)
        base = _set(base, path, written, Origin(override=text), alternatives)
    return base


def _set(
    base: Written, path: KeyPath, written: Written, origin: Origin, alternatives: Sequence[tuple[str, ...]]
) -> Written:
    def put(node: JSON, rest: KeyPath, at: KeyPath) -> JSON:
        if not rest:
            return written.value
        head, tail = rest[0], rest[1:]
        if isinstance(node, Sequence) and not isinstance(node, str):
            if not isinstance(head, int) or head >= len(node):
                raise origin.error(f"{dotted(at)} is a list of {len(node)}", "Name one of its positions, from 0 on.")
            return [put(item, tail, (*at, head)) if index == head else item for index, item in enumerate(node)]
        if node is not None and not isinstance(node, Mapping):
            raise origin.error(f"{dotted(at)} is a single value, with no key {head} inside", "Shorten the key.")
        name = str(head)
        old = dict(node) if node is not None else {}
        if not tail and written.value is not None:
            for names in alternatives:
                if name in names:
                    old = {key: item for key, item in old.items() if key not in names or key == name}
        old[name] = put(old.get(name), tail, (*at, name))
        return old

    value = put(base.value, path, ())
    origins = {at: where for at, where in base.origins.items() if at[: len(path)] != path}
    origins |= {(*path, *at): where for at, where in written.origins.items()}
    origins[path] = origin
    return Written(value=value, origins=MappingProxyType(origins))
