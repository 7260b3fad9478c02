"""Every random number of a run comes from one seed by a pure function, never from a global generator."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(root: int, *path: str | int) -> int:
    """seed = first 53 bits of sha256("root/path[0]/path[1]/...").

    53 bits, so that a seed survives JSON (RFC 8785 allows integers up to 2^53 - 1). A changed path element changes
    every bit, so neighbouring problems, samples or policy versions get unrelated streams.

    >>> derive(0, "rollout", 3, "p1", 0) == derive(0, "rollout", 3, "p1", 0)
    True
    >>> derive(0, "rollout", 3, "p1", 0) == derive(0, "rollout", 3, "p1", 1)
    False
    >>> derive(0, "a/b") == derive(0, "a", "b")
    False
    """
    text = "\x1f".join([str(root), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11


def generator(root: int, *path: str | int) -> np.random.Generator:
    """A counter-based generator (Philox) keyed by `derive(root, *path)`.

    >>> float(generator(0, "x").random()) == float(generator(0, "x").random())
    True
    """
    return np.random.Generator(np.random.Philox(key=derive(root, *path)))


def permutation(size: int, root: int, *path: str | int) -> list[int]:
    """A permutation of range(size) that is a pure function of the seed and the path.

    >>> permutation(4, 0, "order", 0)
    [0, 2, 1, 3]
    """
    return [int(i) for i in generator(root, *path).permutation(size)]
