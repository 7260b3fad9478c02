"""Where public trainers disagree: each convention by name, against values worked out by hand."""

import math

import pytest
import torch
from torch import Tensor

from algorist.objective import kl, ratio, reduce
from algorist.objective.advantage import gae, group_advantage, whiten
from algorist.objective.config import GSPOConfig, RFTConfig, parse
from algorist.objective.knobs import KL, Correction, Std
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput, TokenBatch

R = torch.tensor([0.9, 0.1, 0.3, 0.7])
ONE = torch.zeros(4, dtype=torch.int64)
D = torch.float64


def near(got: Tensor, want: list[float], digits: int = 4) -> None:
    assert got.round(decimals=digits).tolist() == pytest.approx(want, abs=10**-digits)


def group(n: int) -> Tensor:
    return torch.zeros(n, dtype=torch.int64)


# -- anchors: same name, different gradient ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "std", "epsilon", "centred", "lone"),
    [
        ("deepseekmath", "population", 0.0, [1.265, -1.265, -0.632, 0.632], [1.732, -0.577, -0.577, -0.577]),
        ("verl, slime, miles, skyrl", "sample", 1e-6, [1.095, -1.095, -0.548, 0.548], [1.5, -0.5, -0.5, -0.5]),
        ("trl", "sample", 1e-4, [1.095, -1.095, -0.548, 0.548], [1.4997, -0.4999, -0.4999, -0.4999]),
        ("openrlhf", "sample", 1e-9, [1.095, -1.095, -0.548, 0.548], [1.5, -0.5, -0.5, -0.5]),
        ("tinker, prime-rl", "none", 0.0, [0.4, -0.4, -0.2, 0.2], [0.75, -0.25, -0.25, -0.25]),
        ("nemo-rl", "leave_one_out", 1e-6, [1.746, -1.746, -0.6405, 0.6405], [1.0, -0.577, -0.577, -0.577]),
    ],
)
def test_each_public_grpo_is_reproduced_by_name(
    who: str, std: Std, epsilon: float, centred: list[float], lone: list[float]
) -> None:
    near(group_advantage(R, ONE, std=std, epsilon=epsilon), centred, 3)
    near(group_advantage(torch.tensor([1.0, 0, 0, 0]), ONE, std=std, epsilon=epsilon), lone, 3)


def test_rloo_of_the_public_trainers_is_reproduced() -> None:
    near(group_advantage(R, ONE, baseline="leave_one_out", std="none"), [0.533, -0.533, -0.267, 0.267], 3)
    near(
        group_advantage(torch.tensor([1.0, 0, 0, 0]), ONE, baseline="leave_one_out", std="none"),
        [1, -0.333, -0.333, -0.333],
        3,
    )


def test_division_by_the_spread_makes_a_gap_of_a_thousandth_a_full_push() -> None:
    r = torch.tensor([1, 1, 1, 0.999], dtype=D)
    assert group_advantage(r, ONE, std="sample", epsilon=1e-4)[3].item() == pytest.approx(-1.25, abs=1e-3)
    assert group_advantage(r, ONE, std="sample", epsilon=1e-6)[3].item() == pytest.approx(-1.497, abs=1e-3)
    assert group_advantage(r, ONE, std="none")[3].item() == pytest.approx(-0.00075)


# -- the seventeen ----------------------------------------------------------------------------------------------------


def test_01_population_and_sample_std_differ() -> None:
    assert group_advantage(R, ONE)[0].item() == pytest.approx(1.2649, abs=1e-4)
    assert group_advantage(R, ONE, std="sample")[0].item() == pytest.approx(1.0954, abs=1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-6, 1e-4])
@pytest.mark.parametrize("std", ["population", "sample", "leave_one_out", "none"])
@pytest.mark.parametrize(("value", "G"), [(0.1, 64), (0.7, 7), (0.3, 11), (1 / 3, 5)])
def test_02_flat_float32_groups_are_flat_under_every_convention(value: float, G: int, std: Std, epsilon: float) -> None:
    r = torch.full((G,), value, dtype=torch.float32)
    assert (group_advantage(r, group(G), std=std, epsilon=epsilon) == 0).all()


def test_03_leave_one_out_std_does_not_sum_to_zero_and_spares_the_odd_one_out() -> None:
    lone = group_advantage(torch.tensor([1.0, 0, 0, 0]), ONE, std="leave_one_out", epsilon=1e-6)
    near(lone, [1, -0.5773, -0.5773, -0.5773])
    assert lone.sum().item() == pytest.approx(-0.73, abs=0.01)
    odd = group_advantage(torch.tensor([1, 1, 1, 0.999], dtype=D), ONE, std="leave_one_out", epsilon=1e-6)
    assert odd[0].item() == pytest.approx(0.576, abs=1e-3)
    assert odd[3].item() == pytest.approx(-0.001, abs=1e-6)


def test_04_a_group_of_one_is_refused_or_zero_or_raw_as_named() -> None:
    r, one = torch.tensor([0.7], dtype=D), torch.tensor([0])
    assert group_advantage(r, one, group_of_one="zero").tolist() == [0.0]
    assert group_advantage(r, one, group_of_one="raw").tolist() == [0.7]
    assert group_advantage(r, one, baseline="leave_one_out", std="none", group_of_one="raw").tolist() == [0.7]


def test_05_uneven_groups_are_normalised_by_id_in_any_order() -> None:
    r = torch.tensor([0.9, 5, 0.1, 5, 0.3, 0.7, 5, 0.9, 0.1, 0.3, 0.7], dtype=D)
    ids = torch.tensor([0, 1, 0, 1, 0, 0, 1, 2, 2, 2, 2])
    a = group_advantage(r, ids, std="sample")
    assert a[0].item() == pytest.approx(1.0954, abs=1e-4)
    assert a[7].item() == pytest.approx(1.0954, abs=1e-4)
    assert (a[ids == 1] == 0).all()


def test_06_whitening_weighs_by_tokens_with_either_variance() -> None:
    lengths = torch.tensor([4, 3, 2, 1])
    mask = torch.arange(4) < lengths[:, None]
    rewards = R.double()[:, None].expand(4, 4)
    assert whiten(rewards, mask, "sample")[0, 0].item() == pytest.approx(1.0254, abs=1e-4)
    population = whiten(rewards, mask, "population")
    assert population[0, 0].item() == pytest.approx(1.0809, abs=1e-4)
    assert abs(population[mask].sum().item()) < 1e-12
    assert abs(population[:, 0].sum().item()) > 0.2  # over answers it does not cancel


def test_07_an_empty_response_is_a_row_or_none_as_named() -> None:
    mask = torch.ones(8, 3, dtype=torch.bool)
    mask[2] = False
    scored = reduce.weights("sequence_mean", mask, group(8), dtype=D)
    nonempty = reduce.weights("sequence_mean", mask, group(8), rows="nonempty", dtype=D)
    assert (scored.sum() / nonempty.sum()).item() == pytest.approx(7 / 8)
    constant = reduce.weights("constant", mask, group(8), constant=10, dtype=D)
    sparse = reduce.weights("constant", mask, group(8), constant=10, rows="nonempty", dtype=D)
    assert (constant[0, 0] / sparse[0, 0]).item() == pytest.approx(7 / 8)


def _two_rows(cfg: GSPOConfig) -> tuple[TokenBatch, Tensor]:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    logp = torch.tensor([[-1.0, -1.2, -0.8], [-0.5, 0, 0]], dtype=D)
    old = torch.tensor([[-1.1, -1.1, -1.0], [-0.7, 0, 0]], dtype=D)
    a = torch.tensor([[1.0] * 3, [-1.0] * 3], dtype=D)
    batch = TokenBatch(logp=logp, logp_old=old, logp_behaviour=old, advantage=a, mask=mask)
    return batch, reduce.weights(cfg.reduction_kind, mask, group(2), dtype=D)


def test_08_gspo_is_a_sequence_mean_and_the_token_mean_is_another_number() -> None:
    wide = {"name": "gspo", "clip_low": 0.5, "clip_high": 0.5}
    s0, s1 = math.exp(0.2 / 3), math.exp(0.2)
    by_hand = {"sequence_mean": -(s0 - s1) / 2, "token_mean": -(3 * s0 - s1) / 4}
    for kind, want in by_hand.items():
        cfg = parse({**wide, "reduction": kind})
        batch, weight = _two_rows(cfg)  # type: ignore[arg-type]
        assert (METHODS["gspo"].loss(batch, cfg) * weight).sum().item() == pytest.approx(want)


def test_08_the_ratio_product_of_a_response_is_its_own_level() -> None:
    batch, _ = _two_rows(GSPOConfig())
    gap = ratio.log_ratio(batch.logp, batch.logp_old, batch.mask, "product")
    assert gap[0].exp().tolist() == pytest.approx([math.exp(0.2)] * 3)
    assert (ratio.log_ratio(batch.logp, batch.logp_old, ~batch.mask & batch.mask, "product") == 0).all()


def test_09_cispo_states_its_cap_as_a_delta_and_has_no_floor() -> None:
    cfg = parse({"name": "cispo"})
    gap = torch.tensor([[math.log(3.0), math.log(0.01)]], dtype=D)
    batch = TokenBatch(
        logp=gap - 5,
        logp_old=torch.full_like(gap, -5),
        logp_behaviour=torch.full_like(gap, -5),
        advantage=torch.ones_like(gap),
        mask=torch.ones(1, 2, dtype=torch.bool),
    )
    assert METHODS["cispo"].coefficient(batch, cfg).tolist() == [pytest.approx([1.28, 0.01])]
    with_floor = parse({"name": "cispo", "clip_low": 0.2})
    assert METHODS["cispo"].coefficient(batch, with_floor).tolist() == [pytest.approx([1.28, 0.8])]


def test_10_masking_by_the_geometric_mean_leaves_survivors_three_possible_weights() -> None:
    old = torch.tensor([[-1.0, -1.0], [-1.0, -1.0]], dtype=D)
    mu = old - torch.tensor([[0.2, -0.1], [2.0, 2.0]], dtype=D)
    mask = torch.ones(2, 2, dtype=torch.bool)

    def weight(carry: str) -> list[list[float]]:
        cfg = Correction(kind="mask", level="geometric", carry=carry, low=0.5, high=2.0)  # type: ignore[arg-type]
        return ratio.correction_weight(old, mu, mask, cfg).tolist()

    assert weight("token")[0] == pytest.approx([math.exp(0.2), math.exp(-0.1)])  # OpenRLHF, NeMo
    assert weight("level")[0] == pytest.approx([math.exp(0.05)] * 2)  # AReaL
    assert weight("one")[0] == [1.0, 1.0]  # SkyRL
    assert weight("one")[1] == [0.0, 0.0]


def test_10_a_product_grows_with_the_length_and_a_geometric_mean_does_not() -> None:
    old, mu = torch.zeros(1, 40, dtype=D), torch.full((1, 40), -0.05, dtype=D)
    mask = torch.ones(1, 40, dtype=torch.bool)
    for level, kept in (("geometric", True), ("product", False)):
        cfg = Correction(kind="mask", level=level, high=3.0)  # type: ignore[arg-type]
        assert bool((ratio.correction_weight(old, mu, mask, cfg) > 0).all()) is kept


@pytest.mark.parametrize(
    ("kind", "want"), [("k3", -1.27291), ("k3_plus", -1.27384), ("k3_importance", -1.27384), ("k1", -1.30491)]
)
def test_11_the_kl_slope_is_the_papers_or_the_unbiased_one_as_named(kind: KL, want: float) -> None:
    cfg = parse({"name": "grpo", "beta": 0.04, "kl": kind})
    one = torch.ones(1, 1, dtype=D)
    batch = TokenBatch(
        logp=one * math.log(0.5),
        logp_old=one * math.log(0.5),
        logp_behaviour=one * math.log(0.5),
        logp_ref=one * math.log(0.4),
        advantage=-one * 1.2649110640673518,
        mask=torch.ones(1, 1, dtype=torch.bool),
    )
    assert METHODS["grpo"].coefficient(batch, cfg).item() == pytest.approx(want, abs=1e-5)


def test_12_kl_is_open_by_default_and_a_clamp_ends_the_pull() -> None:
    p, ref = torch.tensor([-12.0], dtype=D, requires_grad=True), torch.tensor([0.0], dtype=D)
    open_value = kl.estimate("k3", p, ref, p.detach())
    assert open_value.item() == pytest.approx(162741.79, abs=0.01)
    clamped = kl.estimate("k3", p, ref, p.detach(), 10.0)
    assert clamped.item() == 10.0
    assert torch.autograd.grad(clamped.sum(), p)[0].item() == 0.0
    assert kl.slope("k3", p.detach(), ref, p.detach()).item() == pytest.approx(1 - math.exp(12))


def test_13_log_ratio_clamp_and_dual_clip_are_off_unless_named() -> None:
    gap, a = torch.tensor([[25.0]], dtype=D), torch.tensor([[-1.0]], dtype=D)
    assert ratio.clipped(gap, a, 0.2, 0.2).item() == pytest.approx(-math.exp(25))
    mask = torch.ones(1, 1, dtype=torch.bool)
    held = ratio.log_ratio(gap, torch.zeros_like(gap), mask, "token", 20.0)
    assert ratio.clipped(held, a, 0.2, 0.2).item() == pytest.approx(-math.exp(20))
    assert ratio.clipped(gap, a, 0.2, 0.2, 3.0).item() == -3.0
    assert ratio.clipped_slope(gap, a, 0.2, 0.2, 3.0).item() == 0.0


def test_14_gae_jumps_over_holes_or_treats_them_as_zero_and_the_sign_flips() -> None:
    r, v = torch.tensor([[0.0, 0, 1]]), torch.tensor([[0.5, 0.25, 0.75]])
    mask = torch.tensor([[True, False, True]])
    assert gae(r, v, mask, lam=0.5).tolist() == [[0.375, 0.0, 0.25]]
    assert gae(r, v, mask, lam=0.5, holes="zero").tolist() == [[-0.0625, 0.0, 0.25]]
    both = [gae(r, v, mask, lam=1.0, holes=holes) for holes in ("jump", "zero")]  # type: ignore[arg-type]
    assert torch.equal(both[0], both[1])


def test_15_rft_names_whether_wrong_rows_stay_in_the_denominator() -> None:
    rows = CreditInput(rewards=torch.tensor([1.0, 0, 0, 1], dtype=D), group=ONE, mask=torch.ones(4, 2) > 0)
    sums = []
    for setting in ("zero", "drop"):
        cfg = RFTConfig(wrong_rows=setting)  # type: ignore[arg-type]
        credit = METHODS["rft"].credit(rows, cfg)
        weight = reduce.weights_of(cfg, credit, rows.group, dtype=D)
        sums.append((weight * credit.advantage).sum().item())
    assert sums == pytest.approx([0.5, 1.0])


def test_17_process_advantages_are_the_papers() -> None:
    rows = CreditInput(
        rewards=torch.tensor([1.0, 0.0], dtype=D),
        group=group(2),
        mask=torch.tensor([[True] * 6, [True] * 4 + [False] * 2]),
        step_ends=torch.tensor([[1, 3, 5], [1, 3, -1]]),
        step_rewards=torch.tensor([[0.9, 0.8, 0.9], [0.9, 0.2, torch.nan]], dtype=D),
    )
    a = METHODS["grpo_process"].credit(rows, parse({"name": "grpo_process"})).advantage
    near(a[0], [1.3931, 1.3931, 0.8066, 0.8066, 0.5866, 0.5866])
    near(a[1], [-1.3931, -1.3931, -1.9797, -1.9797, 0, 0], 3)
