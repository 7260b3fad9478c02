"""Recomputed layers give the gradients of the plain pass, bit for bit on one thread, and leave sampling alone."""

from pathlib import Path

import pytest
import torch

from algorist.policy.build import build_policy, copy_policy
from algorist.policy.config import NewPolicyConfig, PolicyConfig
from algorist.policy.offload import offload_layers

ROWS = [((5, 6, 7), (8, 9, 3)), ((5, 6, 4), (7, 3))]


def gradients(*, offload: bool, dtype: str, frozen: bool, experts: int | None) -> dict[str, torch.Tensor]:
    new = NewPolicyConfig(hidden_size=32, intermediate_size=64, num_layers=3, num_heads=4, context=32, experts=experts)
    policy = build_policy(PolicyConfig(new=new, dtype=dtype), base=Path(), texts=["0123456789+="], seed=0)
    if frozen:
        policy.model.get_input_embeddings().weight.requires_grad_(False)
    if offload:
        assert offload_layers(policy) == 3
    for batch in policy.micro_batches(ROWS, max_tokens=64):
        with policy.compute():
            scores = policy.score(batch, ROWS, temperature=1.0)
        (-scores.logp.sum()).backward()
    return {name: p.grad for name, p in policy.named_parameters()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("experts", [None, 4])
def test_recomputed_layers_give_the_same_gradients(dtype, frozen, experts) -> None:
    plain, again = (gradients(offload=x, dtype=dtype, frozen=frozen, experts=experts) for x in (False, True))
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        assert torch.equal(gradient, again[name]), name


def test_a_copy_of_a_policy_with_recomputed_layers_computes_with_its_own_weights() -> None:
    """A reference policy is such a copy: were its layers those of the policy, KL would compare the policy with itself."""
    new = NewPolicyConfig(hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, context=32)
    policy = build_policy(PolicyConfig(new=new), base=Path(), texts=["0123456789+="], seed=0)
    offload_layers(policy)
    reference = copy_policy(policy)
    (batch,) = policy.micro_batches(ROWS, max_tokens=64)
    before = reference.score(batch, ROWS, temperature=1.0).logp
    with torch.no_grad():
        for layer in policy.model.model.layers:
            for parameter in layer.parameters():
                parameter.mul_(1.5)
    assert torch.equal(reference.score(batch, ROWS, temperature=1.0).logp, before)
    assert not torch.equal(policy.score(batch, ROWS, temperature=1.0).logp, before)


def test_layers_are_recomputed_once_however_often_it_is_asked_for() -> None:
    new = NewPolicyConfig(hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, context=32)
    policy = build_policy(PolicyConfig(new=new), base=Path(), texts=["0123456789+="], seed=0)
    assert offload_layers(policy) == offload_layers(policy) == 2
    kind = type(policy.model.model.layers[0])
    assert [getattr(k, "recompute", False) for k in kind.__mro__[:2]] == [True, False]
