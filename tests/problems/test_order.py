"""Order: a pure function of seed, epoch and position."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.problems.order import ProblemOrder


@given(st.integers(1, 40), st.data(), st.integers(0, 5))
def test_every_problem_comes_once_per_epoch_and_never_twice_in_a_batch(
    num: int, data: st.DataObject, seed: int
) -> None:
    size = data.draw(st.integers(1, num))
    order = ProblemOrder([f"p{i}" for i in range(num)], seed)
    batches = [order.at(i, size) for i in range(5 * num // size + 2)]
    assert all(len(set(batch)) == size for batch in batches)
    stream = [problem for batch in batches for problem in batch]
    for epoch in range(len(stream) // num):
        assert set(Counter(stream[epoch * num : (epoch + 1) * num]).values()) == {1}


@given(st.integers(2, 30), st.data())
def test_a_batch_is_the_same_whatever_was_asked_before(num: int, data: st.DataObject) -> None:
    size, index = data.draw(st.integers(1, num)), data.draw(st.integers(0, 50))
    ids = [f"p{i}" for i in range(num)]
    order = ProblemOrder(ids, 3)
    for other in range(index):
        order.at(other, size)
    assert order.at(index, size) == ProblemOrder(reversed(ids), 3).at(index, size)


def test_epochs_and_seeds_have_their_own_orders() -> None:
    ids = [f"p{i}" for i in range(50)]
    orders = [ProblemOrder(ids, seed).at(epoch, 50) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == sorted(ids) for order in orders)


def test_a_batch_larger_than_the_set_is_refused() -> None:
    with pytest.raises(InputError, match=r"between 1 and 3 problems \(each at most once\): got 4"):
        ProblemOrder(["a", "b", "c"], 0).at(0, 4)


def test_the_epoch_of_a_batch_is_that_of_its_first_problem() -> None:
    order = ProblemOrder("abcde", 0)
    assert [order.epoch_of(i, 2) for i in range(6)] == [0, 0, 0, 1, 1, 2]
