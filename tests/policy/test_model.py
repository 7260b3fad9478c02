"""The policy against transformers' own plain forward pass."""

from pathlib import Path

import pytest
import torch

from algorist.errors import InputError
from algorist.policy.build import build_policy
from algorist.policy.config import NewPolicyConfig, PolicyConfig
from algorist.policy.model import CausalPolicy, pick_device

ROWS = [([5, 6, 7], [8, 9]), ([5, 6, 7], [8, 9]), ([5, 6, 7], [8, 4, 3]), ([5, 9], [10]), ([11], [3, 4, 5, 6, 1])]


def plain_logp(policy, prompt, response, temperature=1.0):
    ids = torch.tensor([[*prompt, *response]])
    logits = policy.model(input_ids=ids).logits[0].float() / temperature
    logp = torch.log_softmax(logits, -1)
    first = len(prompt) - 1
    return torch.stack([logp[first + t, token] for t, token in enumerate(response)])


def scored(policy, rows, *, temperature=1.0, max_tokens=10_000):
    out = [None] * len(rows)
    for batch in policy.micro_batches(rows, max_tokens=max_tokens):
        scores = policy.score(batch, rows, temperature=temperature)
        for i, row in enumerate(scores.rows):
            assert out[row] is None, "a row was scored twice"
            out[row] = scores.logp[i, : len(rows[row][1])]
            assert not scores.logp[i, len(rows[row][1]) :].any(), "padding must be 0"
    return out


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("layout", ["trie", "padded"])
def test_scores_equal_the_plain_forward_pass(make_policy, layout, temperature) -> None:
    policy = make_policy()
    assert policy.layout == "trie"
    policy.layout = layout
    for (prompt, response), logp in zip(ROWS, scored(policy, ROWS, temperature=temperature), strict=True):
        # float32 sums in another order: a few ulp of logits of size about 1
        torch.testing.assert_close(logp, plain_logp(policy, prompt, response, temperature), atol=2e-5, rtol=0)


def test_micro_batches_change_no_score_and_no_gradient(make_policy) -> None:
    gradients = []
    for max_tokens in (1, 8, 10_000):
        policy = make_policy()
        total = torch.stack([s.sum() for s in scored(policy, ROWS, max_tokens=max_tokens)]).sum()
        total.backward()
        gradients.append([p.grad.clone() for p in policy.parameters()])
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_gradient_equals_that_of_the_plain_forward_pass(make_policy) -> None:
    policy, other = make_policy(), make_policy()
    torch.stack([s.sum() for s in scored(policy, ROWS)]).sum().backward()
    torch.stack([plain_logp(other, p, r).sum() for p, r in ROWS]).sum().backward()
    for a, b in zip(policy.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4)


def test_chunked_head_changes_nothing(make_policy, monkeypatch) -> None:
    policy = make_policy()
    whole = scored(policy, ROWS)
    monkeypatch.setattr("algorist.policy.model.HEAD_CHUNK", 2)
    for a, b in zip(whole, scored(policy, ROWS), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_entropy_is_that_of_the_sampling_distribution(make_policy) -> None:
    policy = make_policy()
    (batch,) = policy.micro_batches([ROWS[4]], max_tokens=100)
    scores = policy.score(batch, [ROWS[4]], temperature=0.7)
    logits = policy.model(input_ids=torch.tensor([[11, 3, 4, 5, 6]])).logits[0] / 0.7
    expected = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(scores.entropy[0], expected, atol=1e-5, rtol=0)


def test_a_one_token_response_is_scored_from_the_last_prompt_token(make_policy) -> None:
    policy = make_policy()
    (logp,) = scored(policy, [([5, 6], [9])])
    torch.testing.assert_close(logp, plain_logp(policy, [5, 6], [9]), atol=2e-5, rtol=0)


def test_equal_seeds_give_equal_weights_and_other_seeds_others(make_policy) -> None:
    from algorist.policy.weights import weights_digest

    assert weights_digest(make_policy(3)) == weights_digest(make_policy(3)) != weights_digest(make_policy(4))


def test_bfloat16_head_is_float32(make_policy) -> None:
    policy = make_policy(dtype="bfloat16")
    with policy.compute():
        assert policy.logits(torch.zeros(1, 32)).dtype == torch.float32


def test_an_architecture_with_scaled_logits_is_refused() -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    config = GraniteConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, logits_scaling=8.0, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with pytest.raises(InputError, match="logit scaling"):
        CausalPolicy(GraniteForCausalLM(config), None, dtype="float32", device=torch.device("cpu"))


def test_a_sliding_window_model_is_laid_out_as_its_own_forward_pass_allows() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=3, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    policy = CausalPolicy(MistralForCausalLM(config), None, dtype="float32", device=torch.device("cpu"))
    assert policy.layout == "padded"
    for (prompt, response), logp in zip(ROWS, scored(policy, ROWS), strict=True):
        torch.testing.assert_close(logp, plain_logp(policy, prompt, response), atol=2e-5, rtol=0)


def test_cuda_is_refused_where_there_is_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    assert pick_device("auto").type == "cpu"
    with pytest.raises(InputError, match=r"policy\.device"):
        pick_device("cuda")


def test_products_on_a_gpu_are_not_rounded_behind_the_back_of_the_replay_gate() -> None:
    """TF32 alone moves log-probabilities by about 1e-3. The switches are read here; their effect needs a GPU."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision, matmul.allow_bf16_reduced_precision_reduction
    try:
        matmul.fp32_precision, matmul.allow_bf16_reduced_precision_reduction = "tf32", True
        new = NewPolicyConfig(hidden_size=16, intermediate_size=16, num_layers=1, num_heads=2, context=16)
        build_policy(PolicyConfig(new=new), base=Path(), texts=["01"], seed=0)
        assert (matmul.fp32_precision, matmul.allow_bf16_reduced_precision_reduction) == ("ieee", False)
    finally:
        matmul.fp32_precision, matmul.allow_bf16_reduced_precision_reduction = before
