"""Advantages in plain floats: equal to those of every method that rewards and groups settle, on any batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.objective.config import parse
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput
from algorist.qualify.worth import Outcome, worth

SETTLED = [
    {"name": "sft"},
    {"name": "rft"},
    {"name": "online_rft", "wrong_rows": "drop"},
    {"name": "rloo"},
    {"name": "rloo", "flat_groups": "drop", "mask_truncated": True},
    {"name": "rloo", "group_of_one": "raw"},
    {"name": "grpo", "beta": 0.04},
    {"name": "grpo", "std": "sample", "std_epsilon": 1e-4},
    {"name": "grpo", "std": "leave_one_out"},
    {"name": "grpo", "std": "none", "group_of_one": "zero"},
    {"name": "dr_grpo", "reduction_constant": 8},
    {"name": "dapo"},
    {"name": "gspo"},
    {"name": "cispo"},
    {"name": "reinforce"},
    {"name": "reinforce", "baseline": "batch_mean"},
]
UNSETTLED = [
    {"name": "ppo"},
    {"name": "dpo"},
    {"name": "grpo_process"},
    {"name": "grpo", "beta": 0.04, "kl_place": "reward", "kl": "k1"},
    {"name": "grpo", "redistribution": {}},
    {"name": "reinforce", "whiten": "population"},
]
ROWS = st.lists(
    st.tuples(st.sampled_from([None, 0.0, 0.1, 0.35, 0.7, 1.0, -2.0]), st.booleans(), st.booleans()),
    min_size=6,
    max_size=12,
)


@pytest.mark.parametrize("settings_", SETTLED, ids=str)
@given(rows=ROWS, seed=st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_plain_floats_give_what_the_method_gives(settings_, rows, seed) -> None:
    cfg = parse(settings_)
    group = torch.randint(0, 3, (len(rows),), generator=torch.Generator().manual_seed(seed))
    group[:6] = torch.tensor([0, 0, 1, 1, 2, 2])
    rewards = [1.0 if cfg.name == "sft" else r for r, _, _ in rows]
    known = torch.tensor([r is not None for r in rewards])
    inputs = CreditInput(
        rewards=torch.tensor([float("nan") if r is None else r for r in rewards], dtype=torch.float64), group=group,
        mask=torch.ones(len(rows), 2, dtype=torch.bool) & known[:, None], correct=torch.tensor([c for _, c, _ in rows]),
        truncated=torch.tensor([t for _, _, t in rows]),
    )  # fmt: skip
    credit = METHODS[cfg.name].credit(inputs, cfg)
    plain = worth(
        cfg,
        [
            Outcome(group=int(g), reward=r, correct=c, truncated=t)
            for g, r, (_, c, t) in zip(group, rewards, rows, strict=True)
        ],
    )
    assert plain is not None
    assert [w.trained for w in plain] == credit.mask.any(1).tolist()
    for mine, theirs in zip(plain, credit.advantage[:, 0].tolist(), strict=True):
        assert mine.advantage == pytest.approx(theirs, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("settings_", UNSETTLED, ids=str)
def test_what_needs_more_than_rewards_is_left_to_the_method(settings_) -> None:
    rows = [Outcome(group=0, reward=r, correct=r > 0) for r in (1.0, 0.0)]
    assert worth(parse(settings_), rows) is None


def test_equal_rewards_are_worth_exactly_nothing_whatever_their_float_noise() -> None:
    rows = [Outcome(group=0, reward=0.1, correct=False) for _ in range(7)]
    assert [w.advantage for w in worth(parse({"name": "grpo", "beta": 0}), rows)] == [0.0] * 7
