"""What the weights of a batch add up to, and which rows share them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.objective import reduce

D = torch.float64
MASKS = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=9)


@given(mask=MASKS, seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_means_add_up_to_one_over_what_they_count(mask: list[list[bool]], seed: int) -> None:
    m = torch.tensor(mask)
    g = torch.randint(0, 3, (len(mask),), generator=torch.Generator().manual_seed(seed))
    filled = m.any(-1)
    total = {kind: float(reduce.weights(kind, m, g, dtype=D).sum()) for kind in ("sequence_mean", "token_mean")}  # type: ignore[arg-type]
    assert total["sequence_mean"] == pytest.approx(float(filled.double().mean()))
    assert total["token_mean"] == pytest.approx(float(m.any()))
    for kind in ("sequence_mean", "group_token_mean"):
        sparse = reduce.weights(kind, m, g, rows="nonempty", dtype=D)  # type: ignore[arg-type]
        assert float(sparse.sum()) == pytest.approx(float(m.any()))
    constant = reduce.weights("constant", m, g, constant=10, dtype=D)[m]
    assert constant.tolist() == pytest.approx([1 / (10 * len(mask))] * int(m.sum()))


def test_prompt_group_token_mean_weighs_each_problem_the_same() -> None:
    m = torch.tensor([[True] * 4, [True, False, False, False], [True, True, False, False]])
    w = reduce.weights("group_token_mean", m, torch.tensor([5, 5, 9]), dtype=D)
    assert [float(w[b].sum()) for b in range(3)] == pytest.approx([4 / 5 / 2, 1 / 5 / 2, 1 / 2])


def test_prompt_group_token_mean_is_the_sequence_mean_of_rescaled_advantages() -> None:
    m = torch.tensor([[True] * 4, [True, False, False, False], [True, True, False, False], [True, True, True, False]])
    g = torch.tensor([0, 0, 1, 1])
    lengths = m.sum(-1).double()
    per_group = torch.stack([lengths[g == k].sum() for k in g])
    sequence = reduce.weights("sequence_mean", m, g, dtype=D)
    scale = 2 * lengths / per_group  # G |o_i| / sum_j |o_j|
    torch.testing.assert_close(reduce.weights("group_token_mean", m, g, dtype=D), sequence * scale[:, None])


def test_failed_rows_leave_the_row_count_unless_all_rows_are_named() -> None:
    m = torch.tensor([[True, True], [False, False]])
    counted, g = torch.tensor([True, False]), torch.tensor([0, 0])
    assert float(reduce.weights("sequence_mean", m, g, counted=counted, dtype=D).sum()) == 1.0
    assert float(reduce.weights("sequence_mean", m, g, counted=counted, rows="all", dtype=D).sum()) == 0.5


def test_pairs_weigh_the_same_whatever_their_lengths() -> None:
    m = torch.tensor([[True, True], [True, False], [True, True], [False, True], [True, True]])
    paired = torch.tensor([True, True, True, True, False])
    m = m & paired[:, None]
    mean = reduce.weights("pair_mean", m, torch.zeros(5, dtype=torch.int64), counted=paired, dtype=D)
    assert mean.sum(-1).tolist() == [0.5, 0.5, 0.5, 0.5, 0.0]
    total = reduce.weights("pair_sum", m, torch.zeros(5, dtype=torch.int64), counted=paired, dtype=D)
    assert total[0].tolist() == [0.5, 0.5]


@given(mask=MASKS)
@settings(max_examples=30, deadline=None)
def test_weights_are_constant_over_a_row_and_zero_outside_the_mask(mask: list[list[bool]]) -> None:
    m, g = torch.tensor(mask), torch.zeros(len(mask), dtype=torch.int64)
    for kind in ("sequence_mean", "token_mean", "group_token_mean", "constant", "pair_mean", "pair_sum"):
        w = reduce.weights(kind, m, g, constant=3, dtype=D)  # type: ignore[arg-type]
        assert (w[~m] == 0).all()
        assert w.isfinite().all()
        for row, inside in zip(w, m, strict=True):
            assert len(row[inside].unique()) <= 1  # response-level coefficients rely on it
