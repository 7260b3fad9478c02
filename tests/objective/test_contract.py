"""What every method of the registry must hold; a new file is tested by existing."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.objective import reduce
from algorist.objective.config import parse
from algorist.objective.describe import KEYS
from algorist.objective.knobs import GroupKnobs, Objective
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput

SEEDS = st.integers(0, 10_000)
EVERY = sorted(METHODS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize over every method with every knob it has, or those among them that a test is about."""
    choices: dict[str, Callable[[Any], bool]] = {
        "cfg": lambda cfg: True,
        "smooth_cfg": lambda cfg: getattr(cfg, "kl", "") != "k3_plus" and cfg.name != "cispo",  # detached on purpose
        "row_cfg": lambda cfg: METHODS[cfg.name].together == "row",  # pairs follow the order of rows
        "group_cfg": lambda cfg: (
            isinstance(cfg, GroupKnobs) and getattr(cfg, "kl_place", "") != "reward" and not cfg.mask_truncated
        ),
    }
    for fixture in choices.keys() & set(metafunc.fixturenames):
        module = metafunc.config.pluginmanager.get_plugin(str(metafunc.definition.path.parent / "conftest.py"))
        assert module is not None
        metafunc.parametrize(fixture, [c for c in module.variants() if choices[fixture](c)], ids=module.label)


def close(a: torch.Tensor, b: torch.Tensor, atol: float) -> None:
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


@given(seed=SEEDS)
@settings(max_examples=3, deadline=None)
def test_autograd_equals_declared_coefficient(cfg: Objective, bench: Any, seed: int) -> None:
    case = bench.make_case(cfg, seed)
    declared = -case.weight * case.method.coefficient(case.tokens, cfg)
    close(case.gradient(), declared, 1e-12)  # float64 rounding of sums of about 60 terms of size 1


@given(seed=SEEDS)
@settings(max_examples=1, deadline=None)
def test_autograd_equals_central_differences_of_the_loss(smooth_cfg: Objective, bench: Any, seed: int) -> None:
    case = bench.make_case(smooth_cfg, seed, P=2, G=2, T=3)
    gradient, h = case.gradient(), 1e-6
    for b, t in case.tokens.mask.nonzero().tolist():
        shift = torch.zeros_like(case.tokens.logp)
        shift[b, t] = h
        up, down = case.loss(case.tokens.logp + shift), case.loss(case.tokens.logp - shift)
        assert abs((up - down).item() / (2 * h) - gradient[b, t].item()) < 1e-6


@pytest.mark.parametrize("name", EVERY)
@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_autograd_equals_central_differences_of_the_printed_objective(name: str, bench: Any, seed: int) -> None:
    case = bench.make_case(bench.default(name), seed, P=2, G=3, T=4)
    rows = [x for x in range(len(case.tokens.mask)) if case.tokens.mask[x].any()]
    case = replace(case, tokens=bench.select(case.tokens, torch.tensor(rows)), weight=case.weight[rows])
    logp, gradient, h = bench.ragged(case.tokens.logp, case.tokens.mask), case.gradient(), 1e-6
    assert abs(bench.naive_loss(case, logp) - _policy_loss(case)) < 1e-9
    for b, t in case.tokens.mask.nonzero().tolist():
        k = int(case.tokens.mask[b, :t].sum())
        up, down = ([list(row) for row in logp] for _ in range(2))
        up[b][k] += h
        down[b][k] -= h
        slope = (bench.naive_loss(case, up) - bench.naive_loss(case, down)) / (2 * h)
        assert abs(slope - gradient[b, t].item()) < 1e-6


def _policy_loss(case: Any) -> float:
    if case.method.name == "ppo":
        case = replace(case, cfg=case.cfg.model_copy(update={"value_weight": 0.0}))
    return float(case.loss(case.tokens.logp))


@given(seed=SEEDS)
@settings(max_examples=2, deadline=None)
def test_garbage_outside_the_mask_changes_neither_loss_nor_gradient(cfg: Objective, bench: Any, seed: int) -> None:
    case = bench.make_case(cfg, seed)
    B, extra = len(case.rows.group), 2
    wild = torch.tensor([float("nan"), float("inf")], dtype=torch.float64).repeat(B, 1)

    def pad(x: torch.Tensor | None) -> torch.Tensor | None:
        if x is None or x.ndim == 1:
            return x
        fill = torch.zeros(B, extra, dtype=torch.bool) if x.dtype == torch.bool else wild.to(x.dtype)
        body = x if x.dtype == torch.bool else torch.where(case.tokens.mask, x, torch.nan)
        return torch.cat([body, fill], 1)

    fields = {name: pad(getattr(case.tokens, name)) for name in type(case.tokens).__slots__}
    tokens = type(case.tokens)(**fields)
    wide = replace(case, tokens=tokens, weight=torch.cat([case.weight, torch.zeros(B, extra).double()], 1))
    close(wide.loss(wide.tokens.logp), case.loss(case.tokens.logp), 1e-14)  # only the order of the sum may differ
    gradient = wide.gradient()
    close(gradient[:, :-extra], case.gradient(), 1e-14)
    assert (gradient[~tokens.mask] == 0).all()
    assert (case.method.coefficient(tokens, cfg)[~tokens.mask] == 0).all()
    assert (case.method.loss(tokens, cfg)[~tokens.mask] == 0).all()


@pytest.mark.parametrize("name", EVERY)
def test_padding_and_its_values_change_no_credit(name: str, bench: Any) -> None:
    cfg, rows = bench.default(name), bench.make_rows(3)
    B = len(rows.group)

    def pad(x: torch.Tensor | None) -> torch.Tensor | None:
        if x is None or x.shape != rows.mask.shape:
            return x
        filled = x if x.dtype == torch.bool else torch.where(rows.mask, x, 5.0)
        return torch.cat([filled, torch.zeros(B, 3, dtype=x.dtype) + (x.dtype != torch.bool) * 5], 1).to(x.dtype)

    wide = CreditInput(**{name: pad(getattr(rows, name)) for name in CreditInput.__slots__})
    a, b = METHODS[name].credit(rows, cfg), METHODS[name].credit(wide, cfg)
    assert torch.equal(b.advantage[:, :-3], a.advantage)
    assert (b.advantage[~b.mask] == 0).all()
    if a.returns is not None and b.returns is not None:
        assert torch.equal(b.returns[:, :-3], a.returns)


@given(seed=SEEDS)
@settings(max_examples=2, deadline=None)
def test_micro_batches_add_up_to_one_batch(cfg: Objective, bench: Any, seed: int) -> None:
    case = bench.make_case(cfg, seed)
    order = torch.arange(len(case.rows.group))
    parts = [order[k::3] for k in range(3)]
    if case.method.together == "pair":
        assert case.credit.pair is not None
        parts = [(case.credit.pair == p).nonzero().flatten() for p in case.credit.pair.unique()]
    logp = case.tokens.logp.detach().clone().requires_grad_()
    for part in parts:
        case.loss(logp, part).backward()
    assert logp.grad is not None
    close(logp.grad, case.gradient(), 1e-14)


@given(seed=SEEDS)
@settings(max_examples=2, deadline=None)
def test_permuting_rows_permutes_credit_weight_and_coefficient(row_cfg: Objective, bench: Any, seed: int) -> None:
    cfg, case = row_cfg, bench.make_case(row_cfg, seed)
    order = torch.randperm(len(case.rows.group), generator=torch.Generator().manual_seed(seed))
    fields = {name: getattr(case.rows, name) for name in CreditInput.__slots__}
    rows = CreditInput(**{name: x if x is None else x[order] for name, x in fields.items()})
    credit = case.method.credit(rows, cfg)
    torch.testing.assert_close(credit.advantage, case.credit.advantage[order], atol=1e-6, rtol=1e-6)
    assert torch.equal(credit.mask, case.credit.mask[order])
    weight = reduce.weights_of(cfg, credit, rows.group, dtype=torch.float64)
    close(weight, case.weight[order], 1e-15)
    shuffled = case.method.coefficient(bench.select(case.tokens, order), cfg)
    close(shuffled, case.method.coefficient(case.tokens, cfg)[order], 1e-14)


@given(value=st.floats(-5, 5, width=32), G=st.integers(2, 64))
@settings(max_examples=8, deadline=None)
def test_equal_float32_rewards_give_exactly_zero(group_cfg: Objective, value: float, G: int) -> None:
    rows = CreditInput(
        rewards=torch.full((G,), value, dtype=torch.float32),
        group=torch.zeros(G, dtype=torch.int64),
        mask=torch.ones(G, 3, dtype=torch.bool),
        step_ends=torch.tensor([[0, 2]]).repeat(G, 1),
        step_rewards=torch.full((G, 2), value, dtype=torch.float32),
        quality=torch.ones(G),
    )
    credit = METHODS[group_cfg.name].credit(rows, group_cfg)  # type: ignore[attr-defined]
    assert (credit.advantage == 0).all()
    assert credit.flat


@pytest.mark.parametrize("name", [n for n in EVERY if n != "reinforce"])
def test_an_error_leaves_its_group_before_the_baseline(name: str, bench: Any) -> None:
    cfg, rows = bench.default(name), bench.make_rows(5)
    rewards = rows.rewards.clone()
    rewards[4] = torch.nan
    with_error = METHODS[name].credit(replace(rows, rewards=rewards), cfg)
    keep = torch.tensor([b for b in range(len(rewards)) if b != 4])
    fields = {field: getattr(rows, field) for field in CreditInput.__slots__}
    without = METHODS[name].credit(
        CreditInput(**{field: x if x is None else x[keep] for field, x in fields.items()}), cfg
    )
    assert (with_error.advantage[4] == 0).all()
    assert not with_error.mask[4].any()
    assert not with_error.counted[4]
    assert torch.equal(with_error.advantage[keep], without.advantage)


@pytest.mark.parametrize("name", EVERY)
def test_a_row_without_a_group_is_refused(name: str, bench: Any) -> None:
    rows = bench.make_rows(1)
    group = rows.group.clone()
    group[2] = -1
    with pytest.raises(InputError, match="row 2 has -1"):
        METHODS[name].credit(replace(rows, group=group), bench.default(name))


@pytest.mark.parametrize("name", EVERY)
def test_a_group_of_one_is_refused_by_group_baselines(name: str, bench: Any) -> None:
    cfg, rows = bench.default(name), bench.make_rows(1, P=2, G=1)
    if isinstance(cfg, GroupKnobs):
        assert cfg.min_group_size == 2
        with pytest.raises(InputError, match="at least 2 rollouts"):
            METHODS[name].credit(rows, cfg)
    elif name == "dpo":
        assert METHODS[name].credit(rows, cfg).flat
    else:
        assert cfg.min_group_size == 1


@pytest.mark.parametrize("name", EVERY)
def test_credit_and_loss_write_to_none_of_their_arguments(name: str, bench: Any) -> None:
    case = bench.make_case(bench.default(name), 9)
    before = {f: x.clone() for f in CreditInput.__slots__ if (x := getattr(case.rows, f)) is not None}
    case.method.credit(case.rows, case.cfg)
    case.gradient()
    case.method.coefficient(case.tokens, case.cfg)
    assert all(torch.equal(x, getattr(case.rows, f)) for f, x in before.items())


def test_config_survives_a_round_trip_and_says_what_it_needs(cfg: Objective) -> None:
    assert parse(cfg.model_dump()) == cfg
    assert ("logp_ref" in cfg.needs) == (getattr(cfg, "beta", 0.0) > 0)


def test_formula_has_every_entry_in_order(cfg: Objective) -> None:
    formula = METHODS[cfg.name].formula(cfg)  # type: ignore[attr-defined]
    assert tuple(formula) == KEYS
    assert all(formula.values())


def test_different_settings_read_differently(bench: Any) -> None:
    seen: dict[tuple[str, ...], str] = {}
    for cfg in bench.variants():
        text = (cfg.name, *METHODS[cfg.name].formula(cfg).values())
        label = bench.label(cfg)
        inert = {"value_clip"}  # a value loss is no part of the policy's formula
        if not inert & set(label.split("'")):
            assert seen.setdefault(text, label) == label, f"{label} reads as {seen[text]}"


def test_the_trainer_knows_no_method_by_name() -> None:
    train = Path(__file__).resolve().parents[2] / "src" / "algorist" / "train"
    pattern = re.compile("[\"'](" + "|".join(METHODS) + ")[\"']")
    for path in train.glob("*.py"):
        assert not pattern.search(path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize("name", EVERY)
def test_float32_losses_and_gradients_are_those_of_float64_to_a_hundred_thousandth(name: str, bench: Any) -> None:
    case = bench.make_case(bench.default(name), 7)
    fields = {f: getattr(case.tokens, f) for f in type(case.tokens).__slots__}
    single = {f: x.float() if x is not None and x.is_floating_point() else x for f, x in fields.items()}
    rough = replace(case, tokens=type(case.tokens)(**single), weight=case.weight.float())
    close(rough.gradient().double(), case.gradient(), 1e-5)  # 24 bits, ratios up to e, 12 rows of 5 tokens
    assert rough.gradient().dtype == torch.float32
