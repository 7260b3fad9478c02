"""Recomputed layers give the gradients of the plain pass, bit for bit on one thread, and leave sampling alone."""

from pathlib import Path

import pytest
import torch

from algorist.policy.build import build_policy
from algorist.policy.config import NewPolicyConfig, PolicyConfig
from algorist.policy.offload import offload_layers

ROWS = [((5, 6, 7), (8, 9, 3)), ((5, 6, 4), (7, 3))]


def gradients(*, offload: bool, dtype: str, frozen: bool) -> dict[str, torch.Tensor]:
    new = NewPolicyConfig(hidden_size=32, intermediate_size=64, num_layers=3, num_heads=4, context=32)
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
def test_recomputed_layers_give_the_same_gradients(dtype, frozen) -> None:
    plain, again = (gradients(offload=x, dtype=dtype, frozen=frozen) for x in (False, True))
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        assert torch.equal(gradient, again[name]), name
