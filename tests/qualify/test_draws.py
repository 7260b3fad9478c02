"""Tokens are the draws that their seeds give under the policy, or it is found out."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from algorist.flow import Prompt
from algorist.qualify import draws
from algorist.qualify.policy_gates import _rows
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine

PROMPTS = [Prompt(problem_id=f"p{i}", token_ids=tuple(range(3, 5 + i)), text="") for i in range(4)]


def sampled(policy, seed: int, **plan):
    how = SamplingPlan(**{"temperature": 1.0, "response_tokens": 8, "stop_ids": frozenset({1}), **plan})
    return [
        r
        for g in LocalEngine(policy).generate(PROMPTS, num_samples=4, plan=how, policy_version=0, seed=seed)
        for r in g
    ]


def looked_at(policy, rollouts, temperature: float = 1.0) -> draws.Draws:
    rows = _rows(rollouts)
    logp, below = torch.zeros(rows.mask.shape), torch.zeros(rows.mask.shape)
    with torch.no_grad(), policy.compute():
        for batch in policy.micro_batches(rows.tokens, max_tokens=4096):
            scores = policy.score(batch, rows.tokens, temperature=temperature, num_tokens=rows.num_tokens)
            logp[torch.tensor(scores.rows)], below[torch.tensor(scores.rows)] = scores.logp, scores.below
    return draws.check(rollouts, logp, below, rows.mask, dtype=policy.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@given(seed=st.integers(0, 2**31), temperature=st.sampled_from([0.6, 1.0, 1.4]))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_the_engine_draws_is_what_the_seeds_give(policy, dtype, seed, temperature) -> None:
    policy.dtype = dtype
    found = looked_at(policy, sampled(policy, seed, temperature=temperature), temperature)
    assert found.tokens > 16
    assert not found.broken


@pytest.mark.parametrize("how", [{"temperature": 0.5}, {"temperature": 2.0}, {"top_p": 0.5}], ids=str)
def test_draws_from_another_distribution_are_found_and_named(policy, how) -> None:
    rollouts = sampled(policy, 3, **how)
    found = looked_at(policy, rollouts)
    assert found.broken
    words, remedy = draws.explain(policy, rollouts, found, 1.0)
    assert f"{'top-p' if 'top_p' in how else 'temperature'} {next(iter(how.values())):g}" in words
    assert "temperature and masks" in remedy


def test_a_copied_response_is_found_though_every_figure_of_it_is_right(policy) -> None:
    rollouts = sampled(policy, 5)
    copied = replace(rollouts[0], sample=1, seed=rollouts[1].seed)
    found = looked_at(policy, [rollouts[0], copied, *rollouts[2:]])
    assert found.broken
    assert found.rows[0] == 1
    assert "copied" in draws.explain(policy, [rollouts[0], copied, *rollouts[2:]], found, 1.0)[0]
