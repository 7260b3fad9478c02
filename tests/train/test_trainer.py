"""One optimizer step: what it changes, what it must not change, and what it refuses to do."""

import math

import pytest
import torch

from algorist.flow import Batch, Finish, Group, Outcome, Reward, Rollout, Verdict
from algorist.objective.config import GRPOConfig, RLOOConfig, SFTConfig
from algorist.objective.registry import METHODS
from algorist.policy.build import copy_policy
from algorist.policy.weights import weights_digest
from algorist.train import rows as rows_of
from algorist.train.config import OptimizerConfig
from algorist.train.optimizer import load_moments, moments
from algorist.train.trainer import Difference, Trainer


def verdict(reward):
    if reward is None:
        return Verdict(verdict=Outcome.ERROR, reason="timeout")
    return Verdict(verdict=Outcome.CORRECT if reward > 0.5 else Outcome.WRONG, reason="")


def rollout(problem, sample, tokens, finish=Finish.STOP):
    return Rollout(
        problem_id=problem, sample=sample, prompt_ids=(5, 6, 7), token_ids=tokens, behaviour_logp=(-1.0,) * len(tokens),
        policy_version=(0,) * len(tokens), loss_mask=(True,) * len(tokens), finish=finish, text="", seed=0,
    )  # fmt: skip


def batch_of(rewards, tokens=None):
    """Two groups of len(rewards)/2; lengths differ row by row."""
    half = len(rewards) // 2
    groups = []
    for name, part in (("p", rewards[:half]), ("q", rewards[half:])):
        rollouts = tuple(
            rollout(name, i, (tokens or [(8, 9, 1), (4, 1), (3, 3, 3, 1), (10, 1)])[i % 4]) for i in range(len(part))
        )
        groups.append(
            Group(
                problem_id=name,
                rollouts=rollouts,
                verdicts=tuple(verdict(r) for r in part),
                rewards=tuple(Reward(value=r) for r in part),
            )
        )
    return Batch(index=0, policy_version=0, groups=tuple(groups))


def trainer_of(policy, objective=None, *, lr=1e-2, micro=10_000, epochs=1, reference=None, **optimizer):
    objective = objective or RLOOConfig()
    return Trainer(
        policy=policy,
        optimizer_cfg=OptimizerConfig(lr=lr, **optimizer),
        method=METHODS[objective.name],
        objective=objective,
        total_updates=10,
        temperature=1.0,
        micro_batch_tokens=micro,
        epochs=epochs,
        reference=reference,
    )


def one_update(trainer, batch):
    assigned = trainer.assign(rows_of.from_batch(batch))
    return trainer.step(assigned, batch=0)


MIXED = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "group_token_mean"])
def test_micro_batches_change_nothing(make_policy, reduction) -> None:
    results = []
    for micro in (1, 9, 10_000):
        policy = make_policy()
        update, _ = one_update(trainer_of(policy, RLOOConfig(reduction=reduction), micro=micro), batch_of(MIXED))
        results.append((update.metrics["loss"], update.metrics["grad_norm"]))
    for loss, norm in results[1:]:
        assert loss == pytest.approx(results[0][0], abs=1e-6)
        assert norm == pytest.approx(results[0][1], rel=1e-4)


def test_a_flat_batch_leaves_weights_moments_and_learning_rate_bit_for_bit(make_policy) -> None:
    policy = make_policy()
    trainer = trainer_of(policy, schedule="cosine")
    update, _ = one_update(trainer, batch_of(MIXED))
    assert update.applied
    before = weights_digest(policy), {k: v.clone() for k, v in moments(policy, trainer.optimizer).items()}, trainer.lr
    for _ in range(3):
        update, _ = one_update(trainer, batch_of([1.0] * 4 + [0.0] * 4))
        assert not update.applied
        assert update.cause == "flat"
        assert update.policy_version == 1
    assert weights_digest(policy) == before[0]
    after = moments(policy, trainer.optimizer)
    assert after.keys() == before[1].keys()
    assert all(torch.equal(after[k], v) for k, v in before[1].items())
    assert trainer.lr == before[2]
    assert all(p.grad is None for p in policy.parameters())


def test_a_flat_batch_would_have_moved_the_weights_through_momentum(make_policy) -> None:
    """Why the optimizer is skipped and not merely given a zero gradient."""
    policy = make_policy()
    trainer = trainer_of(policy)
    one_update(trainer, batch_of(MIXED))
    before = weights_digest(policy)
    for p in policy.parameters():
        p.grad = torch.zeros_like(p)
    trainer.optimizer.step()
    assert weights_digest(policy) != before


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_non_finite_step_is_a_recorded_skip(make_policy, where, monkeypatch) -> None:
    policy = make_policy()
    trainer = trainer_of(policy)
    one_update(trainer, batch_of(MIXED))
    before = weights_digest(policy)
    if where == "loss":
        batch = batch_of([3e38, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0])  # the sum of its token losses overflows float32
    else:
        batch = batch_of(MIXED)
        policy.parameters()[0].register_hook(lambda g: g * float("inf"))
    update, _ = one_update(trainer, batch)
    assert not update.applied
    assert update.cause in ("nonfinite_loss", "nonfinite_gradient")
    assert weights_digest(policy) == before
    assert trainer.applied == 1


def test_rows_with_errors_leave_their_group_before_its_baseline(make_policy) -> None:
    batch = batch_of([1.0, None, 0.0, 1.0, 0.0, None, 1.0, 0.0])
    rows = rows_of.from_batch(batch)
    credit = trainer_of(make_policy()).assign(rows).credit
    # group p without the failed row: rewards 1, 0, 1 -> leave-one-out 0.5, -1, 0.5
    firsts = [credit.advantage[i][credit.mask[i]] for i in (0, 2, 3)]
    assert [float(a[0]) for a in firsts] == pytest.approx([0.5, -1.0, 0.5])
    assert not credit.mask[1].any()
    assert not credit.advantage[1].any()


def test_all_rows_failed_is_a_skip_for_want_of_tokens(make_policy) -> None:
    update, difference = one_update(trainer_of(make_policy()), batch_of([None] * 8))
    assert (update.applied, update.cause, difference) == (False, "no_tokens", None)


def test_the_schedule_counts_applied_updates_only(make_policy) -> None:
    trainer = trainer_of(make_policy(), schedule="multi_step", milestones=(0.1, 0.2), gamma=0.5)
    rates = []
    for rewards in (MIXED, [0.0] * 8, [1.0] * 8, MIXED, MIXED):
        update, _ = one_update(trainer, batch_of(rewards))
        rates.append(update.lr)
    assert rates == pytest.approx([1e-2, 5e-3, 5e-3, 5e-3, 2.5e-3])


def test_sft_trains_exactly_the_declared_tokens_down_to_a_one_token_answer(make_policy) -> None:
    policy = make_policy()
    trainer = trainer_of(policy, SFTConfig(reduction="token_mean"))
    rows = rows_of.from_targets([((5, 6), (9, 1)), ((5, 7, 4), (3,))])
    update, _ = trainer.step(trainer.assign(rows), batch=0)
    assert update.metrics["tokens/with_gradient"] == 3
    assert update.metrics["tokens/trained"] == 3


def test_loss_on_policy_moves_in_the_direction_of_the_advantage(make_policy) -> None:
    policy = make_policy()
    trainer = trainer_of(policy, lr=1e-3)
    rows = rows_of.from_batch(batch_of(MIXED))
    before = trainer.score(rows, rows.mask.any(1)).logp
    assigned = trainer.assign(rows)
    trainer.step(assigned, batch=0)
    after = trainer.score(rows, rows.mask.any(1)).logp
    gain = ((after - before) * assigned.credit.advantage).sum()
    assert gain > 0


def test_grpo_with_kl_scores_the_reference_and_reports_nats(make_policy) -> None:
    policy = make_policy()
    reference = copy_policy(policy)
    trainer = trainer_of(policy, GRPOConfig(), reference=reference, epochs=2)
    assigned = trainer.assign(rows_of.from_batch(batch_of(MIXED)))
    first, _ = trainer.step(assigned, batch=0)
    second, _ = trainer.step(assigned, batch=0)
    assert first.metrics["kl/ref_nats"] == pytest.approx(0.0, abs=1e-9)
    assert second.metrics["kl/ref_nats"] > 0
    assert weights_digest(reference) == weights_digest(make_policy())


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("sft",)])
def test_every_method_runs_two_updates_through_the_trainer(make_policy, name) -> None:
    method = METHODS[name]
    objective = method.config(name=name, **method.example)
    policy = make_policy()
    reference = copy_policy(policy) if "logp_ref" in objective.needs else None
    trainer = trainer_of(policy, objective, reference=reference, lr=1e-3, epochs=2 if objective.reuse else 1)
    rows = rows_of.from_batch(batch_of(MIXED))
    extra = {}
    if "step_rewards" in objective.needs:
        extra = {
            "step_ends": torch.tensor([[int(m.sum()) - 1] for m in rows.mask]),
            "step_rewards": rows.reward[:, None].clone(),
        }
    before = weights_digest(policy)
    update, difference = trainer.step(trainer.assign(rows, **extra), batch=0)
    assert update.applied
    assert difference is not None
    assert math.isfinite(update.metrics["loss"])
    assert weights_digest(policy) != before


def test_optimizer_state_survives_a_round_trip_bit_for_bit(make_policy) -> None:
    twins = []
    for reload in (False, True):
        policy = make_policy()
        trainer = trainer_of(policy)
        one_update(trainer, batch_of(MIXED))
        if reload:
            kept = {k: v.clone() for k, v in moments(policy, trainer.optimizer).items()}
            fresh = trainer_of(policy)
            load_moments(policy, fresh.optimizer, kept)
            fresh.applied = trainer.applied
            trainer = fresh
        one_update(trainer, batch_of(MIXED[::-1]))
        twins.append(weights_digest(policy))
    assert twins[0] == twins[1]


def test_difference_statistics_by_hand() -> None:
    d = Difference.of(torch.tensor([0.0] * 98 + [-0.3, 0.5]))
    assert (d.mean_nats, d.num_tokens) == (pytest.approx(0.008), 100)
    assert d.p99_nats == pytest.approx(0.3)
    assert d.max_nats == pytest.approx(0.5)
    assert Difference.of(torch.zeros(0)).num_tokens == 0
