"""Supervised fine-tuning: imitate worked solutions. DeepSeekMath eq. 6, through the same trainer as RL."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from algorist.digest import JSON
from algorist.errors import GateFailed
from algorist.objective.config import SFTConfig as SFTObjective
from algorist.objective.registry import METHODS
from algorist.policy.model import Row
from algorist.record.ledger import EventKind
from algorist.seeds import permutation
from algorist.stages.config import SFTConfig
from algorist.stages.session import Session
from algorist.train import rows as rows_of
from algorist.train.trainer import Assigned, Computed, Trainer


def train_sft(session: Session, cfg: SFTConfig, targets: Sequence[Row]) -> None:
    """Fine-tune on (prompt ids, target ids) pairs; every target token, its stop token included, is trained.

    Token mean over each batch, so that every target token weighs the same. Order: a new permutation each epoch, a pure
    function of the seed.
    """
    plan = batches(cfg, targets, session.seed)
    trainer = Trainer(
        policy=session.policy,
        optimizer_cfg=cfg.optimizer,
        method=METHODS["sft"],
        objective=SFTObjective(reduction="token_mean"),
        total_updates=len(plan),
        temperature=1.0,
        micro_batch_tokens=cfg.micro_batch_tokens,
    )
    session.load_optimizer(trainer)
    session.position = replace(session.position, phase="sft")
    session.listener.begin("sft", len(plan))
    for step in range(session.position.sft_steps, len(plan)):
        started = time.monotonic()
        chosen = [targets[i] for i in plan[step]]
        rows = rows_of.from_targets(chosen)
        declared = sum(len(response) for _, response in chosen)
        assigned = trainer.assign(rows)

        def look(computed: Computed, step: int = step, assigned: Assigned = assigned, declared: int = declared) -> None:
            _whole_targets(computed, step, declared)
            session.gates.before_step(session, trainer, assigned, computed)

        update, _ = trainer.step(assigned, batch=step, look=look)
        trained = int(update.metrics.get("tokens/with_gradient", 0))
        session.gates.after_step(session, trainer, update)  # a step that went wrong is never counted as applied
        seconds = time.monotonic() - started
        kind = EventKind.UPDATE_APPLIED if update.applied else EventKind.UPDATE_SKIPPED
        payload: dict[str, JSON] = {
            "stage": "sft",
            "step": step,
            "loss": update.metrics.get("loss", 0.0),
            "lr": update.lr,
        }
        session.ledger.append(
            kind,
            policy_version=trainer.applied,
            payload=payload if update.applied else {**payload, "cause": update.cause},
            wall={"train_s": round(seconds, 4)},
        )
        session.metrics.append(
            {
                "stage": "sft",
                "step": step,
                "sft/loss": update.metrics.get("loss", math.nan),
                "sft/lr": update.lr,
                "grad_norm": update.metrics.get("grad_norm", math.nan),
                "tokens/trained": float(trained),
                "time/train_s": seconds,
            }
        )
        session.position = replace(session.position, sft_steps=step + 1, applied=trainer.applied)
        session.listener.advance(
            "sft", step + 1, {"loss": update.metrics.get("loss", math.nan), "lr": update.lr, "s/step": seconds}
        )
        if session.due() or step + 1 == len(plan):
            session.save(trainer)
        session.check_stop(trainer)


def _whole_targets(computed: Computed, step: int, declared: int) -> None:
    trained = int(computed.scored.sum())
    if trained != declared:
        raise GateFailed(
            f"sft: step {step} must train all {declared} tokens of its targets (the answer and the token that ends it; no prompt, "
            f"no padding): it would train {trained}. Repair the loss mask; no weight of this step has moved."
        )


def batches(cfg: SFTConfig, targets: Sequence[Row], seed: int) -> list[list[int]]:
    """Indices of the examples of every step, a pure function of config and seed.

    batch_size examples a step, or as many whole examples as fit batch_tokens (one at least).
    """
    order: list[int] = []
    epochs = math.ceil(cfg.epochs) if cfg.epochs is not None else 0
    wanted = None if cfg.epochs is None else math.ceil(cfg.epochs * len(targets))
    result: list[list[int]] = []
    epoch = 0
    while True:
        if not order:
            if wanted is not None and epoch >= epochs:
                break
            order = permutation(len(targets), seed, "sft", epoch)
            if wanted is not None:
                order = order[: wanted - epoch * len(targets)]
            epoch += 1
        if cfg.batch_size is not None:
            take = cfg.batch_size
        else:
            assert cfg.batch_tokens is not None, "batch_size or batch_tokens (checked by the config)"
            take, tokens = 0, 0
            for i in order:
                tokens += len(targets[i][0]) + len(targets[i][1])
                if take and tokens > cfg.batch_tokens:
                    break
                take += 1
        batch, order = order[:take], order[take:]
        if cfg.batch_size is not None and cfg.steps is not None:
            while len(batch) < take:  # a batch runs on into the next epoch, so that every step has batch_size examples
                order = permutation(len(targets), seed, "sft", epoch)
                epoch += 1
                more = take - len(batch)
                batch, order = batch + order[:more], order[more:]
        result.append(batch)
        if cfg.steps is not None and len(result) == cfg.steps:
            break
    return result
