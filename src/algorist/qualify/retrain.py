"""The part of an audit that trains again: from one kept checkpoint to the next on the stored batches, with the run's own trainer."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from algorist.objective.config import SFTConfig as SFTObjective
from algorist.objective.registry import METHODS
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.policy.weights import state
from algorist.qualify.evidence import Evidence, near, whole
from algorist.qualify.guard import bounds_of
from algorist.qualify.history import UPDATES
from algorist.qualify.recompute import scores, worth_of
from algorist.qualify.rescore import Again, Saved, load, start_and_kept, tensors
from algorist.qualify.subject import Subject
from algorist.record import metrics
from algorist.record import rollouts as store
from algorist.record.ledger import Event, EventKind
from algorist.stages.offline import keeps_start
from algorist.stages.sft import batches as sft_batches
from algorist.train import rows as rows_of
from algorist.train.optimizer import load_moments, moments
from algorist.train.trainer import Trainer, gate_value

_SAME, _OTHER = 1e-6, 0.02
"""Relative difference of losses and gradient norms: with the machine and libraries of the run, and elsewhere."""
_APART = 0.2
"""Elsewhere: how far the weights in the end may lie from the stored ones, as a share of the way the run went between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps that are trained again."""

    begin: Saved
    end: Saved | None
    """The checkpoint that must come out; None where only losses are compared."""
    last: int
    """Number of the first step that is not."""


def retrain(e: Evidence, subject: Subject, contract: str, again: Again) -> tuple[str, Iterator[str]]:
    """Every loss, gradient norm and figure on the way, and weights and moments in the end."""
    steps: dict[int, list[Event]] = {}
    sft_steps = sum(ev.kind in UPDATES and ev.payload.get("stage") == "sft" for ev in e.events)
    for ev in e.of(*UPDATES):
        if ev.contract == contract:
            number = whole(ev, "step") if ev.payload.get("stage") == "sft" else sft_steps + whole(ev, "batch")
            steps.setdefault(number, []).append(ev)
    loops = {True: _sft, False: _rl}
    found = list(_stretches(start_and_kept(e, contract), steps, sft_steps, again.limit))
    words = "; ".join(
        f"steps {s.begin.number} to {s.last - 1}, from {s.begin.name}" + (f" to {s.end.name}" if s.end else "")
        for s in found
    )
    left_out = len(steps) - sum(s.last - s.begin.number for s in found)
    why = (
        f"not {left_out} steps: too far from kept weights (at most {again.limit} are trained again)" if left_out else ""
    )
    faults = (
        fault for s in found for fault in loops[s.begin.number < sft_steps](e, subject, again, s, steps, sft_steps)
    )
    return f"{words}{'; ' if words and why else ''}{why}" if words else f"skipped: {why or 'no step'}", faults


def _stretches(places: list[Saved], steps: dict[int, list[Event]], sft_steps: int, limit: int) -> Iterator[Stretch]:
    """Newest first and `limit` steps in all: what lies between two kept checkpoints; where nothing does, what follows one."""
    left = limit
    for begin, end in reversed(list(pairwise(places))):
        one_stage = not begin.number < sft_steps < end.number
        known = all(n in steps for n in range(begin.number, end.number))
        if one_stage and known and 0 < end.number - begin.number <= left:
            left -= end.number - begin.number
            yield Stretch(begin=begin, end=end, last=end.number)
    for begin in reversed(places) if left == limit else ():
        last = begin.number
        while last in steps and last - begin.number < limit and not begin.number < sft_steps <= last:
            last += 1
        if last > begin.number:
            yield Stretch(begin=begin, end=None, last=last)
            return


def _sft(
    e: Evidence, subject: Subject, again: Again, stretch: Stretch, steps: dict[int, list[Event]], sft_steps: int
) -> Iterator[str]:
    assert again.sft is not None, "SFT steps come from an sft stage"
    plan = sft_batches(again.sft, again.targets, subject.seed)
    if len(plan) < sft_steps:
        yield f"{e.folder.ledger}: {sft_steps} SFT steps were done, the recipe gives {len(plan)}"
        return
    policy = load(subject, stretch.begin)
    trainer = Trainer(
        policy=policy, optimizer_cfg=again.sft.optimizer, method=METHODS["sft"],
        objective=SFTObjective(reduction="token_mean"), total_updates=len(plan), temperature=1.0,
        micro_batch_tokens=again.sft.micro_batch_tokens,
    )  # fmt: skip
    _resume(trainer, stretch.begin, stretch.begin.phase == "sft")
    for number in range(stretch.begin.number, stretch.last):
        again.tell(f"SFT step {number} again, up to {stretch.last - 1}")
        rows = rows_of.from_targets([again.targets[i] for i in plan[number]])
        update, _ = trainer.step(trainer.assign(rows), batch=number)
        yield from _update(e, steps[number][0], update.metrics.get("loss", 0.0), None, update.lr, update.cause, again)
    yield from _end(trainer, subject, stretch, again)


def _rl(
    e: Evidence, subject: Subject, again: Again, stretch: Stretch, steps: dict[int, list[Event]], sft_steps: int
) -> Iterator[str]:
    rl, begin = subject.rl, stretch.begin
    assert rl is not None, "batches come from RL"
    policy, begun = load(subject, begin), begin.phase == "rl"
    reference: CausalPolicy | None = None
    if keeps_start(rl):
        reference = load(subject, begin, reference=True) if begun else copy_policy(policy)
    trainer = Trainer(
        policy=policy, optimizer_cfg=rl.optimizer, method=METHODS[rl.objective.name], objective=rl.objective,
        total_updates=rl.updates * rl.epochs_per_batch, temperature=rl.sampling.temperature,
        micro_batch_tokens=rl.micro_batch_tokens, epochs=rl.epochs_per_batch, reference=reference,
    )  # fmt: skip
    _resume(trainer, begin, begun)
    events = {whole(ev, "batch"): ev for ev in e.of(EventKind.ROLLOUT_BATCH)}
    rows = {row.get("batch"): row for row in metrics.read(e.folder.metrics) if row.get("stage") == "rl"}
    for number in range(begin.number, stretch.last):
        again.tell(f"training on batch {number - sft_steps} again, up to {stretch.last - 1 - sft_steps}")
        before, event = trainer.applied, events[number - sft_steps]
        path = e.batch_file(event)
        stored = store.read(path)
        worth = worth_of(subject, stored.batch)
        assigned = trainer.assign(
            worth.rows, step_ends=worth.step_ends, step_rewards=worth.step_rewards, quality=worth.quality
        )
        scored = {"logp_old": assigned.logp_old, "logp_ref": assigned.logp_ref, "value": assigned.value_old}
        for name, mine in scored.items():
            said = scores(stored, name)
            if (
                mine is not None
                and said is not None
                and not bool(((said - mine).abs() <= (1e-4 if again.exact else 0.05)).all())
            ):
                yield f"{path}: holds another {name} than the weights give"
        for epoch, said_update in enumerate(steps[number]):
            update, difference = trainer.step(assigned, batch=event.seq)
            loss, norm = update.metrics.get("loss"), update.metrics.get("grad_norm")
            yield from _update(e, said_update, loss, norm, update.lr, update.cause, again)
            if epoch == 0 and difference is not None and rl.source == "online":
                for bound in bounds_of(subject):
                    if not (value := gate_value(difference, bound.statistic)) <= bound.nats:
                        words = f"{bound.statistic} difference {value:.4g} nats, at most {bound.nats:g} allowed"
                        yield f"{path}: was not sampled by the policy that was trained on it: {words}"
                        break
        row = rows.get(number - sft_steps, {})
        for name in update.metrics.keys() & row.keys():
            if math.isfinite(update.metrics[name]) and not near(
                row[name], update.metrics[name], _SAME if again.exact else _OTHER
            ):
                yield f"{e.folder.metrics}: batch {event.payload['batch']} has {name} {row[name]}, trained again {update.metrics[name]:.6g}"
                break
        every = rl.reference.reset_every
        if every and reference is not None and before // every < trainer.applied // every:
            reference.model.load_state_dict(policy.model.state_dict())
    yield from _end(trainer, subject, stretch, again)


def _resume(trainer: Trainer, begin: Saved, same_stage: bool) -> None:
    """Moments and applied updates, where the checkpoint is of the stage that goes on."""
    if begin.path is None or not same_stage:
        return
    trainer.applied = begin.applied
    file = begin.path / "moments.safetensors"
    if file.is_file():
        load_moments(trainer.policy, trainer.optimizer, tensors(file))


def _update(
    e: Evidence, said: Event, loss: float | None, norm: float | None, lr: float, cause: str, again: Again
) -> Iterator[str]:
    allowed = _SAME if again.exact else _OTHER
    where = f"{e.folder.ledger}: event {said.seq}"
    if (said.kind is EventKind.UPDATE_SKIPPED) is not bool(cause) or said.payload.get("cause", "") != cause:
        yield f"{where} says {said.kind} {said.payload.get('cause', '')}, trained again it is {cause or 'applied'}"
    elif not near(said.payload.get("lr"), lr, 1e-12):
        yield f"{where} has another learning rate than the schedule"
    elif not cause:
        for name, mine in (("loss", loss), ("grad_norm", norm)):
            if mine is not None and not near(said.payload.get(name), mine, allowed):
                yield f"{where} has {name} {said.payload.get(name)}, trained again {mine:.6g}"


def _end(trainer: Trainer, subject: Subject, stretch: Stretch, again: Again) -> Iterator[str]:
    """Weights and moments are those of the checkpoint at the end."""
    if stretch.end is None or stretch.end.path is None:
        return
    stored = tensors(stretch.end.path / "weights.safetensors")
    mine, begun = state(trainer.policy), state(load(subject, stretch.begin))
    if mine.keys() != stored.keys() or any(mine[n].shape != stored[n].shape for n in mine):
        yield f"{stretch.end.path}: holds other tensors than training again gives"
        return
    if again.exact:
        odd = [n for n in mine if not torch.equal(mine[n], stored[n])]
        file = stretch.end.path / "moments.safetensors"
        kept = tensors(file) if file.is_file() else {}
        now = moments(trainer.policy, trainer.optimizer)
        if odd:
            yield f"{stretch.end.path}: training again on the stored batches gives another {odd[0]}"
        elif now.keys() != kept.keys() or any(not torch.equal(now[n].cpu(), kept[n]) for n in now):
            yield f"{stretch.end.path}: training again on the stored batches gives other optimizer moments"
        return
    way = sum(float((stored[n] - begun[n]).double().square().sum()) for n in stored if n in begun)
    apart = sum(float((stored[n] - mine[n]).double().square().sum()) for n in stored)
    if not math.sqrt(apart) <= _APART * math.sqrt(way):
        words = f"{math.sqrt(apart):.3g} away, of {math.sqrt(way):.3g}"
        yield f"{stretch.end.path}: training again on the stored batches ends elsewhere ({words})"
