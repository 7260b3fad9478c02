"""Canonical bytes (RFC 8785) and sha256: the only place where Algorist turns values into digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import rfc8785

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]


def canonical(value: JSON) -> bytes:
    """RFC 8785 (JCS) bytes: sorted keys, no spaces, one spelling for each number.

    Raises ValueError for values JSON cannot hold (nan, infinity, integers beyond 2^53 - 1).

    >>> canonical({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return rfc8785.dumps(value)


def sha256(data: bytes) -> str:
    """Lower-case hexadecimal sha256.

    >>> sha256(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def digest(value: JSON) -> str:
    """sha256 of the canonical bytes of a JSON value.

    >>> digest({"a": 1}) == digest({"a": 1.0})
    True
    """
    return sha256(canonical(value))


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_id(*parts: str) -> str:
    """A stable 16-hex-digit id of texts; the parts cannot run into each other.

    >>> content_id("ab", "c") == content_id("a", "bc")
    False
    """
    return sha256(json.dumps(parts, ensure_ascii=False).encode())[:16]
