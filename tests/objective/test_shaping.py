"""Length deduction, overlong penalty, effort length, redistribution: bounded, conditional, and silent without success."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorist.errors import InputError
from algorist.objective.advantage import group_advantage
from algorist.objective.config import Redistribution, parse
from algorist.objective.registry import METHODS
from algorist.objective.shaping import (
    ShapingInput,
    effort_length,
    effort_price,
    length_deduction,
    overlong,
    redistribute,
    shape,
    subgroups,
)
from algorist.objective.shaping_config import EffortLength, LengthDeduction, Overlong
from algorist.objective.spec import CreditInput

D = torch.float64
EFFORT = EffortLength(levels=(20, 40, 60, 80), k0=0.4, norm_tokens=1000, maximum=0.3, lam=1.0)


def rows(correct: list[bool], lengths: list[int], group: list[int] | None = None, **fields: Any) -> ShapingInput:
    right = torch.tensor(correct)
    return ShapingInput(
        rewards=fields.pop("rewards", right.double()),
        group=torch.tensor(group or [0] * len(correct)),
        correct=right,
        length=torch.tensor(lengths),
        reasoning_length=torch.tensor(lengths),
        **fields,
    )


# -- length deduction: MiMo eq. 4 with the restart candidate's values --------------------------------------------------


def test_the_deduction_grows_between_tolerance_and_saturation() -> None:
    batch = rows([True, True, True, True], [100, 100, 155, 300])
    # l* = median(100, 100, 155, 300) = 127.5; 155 / 127.5 - 1 - 0.1 = 0.1157 of 0.9; 300 saturates
    want = [0.0, 0.0, -0.1 * (155 / 127.5 - 1.1) / 0.9, -0.1]
    assert length_deduction(batch, LengthDeduction()).tolist() == pytest.approx(want)


@given(
    correct=st.lists(st.booleans(), min_size=2, max_size=12),
    seed=st.integers(0, 999),
    maximum=st.floats(0, 1),
    exponent=st.floats(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_the_deduction_is_bounded_and_touches_correct_rows_only(
    correct: list[bool], seed: int, maximum: float, exponent: float
) -> None:
    lengths = torch.randint(0, 500, (len(correct),), generator=torch.Generator().manual_seed(seed)).tolist()
    cfg = LengthDeduction(maximum_deduction=maximum, exponent=exponent)
    part = length_deduction(rows(correct, lengths), cfg)
    assert ((part <= 0) & (part >= -maximum)).all()
    assert (part[~torch.tensor(correct)] == 0).all()
    if sum(correct) / len(correct) <= 0.25:
        assert (part == 0).all()
    order = torch.tensor(lengths)[torch.tensor(correct)].argsort()
    kept = part[torch.tensor(correct)][order]
    assert (kept[1:] <= kept[:-1]).all()  # never less for longer


def test_one_success_of_four_is_not_above_a_quarter_and_two_are() -> None:
    long = [400, 100, 100, 100]
    assert (length_deduction(rows([True, False, False, False], long), LengthDeduction()) == 0).all()
    assert length_deduction(rows([True, True, False, False], long), LengthDeduction())[0].item() < 0


def test_failed_rows_count_neither_as_members_nor_as_successes() -> None:
    rewards = torch.tensor([1.0, torch.nan, torch.nan, 0.0], dtype=D)
    batch = rows([True, True, False, False], [50, 900, 1, 1], rewards=rewards)
    shaped = shape(batch, [LengthDeduction()])
    assert shaped.parts["length_deduction"].tolist() == [0.0] * 4  # 1 of 2 passes, and its own length is the reference
    assert shaped.rewards.isnan().tolist() == [False, True, True, False]


# -- overlong: DAPO eq. 13 --------------------------------------------------------------------------------------------


def test_overlong_is_zero_at_the_buffer_and_full_at_the_limit() -> None:
    lengths = [0, 16384, 16385, 18432, 20480, 20481, 99999]
    cfg = Overlong(max_tokens=20480, buffer_tokens=4096)
    want = [0, 0, -1 / 4096, -0.5, -1, -1, -1]
    assert overlong(rows([False] * 7, lengths), cfg).tolist() == pytest.approx(want)


# -- effort: DeepSeek-V4.1 eq. 8 to 10 --------------------------------------------------------------------------------


def test_one_tau_more_effort_divides_the_price_by_e() -> None:
    assert effort_price(20, EFFORT) == 0.4
    for low in (20, 40, 60):
        assert effort_price(low, EFFORT) / effort_price(low + 20, EFFORT) == pytest.approx(math.e)


def test_the_length_that_pays_best_is_affine_in_the_effort() -> None:
    a, s = 0.02, 300.0  # p'(l) = a exp(-l / s): marginal success per token

    def best(effort: int) -> float:
        lengths = torch.arange(0, 4000, dtype=D)
        gain = a * s * (1 - torch.exp(-lengths / s)) - effort_price(effort, EFFORT) * lengths / EFFORT.norm_tokens
        return float(lengths[gain.argmax()])

    found = [best(effort) for effort in EFFORT.levels]
    steps = [y - x for x, y in itertools.pairwise(found)]
    assert steps == pytest.approx([s * 20 / 20] * 3, abs=1.0)  # slope s / tau per unit of effort, tau = 20


def test_the_length_term_is_capped_and_a_cap_hit_by_all_cancels() -> None:
    batch = rows([True, False], [5000, 9000], effort=torch.tensor([20, 20]))
    part = effort_length(batch, EFFORT)
    assert part.tolist() == pytest.approx([-0.3, -0.3])
    centred = group_advantage(part, torch.tensor([0, 0]), std="none")
    assert (centred == 0).all()


def test_an_all_failure_subgroup_gets_length_pressure_only_and_it_can_be_switched_off() -> None:
    batch = rows([False, False, True, False], [100, 300, 100, 300], [0, 0, 1, 1], effort=torch.tensor([20] * 4))
    kept = shape(batch, [EFFORT])
    assert kept.parts["effort_length"][:2].tolist() == pytest.approx([-0.04, -0.12])
    off = shape(batch, [EFFORT.model_copy(update={"all_failed": "off"})])
    assert off.parts["effort_length"][:2].tolist() == [0.0, 0.0]
    assert torch.equal(off.parts["effort_length"][2:], kept.parts["effort_length"][2:])


def test_all_failure_groups_get_no_signal_from_deduction_and_redistribution() -> None:
    batch = rows([False] * 4, [10, 100, 1000, 10000])
    assert (shape(batch, [LengthDeduction()]).rewards == 0).all()
    a = redistribute(torch.zeros(4), batch.correct, batch.scored, batch.group, torch.rand(4), Redistribution())
    assert (a == 0).all()


def test_efforts_are_never_compared_with_each_other() -> None:
    group = subgroups(torch.tensor([7, 7, 7, 7]), torch.tensor([20, 80, 20, 80]))
    a = group_advantage(torch.tensor([1.0, 0.0, 1.0, 0.0]), group, std="none")
    assert (a == 0).all()


@pytest.mark.parametrize(
    ("keys", "needle"),
    [
        ({"levels": (20,), "lam": 1.0}, "Give tau instead"),
        ({"levels": (20, 40)}, "exactly one of lam, tau"),
        ({"levels": (20, 40), "lam": 1.0, "tau": 3.0}, "exactly one of lam, tau"),
        ({"levels": (20, 20), "lam": 1.0}, "must differ"),
    ],
)
def test_an_undefined_tau_is_refused(keys: dict[str, Any], needle: str) -> None:
    with pytest.raises(ValidationError, match=needle):
        EffortLength(k0=1.0, norm_tokens=1.0, maximum=1.0, **keys)


def test_an_effort_outside_the_levels_is_refused() -> None:
    with pytest.raises(InputError, match=r"got \[30\]"):
        effort_length(rows([True], [5], effort=torch.tensor([30])), EFFORT)


# -- redistribution: MiMo eq. 3 ---------------------------------------------------------------------------------------


@given(
    correct=st.lists(st.booleans(), min_size=2, max_size=10),
    seed=st.integers(0, 999),
    cap=st.floats(1, 10),
)
@settings(max_examples=80, deadline=None)
def test_redistribution_keeps_the_sum_of_the_successes_and_the_zero_mean(
    correct: list[bool], seed: int, cap: float
) -> None:
    right = torch.tensor(correct)
    quality = 0.1 + 0.9 * torch.rand(len(correct), generator=torch.Generator().manual_seed(seed), dtype=D)
    group, scored = torch.zeros(len(correct), dtype=torch.int64), torch.ones(len(correct), dtype=torch.bool)
    a = group_advantage(right.double(), group, std="none")
    new = redistribute(a, right, scored, group, quality, Redistribution(cap=cap))
    assert abs(new.sum().item()) < 1e-12
    if right.all() or not right.any():
        assert torch.equal(new, a)
        return
    order = quality[right].argsort()
    assert (new[right][order].diff() >= -1e-12).all()  # better answers get no less
    uncapped = redistribute(a, right, scored, group, quality, Redistribution(cap=1e9))
    assert uncapped[right].sum().item() == pytest.approx(a[right].sum().item())
    assert uncapped[~right].tolist() == pytest.approx(a[~right].tolist())


def test_an_unusable_grade_keeps_the_original_advantages() -> None:
    right, group = torch.tensor([True, True, False]), torch.zeros(3, dtype=torch.int64)
    a = group_advantage(right.double(), group, std="none")
    for bad in (torch.nan, 0.0, 1.5):
        quality = torch.tensor([bad, 0.5, 1.0])
        assert torch.equal(redistribute(a, right, right | True, group, quality, Redistribution()), a)


def test_a_method_with_redistribution_needs_qualities() -> None:
    cfg = parse({"name": "rloo", "redistribution": {}})
    batch = CreditInput(
        rewards=torch.tensor([1.0, 1.0, 0.0]), group=torch.zeros(3, dtype=torch.int64), mask=torch.ones(3, 1) > 0
    )
    with pytest.raises(InputError, match=r"CreditInput\.quality"):
        METHODS["rloo"].credit(batch, cfg)


# -- all of them ------------------------------------------------------------------------------------------------------


def test_parts_add_up_and_their_order_is_free() -> None:
    batch = rows([True, True, True, False], [10, 40, 90, 99], effort=torch.tensor([20] * 4))
    both = [LengthDeduction(), Overlong(max_tokens=100, buffer_tokens=50), EFFORT]
    one, other = shape(batch, both), shape(batch, both[::-1])
    torch.testing.assert_close(one.rewards, other.rewards)
    torch.testing.assert_close(one.rewards, batch.rewards + sum(one.parts.values()))
    assert set(one.parts) == {"length_deduction", "overlong", "effort_length"}
    with pytest.raises(InputError, match="twice"):
        shape(batch, [LengthDeduction(), LengthDeduction()])
