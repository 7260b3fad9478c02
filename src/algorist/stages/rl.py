"""Reinforcement learning with verifiable rewards: DeepSeekMath Algorithm 1, read from top to bottom.

for each batch: problems -> prompts -> rollouts -> verdicts -> rewards -> advantages -> update, every event on the ledger
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from algorist.digest import JSON, file_digest
from algorist.errors import GateFailed
from algorist.flow import Batch, Group, Outcome, Problem, Reward, Rollout, Update, Verdict
from algorist.objective.registry import METHODS
from algorist.policy.build import copy_policy
from algorist.problems.order import ProblemOrder
from algorist.record import rollouts as store
from algorist.record.ledger import EventKind
from algorist.rollout.engine import RolloutEngine, SamplingPlan
from algorist.stages.config import RLConfig
from algorist.stages.session import Session
from algorist.stages.task import Task
from algorist.train import rows as rows_of
from algorist.train.rows import Rows
from algorist.train.trainer import Assigned, Trainer

Item = TypeVar("Item")
Figures = dict[str, float | int | str | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A batch fresh from the engine, with what it took."""

    batch: Batch
    rollout_s: float
    verify_s: float


def train_rl(
    session: Session,
    cfg: RLConfig,
    task: Task,
    engine: RolloutEngine,
    *,
    evaluate: Callable[[str], None] | None = None,
    watch: Callable[[Figures], None] | None = None,
) -> None:
    """Run the batches that are still to do. Raises GateFailed where a promise is broken, Stopped where a person asked.

    `evaluate(name)` measures the present policy; `watch(figures)` sees every batch and may raise GateFailed.
    """
    plan = SamplingPlan(
        temperature=cfg.sampling.temperature,
        top_p=cfg.sampling.top_p,
        response_tokens=cfg.sampling.response_tokens,
        stop_ids=task.stop_ids,
    )
    if session.position.phase != "rl":
        session.position = replace(session.position, phase="rl", applied=0)
    trainer = make_trainer(session, cfg)
    session.load_optimizer(trainer)
    order = ProblemOrder([p.id for p in task.train], seed=session.seed)
    session.listener.begin("rl", cfg.updates)
    for index in range(session.position.batches, cfg.updates):
        problems = [task.by_id[i] for i in order.at(index, cfg.prompts_per_batch)]
        sampled = sample_batch(
            problems,
            task,
            engine,
            plan,
            index=index,
            group_size=cfg.group_size,
            version=trainer.applied,
            seed=session.seed,
        )
        figures = train_batch(session, cfg, task, trainer, sampled)
        session.metrics.append(figures)
        after_batch(session, cfg, figures)
        session.gates.after_batch(session, trainer, figures)
        session.listener.advance("rl", index + 1, headline(figures))
        if watch is not None:
            watch(figures)
        if cfg.reference.reset_every and trainer.applied and trainer.applied % cfg.reference.reset_every == 0:
            reset_reference(session, trainer)
        done = index + 1
        if evaluate is not None and cfg.evaluate_every and done % cfg.evaluate_every == 0 and done < cfg.updates:
            evaluate(f"step-{done}")
        if session.due() or done == cfg.updates:
            session.save(trainer)
        session.check_stop(trainer)


def make_trainer(session: Session, cfg: RLConfig) -> Trainer:
    """The trainer of the recipe's method; its reference, where it has one, is the policy as RL found it."""
    if "logp_ref" in cfg.objective.needs and session.reference is None:
        session.reference = copy_policy(session.policy)
    if session.restored is not None and session.reference is not None:
        from algorist.policy.weights import load_state

        load_state(session.reference, session.restored / "reference.safetensors")
    return Trainer(
        policy=session.policy,
        optimizer_cfg=cfg.optimizer,
        method=METHODS[cfg.objective.name],
        objective=cfg.objective,
        total_updates=cfg.updates * cfg.epochs_per_batch,
        temperature=cfg.sampling.temperature,
        micro_batch_tokens=cfg.micro_batch_tokens,
        epochs=cfg.epochs_per_batch,
        reference=session.reference,
    )


def reset_reference(session: Session, trainer: Trainer) -> None:
    """Iterative RL (Algorithm 1, line 3): the reference becomes the present policy."""
    assert session.reference is not None, "a method without a reference has nothing to reset (checked by the recipe)"
    session.reference.model.load_state_dict(session.policy.model.state_dict())
    session.listener.say(f"reference policy reset after {trainer.applied} updates")


def sample_batch(
    problems: Sequence[Problem],
    task: Task,
    engine: RolloutEngine,
    plan: SamplingPlan,
    *,
    index: int,
    group_size: int,
    version: int,
    seed: int,
) -> Sampled:
    """Problems to groups: rollouts of the present policy, their verdicts and rewards."""
    started = time.monotonic()
    prompts = [task.prompts[p.id] for p in problems]
    groups = engine.generate(
        prompts, num_samples=group_size, plan=plan, policy_version=version, seed=seed, salt=f"batch-{index}"
    )
    sampled = time.monotonic()
    rollouts = [r for group in groups for r in group]
    asked = [p for p, group in zip(problems, groups, strict=True) for _ in group]
    verdicts = task.grade(asked, rollouts)
    rewards = task.pay(asked, rollouts, verdicts)
    batch = Batch(
        index=index, policy_version=version, groups=_grouped(problems, rollouts, verdicts, rewards, group_size)
    )
    return Sampled(batch=batch, rollout_s=sampled - started, verify_s=time.monotonic() - sampled)


def train_batch(session: Session, cfg: RLConfig, task: Task, trainer: Trainer, sampled: Sampled) -> Figures:
    """Advantages, the stored rollouts, the ledger's lines, and the optimizer step or its skip."""
    started = time.monotonic()
    batch = sampled.batch
    rows = rows_of.from_batch(batch)
    assigned = trainer.assign(rows)
    digest = _store(session, batch, task, rows, assigned.credit.advantage, assigned.credit.mask)
    figures = _figures(batch, rows)
    session.ledger.append(
        EventKind.ROLLOUT_BATCH,
        policy_version=batch.policy_version,
        payload={
            "batch": batch.index,
            "rollouts": batch.num_rollouts,
            "tokens": int(_number(figures, "tokens/sampled")),
            "all_right": figures["groups/all_right"],
            "mixed": figures["groups/mixed"],
            "all_wrong": figures["groups/all_wrong"],
            "excluded_rows": figures["groups/excluded_rows"],
            "truncated": int(rows.truncated.sum()),
            "file": store.batch_path(session.folder.rollouts, batch.index).name,
            "digest": digest,
        },
        wall={"rollout_s": round(sampled.rollout_s, 3), "verify_s": round(sampled.verify_s, 3)},
    )
    figures |= session.gates.before_update(session, trainer, batch, rows)
    update = _epochs(session, trainer, assigned, batch, figures)
    figures |= {
        "lr": update.lr,
        "time/rollout_s": sampled.rollout_s,
        "time/verify_s": sampled.verify_s,
        "time/train_s": time.monotonic() - started,
    }
    position = session.position
    session.position = replace(
        position,
        batches=batch.index + 1,
        applied=trainer.applied,
        nonfinite=position.nonfinite + 1 if update.cause.startswith("nonfinite") else 0,
        flat=position.flat + 1 if update.cause in ("flat", "no_tokens") else 0,
        sampled_tokens=position.sampled_tokens + int(_number(figures, "tokens/sampled")),
    )
    return figures


def after_batch(session: Session, cfg: RLConfig, figures: Figures) -> None:
    """Ends the run where it would only burn time: too many non-finite or flat batches in a row."""
    position = session.position
    if position.nonfinite >= cfg.max_nonfinite_skips:
        raise GateFailed(
            f"{position.nonfinite} updates in a row had a non-finite loss or gradient (rl.max_nonfinite_skips); weights are "
            "those of the last good update. Lower rl.optimizer.lr, or look at the last rollouts for extreme "
            "log-probabilities."
        )
    if cfg.max_flat_batches is not None and position.flat >= cfg.max_flat_batches:
        raise GateFailed(_why_flat(position.flat, figures))


def _why_flat(num_batches: int, figures: Figures) -> str:
    """What a run without signal dies of, in words."""
    right, wrong = figures["groups/all_right"], figures["groups/all_wrong"]
    if _number(figures, "groups/excluded_rows") >= _number(figures, "rollouts"):
        cause = "no response got a reward: the verifier, the reward or the engine failed on every row"
    elif _number(figures, "groups/all_right") > _number(figures, "groups/all_wrong"):
        cause = "every problem is solved by all of its responses: the task is too easy now"
    elif _number(figures, "response/truncated_share") > 0.5:
        cause = "most responses are cut off by the response budget before their answer"
    elif _number(figures, "verdict/unsupported_share") > 0.5:
        cause = "most responses hold no answer the verifier can read"
    else:
        cause = "no response to any problem is right: the task is too hard for this policy"
    truncated, unsupported = (_number(figures, f"{n}_share") for n in ("response/truncated", "verdict/unsupported"))
    return (
        f"{num_batches} batches in a row gave no signal (rl.max_flat_batches): {cause} (in the last one {right} groups all "
        f"right, {wrong} all wrong, {truncated:.0%} truncated, {unsupported:.0%} without a readable answer). Change the "
        "problems' difficulty, rl.sampling.response_tokens, or prompt.answer_format."
    )


def headline(figures: Figures) -> dict[str, float | str]:
    """The few figures worth a line on a terminal."""
    shown: dict[str, float | str] = {
        "reward": _number(figures, "reward/mean"),
        "mixed": f"{figures['groups/mixed']}/{figures['groups/total']}",
        "tokens": _number(figures, "response/tokens_mean"),
        "grad": _number(figures, "grad_norm"),
    }
    if figures["update/skipped"]:
        shown["skipped"] = str(figures["update/skipped"])
    return shown


# -- inside ---------------------------------------------------------------------------------------------------------


def _number(figures: Figures, name: str) -> float:
    value = figures.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _grouped(
    problems: Sequence[Problem],
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    rewards: Sequence[Reward],
    size: int,
) -> tuple[Group, ...]:
    return tuple(
        Group(
            problem_id=problem.id,
            rollouts=tuple(rollouts[i * size : (i + 1) * size]),
            verdicts=tuple(verdicts[i * size : (i + 1) * size]),
            rewards=tuple(rewards[i * size : (i + 1) * size]),
        )
        for i, problem in enumerate(problems)
    )


def _store(session: Session, batch: Batch, task: Task, rows: Rows, advantage: torch.Tensor, mask: torch.Tensor) -> str:
    """Rollouts with their advantages (one per row, and one per token where they differ); returns the file's digest."""
    path = store.batch_path(session.folder.rollouts, batch.index)
    by_row: list[float | None] = []
    by_token: list[list[float] | None] = []
    constant = True
    for b, (_, response) in enumerate(rows.tokens):
        values = advantage[b][mask[b]]
        by_row.append(float(values[0]) if len(values) else None)
        by_token.append(advantage[b, : len(response)].tolist())
        constant = constant and (not len(values) or bool((values == values[0]).all()))
    size = [len(g.rollouts) for g in batch.groups]
    store.write(
        path,
        batch,
        _split(by_row, size),
        token_advantages=None if constant else _split(by_token, size),
        problems=task.by_id,
    )
    return file_digest(path)


def _split(values: Sequence[Item], sizes: Sequence[int]) -> list[Sequence[Item]]:
    result, first = [], 0
    for size in sizes:
        result.append(values[first : first + size])
        first += size
    return result


def _epochs(session: Session, trainer: Trainer, assigned: Assigned, batch: Batch, figures: Figures) -> Update:
    """mu optimizer steps on one batch; a skip ends them. Each is one event on the ledger."""
    for epoch in range(trainer.epochs):
        started = time.monotonic()
        update, difference = trainer.step(assigned, batch=batch.index)
        payload: dict[str, JSON] = {"stage": "rl", "batch": batch.index, "epoch": epoch, "lr": update.lr}
        if update.applied:
            payload |= {name: update.metrics[name] for name in ("loss", "grad_norm", "tokens/trained")}
        else:
            payload["cause"] = update.cause
        session.ledger.append(
            EventKind.UPDATE_APPLIED if update.applied else EventKind.UPDATE_SKIPPED,
            policy_version=trainer.applied,
            payload=payload,
            wall={"train_s": round(time.monotonic() - started, 3)},
        )
        if epoch == 0 and difference is not None:
            figures |= {
                "replay/mean_nats": difference.mean_nats,
                "replay/p99_nats": difference.p99_nats,
                "replay/max_nats": difference.max_nats,
            }
        figures |= dict(update.metrics)
        figures["update/skipped"] = update.cause or None
        if not update.applied:
            break
    return update


def _figures(batch: Batch, rows: Rows) -> Figures:
    verdicts = [v for g in batch.groups for v in g.verdicts]
    values = [v for g in batch.groups for v in g.values]
    lengths = [len(r) for _, r in rows.tokens]
    flat = [g for g in batch.groups if g.flat]
    top = [g for g in flat if g.values and max(g.values) > 0]
    B = max(1, len(verdicts))
    raw = [v.raw_correct for v in verdicts if v.raw_correct is not None]

    def share(outcome: Outcome) -> float:
        return sum(v.verdict is outcome for v in verdicts) / B

    return {
        "stage": "rl",
        "step": batch.index,
        "batch": batch.index,
        "policy_version": batch.policy_version,
        "rollouts": len(verdicts),
        "reward/mean": sum(values) / max(1, len(values)),
        "reward/raw_correct_mean": sum(raw) / len(raw) if raw else None,
        "groups/total": len(batch.groups),
        "groups/all_right": len(top),
        "groups/mixed": len(batch.groups) - len(flat),
        "groups/all_wrong": len(flat) - len(top),
        "groups/excluded_rows": len(verdicts) - len(values),
        "response/tokens_mean": sum(lengths) / B,
        "response/tokens_max": max(lengths, default=0),
        "response/truncated_share": float(rows.truncated.double().mean()) if len(rows.truncated) else 0.0,
        "verdict/unsupported_share": share(Outcome.UNSUPPORTED),
        "verdict/error_share": share(Outcome.ERROR),
        "tokens/sampled": sum(lengths),
        "update/skipped": None,
    }
