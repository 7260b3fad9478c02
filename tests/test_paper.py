"""The oracle against itself (central differences) and the production code against the oracle."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist import paper
from algorist.objective.advantage import group_advantage, step_advantage
from algorist.objective.config import parse
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput, TokenBatch

D = torch.float64
LOGP = st.floats(-3, -0.05)


def test_worked_numbers_of_the_annotated_paper() -> None:
    assert round(paper.eq_1([1.1, 1.4], [0.5, 0.5], 0.2), 3) == 0.575
    assert round(paper.eq_2(1.0, math.log(0.5), math.log(0.4), 0.04), 3) == 0.991
    assert round(paper.eq_3([[1.1, 1.3], [0.9]], [[1, 1], [-1]], [[0.01, 0.02], [0.01]], 0.2, 0.04), 4) == 0.1245
    assert [round(paper.eq_4(math.log(p), math.log(0.4)), 3) for p in (0.5, 0.3)] == [0.023, 0.046]
    assert [round(a, 2) for a in paper.sec_4_1_2([0.9, 0.1, 0.3, 0.7])] == [1.26, -1.26, -0.63, 0.63]
    assert [round(a, 2) for a in paper.sec_4_1_2([0.9, 0.1, 0.3, 0.7], sample_std=True)] == [1.1, -1.1, -0.55, 0.55]
    steps = paper.sec_4_1_3([[0.9, 0.8, 0.9], [0.9, 0.2]], [[0, 1, 2], [0, 1]], [3, 2])
    assert [[round(a, 2) for a in row] for row in steps] == [[1.39, 0.81, 0.59], [-1.39, -1.98]]
    direction = paper.softmax_gradient([0.5, 0.3, 0.2], 0)
    assert [round(g, 2) for g in paper.eq_5([1.26], [direction])] == [0.63, -0.38, -0.25]
    assert [paper.eq_10(c) for c in (True, False, False, True)] == [1, 0, 0, 1]
    assert round(paper.eq_21(paper.sec_4_1_2([0.9, 0.1, 0.3, 0.7])[1], math.log(0.5), math.log(0.4), 0.04), 3) == -1.273
    assert paper.sigmoid(0.0) == 0.5


@given(pi=st.lists(LOGP, min_size=1, max_size=4), a=st.floats(-2, 2), ref=LOGP, beta=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_equation_21_is_the_slope_of_equation_19_and_3(pi: list[float], a: float, ref: float, beta: float) -> None:
    old, T = list(pi), len(pi)

    def eq_19(x: list[float]) -> float:
        ratios = [math.exp(p - q) for p, q in zip(x, old, strict=True)]
        return paper.eq_19([ratios], [[a] * T], [x], [[ref] * T], beta)

    def eq_3(x: list[float]) -> float:
        ratios = [math.exp(p - q) for p, q in zip(x, old, strict=True)]
        return paper.eq_3([ratios], [[a] * T], [[paper.eq_4(p, ref) for p in x]], 0.2, beta)

    for t in range(T):
        coefficient = paper.eq_21(a, pi[t], ref, beta) / T
        assert paper.slope(eq_19, pi, t) == pytest.approx(coefficient, abs=1e-6)
        assert paper.slope(eq_3, pi, t) == pytest.approx(coefficient, abs=1e-6)


@given(good=st.lists(LOGP, min_size=1, max_size=3), bad=st.lists(LOGP, min_size=1, max_size=3), beta=st.floats(0.1, 2))
@settings(max_examples=30, deadline=None)
def test_equation_14_is_the_gradient_of_equation_12(good: list[float], bad: list[float], beta: float) -> None:
    good_ref, bad_ref = [-0.5] * len(good), [-1.5] * len(bad)
    coefficient = paper.eq_14(good, good_ref, bad, bad_ref, beta)
    up = paper.slope(lambda x: paper.eq_12(x, good_ref, bad, bad_ref, beta), good, 0)
    down = paper.slope(lambda x: paper.eq_12(good, good_ref, x, bad_ref, beta), bad, 0)
    assert up == pytest.approx(coefficient / len(good), abs=1e-6)
    assert down == pytest.approx(-coefficient / len(bad), abs=1e-6)


def test_equation_14_as_printed_is_not_the_gradient_of_equation_12() -> None:
    good, bad = [-1.0, -0.4], [-2.0, -0.1]
    good_ref, bad_ref = [-1.1, -0.9], [-1.0, -0.3]
    slope = 2 * paper.slope(lambda x: paper.eq_12(x, good_ref, bad, bad_ref, 0.1), good, 0)
    assert abs(slope - paper.eq_14(good, good_ref, bad, bad_ref, 0.1)) < 1e-8
    assert abs(slope - paper.eq_14_printed(good[0], good_ref[0], bad[0], bad_ref[0], 0.1)) > 0.1


@given(rewards=st.lists(st.floats(-3, 3), min_size=2, max_size=8), sample=st.booleans())
@settings(max_examples=60, deadline=None)
def test_group_advantage_is_section_4_1_2(rewards: list[float], sample: bool) -> None:
    want = paper.sec_4_1_2(rewards, sample_std=sample)
    if max(rewards) - min(rewards) < 1e-6:
        return  # below that the float64 rounding of either sum shows
    got = group_advantage(
        torch.tensor(rewards, dtype=D),
        torch.zeros(len(rewards), dtype=torch.int64),
        std="sample" if sample else "population",
    )
    assert got.tolist() == pytest.approx(want, abs=1e-8)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_step_advantage_is_section_4_1_3(data: st.DataObject) -> None:
    T, G = 6, data.draw(st.integers(2, 4))
    lengths = [data.draw(st.integers(1, T)) for _ in range(G)]
    ends = [sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=3))) for n in lengths]
    rewards = [[data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])) for _ in row] for row in ends]
    want = paper.sec_4_1_3(rewards, ends, lengths)
    K = max(map(len, ends))
    got = step_advantage(
        torch.tensor([row + [math.nan] * (K - len(row)) for row in rewards], dtype=D),
        torch.tensor([row + [-1] * (K - len(row)) for row in ends]),
        torch.zeros(G, dtype=torch.int64),
        torch.ones(G, dtype=torch.bool),
        T,
    )
    for row, wanted, n in zip(got.tolist(), want, lengths, strict=True):
        assert row[:n] == pytest.approx(wanted, abs=1e-9)
        assert row[n:] == [0.0] * (T - n)


def test_a_single_step_at_the_end_is_outcome_supervision() -> None:
    rewards = torch.tensor([0.9, 0.1, 0.3, 0.7], dtype=D)
    one = torch.zeros(4, dtype=torch.int64)
    steps = step_advantage(rewards[:, None], torch.full((4, 1), 2), one, torch.ones(4, dtype=torch.bool), 3)
    assert torch.equal(steps, group_advantage(rewards, one)[:, None].expand(4, 3))


def _on_policy(name: str) -> tuple[Any, TokenBatch, CreditInput]:
    one = torch.tensor([[0.5, 0.3], [0.6, 0.2], [0.7, 0.9], [0.4, 0.8]], dtype=D).log()
    ref = torch.tensor([[0.4, 0.4], [0.5, 0.3], [0.6, 0.6], [0.4, 0.5]], dtype=D).log()
    rows = CreditInput(
        rewards=torch.tensor([0.9, 0.1, 0.3, 0.7], dtype=D),
        group=torch.zeros(4, dtype=torch.int64),
        mask=torch.ones(4, 2, dtype=torch.bool),
        logp_old=one,
        logp_ref=ref,
        value=torch.full((4, 2), 0.25, dtype=D),
        step_ends=torch.tensor([[0, 1]] * 4),
        step_rewards=torch.tensor([[0.1, 0.9], [0.3, 0.1], [0.5, 0.3], [0.2, 0.7]], dtype=D),
    )
    cfg = parse({"name": name})
    credit = METHODS[name].credit(rows, cfg)
    tokens = TokenBatch(
        logp=one,
        logp_old=one,
        logp_behaviour=one,
        logp_ref=ref,
        advantage=credit.advantage.double(),
        mask=credit.mask,
        pair=credit.pair,
    )
    return cfg, tokens, rows


def _wanted(name: str, cfg: Any, tokens: TokenBatch, rows: CreditInput) -> list[list[float]]:
    pi, ref = tokens.logp.tolist(), tokens.logp_ref.tolist()  # type: ignore[union-attr]
    r = rows.rewards.tolist()
    if name == "sft":
        return [[1.0] * 2] * 4
    if name in ("rft", "online_rft"):
        return [[paper.eq_10(x > 0.5)] * 2 for x in r]
    if name == "dpo":
        first, second = (paper.eq_14(pi[i], ref[i], pi[j], ref[j], cfg.beta) for i, j in ((0, 1), (3, 2)))
        return [[first] * 2, [-first] * 2, [-second] * 2, [second] * 2]
    if name == "ppo":
        return [[paper.eq_18(a) for a in _gae(x, p, q, cfg)] for x, p, q in zip(r, pi, ref, strict=True)]
    if name == "grpo":
        advantages = [[a, a] for a in paper.sec_4_1_2(r)]
    else:
        assert rows.step_rewards is not None
        assert rows.step_ends is not None
        advantages = paper.sec_4_1_3(rows.step_rewards.tolist(), rows.step_ends.tolist(), [2] * 4)
    return [
        [paper.eq_21(a, p, q, cfg.beta) for a, p, q in zip(*row, strict=True)]
        for row in zip(advantages, pi, ref, strict=True)
    ]


def _gae(score: float, pi: list[float], ref: list[float], cfg: Any) -> list[float]:
    fees = [paper.eq_2(0.0, pi[0], ref[0], cfg.beta), paper.eq_2(score, pi[1], ref[1], cfg.beta)]
    last = fees[1] - 0.25
    return [fees[0] + cfg.gamma * 0.25 - 0.25 + cfg.gamma * cfg.lam * last, last]


@pytest.mark.parametrize("name", ["sft", "rft", "online_rft", "dpo", "ppo", "grpo", "grpo_process"])
def test_each_coefficient_of_the_paper_is_the_methods_coefficient(name: str) -> None:
    cfg, tokens, rows = _on_policy(name)
    got = METHODS[name].coefficient(tokens, cfg).tolist()
    for row, wanted in zip(got, _wanted(name, cfg, tokens, rows), strict=True):
        assert row == pytest.approx(wanted, abs=1e-6)  # advantages are float32


def test_ppo_rewards_carry_the_fee_of_equation_2() -> None:
    cfg = parse({"name": "ppo", "lam": 0.0, "gamma": 0.0})
    _, tokens, rows = _on_policy("ppo")
    credit = METHODS["ppo"].credit(rows, cfg)
    pi, ref = tokens.logp.tolist(), tokens.logp_ref.tolist()  # type: ignore[union-attr]
    for b, row in enumerate(credit.advantage.tolist()):
        want = [
            paper.eq_2(0.0, pi[b][0], ref[b][0], 0.04),
            paper.eq_2(float(rows.rewards[b]), pi[b][1], ref[b][1], 0.04),
        ]
        assert row == pytest.approx([x - 0.25 for x in want], abs=1e-6)


@pytest.mark.parametrize("name", ["sft", "rft", "grpo", "ppo"])
def test_equation_5_is_the_gradient_of_every_method_in_logits(name: str) -> None:
    cfg, tokens, _ = _on_policy(name)
    logits = torch.randn(4, 2, 3, dtype=D, generator=torch.Generator().manual_seed(0)).requires_grad_()
    logp = logits.log_softmax(-1)[:, :, 0]
    old = logp.detach()
    batch = TokenBatch(
        logp=logp,
        logp_old=old,
        logp_behaviour=old,
        logp_ref=tokens.logp_ref,
        advantage=tokens.advantage,
        mask=tokens.mask,
        value=torch.zeros(4, 2, dtype=D),
        returns=torch.zeros(4, 2, dtype=D),
    )
    loss = METHODS[name].loss(batch, cfg)[0].mean()  # one response: 1 / |o|
    got = -torch.autograd.grad(loss, logits)[0][0].sum(0)
    directions = [paper.softmax_gradient(p, 0) for p in logits[0].softmax(-1).tolist()]
    want = paper.eq_5(METHODS[name].coefficient(batch, cfg)[0].tolist(), directions)
    assert got.tolist() == pytest.approx(want, abs=1e-12)


def test_algorithm_1_refreshes_policy_reference_and_reward_model_when_it_says() -> None:
    log: list[str] = []

    def update(policy: int, old: int, reference: int, outputs: str, advantages: int) -> int:
        log.append(f"update {policy} from {old} against {reference} on {outputs} worth {advantages}")
        return policy + 1

    def refresh(model: int, policy: int) -> int:
        log.append(f"refresh {model} with {policy}")
        return model + 1

    last = paper.algorithm_1(
        0,
        iterations=2,
        steps=2,
        mu=1,
        draw=lambda step: step,
        sample=lambda old, questions: f"o{questions} of {old}",
        score=lambda model, outputs: model,
        advantage=lambda rewards: 10 * rewards,
        update=update,
        refresh=refresh,
        reward_model=1,
    )
    assert last == 4
    assert log == [
        "update 0 from 0 against 0 on o0 of 0 worth 10",
        "update 1 from 1 against 0 on o1 of 1 worth 10",
        "refresh 1 with 2",
        "update 2 from 2 against 2 on o0 of 2 worth 20",
        "update 3 from 3 against 2 on o1 of 3 worth 20",
        "refresh 2 with 4",
    ]
