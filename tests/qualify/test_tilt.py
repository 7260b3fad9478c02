"""A temperature that is slightly off has a direction, rounding has none."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.qualify import replay
from algorist.qualify.agree import _is_tilted
from algorist.train.trainer import Difference


def tokens(seed: int, n: int, sharpness: float):
    """(log-probabilities, entropies, distributions) of tokens drawn from random distributions."""
    made = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(n, 30, generator=made, dtype=torch.float64)
    p = logits.softmax(-1)
    drawn = torch.multinomial(p, 1, generator=made)
    return p.log().gather(-1, drawn).T, torch.special.entr(p).sum(-1)[None], logits, drawn


def tilted(gaps, logp, entropy):
    mask = torch.ones_like(gaps, dtype=torch.bool)
    found = replay.Replay(difference=Difference.of(gaps.flatten()), by_position={}, by_class={}, gaps=gaps, mask=mask)
    return replay.tilt(found, logp, entropy)


@given(
    seed=st.integers(0, 2**31),
    n=st.sampled_from([64, 400, 4000]),
    sharpness=st.sampled_from([0.5, 3.0, 20.0]),
    relative=st.booleans(),
)
@settings(max_examples=100, deadline=None)  # fmt: skip
def test_rounding_is_no_temperature(seed, n, sharpness, relative) -> None:
    logp, entropy, _, _ = tokens(seed, n, sharpness)
    noise = torch.randn(1, n, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    gaps = 0.1 * noise * (logp.abs() if relative else torch.ones_like(logp))  # surprising tokens are rounded worse
    assert not _is_tilted(tilted(gaps, logp, entropy))


@given(seed=st.integers(0, 2**31), ratio=st.sampled_from([0.95, 0.98, 1.03, 1.1]))
@settings(max_examples=20, deadline=None)
def test_a_temperature_that_is_slightly_off_is_read_from_the_tokens(seed, ratio) -> None:
    logp, entropy, logits, drawn = tokens(seed, 2000, 2.0)
    stored = (logits / ratio).log_softmax(-1).gather(-1, drawn).T
    rounding = 0.003 * torch.randn(1, 2000, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    tilt = tilted(logp - stored + rounding, logp, entropy)
    assert _is_tilted(tilt)
    assert math.isclose(tilt[0], ratio, rel_tol=0.02)


def test_one_surprising_token_among_sure_ones_tells_nothing() -> None:
    logp, entropy, gaps = (torch.zeros(1, 1000, dtype=torch.float64) for _ in range(3))
    logp[0, 7], gaps[0, 7] = -9.0, 0.2
    assert tilted(gaps, logp, entropy) == (1.0, 0.0)
