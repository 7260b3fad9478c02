"""Token sequences that begin alike, laid out once: prefix tries for scoring, training and prompt prefill.

The rollouts of a group share their prompt, prompts share a few-shot preamble, and equal answers share everything. A trie
holds each distinct prefix once. Its nodes stand in depth-first order, so node i is an ancestor of j exactly when
i <= j < end[i]; that interval test is the whole attention mask, and the position of a node is its depth.
Attention sees the same keys as in a plain forward pass, so log-probabilities agree up to the order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trie:
    """N distinct prefixes of the sequences it was built from."""

    token_ids: IntArray
    """[N] token at each node, depth-first."""
    depth: IntArray
    """[N] position of the token in its sequence."""
    end: IntArray
    """[N] one past the last descendant."""
    rows: tuple[int, ...]
    """Indices of the sequences it holds, in the caller's numbering."""
    paths: tuple[IntArray, ...]
    """Per entry of `rows`: [L] node of each token of that sequence."""

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.token_ids)


def build(sequences: Sequence[Sequence[int]], *, max_nodes: int) -> list[Trie]:
    """Tries over the sequences, sorted, a new one begun whenever `max_nodes` would be passed.

    A sequence longer than `max_nodes` gets a trie of its own. Every sequence is in exactly one trie.

    >>> (trie,) = build([[1, 2, 3], [1, 2, 4], [1, 2, 3]], max_nodes=100)
    >>> trie.token_ids.tolist(), trie.depth.tolist(), trie.end.tolist()
    ([1, 2, 3, 4], [0, 1, 2, 2], [4, 4, 3, 4])
    >>> trie.rows, [path.tolist() for path in trie.paths]
    ((0, 2, 1), [[0, 1, 2], [0, 1, 2], [0, 1, 3]])
    """
    assert all(len(sequence) for sequence in sequences), "a sequence must hold a token"
    order = sorted(range(len(sequences)), key=lambda row: (tuple(sequences[row]), row))
    tries: list[Trie] = []
    builder = _Builder()
    for row in order:
        sequence = tuple(sequences[row])
        if builder.rows and builder.num_nodes + len(sequence) - builder.shared(sequence) > max_nodes:
            tries.append(builder.close())
            builder = _Builder()
        builder.add(row, sequence)
    if builder.rows:
        tries.append(builder.close())
    return tries


def batches(tries: Sequence[Trie], *, max_tokens: int) -> list[list[Trie]]:
    """Tries of like size side by side, at most `max_tokens` padded nodes a batch (one trie at least).

    >>> [len(batch) for batch in batches(build([[1], [2], [3, 4, 5]], max_nodes=1), max_tokens=3)]
    [2, 1]
    """
    result: list[list[Trie]] = []
    for trie in sorted(tries, key=lambda t: t.num_nodes):
        if result and trie.num_nodes * (len(result[-1]) + 1) <= max_tokens:
            result[-1].append(trie)
        else:
            result.append([trie])
    return result


class _Builder:
    """Appends sorted sequences; keeps the path of the last one."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.depth: list[int] = []
        self.end: list[int] = []
        self.rows: list[int] = []
        self.paths: list[IntArray] = []
        self._last: tuple[int, ...] = ()
        self._path: list[int] = []

    @property
    def num_nodes(self) -> int:
        return len(self.token_ids)

    def shared(self, sequence: tuple[int, ...]) -> int:
        """Length of the common prefix with the last sequence."""
        length = 0
        for a, b in zip(self._last, sequence, strict=False):
            if a != b:
                break
            length += 1
        return length

    def add(self, row: int, sequence: tuple[int, ...]) -> None:
        keep = self.shared(sequence)
        for node in self._path[keep:]:
            self.end[node] = self.num_nodes
        self._path = self._path[:keep]
        for depth in range(keep, len(sequence)):
            self._path.append(self.num_nodes)
            self.token_ids.append(sequence[depth])
            self.depth.append(depth)
            self.end.append(0)
        self._last = sequence
        self.rows.append(row)
        self.paths.append(np.array(self._path, dtype=np.int64))

    def close(self) -> Trie:
        for node in self._path:
            self.end[node] = self.num_nodes
        return Trie(
            token_ids=np.array(self.token_ids, dtype=np.int64),
            depth=np.array(self.depth, dtype=np.int64),
            end=np.array(self.end, dtype=np.int64),
            rows=tuple(self.rows),
            paths=tuple(self.paths),
        )
