"""YAML 1.2 text to plain values, each with the file and line it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from algorist.digest import JSON
from algorist.errors import RecipeError

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the root of a recipe."""

_TAG = "tag:yaml.org,2002:"
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was written.

    >>> Origin(path=Path("q.yaml"), line=3).error("seed must be a number", "Write 0.").args[0]
    'q.yaml:3: seed must be a number. Write 0.'
    """

    path: Path | None = None
    """The file; None for a value of the command line."""
    line: int | None = None
    """Line in the file, from 1."""
    override: str = ""
    """The `--set` text it came from."""

    def error(self, message: str, fix: str = "") -> RecipeError:
        """A RecipeError that points here."""
        text = f"--set {self.override}: {message}" if self.override else message
        return RecipeError(text, path=self.path, line=self.line, fix=fix)

    def __str__(self) -> str:
        if self.override:
            return f"--set {self.override}"
        return f"{self.path}:{self.line}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Plain values and where each key of them was written."""

    value: JSON
    origins: Mapping[KeyPath, Origin] = field(default_factory=lambda: MappingProxyType({}))

    def origin(self, path: KeyPath) -> Origin:
        """Of the key itself, or of the nearest key above it that was written."""
        for length in range(len(path), -1, -1):
            found = self.origins.get(path[:length])
            if found is not None:
                return found
        return Origin()


def read(path: Path) -> Written:
    """Read one recipe file.

    Raises RecipeError for a file that is missing, not UTF-8, not YAML 1.2, holds a tab, a key twice, an alias or a tag.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise RecipeError("no such recipe file", path=path, fix="Check the path.") from None
    except OSError as cause:
        raise RecipeError(f"cannot be read: {cause.strerror}", path=path, fix="Give a readable YAML file.") from cause
    if len(raw) > _MAX_BYTES:
        raise RecipeError(
            f"a recipe has at most {_MAX_BYTES} bytes: got {len(raw)}", path=path, fix="Is this a data file?"
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as cause:
        line = raw[: cause.start].count(b"\n") + 1
        raise RecipeError("must be UTF-8", path=path, line=line, fix="Save the file as UTF-8.") from cause
    for number, content in enumerate(text.splitlines(), start=1):
        indent = content[: len(content) - len(content.lstrip())]
        if "\t" in indent:
            raise RecipeError("YAML does not allow a tab for indentation", path=path, line=number, fix="Use spaces.")
    return _parse(text, path=path, override="", first_line=1)


def read_override(text: str, override: str) -> Written:
    """The value of `--set key=VALUE`, read as YAML."""
    return _parse(text, path=None, override=override, first_line=0)


def _parse(text: str, *, path: Path | None, override: str, first_line: int) -> Written:
    try:
        return _convert(text, path=path, override=override, first_line=first_line)
    except RecursionError:
        error = Origin(path=path, override=override).error(
            "is nested too deeply", "A recipe needs fewer than ten levels."
        )
        raise error from None


def _convert(text: str, *, path: Path | None, override: str, first_line: int) -> Written:
    yaml = YAML(typ="safe", pure=True)
    origins: dict[KeyPath, Origin] = {}

    def origin(node: Node) -> Origin:
        return Origin(path=path, line=node.start_mark.line + first_line if path else None, override=override)

    try:
        root = yaml.compose(text)
    except MarkedYAMLError as cause:
        mark = cause.problem_mark or cause.context_mark
        line = mark.line + 1 if mark and path else None
        message = " ".join((cause.problem or "cannot be read as YAML").split())
        raise Origin(path=path, line=line, override=override).error(
            f"is not YAML 1.2: {message}", _hint(text, mark.line if mark else None)
        ) from cause
    except YAMLError as cause:
        raise Origin(path=path, override=override).error(f"is not YAML 1.2: {cause}", "Check the text.") from cause

    seen: set[int] = set()

    def convert(node: Node, at: KeyPath) -> JSON:
        if id(node) in seen:
            raise origin(node).error("recipes have no anchors and aliases", "Write the value out, or use extends.")
        seen.add(id(node))
        origins.setdefault(at, origin(node))
        if isinstance(node, ScalarNode):
            return _scalar(node, yaml, origin(node))
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            raise origin(node).error(f"recipes have no YAML tags: got {node.tag}", "Remove the tag.")
        if isinstance(node, SequenceNode):
            return [convert(child, (*at, index)) for index, child in enumerate(node.value)]
        assert isinstance(node, MappingNode), "a YAML node is a scalar, a sequence or a mapping"
        result: dict[str, JSON] = {}
        for key_node, child in node.value:
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            if key is None or key == "<<":
                raise origin(key_node).error("a key must be a plain word", "Use extends to build on another recipe.")
            if key in result:
                first = origins[(*at, key)].line
                where = f" (first on line {first})" if first else ""
                raise origin(key_node).error(f"{dotted((*at, key))} is given twice{where}", "Remove one of them.")
            origins[(*at, key)] = origin(key_node)
            result[key] = convert(child, (*at, key))
        return result

    value: JSON = None if root is None else convert(root, ())
    return Written(value=value, origins=MappingProxyType(origins))


def _scalar(node: ScalarNode, yaml: YAML, origin: Origin) -> JSON:
    name = str(node.tag).removeprefix(_TAG)
    if name in ("str", "timestamp"):
        return str(node.value)
    if name not in ("null", "bool", "int", "float"):
        raise origin.error(f"recipes have no YAML tags: got {node.tag}", "Remove the tag.")
    value = yaml.constructor.construct_object(node, deep=True)
    if value is None:
        return None
    if name == "int" and abs(int(value)) >= 2**53:
        raise origin.error(
            f"a whole number must lie within +-(2^53 - 1): got {node.value}", "JSON holds no larger one."
        )
    if name == "float" and not math.isfinite(float(value)):
        raise origin.error(f"a number must be finite: got {node.value}", "Write null where a limit is to be off.")
    return {"bool": bool, "int": int, "float": float}[name](value)


def _hint(text: str, line: int | None) -> str:
    lines = text.splitlines()
    if line is not None and line < len(lines) and "\t" in lines[line]:
        return "The line holds a tab: use spaces."
    return "Check indentation, colons and quotes near this line."


def dotted(path: KeyPath) -> str:
    """Spelling of a key path for people.

    >>> dotted(("rl", "ks", 0, "x"))
    'rl.ks[0].x'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
