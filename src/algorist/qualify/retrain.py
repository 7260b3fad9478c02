"""The part of an audit that trains again: from one kept checkpoint to the next on the stored batches, with the run's own trainer."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from algorist.flow import Update
from algorist.objective.config import SFTConfig as SFTObjective
from algorist.objective.registry import METHODS
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.policy.weights import state
from algorist.qualify.evidence import Evidence, near, whole
from algorist.qualify.history import UPDATES
from algorist.qualify.recompute import scores, worth_of
from algorist.qualify.rescore import Again, Saved, disagreement, load, start_and_kept, tensors
from algorist.qualify.subject import Subject
from algorist.record import metrics
from algorist.record import rollouts as store
from algorist.record.ledger import Event, EventKind
from algorist.stages.offline import keeps_start
from algorist.stages.sft import batches as sft_batches
from algorist.train import rows as rows_of
from algorist.train.optimizer import load_moments, moments
from algorist.train.trainer import Assigned, Computed, Trainer

_SAME, _OTHER = 1e-6, 0.02
"""Relative difference of losses and gradient norms: with the machine and libraries of the run, and elsewhere."""
_APART = 0.2
"""Elsewhere: how far the weights in the end may lie from the stored ones, as a share of the way the run went between them."""
_LOOSE = 4
"""Steps trained again where no kept checkpoint says what must come out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps that are trained again."""

    begin: Saved
    end: Saved | None
    """The checkpoint that must come out; None where only losses are compared."""
    last: int
    """Number of the first step that is not."""

    def __str__(self) -> str:
        to = f" to {self.end.name}" if self.end else ""
        return f"steps {self.begin.number} to {self.last - 1}, from {self.begin.name}{to}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The steps that a contract's events tell of."""

    e: Evidence
    subject: Subject
    again: Again
    sft: int
    """SFT steps; those of RL are numbered after them."""
    updates: dict[int, list[Event]]
    """Step -> its updates, several where a batch has several epochs."""

    @property
    def allowed(self) -> float:
        """Relative difference of what is computed again."""
        return _SAME if self.again.exact else _OTHER


def retrain(e: Evidence, subject: Subject, contract: str, again: Again) -> tuple[str, Iterator[str]]:
    """Every loss, gradient norm and figure on the way, and weights and moments in the end."""
    updates: dict[int, list[Event]] = {}
    sft = sum(ev.kind in UPDATES and ev.payload.get("stage") == "sft" for ev in e.events)
    for ev in e.of(*UPDATES):
        if ev.contract == contract:
            number = whole(ev, "step") if ev.payload.get("stage") == "sft" else sft + whole(ev, "batch")
            updates.setdefault(number, []).append(ev)
    steps = _Steps(e=e, subject=subject, again=again, sft=sft, updates=updates)
    found = list(_stretches(start_and_kept(e, contract), steps))
    left_out = len(updates) - sum(s.last - s.begin.number for s in found)
    why = (
        f"not {left_out} steps: too far from kept weights (at most {again.limit} are trained again)" if left_out else ""
    )
    words = "; ".join([*map(str, found), *([why] if why else [])])
    return words if found else f"skipped: {why or 'no step'}", (fault for s in found for fault in _train(steps, s))


def _stretches(places: list[Saved], steps: _Steps) -> Iterator[Stretch]:
    """Newest first and `limit` steps in all: what lies between two kept checkpoints; where nothing does, what follows one."""
    left = steps.again.limit
    for begin, end in reversed(list(pairwise(places))):
        known = all(n in steps.updates for n in range(begin.number, end.number))
        if known and 0 < end.number - begin.number <= left:
            left -= end.number - begin.number
            yield Stretch(begin=begin, end=end, last=end.number)
    for begin in reversed(places) if left == steps.again.limit else ():
        last = begin.number
        while last in steps.updates and last - begin.number < min(left, _LOOSE):
            last += 1
        if last > begin.number:
            yield Stretch(begin=begin, end=None, last=last)
            return


def _train(steps: _Steps, stretch: Stretch) -> Iterator[str]:
    begin, policy = stretch.begin, load(steps.subject, stretch.begin)
    trainer: Trainer | None = None
    if begin.number < steps.sft:
        trainer = _sft_trainer(steps, policy)
        if begin.phase == "sft":
            _resume(trainer, begin)
        yield from _sft(steps, trainer, range(begin.number, min(stretch.last, steps.sft)))
    if stretch.last > steps.sft:
        begun = begin.phase == "rl"
        kept = begun and steps.subject.rl is not None and keeps_start(steps.subject.rl)
        trainer = _rl_trainer(steps.subject, policy, load(steps.subject, begin, reference=True) if kept else None)
        if begun:
            _resume(trainer, begin)
        yield from _rl(steps, trainer, range(max(begin.number, steps.sft), stretch.last))
    if stretch.end is not None and stretch.end.path is not None and trainer is not None:
        yield from _end(steps, trainer, begin, stretch.end.path)


def _sft_trainer(steps: _Steps, policy: CausalPolicy) -> Trainer:
    cfg = steps.again.sft
    assert cfg is not None, "SFT steps come from an sft stage"
    return Trainer(
        policy=policy, optimizer_cfg=cfg.optimizer, method=METHODS["sft"], objective=SFTObjective(reduction="token_mean"),
        total_updates=len(sft_batches(cfg, steps.again.targets, steps.subject.seed)), temperature=1.0,
        micro_batch_tokens=cfg.micro_batch_tokens,
    )  # fmt: skip


def _sft(steps: _Steps, trainer: Trainer, numbers: range) -> Iterator[str]:
    assert steps.again.sft is not None, "SFT steps come from an sft stage"
    plan = sft_batches(steps.again.sft, steps.again.targets, steps.subject.seed)
    if len(plan) < steps.sft:
        yield f"{steps.e.folder.ledger}: {steps.sft} SFT steps were done, the recipe gives {len(plan)}"
        return
    for number in numbers:
        steps.again.tell(f"SFT step {number} again, up to {numbers[-1]}")
        rows = rows_of.from_targets([steps.again.targets[i] for i in plan[number]])
        update, _ = trainer.step(trainer.assign(rows), batch=number)
        yield from _update(steps, steps.updates[number][0], update)


def _rl_trainer(subject: Subject, policy: CausalPolicy, reference: CausalPolicy | None) -> Trainer:
    rl = subject.rl
    assert rl is not None, "batches come from RL"
    if keeps_start(rl) and reference is None:  # the policy as RL finds it
        reference = copy_policy(policy)
    return Trainer(
        policy=policy, optimizer_cfg=rl.optimizer, method=METHODS[rl.objective.name], objective=rl.objective,
        total_updates=rl.updates * rl.epochs_per_batch, temperature=rl.sampling.temperature,
        micro_batch_tokens=rl.micro_batch_tokens, epochs=rl.epochs_per_batch, reference=reference,
    )  # fmt: skip


def _rl(steps: _Steps, trainer: Trainer, numbers: range) -> Iterator[str]:
    e, rl = steps.e, steps.subject.rl
    assert rl is not None, "batches come from RL"
    events = {whole(ev, "batch"): ev for ev in e.of(EventKind.ROLLOUT_BATCH)}
    rows = {row.get("batch"): row for row in metrics.read(e.folder.metrics) if row.get("stage") == "rl"}
    for number in numbers:
        steps.again.tell(f"training on batch {number - steps.sft} again, up to {numbers[-1] - steps.sft}")
        before, event = trainer.applied, events[number - steps.sft]
        path = e.batch_file(event)
        stored = e.stored(event)
        worth = worth_of(steps.subject, stored.batch)
        assigned = trainer.assign(
            worth.rows, step_ends=worth.step_ends, step_rewards=worth.step_rewards, quality=worth.quality
        )
        yield from (f"{path}: {fault}" for fault in _scored(assigned, stored, 1e-4 if steps.again.exact else 0.05))
        computed: list[Computed] = []
        for said in steps.updates[number]:
            update, _ = trainer.step(assigned, batch=event.seq, look=computed.append)
            yield from _update(steps, said, update)
        if computed and rl.source == "online":
            c = computed[0]
            words = disagreement(steps.subject, stored.batch, worth.rows, c.logp, c.below, c.scored)
            if words:
                yield f"{path}: was not sampled by the policy that was trained on it: {words}"
        row = rows.get(number - steps.sft, {})
        for name in sorted(update.metrics.keys() & row.keys()):
            if math.isfinite(update.metrics[name]) and not near(row[name], update.metrics[name], steps.allowed):
                said_words = f"batch {event.payload['batch']} has {name} {row[name]}"
                yield f"{e.folder.metrics}: {said_words}, trained again {update.metrics[name]:.6g}"
                break
        every = rl.reference.reset_every
        if every and trainer.reference is not None and before // every < trainer.applied // every:
            trainer.reference.model.load_state_dict(trainer.policy.model.state_dict())


def _scored(assigned: Assigned, stored: store.Stored, allowed: float) -> Iterator[str]:
    scored = {"logp_old": assigned.logp_old, "logp_ref": assigned.logp_ref, "value": assigned.value_old}
    for name, mine in scored.items():
        said = scores(stored, name)
        if mine is not None and said is not None and not bool(((said - mine).abs() <= allowed).all()):
            yield f"holds another {name} than the weights give"


def _resume(trainer: Trainer, begin: Saved) -> None:
    """Moments and applied updates of a checkpoint of the stage that goes on."""
    assert begin.path is not None, "a stage that has begun was saved"
    trainer.applied = begin.applied
    file = begin.path / "moments.safetensors"
    if file.is_file():
        load_moments(trainer.policy, trainer.optimizer, tensors(file))


def _update(steps: _Steps, said: Event, mine: Update) -> Iterator[str]:
    where = f"{steps.e.folder.ledger}: event {said.seq}"
    if (said.kind is EventKind.UPDATE_SKIPPED) is not bool(mine.cause) or said.payload.get("cause", "") != mine.cause:
        yield f"{where} says {said.kind} {said.payload.get('cause', '')}, trained again it is {mine.cause or 'applied'}"
    elif not near(said.payload.get("lr"), mine.lr, 1e-12):
        yield f"{where} has another learning rate than the schedule"
    elif not mine.cause:
        for name in ("loss", "grad_norm"):
            if name in said.payload and not near(said.payload[name], mine.metrics[name], steps.allowed):
                yield f"{where} has {name} {said.payload[name]}, trained again {mine.metrics[name]:.6g}"


def _end(steps: _Steps, trainer: Trainer, begin: Saved, end: Path) -> Iterator[str]:
    """Weights and moments are those of the checkpoint at the end."""
    stored, mine = tensors(end / "weights.safetensors"), state(trainer.policy)
    if mine.keys() != stored.keys() or any(mine[n].shape != stored[n].shape for n in mine):
        yield f"{end}: holds other tensors than training again gives"
        return
    if steps.again.exact:
        file = end / "moments.safetensors"
        kept, now = tensors(file) if file.is_file() else {}, moments(trainer.policy, trainer.optimizer)
        odd = [n for n in mine if not torch.equal(mine[n], stored[n])]
        if odd:
            yield f"{end}: training again on the stored batches gives another {odd[0]}"
        elif now.keys() != kept.keys() or any(not torch.equal(now[n].cpu(), kept[n]) for n in now):
            yield f"{end}: training again on the stored batches gives other optimizer moments"
        return
    begun = state(load(steps.subject, begin))
    way = sum(float((stored[n] - begun[n]).double().square().sum()) for n in stored if n in begun)
    apart = sum(float((stored[n] - mine[n]).double().square().sum()) for n in stored)
    if not math.sqrt(apart) <= _APART * math.sqrt(way):
        words = f"{math.sqrt(apart):.3g} away, of {math.sqrt(way):.3g}"
        yield f"{end}: training again on the stored batches ends elsewhere ({words})"
