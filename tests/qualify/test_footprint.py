"""What a run will need, counted on a few tokens: exact where it can be, and no more than it says."""

from pathlib import Path

import pytest
import torch

from algorist.policy.build import build_policy
from algorist.policy.config import NewPolicyConfig, PolicyConfig
from algorist.policy.model import CausalPolicy
from algorist.policy.offload import offload_layers
from algorist.qualify import footprint
from algorist.qualify.footprint import Shape

SHAPE = Shape(nodes=4096, line=256, cache_rows=16, cache_tokens=64, reference=False, offload=False)


def made(dtype: str = "float32", **new: object) -> CausalPolicy:
    cfg = NewPolicyConfig(**{"hidden_size": 32, "intermediate_size": 64, "num_layers": 3, "context": 512, **new})
    return build_policy(PolicyConfig(new=cfg, dtype=dtype), base=Path(), texts=["0123456789+="], seed=0)


def changed(**parts: object) -> Shape:
    return Shape(**{name: parts.get(name, getattr(SHAPE, name)) for name in Shape.__dataclass_fields__})


def saved(policy: CausalPolicy, length: int) -> int:
    """Bytes that autograd really keeps of one sequence."""
    return int(footprint.saved(policy, length))


@pytest.mark.parametrize("new", [{}, {"num_kv_heads": 2}, {"experts": 4}])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_counted_on_48_tokens_is_what_300_tokens_keep(new, dtype) -> None:
    policy = made(dtype, **new)
    kept = footprint.count(policy)
    expected = kept.constant + 300 * kept.per_token + 300**2 * kept.per_pair
    assert saved(policy, 300) == pytest.approx(expected, rel=0.02)


def test_a_llama_layer_keeps_about_twelve_widths_and_four_inner_widths_of_a_token() -> None:
    """The rule of thumb, as a check that nothing is counted twice: 12 h + 4 ff values of 4 bytes."""
    kept = footprint.count(made(hidden_size=256, intermediate_size=768, num_heads=4))
    assert kept.per_token / 3 == pytest.approx(4 * (12 * 256 + 4 * 768), rel=0.1)


def test_the_cache_of_a_token_is_two_vectors_a_layer() -> None:
    assert footprint.count(made()).cache_per_token == 3 * 2 * 32 * 4
    assert footprint.count(made(num_heads=4, num_kv_heads=2)).cache_per_token == 3 * 2 * 16 * 4


def test_counting_changes_no_weight_no_gradient_and_leaves_recomputation_on() -> None:
    policy = made()
    plain = footprint.count(policy)
    offload_layers(policy)
    before = [p.detach().clone() for p in policy.parameters()]
    assert footprint.count(policy) == plain, "recomputed layers are counted as if they were not"
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert all(p.grad is None for p in policy.parameters())
    assert saved(policy, 64) < 0.3 * (64 * plain.per_token + 64**2 * plain.per_pair)


def test_offload_lowers_what_autograd_keeps_to_one_input_a_layer() -> None:
    policy = made()
    plain = saved(policy, 256)
    offload_layers(policy)
    assert saved(policy, 256) < plain / 10


def test_a_prediction_grows_with_the_micro_batch_and_falls_with_offload() -> None:
    policy = made()
    kept = footprint.count(policy)
    peak = footprint.peak_of(footprint.predict(policy, SHAPE, kept))
    assert footprint.peak_of(footprint.predict(policy, changed(nodes=2048), kept)) < peak
    assert footprint.peak_of(footprint.predict(policy, changed(offload=True), kept)) < peak
    assert footprint.peak_of(footprint.predict(policy, changed(reference=True), kept)) > peak
    sizes = footprint.predict(policy, SHAPE, kept)
    assert max(sizes, key=lambda name: sizes[name]).startswith("activations of a micro-batch of 4,096")


def test_sampling_and_training_take_turns() -> None:
    policy = made()
    kept = footprint.count(policy)
    small = footprint.predict(policy, changed(cache_rows=4), kept)
    assert footprint.peak_of(small) == footprint.peak_of(footprint.predict(policy, SHAPE, kept)), "training dominates"
    large = changed(cache_rows=4096, cache_tokens=512)
    assert footprint.peak_of(footprint.predict(policy, large, kept)) > footprint.peak_of(small)


def test_the_largest_micro_batch_is_laid_out_as_the_trainer_will() -> None:
    policy = made()
    rows = [((5, 6, 7), tuple(8 + (i + t) % 4 for t in range(20))) for i in range(4)]
    nodes, line = footprint.layout(policy, rows, max_tokens=1 << 20)
    assert nodes == line == 3 + 4 * 19, "one trie: the prompt once, and of each response all but the last token"
    assert footprint.layout(policy, rows, max_tokens=44) == (3 + 2 * 19, 3 + 2 * 19), "two rows a micro-batch"
    assert footprint.layout(policy, rows, max_tokens=1) == (22, 22), "a row is never cut"
