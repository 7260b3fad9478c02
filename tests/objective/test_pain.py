"""Complaints about public trainers that concern objectives, each as the claim that it cannot happen here."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorist.errors import InputError
from algorist.objective import ratio, reduce
from algorist.objective.advantage import gae, group_advantage, last_token
from algorist.objective.config import parse
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput, TokenBatch

D = torch.float64


def group(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int64)


def rows_of(rewards: list[float], ids: list[int] | None = None, lengths: list[int] | None = None) -> CreditInput:
    lengths = lengths or [3] * len(rewards)
    return CreditInput(
        rewards=torch.tensor(rewards, dtype=D),
        group=torch.tensor(ids or [0] * len(rewards)),
        mask=torch.arange(max(lengths)) < torch.tensor(lengths)[:, None],
    )


# -- A. advantages and groups ------------------------------------------------------------------------------------------


def test_a1_a_flat_group_of_three_among_uneven_groups_gets_zero() -> None:
    r = torch.tensor([1.0, 0, 0, 1, 5, 5, 5, 0, 0, 1, 0], dtype=D)
    ids = torch.tensor([0] * 4 + [1] * 3 + [2] * 4)
    assert (group_advantage(r, ids)[4:7] == 0).all()


def test_a2_interleaved_prompts_are_not_compared_with_each_other() -> None:
    a = group_advantage(torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 1, 0, 1]))
    assert (a == 0).all()


def test_a5_the_lone_success_is_not_divided_by_nothing() -> None:
    for std in ("population", "sample", "leave_one_out", "none"):
        a = group_advantage(torch.tensor([1.0, 0, 0, 0]), group(4), std=std, epsilon=1e-6)  # type: ignore[arg-type]
        assert a.abs().max().item() < 2


@given(bits=st.lists(st.booleans(), min_size=2, max_size=64))
@settings(max_examples=60, deadline=None)
def test_a5_every_group_of_zeros_and_ones_has_bounded_advantages(bits: list[bool]) -> None:
    r, G = torch.tensor(bits, dtype=torch.float32), len(bits)
    for std in ("population", "sample", "leave_one_out", "none"):
        a = group_advantage(r, group(G), std=std)  # type: ignore[arg-type]
        assert a.isfinite().all()
        assert a.abs().max().item() <= math.sqrt(G)


def test_a6_the_residue_of_float32_is_not_taken_for_a_spread() -> None:
    r = torch.tensor([0.35] * 7 + [0.75], dtype=torch.float32)
    a = group_advantage(r, group(8), std="leave_one_out", epsilon=1e-6)
    assert a[-1].item() == pytest.approx(0.4, abs=1e-6)  # the others do not differ: no division
    assert a.abs().max().item() < 1


@given(rewards=st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a7_advantages_sum_to_zero_where_the_estimator_promises_it(rewards: list[float]) -> None:
    r, G = torch.tensor(rewards, dtype=torch.float32), len(rewards)
    for keys in ({}, {"std": "sample"}, {"std": "none"}, {"std": "none", "baseline": "leave_one_out"}):
        a = group_advantage(r, group(G), **keys)  # type: ignore[arg-type]
        assert abs(a.sum().item()) < 1e-6 * max(1.0, a.abs().max().item())


@given(rewards=st.lists(st.integers(-3, 3), min_size=2, max_size=8), shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
@settings(max_examples=60, deadline=None)
def test_a7_shift_and_scale_of_rewards_leave_normalised_advantages(
    rewards: list[int], shift: float, scale: float
) -> None:
    r, G = torch.tensor(rewards, dtype=D), len(rewards)
    torch.testing.assert_close(group_advantage(r * scale + shift, group(G)), group_advantage(r, group(G)))
    plain, moved = (group_advantage(x, group(G), baseline="leave_one_out", std="none") for x in (r, r + shift))
    torch.testing.assert_close(plain, moved, atol=1e-12, rtol=0)
    torch.testing.assert_close(plain, (r - r.mean()) * G / (G - 1), atol=1e-12, rtol=0)


def test_a8_a_group_of_one_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"Raise rl\.group_size"):
        METHODS["grpo"].credit(rows_of([1.0], [0]), parse({"name": "grpo"}))


def test_a10_an_empty_response_takes_no_place_at_the_end_of_another_row() -> None:
    out = last_token(torch.tensor([9.0, 1.0]), torch.tensor([[False, False, False], [True, True, False]]))
    assert out.tolist() == [[0, 0, 0], [0, 1.0, 0]]


def test_a11_a_method_names_one_normaliser_and_normalising_twice_differs() -> None:
    r = torch.tensor([0.9, 0.1, 0.3, 0.7])
    once = group_advantage(r, group(4), std="sample")
    twice = group_advantage(once, group(4), std="population")
    assert not torch.allclose(once, twice)
    assert METHODS["grpo"].formula(parse({"name": "grpo"}))["std"].startswith("population")


def test_a12_the_printed_formula_says_whether_the_spread_divides() -> None:
    with_std, without = parse({"name": "grpo"}), parse({"name": "grpo", "std": "none"})
    assert METHODS["grpo"].formula(with_std)["estimator"] != METHODS["grpo"].formula(without)["estimator"]
    assert METHODS["grpo"].formula(without)["std"] == "no division"


def test_a13_dropping_flat_groups_really_drops_a_single_flat_group() -> None:
    rows = rows_of([1.0, 1.0, 1.0, 0.0], [0, 0, 1, 1])
    kept = METHODS["grpo"].credit(rows, parse({"name": "grpo"}))
    dropped = METHODS["grpo"].credit(rows, parse({"name": "grpo", "flat_groups": "drop"}))
    assert kept.counted.tolist() == [True] * 4
    assert dropped.counted.tolist() == [False, False, True, True]
    assert not dropped.mask[:2].any()


def test_an_infinite_reward_is_refused_and_a_vanishing_gap_gives_no_nan() -> None:
    with pytest.raises(InputError, match="row 1 has inf"):
        rows_of([1.0, math.inf])
    for std in ("population", "sample", "leave_one_out", "none"):
        a = group_advantage(torch.tensor([1e-200, 0.0, 0.0], dtype=D), group(3), std=std)  # type: ignore[arg-type]
        assert a.isfinite().all()


# -- B. loss, masks, normalisation, KL ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sequence_mean", "token_mean", "group_token_mean"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_b16_accumulation_changes_nothing(kind: str, parts: int) -> None:
    cfg = parse({"name": "reinforce", "reduction": kind})
    rows = rows_of([1.0, 0.5, 0.2, 0.8], [0, 0, 1, 1], [2, 10, 3, 1])
    credit = METHODS["reinforce"].credit(rows, cfg)
    weight = reduce.weights_of(cfg, credit, rows.group, dtype=D)
    noise = torch.rand(credit.mask.shape, dtype=D, generator=torch.Generator().manual_seed(0))
    logp = noise.neg().requires_grad_()
    for part in torch.arange(4).chunk(parts):
        x = logp[part]
        batch = TokenBatch(
            logp=x,
            logp_old=x.detach(),
            logp_behaviour=x.detach(),
            advantage=credit.advantage[part].double(),
            mask=credit.mask[part],
        )
        (METHODS["reinforce"].loss(batch, cfg) * weight[part]).sum().backward()
    by_hand = {
        "sequence_mean": 1 / (4 * 10),
        "token_mean": 1 / 16,
        "group_token_mean": 1 / (2 * 12),
    }[kind]
    assert logp.grad is not None
    assert logp.grad[1, 0].item() == pytest.approx(-0.5 * by_hand)


def test_b18_four_equal_samples_weigh_as_one() -> None:
    mask = torch.ones(4, 5, dtype=torch.bool)
    for kind in ("sequence_mean", "token_mean", "group_token_mean"):
        assert reduce.weights(kind, mask, group(4), dtype=D).sum().item() == pytest.approx(1.0)  # type: ignore[arg-type]


def test_b19_masked_truncated_tokens_leave_numerator_and_denominator_together() -> None:
    lengths, rows = [25, 5], rows_of([1.0, 1.0], [0, 1], [25, 5])
    cut = CreditInput(rewards=rows.rewards, group=rows.group, mask=rows.mask, truncated=torch.tensor([False, True]))
    cfg = parse({"name": "reinforce", "mask_truncated": True})
    credit = METHODS["reinforce"].credit(cut, cfg)
    weight = reduce.weights_of(cfg, credit, cut.group, dtype=D)
    assert int(credit.mask.sum()) == lengths[0]
    assert weight[0, 0].item() == pytest.approx(1 / 25)
    assert (weight[1] == 0).all()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_b20_a_batch_without_a_trained_token_has_loss_zero_and_no_nan(name: str, bench: Any) -> None:
    cfg, rows = bench.default(name), bench.make_rows(2)
    empty = CreditInput(
        **{f: getattr(rows, f) for f in CreditInput.__slots__ if f != "mask"}, mask=torch.zeros_like(rows.mask)
    )
    credit = METHODS[name].credit(empty, cfg)
    weight = reduce.weights_of(cfg, credit, rows.group)
    assert credit.flat  # b21: counted as a skip, not reported as a loss of 0
    assert not credit.mask.any()
    assert (weight == 0).all()


def test_b20_truncation_must_be_known_to_be_masked() -> None:
    with pytest.raises(InputError, match=r"CreditInput\.truncated"):
        METHODS["grpo"].credit(rows_of([1.0, 0.0]), parse({"name": "grpo", "mask_truncated": True}))


def test_b29_a_terminal_reward_reaches_the_last_trained_token_undiminished() -> None:
    mask = torch.tensor([[True, False, False]])
    rows = CreditInput(
        rewards=torch.tensor([1.0], dtype=D), group=group(1), mask=mask, value=torch.zeros(1, 3, dtype=D)
    )
    cfg = parse({"name": "ppo", "beta": 0.0, "gamma": 0.0})
    assert METHODS["ppo"].credit(rows, cfg).advantage.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("holes", ["jump", "zero"])
def test_b30_values_after_the_end_do_not_reach_the_advantages(holes: Any) -> None:
    mask = torch.tensor([[True, True, False, False]])
    r = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=D)
    quiet = gae(r, torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=D), mask, holes=holes)
    loud = gae(r, torch.tensor([[0.5, 0.5, 5.0, torch.nan]], dtype=D), mask, holes=holes)
    assert torch.equal(quiet, loud)


def test_b31_returns_are_advantages_plus_values_and_padding_kl_stays_out() -> None:
    rows = CreditInput(
        rewards=torch.tensor([1.0], dtype=D),
        group=group(1),
        mask=torch.tensor([[True, True, False]]),
        value=torch.tensor([[0.5, 0.25, 9.0]], dtype=D),
        logp_old=torch.tensor([[-1.0, -1.0, 40.0]], dtype=D),
        logp_ref=torch.tensor([[-1.0, -1.0, -40.0]], dtype=D),
    )
    credit = METHODS["ppo"].credit(rows, parse({"name": "ppo", "lam": 1.0}))
    assert credit.returns is not None
    assert credit.returns.tolist() == [[1.0, 1.0, 0.0]]


def test_b32_kl_has_one_place_and_two_cannot_be_written() -> None:
    with pytest.raises(ValidationError):
        parse({"name": "grpo", "kl_place": ["loss", "reward"]})
    with pytest.raises(ValidationError):
        parse({"name": "ppo", "kl_place": "loss"})  # ppo's KL is in the reward, eq. 2


def test_b35_a_clamped_estimate_carries_no_gradient_through_its_ratio() -> None:
    logp = torch.tensor([[25.0 - 30]], dtype=D, requires_grad=True)
    old = torch.tensor([[-30.0]], dtype=D)
    gap = ratio.log_ratio(logp, old, torch.ones(1, 1, dtype=torch.bool), "token", 20.0)
    value = ratio.clipped(gap, torch.tensor([[-1.0]], dtype=D), 0.2, 0.2)
    assert torch.autograd.grad(value.sum(), logp)[0].item() == 0.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_b36_a_gap_of_two_hundred_nats_gives_no_nan(sign: float) -> None:
    logp = torch.tensor([[-1.0, -200.0]], requires_grad=True)
    old = torch.tensor([[-200.0, -1.0]])
    gap = ratio.log_ratio(logp, old, torch.ones(1, 2, dtype=torch.bool))
    assert gap.tolist() == [[199.0, -199.0]]  # the raw gap stays readable
    kept = torch.tensor([[1.0, -1.0]]) * abs(sign)  # both tokens are outside the clip: no gradient, no overflow
    value = ratio.clipped(gap, kept, 0.2, 0.2)
    gradient = torch.autograd.grad(value.sum(), logp)[0]
    assert value.isfinite().all()
    assert (gradient == 0).all()


def test_b37_the_kl_of_two_tokens_is_a_sum_of_terms() -> None:
    from algorist.objective import kl

    p, q = torch.tensor([0.5, 0.3], dtype=D).log(), torch.tensor([0.4, 0.4], dtype=D).log()
    each = [0.8 - math.log(0.8) - 1, 4 / 3 - math.log(4 / 3) - 1]
    assert kl.estimate("k3", p, q, p).tolist() == pytest.approx(each)


def test_b39_the_constant_denominator_must_be_declared() -> None:
    with pytest.raises(ValidationError, match="response budget"):
        parse({"name": "dr_grpo"})
    with pytest.raises(ValidationError, match="constant only"):
        parse({"name": "grpo", "reduction_constant": 512})


@pytest.mark.parametrize("name", ["grpo", "rloo", "dr_grpo", "dapo", "gspo", "cispo", "grpo_process", "dpo", "rft"])
def test_b41_a_flat_batch_says_so_and_is_skipped(name: str, bench: Any) -> None:
    rows = bench.make_rows(0)
    flat = CreditInput(
        **{f: getattr(rows, f) for f in CreditInput.__slots__ if f not in ("rewards", "step_rewards")},
        rewards=torch.zeros(len(rows.group)),
        step_rewards=None if rows.step_rewards is None else torch.zeros_like(rows.step_rewards),
    )
    assert METHODS[name].credit(flat, bench.default(name)).flat


# -- what a method may be combined with --------------------------------------------------------------------------------


def test_a51_methods_without_a_ratio_say_that_rollouts_cannot_be_reused() -> None:
    reuse = {name for name in METHODS if parse({"name": name, **METHODS[name].example}).reuse}
    assert reuse == set(METHODS) - {"rloo", "reinforce", "online_rft"}
    assert parse({"name": "rloo", "ratio": "token"}).reuse


def test_67_an_on_policy_group_has_loss_zero_and_a_gradient() -> None:
    cfg, rows = parse({"name": "dr_grpo", "reduction_constant": 3}), rows_of([1.0, 0.0])
    credit = METHODS["dr_grpo"].credit(rows, cfg)
    logp = torch.full((2, 3), -1.0, dtype=D, requires_grad=True)
    batch = TokenBatch(
        logp=logp,
        logp_old=logp.detach(),
        logp_behaviour=logp.detach(),
        advantage=credit.advantage.double(),
        mask=credit.mask,
    )
    loss = (METHODS["dr_grpo"].loss(batch, cfg) * reduce.weights_of(cfg, credit, rows.group)).sum()
    assert loss.item() == 0.0
    assert torch.autograd.grad(loss, logp)[0].abs().min().item() > 0
