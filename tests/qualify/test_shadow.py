"""What is followed of every parameter is what AdamW does to it, and a write to any of them is seen."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from algorist.qualify.shadow import Shadow
from algorist.train.config import OptimizerConfig


def parameters(seed: int) -> dict[str, nn.Parameter]:
    made = torch.Generator().manual_seed(seed)
    shapes = {"matrix": (5, 4), "bias": (3,), "one": (1,), "left": (2, 2)}
    return {name: nn.Parameter(torch.randn(shape, generator=made)) for name, shape in shapes.items()}


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000), steps=st.integers(1, 5), decay=st.sampled_from([0.0, 0.1]),
    betas=st.sampled_from([(0.9, 0.999), (0.0, 0.95)]), known=st.booleans(),
)  # fmt: skip
def test_the_followed_entries_go_where_torch_takes_them(seed, steps, decay, betas, known) -> None:
    """Also where a tensor gets no gradient, and where the optimizer already knows some steps."""
    named, lr = parameters(seed), 1e-2
    cfg = OptimizerConfig(lr=lr, betas=betas, weight_decay=decay)
    groups = [
        {"params": [p for p in named.values() if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in named.values() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=cfg.eps)
    made = torch.Generator().manual_seed(seed + 1)

    def gradients() -> None:
        for name, p in named.items():
            p.grad = None if name == "left" else torch.randn(p.shape, generator=made)

    if known:
        gradients()
        optimizer.step()
    shadow = Shadow(named, decay, optimizer.state)
    for _ in range(steps):
        gradients()
        gradient, there = shadow.pick(p.grad for p in named.values())
        assert shadow.named(~there) == ["left"]
        expected = shadow.expect(gradient, there, cfg, lr)
        optimizer.step()
        now, _ = shadow.pick(named.values())
        assert torch.allclose(now, expected, rtol=1e-5, atol=1e-6)
        assert set(shadow.touched()) == {"matrix", "bias", "one"}
        shadow.look()
        assert shadow.touched() == []
        mean, kept = shadow.pick(optimizer.state.get(p, {}).get("exp_avg") for p in named.values())
        assert torch.equal(kept, there)
        assert torch.allclose(mean, shadow.mean, rtol=1e-4, atol=1e-6)


def test_a_write_that_torch_does_not_count_is_seen_by_its_value() -> None:
    named = parameters(0)
    shadow = Shadow(named, 0.0, {})
    named["bias"].data.numpy()[0] += 1.0  # past autograd's version counter
    assert shadow.touched() == ["bias"]
    with torch.no_grad():
        named["matrix"].add_(0.0)  # the same values, written again
    assert shadow.touched() == ["matrix", "bias"]


def test_nothing_to_follow_is_no_fault() -> None:
    shadow = Shadow({}, 0.0, {})
    assert shadow.touched() == []
    assert shadow.pick([])[0].shape == (0,)
