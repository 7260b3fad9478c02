"""Reinforcement learning with verifiable rewards: DeepSeekMath Algorithm 1, read from top to bottom.

for each batch: problems -> prompts -> rollouts -> verdicts -> rewards -> advantages -> update, every event on the ledger
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from algorist.digest import JSON, file_digest
from algorist.errors import GateFailed, ResumeMismatch
from algorist.flow import Batch, Problem, Update
from algorist.objective.config import SFTConfig as SFTObjective
from algorist.objective.registry import METHODS
from algorist.problems.order import ProblemOrder
from algorist.record import rollouts as store
from algorist.record.ledger import EventKind
from algorist.rollout.engine import RolloutEngine, SamplingPlan
from algorist.stages.config import RLConfig
from algorist.stages.figures import batch_figures, headline, number, why_flat
from algorist.stages.gates import Figures
from algorist.stages.offline import engine_for, keep_start, keeps_start
from algorist.stages.sample import Sampled, sample_batch, told
from algorist.stages.session import Session
from algorist.stages.task import Task
from algorist.stages.worth import judge
from algorist.train.trainer import Assigned, Trainer

Item = TypeVar("Item")


def train_rl(
    session: Session,
    cfg: RLConfig,
    task: Task,
    engine: RolloutEngine,
    *,
    evaluate: Callable[[str], None] | None = None,
) -> None:
    """Run the batches that are still to do. Raises GateFailed where a promise is broken, Stopped where a person asked.

    `evaluate(name)` measures the present policy; `session.gates` see every batch and may end the run.
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
    engine, sampler = engine_for(session, cfg, task, engine), sampling_trainer(session, cfg, trainer)
    order, by_id = ProblemOrder([p.id for p in task.train], seed=session.seed), task.by_id
    session.listener.begin("rl", cfg.updates)
    for index in range(session.position.batches, cfg.updates):
        problems = [by_id[i] for i in order.at(index, cfg.prompts_per_batch)]
        with told(session.ledger, trainer.applied):
            sampled = sample_batch(
                problems,
                task,
                engine,
                plan,
                index=index,
                group_size=cfg.group_size,
                version=sampler.applied,
                seed=session.seed,
                look=partial(session.gates.after_sampling, session, sampler, index, problems),
            )
        before = trainer.applied
        figures = train_batch(session, cfg, task, trainer, sampler, sampled)
        session.metrics.append(figures)
        after_batch(session, cfg, figures)
        session.gates.after_batch(session, trainer, figures)
        session.listener.advance("rl", index + 1, headline(figures))
        every = cfg.reference.reset_every
        if every and before // every < trainer.applied // every:  # a batch of several epochs may step over a multiple
            reset_reference(session, trainer)
        done = index + 1
        if evaluate is not None and cfg.evaluate_every and done % cfg.evaluate_every == 0 and done < cfg.updates:
            evaluate(f"step-{done}")
        if session.due() or done == cfg.updates:
            session.save(trainer)
        session.check_stop(trainer)


def make_trainer(session: Session, cfg: RLConfig) -> Trainer:
    """The trainer of the recipe's method; its reference, where it has one, is the policy as RL found it."""
    if keeps_start(cfg):
        keep_start(session)
    if session.restored is not None and session.reference is not None:
        from algorist.policy.weights import load_state

        file = session.restored / "reference.safetensors"
        if not file.is_file():
            raise ResumeMismatch(
                f"{session.restored}: must hold the reference policy that {cfg.objective.name} needs (reference.safetensors): it is "
                "missing. An objective that needs one cannot be taken up in the middle of a run: start a new run from these weights."
            )
        load_state(session.reference, file)
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


def sampling_trainer(session: Session, cfg: RLConfig, trainer: Trainer) -> Trainer:
    """The trainer whose weights the rollouts come from, as gates see it: the one that trains, or one that never moves."""
    if cfg.source == "online":
        return trainer
    frozen = session.policy if session.reference is None else session.reference
    return Trainer(
        policy=frozen,
        optimizer_cfg=cfg.optimizer,
        method=METHODS["sft"],
        objective=SFTObjective(),
        total_updates=1,
        temperature=cfg.sampling.temperature,
        micro_batch_tokens=cfg.micro_batch_tokens,
        reference=session.reference,
    )


def reset_reference(session: Session, trainer: Trainer) -> None:
    """Iterative RL (Algorithm 1, line 3): the reference becomes the present policy."""
    assert session.reference is not None, "a method without a reference has nothing to reset (checked by the recipe)"
    session.reference.model.load_state_dict(session.policy.model.state_dict())
    session.listener.say(f"reference policy reset after {trainer.applied} updates")


def train_batch(
    session: Session, cfg: RLConfig, task: Task, trainer: Trainer, sampler: Trainer, sampled: Sampled
) -> Figures:
    """Shaped rewards, advantages, the stored rollouts, the ledger's lines, and the optimizer step or its skip."""
    started = time.monotonic()
    problems = task.by_id
    decode = partial(session.policy.tokenizer.decode, skip_special_tokens=True)
    worth = judge(sampled.batch, cfg, problems, decode, hidden=task.stop_ids)
    batch, rows = worth.batch, worth.rows
    assigned = trainer.assign(rows, step_ends=worth.step_ends, step_rewards=worth.step_rewards, quality=worth.quality)
    digest = _store(session, batch, problems, assigned)
    figures = batch_figures(batch, rows) | worth.figures
    session.ledger.append(
        EventKind.ROLLOUT_BATCH,
        policy_version=batch.policy_version,
        payload={
            "batch": batch.index,
            "rollouts": batch.num_rollouts,
            "tokens": int(number(figures, "tokens/sampled")),
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
    if cfg.source != "dataset":  # worked solutions have no sampler that could be wrong
        figures |= session.gates.before_update(session, sampler, batch, rows)
    # against the weights that sampled, the difference is numerical noise; against older ones, how far the policy has gone
    gap = {"online": "replay", "sft_samples": "drift", "dataset": ""}[cfg.source]
    update = _epochs(session, trainer, assigned, batch, figures, gap)
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
        sampled_tokens=position.sampled_tokens + int(number(figures, "tokens/sampled")),
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
        raise GateFailed(why_flat(position.flat, figures))


# -- inside ---------------------------------------------------------------------------------------------------------


def _store(session: Session, batch: Batch, problems: Mapping[str, Problem], assigned: Assigned) -> str:
    """Rollouts with their advantages (one per row, and one per token where they differ) and what the trainer scored them
    with, so that loss and advantage can be computed again from the file; returns the file's digest."""
    path = store.batch_path(session.folder.rollouts, batch.index)
    advantage, mask = assigned.credit.advantage, assigned.credit.mask
    sizes, lengths = [len(g.rollouts) for g in batch.groups], [len(response) for _, response in assigned.rows.tokens]
    by_row: list[float | None] = []
    constant = True
    for b in range(len(lengths)):
        values = advantage[b][mask[b]]
        by_row.append(float(values[0]) if len(values) else None)
        constant = constant and (not len(values) or bool((values == values[0]).all()))

    def per_token(numbers: torch.Tensor) -> store.PerToken:
        return _split([row[:n].tolist() for row, n in zip(numbers, lengths, strict=True)], sizes)

    scored = {"logp_old": assigned.logp_old, "logp_ref": assigned.logp_ref, "value": assigned.value_old}
    store.write(
        path,
        batch,
        _split(by_row, sizes),
        token_advantages=None if constant else per_token(advantage),
        scores={name: per_token(numbers) for name, numbers in scored.items() if numbers is not None},
        problems=problems,
    )
    return file_digest(path)


def _split(values: Sequence[Item], sizes: Sequence[int]) -> list[Sequence[Item]]:
    result, first = [], 0
    for size in sizes:
        result.append(values[first : first + size])
        first += size
    return result


def _epochs(session: Session, trainer: Trainer, assigned: Assigned, batch: Batch, figures: Figures, gap: str) -> Update:
    """mu optimizer steps on one batch; a skip ends them. Each is one event on the ledger.

    gap: what the difference to the stored log-probabilities is called in the figures; empty: it means nothing.
    """
    for epoch in range(trainer.epochs):
        started = time.monotonic()
        look = partial(session.gates.before_step, session, trainer, assigned)
        update, difference = trainer.step(assigned, batch=batch.index, look=look)
        session.gates.after_step(session, trainer, update)  # a step that went wrong is never counted as applied
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
        if epoch == 0 and difference is not None and gap:
            figures |= {
                f"{gap}/mean_nats": difference.mean_nats,
                f"{gap}/p99_nats": difference.p99_nats,
                f"{gap}/max_nats": difference.max_nats,
            }
        figures |= dict(update.metrics)
        figures["update/skipped"] = update.cause or None
        if not update.applied:
            break
    return update
