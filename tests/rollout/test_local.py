"""The embedded sampler: its log-probabilities, its independence of batches, its finish reasons."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.flow import Finish, Prompt
from algorist.policy.model import CausalPolicy
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine, sample, top_p_mask

PROMPTS = [
    Prompt(problem_id="a", token_ids=(5, 6, 7), text=""),
    Prompt(problem_id="b", token_ids=(5, 6), text=""),
    Prompt(problem_id="c", token_ids=(9, 9, 9, 4, 3), text=""),
]
PLAN = SamplingPlan(temperature=1.0, response_tokens=10, stop_ids=frozenset({1, 12}))


def generate(policy, prompts=PROMPTS, *, num_samples=4, plan=PLAN, version=0, max_rows=512):
    return LocalEngine(policy, max_rows=max_rows).generate(
        prompts, num_samples=num_samples, plan=plan, policy_version=version, seed=3
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_trainer_and_sampler_agree_before_any_update_and_the_ratio_is_one(make_policy, temperature) -> None:
    policy = make_policy()
    plan = SamplingPlan(temperature=temperature, response_tokens=10, stop_ids=frozenset({1, 12}))
    rollouts = [r for group in generate(policy, plan=plan) for r in group]
    rows = [(r.prompt_ids, r.token_ids) for r in rollouts]
    for batch in policy.micro_batches(rows, max_tokens=64):
        scores = policy.score(batch, rows, temperature=temperature)
        for i, row in enumerate(scores.rows):
            stored = torch.tensor(rollouts[row].behaviour_logp)
            logp = scores.logp[i, : len(stored)].detach()
            # float32: the cache and the trie add the same terms in another order
            torch.testing.assert_close(logp, stored, atol=2e-5, rtol=0)
            torch.testing.assert_close((logp - stored).exp(), torch.ones_like(stored), atol=2e-5, rtol=0)


def test_a_rollout_does_not_depend_on_what_it_was_batched_with(make_policy) -> None:
    policy = make_policy()
    together = generate(policy)
    for prompt, group in zip(PROMPTS, together, strict=True):
        (alone,) = generate(policy, [prompt])
        assert [r.token_ids for r in alone] == [r.token_ids for r in group]
        for a, b in zip(alone, group, strict=True):
            np.testing.assert_allclose(a.behaviour_logp, b.behaviour_logp, atol=2e-5)
    assert [[r.token_ids for r in g] for g in generate(policy, max_rows=4)] == [
        [r.token_ids for r in g] for g in together
    ]
    reversed_order = generate(policy, PROMPTS[::-1])
    assert [[r.token_ids for r in g] for g in reversed_order[::-1]] == [[r.token_ids for r in g] for g in together]


def test_more_samples_leave_the_first_ones_as_they_were(make_policy) -> None:
    policy = make_policy()
    few, many = generate(policy, num_samples=2), generate(policy, num_samples=6)
    assert [[r.token_ids for r in g] for g in few] == [[r.token_ids for r in g[:2]] for g in many]


def test_same_seed_same_rollouts_other_version_others(make_policy) -> None:
    policy = make_policy()
    assert generate(policy) == generate(policy)
    assert [r.token_ids for g in generate(policy, version=1) for r in g] != [
        r.token_ids for g in generate(policy) for r in g
    ]


def test_finish_reasons_are_told_by_the_sampler(make_policy) -> None:
    rollouts = [r for g in generate(make_policy(), num_samples=40) for r in g]
    assert {r.finish for r in rollouts} == {Finish.STOP, Finish.LENGTH}
    for r in rollouts:
        assert (r.token_ids[-1] in PLAN.stop_ids) == (r.finish is Finish.STOP)
        assert not set(r.token_ids[:-1]) & PLAN.stop_ids
        assert r.truncated == (r.finish is Finish.LENGTH)
        assert len(r.token_ids) <= 10


def test_a_stop_id_as_the_very_last_allowed_token_is_a_stop(make_policy) -> None:
    plan = SamplingPlan(temperature=1.0, response_tokens=1, stop_ids=frozenset(range(3, 20)))
    finishes = {r.finish for g in generate(make_policy(), num_samples=40, plan=plan) for r in g}
    assert Finish.STOP in finishes


def test_every_stop_id_counts_not_only_the_first(make_policy) -> None:
    ends = {r.token_ids[-1] for g in generate(make_policy(), num_samples=60) for r in g if r.finish is Finish.STOP}
    assert ends == {1, 12}


def test_a_row_with_non_finite_logits_is_an_error_not_a_response(make_policy) -> None:
    policy = make_policy()
    with torch.no_grad():
        policy.model.model.norm.weight[0] = float("nan")
    (row,) = generate(policy, [PROMPTS[2]], num_samples=1)[0]
    assert row.finish is Finish.ERROR
    assert row.token_ids == ()


def test_a_prompt_that_does_not_fit_is_refused_by_name(make_policy) -> None:
    long = Prompt(problem_id="long", token_ids=(5,) * 45, text="")
    with pytest.raises(InputError, match="long has 45 \\+ 10"):
        generate(make_policy(), [long])


def test_greedy_is_what_transformers_generates(make_policy) -> None:
    policy = make_policy(7)
    plan = SamplingPlan(temperature=0.0, response_tokens=12, stop_ids=frozenset({1}))
    for prompt, (rollout,) in zip(PROMPTS, generate(policy, num_samples=1, plan=plan), strict=True):
        out = policy.model.generate(
            torch.tensor([prompt.token_ids]), max_new_tokens=12, do_sample=False, eos_token_id=1, pad_token_id=0
        )
        assert out[0, len(prompt.token_ids) :].tolist() == list(rollout.token_ids)


def test_a_sliding_window_model_samples_what_it_scores() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    from algorist.policy.config import NewTokenizerConfig
    from algorist.policy.tokenizer import train_tokenizer

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=3, pad_token_id=0, bos_token_id=None, eos_token_id=1,
    )  # fmt: skip
    tokenizer = train_tokenizer(NewTokenizerConfig(), ["0123456789+-="], context=48)
    policy = CausalPolicy(MistralForCausalLM(config), tokenizer, dtype="float32", device=torch.device("cpu"))
    rollouts = [r for g in generate(policy) for r in g]
    rows = [(r.prompt_ids, r.token_ids) for r in rollouts]
    for batch in policy.micro_batches(rows, max_tokens=64):
        scores = policy.score(batch, rows, temperature=1.0)
        for i, row in enumerate(scores.rows):
            stored = torch.tensor(rollouts[row].behaviour_logp)
            torch.testing.assert_close(scores.logp[i, : len(stored)].detach(), stored, atol=2e-5, rtol=0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-4, 4), min_size=2, max_size=6), st.floats(0.3, 2.0), st.floats(0.05, 1.0))
def test_sampled_frequencies_and_log_probabilities_are_those_of_the_distribution(logits, temperature, top_p) -> None:
    """The inverse CDF is exact: over an even grid of u, token v is drawn for a share p(v) of the grid."""
    plan = SamplingPlan(temperature=temperature, top_p=top_p, response_tokens=1, stop_ids=frozenset())
    N = 4000
    row = torch.tensor(logits, dtype=torch.float32)
    token, logp, finite = sample(row.expand(N, -1), (np.arange(N) + 0.5) / N, plan)
    p = torch.softmax(row / temperature, -1)
    if top_p < 1:
        p = p * top_p_mask(p.log()[None], top_p)[0]
        p = p / p.sum()
    assert finite.all()
    counts = np.bincount(token, minlength=len(logits)) / N
    np.testing.assert_allclose(counts, p.numpy(), atol=2 / N)
    np.testing.assert_allclose(logp, p.log().numpy()[token], atol=1e-4)


def test_a_draw_at_the_end_of_the_unit_interval_never_leaves_the_top_p_set() -> None:
    plan = SamplingPlan(temperature=1.0, top_p=0.5, response_tokens=1, stop_ids=frozenset())
    token, logp, _ = sample(torch.tensor([[2.0, 0.0, 0.0]]), np.array([1.0 - 2**-53]), plan)
    assert token.tolist() == [0]
    assert np.isfinite(logp).all()
