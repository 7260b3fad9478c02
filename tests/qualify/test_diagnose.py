"""Every usual disagreement of sampler and trainer gets its own name, on whichever side it lies."""

import math

import pytest
import torch

from algorist.flow import Prompt
from algorist.qualify import replay
from algorist.qualify.diagnose import diagnose
from algorist.qualify.naive import Variant, token_logp
from algorist.qualify.policy_gates import _rows
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.train.rows import Rows

T = 0.8


@pytest.fixture
def honest(policy) -> tuple[Rows, torch.Tensor]:
    """Rows, and the plain log-probabilities of their tokens."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(3.0)  # sharper than at random, so that faults are larger than rounding
    prompts = [Prompt(problem_id=f"p{i}", token_ids=tuple(range(3, 6 + i)), text="") for i in range(6)]
    plan = SamplingPlan(temperature=T, response_tokens=8, stop_ids=frozenset({1}))
    groups = LocalEngine(policy).generate(prompts, num_samples=3, plan=plan, policy_version=0, seed=1)
    rows = _rows([r for g in groups for r in g])
    logp = torch.zeros(rows.mask.shape)
    for b, (prompt, response) in enumerate(rows.tokens):
        logp[b, : len(response)] = token_logp(policy, prompt, response, Variant(temperature=T))
    return rows, logp


def variant(policy, rows: Rows, how: Variant, prompt=lambda p: p) -> torch.Tensor:
    out = torch.zeros(rows.mask.shape)
    for b, (ids, response) in enumerate(rows.tokens):
        out[b, : len(response)] = token_logp(policy, prompt(tuple(ids)), response, how)
    return out


def named(policy, rows: Rows, *, stored: torch.Tensor, trainer: torch.Tensor, **more):
    stored, trainer = (torch.where(rows.mask, x, 0.0) for x in (stored, trainer))
    changed = Rows(**{f: getattr(rows, f) for f in rows.__dataclass_fields__} | {"behaviour": stored})
    return diagnose(policy, changed, replay.measure(changed, trainer), temperature=T, **more)


FAULTS = {
    "temperature 0.5": ("temperature", lambda p, r, x: variant(p, r, Variant(temperature=0.5))),
    "temperature 0.76": ("temperature", lambda p, r, x: variant(p, r, Variant(temperature=0.76))),
    "temperature 1.9": ("temperature", lambda p, r, x: variant(p, r, Variant(temperature=1.9))),
    "in bits": ("units", lambda p, r, x: x / math.log(2)),
    "off by -0.3 nats": ("offset", lambda p, r, x: x - 0.3),
    "the same log-probability (-1)": ("constant", lambda p, r, x: torch.full_like(x, -1.0)),
    "belongs to the next token": ("shift", lambda p, r, x: x.roll(-1, 1)),
    "belongs to the previous token": ("shift", lambda p, r, x: x.roll(1, 1)),
    "sum up to each token": ("units", lambda p, r, x: x.cumsum(1)),
    "bfloat16": ("half_head", lambda p, r, x: variant(p, r, Variant(temperature=T, head=torch.bfloat16))),
}


@pytest.mark.parametrize("side", ["sampler", "trainer"])
@pytest.mark.parametrize("words", FAULTS)
def test_each_fault_is_named_on_its_own_side(policy, honest, words, side) -> None:
    rows, right = honest
    code, make = FAULTS[words]
    wrong = make(policy, rows, right)
    stored, trainer = (wrong, right) if side == "sampler" else (right, wrong)
    cause = named(policy, rows, stored=stored, trainer=trainer)
    assert cause.code == code, cause
    assert words in cause.words
    assert side in cause.words
    assert cause.remedy


def test_another_prompt_is_named_by_what_it_is(policy, honest) -> None:
    rows, right = honest
    seen = variant(policy, rows, Variant(temperature=T), lambda p: (1, *p))
    others = {"with a mark before it": [(1, *p) for p, _ in rows.tokens], "cut": [p[:-1] for p, _ in rows.tokens]}
    cause = named(policy, rows, stored=seen, trainer=right, prompts=others)
    assert (cause.code, "with a mark before it" in cause.words) == ("prompt", True)


def test_one_wrong_token_is_pointed_at(policy, honest) -> None:
    rows, right = honest
    wrong = right.clone()
    wrong[4, 0] -= 0.7
    cause = named(policy, rows, stored=wrong, trainer=right, names=[f"row {b}" for b in range(len(right))])
    assert cause.code == "changed_rows"
    assert "row 4, token 0" in cause.words
    assert f"stored {float(wrong[4, 0]):.4g}" in cause.words


def test_last_tokens_alone_and_later_tokens_alone_are_told_apart(policy, honest) -> None:
    rows, right = honest
    length = rows.mask.sum(1)
    last = right.clone()
    last[torch.arange(len(last)), length - 1] -= 0.9
    assert named(policy, rows, stored=last, trainer=right).code == "last_token"
    noise = torch.randn(right.shape, generator=torch.Generator().manual_seed(0)).abs() + 0.2
    later = right - noise * (torch.arange(right.shape[1]) > 0)
    assert named(policy, rows, stored=later, trainer=right).code == "cache"


def test_small_differences_everywhere_are_called_precision_and_large_ones_unknown(policy, honest) -> None:
    rows, right = honest
    noise = torch.randn(right.shape, generator=torch.Generator().manual_seed(0))
    assert named(policy, rows, stored=right + 0.02 * noise, trainer=right).code == "precision"
    assert named(policy, rows, stored=right + 2.0 * noise, trainer=right).code == "unknown"


def test_values_that_are_no_numbers_and_a_policy_in_training_mode_need_no_trying_out(policy, honest) -> None:
    rows, right = honest
    assert named(policy, rows, stored=right, trainer=right * math.nan).code == "nonfinite"
    assert named(policy, rows, stored=right - 1, trainer=right, scored_at=1.0).code == "temperature"
    policy.model.train()
    assert named(policy, rows, stored=right - 1, trainer=right).code == "mode"
