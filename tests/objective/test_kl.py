"""KL estimators against the exact divergence of a policy over three symbols."""

import math

import pytest
import torch
from torch import Tensor

from algorist.objective import kl
from algorist.objective.config import parse
from algorist.objective.credit import token_kl
from algorist.objective.knobs import KL
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput, TokenBatch

D = torch.float64
POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=D)
REFERENCE = torch.tensor([0.4, 0.4, 0.2], dtype=D)
KINDS: tuple[KL, ...] = ("k1", "k2", "k3", "k3_plus", "k3_importance")


def exact_gradient(forward: bool) -> Tensor:
    """Of KL(pi || ref), or KL(ref || pi), with respect to the logits."""
    logits = POLICY.log().requires_grad_()
    logp = logits.log_softmax(0)
    value = (logp.exp() * (logp - REFERENCE.log())).sum() if forward else -(REFERENCE * logp).sum()
    return torch.autograd.grad(value, logits)[0]


def expected_gradient(kind: KL) -> Tensor:
    """E over sampled tokens of the gradient of the estimate, as a loss sees it."""
    total = torch.zeros(3, dtype=D)
    for symbol in range(3):
        logits = POLICY.log().requires_grad_()
        logp = logits.log_softmax(0)[symbol]
        value = kl.estimate(kind, logp, REFERENCE.log()[symbol], logp.detach())
        total += POLICY[symbol] * torch.autograd.grad(value, logits)[0]
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_autograd_of_the_estimate_is_its_slope(kind: KL) -> None:
    logp = torch.linspace(-3, -0.1, 7, dtype=D).requires_grad_()
    ref, old = torch.linspace(-1, -2, 7, dtype=D), torch.linspace(-2, -0.5, 7, dtype=D)
    for clamp in (None, 0.5):
        value = kl.estimate(kind, logp, ref, old, clamp)
        got = torch.autograd.grad(value.sum(), logp)[0]
        torch.testing.assert_close(got, kl.slope(kind, logp.detach(), ref, old, clamp), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_right_on_average_and_k2_is_not(kind: KL) -> None:
    exact = (POLICY * (POLICY / REFERENCE).log()).sum().item()

    def mean(kind: KL) -> float:
        return (POLICY * kl.estimate(kind, POLICY.log(), REFERENCE.log(), POLICY.log())).sum().item()

    assert mean(kind) == pytest.approx(exact, abs=1e-15)
    assert exact == pytest.approx(0.0253, abs=5e-5)
    assert abs(mean("k2") - exact) > 1e-4


def test_k1_in_a_loss_pulls_nowhere() -> None:
    assert expected_gradient("k1").abs().max().item() < 1e-15


@pytest.mark.parametrize("kind", ["k2", "k3_plus", "k3_importance"])
def test_k2_and_the_corrected_k3_have_the_gradient_of_the_divergence(kind: KL) -> None:
    torch.testing.assert_close(expected_gradient(kind), exact_gradient(True), atol=1e-14, rtol=0)


def test_plain_k3_has_the_gradient_of_the_other_divergence() -> None:
    torch.testing.assert_close(expected_gradient("k3"), exact_gradient(False), atol=1e-14, rtol=0)


def test_k3_importance_is_unbiased_off_policy_too() -> None:
    old = torch.tensor([0.2, 0.2, 0.6], dtype=D)
    total = torch.zeros(3, dtype=D)
    for symbol in range(3):
        logits = POLICY.log().requires_grad_()
        logp = logits.log_softmax(0)[symbol]
        value = kl.estimate("k3_importance", logp, REFERENCE.log()[symbol], old.log()[symbol])
        total += old[symbol] * torch.autograd.grad(value, logits)[0]
    torch.testing.assert_close(total, exact_gradient(True), atol=1e-14, rtol=0)


@pytest.mark.parametrize("kind", ["k2", "k3", "k3_plus", "k3_importance"])
def test_raising_beta_lowers_the_exact_kl_after_a_step(kind: KL) -> None:
    def after(beta: float) -> float:
        logits = POLICY.log().requires_grad_()
        logp = logits.log_softmax(0)[:, None]
        cfg = parse({"name": "grpo", "kl": kind, "beta": beta})
        batch = TokenBatch(
            logp=logp,
            logp_old=logp.detach(),
            logp_behaviour=logp.detach(),
            logp_ref=REFERENCE.log()[:, None],
            advantage=torch.tensor([[1.0], [-1.0], [0.0]], dtype=D),
            mask=torch.ones(3, 1, dtype=torch.bool),
        )
        loss = (METHODS["grpo"].loss(batch, cfg) * POLICY[:, None]).sum()
        moved = (logits.detach() - 0.1 * torch.autograd.grad(loss, logits)[0]).softmax(0)
        return float((moved * (moved / REFERENCE).log()).sum())

    values = [after(beta) for beta in (0.0, 0.1, 0.5, 1.0, 2.0)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 5


def test_kl_in_the_reward_is_one_fee_per_response_and_none_in_the_loss() -> None:
    cfg = parse({"name": "rloo", "beta": 0.5})
    rows = CreditInput(
        rewards=torch.tensor([1.0, 0.0], dtype=D),
        group=torch.tensor([0, 0]),
        mask=torch.tensor([[True, True], [True, False]]),
        logp_old=torch.tensor([[math.log(0.5)] * 2, [math.log(0.3), 7.0]], dtype=D),
        logp_ref=torch.full((2, 2), math.log(0.4), dtype=D),
    )
    credit = METHODS["rloo"].credit(rows, cfg)
    fee = [2 * math.log(1.25), math.log(0.75)]
    assert token_kl(rows, "k1", None).sum(-1).tolist() == pytest.approx(fee)
    assert credit.reward.tolist() == pytest.approx([1 - 0.5 * fee[0], -0.5 * fee[1]])
    batch = TokenBatch(
        logp=rows.logp_old * 1.5,  # type: ignore[operator]
        logp_old=rows.logp_old,  # type: ignore[arg-type]
        logp_behaviour=rows.logp_old,  # type: ignore[arg-type]
        logp_ref=rows.logp_ref,
        advantage=credit.advantage.double(),
        mask=credit.mask,
    )
    assert torch.equal(METHODS["rloo"].coefficient(batch, cfg), batch.advantage)
