"""The step that was taken is the one that was promised: on honest steps nothing is found, on each wrong one its name."""

from dataclasses import replace

import pytest
import torch

from algorist.objective.config import parse
from algorist.objective.registry import METHODS
from algorist.qualify.step import StepCheck, spread_entries
from algorist.train.config import OptimizerConfig
from algorist.train.rows import Rows
from algorist.train.trainer import Trainer

CFG = OptimizerConfig(lr=1e-2, weight_decay=0.1, clip_norm=0.5, schedule="cosine")


def trainer_of(policy, cfg: OptimizerConfig = CFG, **objective) -> Trainer:
    chosen = parse({"name": "rloo", **objective})
    return Trainer(
        policy=policy, optimizer_cfg=cfg, method=METHODS[chosen.name], objective=chosen, total_updates=10, temperature=1.0,
        micro_batch_tokens=24,
    )  # fmt: skip


def rows(step: int = 0) -> Rows:
    tokens = [((3, 4, 5), (6 + i, 7, 1)) for i in range(4)]
    return Rows(
        tokens=tokens, group=torch.tensor([0, 0, 1, 1]), mask=torch.ones(4, 3, dtype=torch.bool),
        reward=torch.tensor([1.0, 0.0, 0.0, 1.0 + step], dtype=torch.float64), behaviour=torch.zeros(4, 3),
        truncated=torch.zeros(4, dtype=torch.bool), correct=None, texts=[],
    )  # fmt: skip


def take(trainer: Trainer, check: StepCheck, step: int = 0):
    """One looked-at step: the first thing found before it, or after it."""
    found = []
    assigned = trainer.assign(rows(step))
    update, _ = trainer.step(assigned, batch=step, look=lambda computed: found.append(check.before(assigned, computed)))
    return next((f for f in found if f is not None), None) or check.after(update)


@pytest.mark.parametrize(
    "cfg",
    [CFG, OptimizerConfig(lr=1e-6), OptimizerConfig(lr=1e-3, clip_norm=None, betas=(0.0, 0.99), warmup_updates=3)],
)
@pytest.mark.parametrize("objective", ["rloo", "grpo", "ppo", "gspo"])
def test_honest_steps_are_what_they_should_be(policy, cfg, objective) -> None:
    trainer = trainer_of(policy, cfg, name=objective, **({"beta": 0} if objective in ("grpo", "ppo") else {}))
    check = StepCheck(trainer, cfg, 10)
    assert check.start() is None
    for step in range(4):
        assert take(trainer, check, step) is None
        assert check.at_rest() is None


def no_step(t: Trainer) -> None:
    t.optimizer.step = lambda *a, **k: None


def twice(t: Trainer) -> None:
    step = t.optimizer.step
    t.optimizer.step = lambda *a, **k: (step(), step())


def other_rate(t: Trainer) -> None:
    t.optimizer_cfg = t.optimizer_cfg.model_copy(update={"lr": 1.1e-2})


def other_loss(t: Trainer) -> None:
    method = t.method
    t.method = replace(method, loss=lambda b, c: 1.01 * method.loss(b, c))


def no_gradient(t: Trainer) -> None:
    method = t.method
    t.method = replace(method, loss=lambda b, c: method.loss(b, c).detach() + 0 * b.logp)


def no_clipping(t: Trainer) -> None:
    t.optimizer_cfg = t.optimizer_cfg.model_copy(update={"clip_norm": None})


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (no_step, "still", "none did"),
        (twice, "moved", "once"),
        (other_rate, "moved", "rate 0.01"),
        (other_loss, "loss", "the loss of rloo"),
        (no_gradient, "gradient", "0 times"),
        (no_clipping, "moved", "clipping"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_each_wrong_step_has_a_name(policy, change, code, words) -> None:
    trainer = trainer_of(policy)
    check = StepCheck(trainer, CFG, 10)
    change(trainer)
    fault = take(trainer, check)
    assert fault is not None
    assert fault.code == code, fault
    assert words in fault.words
    assert fault.remedy


def test_moments_that_were_lost_are_found_in_the_next_step(policy) -> None:
    trainer = trainer_of(policy)
    check = StepCheck(trainer, CFG, 10)
    assert take(trainer, check) is None
    trainer.optimizer.state.clear()
    assert take(trainer, check, 1).code in ("moved", "moments")


def test_a_checkpoint_without_its_moments_is_found_before_the_first_step(policy) -> None:
    trainer = trainer_of(policy)
    trainer.applied = 3
    assert StepCheck(trainer, CFG, 10).start().code == "moments"


def test_a_weight_that_moves_between_steps_is_found_and_named(policy) -> None:
    trainer = trainer_of(policy)
    check = StepCheck(trainer, CFG, 10)
    with torch.no_grad():
        policy.model.lm_head.weight[2, 3] += 1e-6  # one entry that is not followed
    fault = check.at_rest()
    assert fault is not None
    assert "model.embed_tokens.weight" in fault.words or "lm_head.weight" in fault.words


def test_a_frozen_tensor_must_stay_in_a_step(policy) -> None:
    policy.model.model.norm.weight.requires_grad_(False)
    trainer = trainer_of(policy)
    check = StepCheck(trainer, CFG, 10)
    step = trainer.optimizer.step

    def moves_more(*a, **k):
        step(*a, **k)
        policy.model.model.norm.weight.data.add_(1e-3)

    trainer.optimizer.step = moves_more
    assert take(trainer, check).code == "frozen"


def test_the_recomputed_gradient_leaves_the_real_ones_alone(policy) -> None:
    one, other = trainer_of(policy), None
    start = {n: p.detach().clone() for n, p in policy.named_parameters()}
    assert take(one, StepCheck(one, CFG, 10)) is None
    looked = {n: p.detach().clone() for n, p in policy.named_parameters()}
    with torch.no_grad():
        for n, p in policy.named_parameters():
            p.copy_(start[n])
    other = trainer_of(policy)
    other.step(other.assign(rows()), batch=0)
    for n, p in policy.named_parameters():
        assert torch.equal(p, looked[n]), n


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 28_311_552, 2**31 + 5])
def test_entries_lie_inside_first_and_last_included(size) -> None:
    places = spread_entries(size).tolist()
    assert places[0] == 0
    assert places[-1] == size - 1
    assert places == sorted(set(places))
