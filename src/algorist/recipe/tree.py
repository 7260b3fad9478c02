"""The tree of settings models, for suggestions and the reference page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel


def keys_at(model: type[BaseModel], loc: Sequence[str | int]) -> tuple[list[str], Mapping[str, list[str]]]:
    """Keys allowed at a location; and every key of the tree with the sections it belongs to."""
    return [], {}
