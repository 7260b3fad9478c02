"""Which problems a batch holds: a pure function of (seed, epoch, position), with no iterator to save or restore."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from algorist.errors import InputError
from algorist.seeds import permutation


class ProblemOrder:
    """Every problem once per epoch, in a fresh seeded order; no problem twice in one batch.

    The order depends on the set of ids and the seed alone, not on how the ids were listed.

    >>> order = ProblemOrder(["c", "a", "b"], seed=0)
    >>> order.at(0, 2), order.at(1, 2), order.at(2, 2)
    (['a', 'c'], ['b', 'c'], ['b', 'a'])
    >>> order.epoch_of(2, 2)
    1
    """

    def __init__(self, ids: Iterable[str], seed: int) -> None:
        self.ids: Sequence[str] = tuple(sorted(set(ids)))
        self.seed = seed

    def at(self, batch_index: int, size: int) -> list[str]:
        """The ids of batch `batch_index`, counted from 0, where every batch has `size` problems.

        A batch over the end of an epoch takes the last problems of one and the first of the next; those of the next
        that would be in the batch twice change places with later ones.
        Raises InputError where size exceeds the number of problems.
        """
        num = len(self.ids)
        if not 1 <= size <= num:
            raise InputError(f"a batch must have between 1 and {num} problems (each at most once): got {size}")
        epoch, first = divmod(batch_index * size, num)
        row = _epoch(num, self.seed, epoch, size)
        picked = list(row[first : first + size])
        if len(picked) < size:
            picked += _epoch(num, self.seed, epoch + 1, size)[: size - len(picked)]
        return [self.ids[i] for i in picked]

    def epoch_of(self, batch_index: int, size: int) -> int:
        """The epoch that the batch's first problem belongs to, from 0."""
        return batch_index * size // len(self.ids)


@lru_cache(maxsize=8)
def _plain(num: int, seed: int, epoch: int) -> tuple[int, ...]:
    return tuple(permutation(num, seed, "order", epoch))


@lru_cache(maxsize=8)
def _epoch(num: int, seed: int, epoch: int, size: int) -> tuple[int, ...]:
    """The epoch's permutation, its first positions free of what the straddling batch before them took."""
    missing = -epoch * num % size
    if epoch == 0 or missing == 0:
        return _plain(num, seed, epoch)
    # With num >= 2 * size the repair never reaches an epoch's last positions, so the plain order tells the taken ones.
    before = _plain(num, seed, epoch - 1) if num >= 2 * size else _repaired(num, seed, epoch - 1, size)
    return _repair(_plain(num, seed, epoch), before, missing, size)


def _repaired(num: int, seed: int, epoch: int, size: int) -> tuple[int, ...]:
    """As `_epoch`, from epoch 0 on: for sets so small that one epoch's repair reaches into the next."""
    row = _plain(num, seed, 0)
    for number in range(1, epoch + 1):
        missing = -number * num % size
        plain = _plain(num, seed, number)
        row = _repair(plain, row, missing, size) if missing else plain
    return row


def _repair(row: tuple[int, ...], before: tuple[int, ...], missing: int, size: int) -> tuple[int, ...]:
    taken = set(before[len(before) - (size - missing) :])
    front = [i for i in row if i not in taken][:missing]
    chosen = set(front)
    return (*front, *(i for i in row if i not in chosen))
