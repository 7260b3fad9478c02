"""The update gate of a run: which trainer is followed, what its batch was worth, and what is said where a step is wrong."""

from typing import final

import torch
from torch import Tensor

from algorist.errors import GateFailed
from algorist.flow import Batch, Update
from algorist.policy.model import CausalPolicy
from algorist.qualify.credit import credited
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.policy_gates import stray_parameters
from algorist.qualify.rollouts import Decode, Fault
from algorist.qualify.step import StepCheck, spread_entries
from algorist.qualify.subject import Subject
from algorist.record.ledger import EventKind
from algorist.stages.session import Session
from algorist.train.trainer import Assigned, Computed, Trainer

_CLOSE = {"float32": 1e-3, "bfloat16": 0.05}
"""Nats per token that two passes of equal weights may differ by, on average."""


@final
class Steps:
    """Follows SFT, then RL. A broken rule is an event named `update`, and ends the run."""

    def __init__(self, subject: Subject, decode: Decode) -> None:
        self.subject, self._decode = subject, decode
        self._check: StepCheck | None = None
        self._batch: Batch | None = None
        self._reference: dict[str, Tensor] = {}
        self._said = ""
        """The contract under which a step was seen to be as promised."""

    def expect(self, session: Session, batch: Batch, trainer: Trainer | None) -> None:
        """The next step trains on this batch; `trainer` takes it, where that is known."""
        self._batch = batch
        if trainer is not None:
            self._end(session, trainer, self._take(session, trainer))

    def at_rest(self, session: Session) -> None:
        """Neither policy nor reference has moved since the last step."""
        if self._check is None:
            return
        self._end(session, self._check.trainer, self._check.at_rest() or self._reference_moved(self._check.trainer))

    def before(self, session: Session, trainer: Trainer, assigned: Assigned, computed: Computed) -> None:
        """See `StepCheck.before`; advantages and reference first."""
        fault = self._take(session, trainer)
        check = self._check
        assert check is not None, "taken up just now"
        fault = (
            fault
            or _mode(trainer)
            or credited(self.subject, self._batch, assigned, self._decode)
            or self._at_reference(trainer, assigned, computed)
        )
        self._end(session, trainer, fault or check.before(assigned, computed))

    def after(self, session: Session, trainer: Trainer, update: Update) -> None:
        """See `StepCheck.after`; the first step that is as promised is worth a line on the ledger."""
        if self._check is None or self._check.trainer is not trainer:
            if not update.applied:
                return  # skipped before anything was computed
            self._end(session, trainer, self._take(session, trainer))
            assert self._check is not None, "taken up just now"
        version = trainer.applied - int(update.applied)  # the update itself is not on the ledger yet
        self._end(session, trainer, self._check.after(update), version)
        if update.applied and self._said != session.contract:
            self._said = session.contract
            if any(e.payload.get("name") == "update" and e.contract == session.contract for e in session.ledger.events):
                return
            gate = Gate(name="update", value=0, threshold=0, unit="broken rule", verdict=Verdict.PASSED)
            session.ledger.append(EventKind.GATE, policy_version=version, payload=gate.payload())

    # -- inside -----------------------------------------------------------------------------------------------------

    def _take(self, session: Session, trainer: Trainer) -> Fault | None:
        """Follow this trainer from now on; what is wrong with it as it stands."""
        if self._check is not None and self._check.trainer is trainer:
            return None
        self._check = self._follow(session, trainer)
        self._reference = {} if trainer.reference is None else _entries(trainer.reference)
        return self._strays(trainer) or self._check.start() or self._alias(trainer)

    def _strays(self, trainer: Trainer) -> Fault | None:
        """What is trained is what was declared, still."""
        odd = stray_parameters(trainer.policy, self.subject.cfg.parameters)
        if not odd:
            return None
        trained = dict(trainer.policy.model.named_parameters())[odd[0]].requires_grad
        side = "is trained, and declared frozen" if trained else "is frozen, and was not declared so"
        return Fault(
            code="parameters",
            words=f"exactly the parameters that qualify.parameters.frozen names must be frozen: {len(odd)} are not as declared "
            f"(first: {odd[0]} {side})",
            remedy="Freeze before the trainer is made, through the recipe only.",
        )

    def _follow(self, session: Session, trainer: Trainer) -> StepCheck:
        rl, sft = self.subject.rl, self.subject.sft
        if session.position.phase == "rl" and rl is not None:
            return StepCheck(trainer, rl.optimizer, rl.updates * rl.epochs_per_batch)
        return StepCheck(trainer, trainer.optimizer_cfg if sft is None else sft.optimizer, trainer.total_updates)

    def _end(self, session: Session, trainer: Trainer, fault: Fault | None, version: int | None = None) -> None:
        if fault is None:
            return
        gate = Gate(
            name="update",
            value=1,
            threshold=0,
            unit="broken rule",
            verdict=Verdict.FAILED,
            cause=fault.words,
            remedy=fault.remedy,
            figures={"code": fault.code},
        )
        version = trainer.applied if version is None else version
        session.ledger.append(EventKind.GATE, policy_version=version, payload=gate.payload())
        raise GateFailed(gate.sentence)

    def _alias(self, trainer: Trainer) -> Fault | None:
        """The reference has weights of its own."""
        if trainer.reference is None:
            return None
        own = {p.data_ptr() for p in trainer.policy.model.parameters()}
        shared = [n for n, p in trainer.reference.model.named_parameters() if p.data_ptr() in own]
        if not shared:
            return None
        return Fault(
            code="reference",
            words=f"the reference must have weights of its own: it shares {len(shared)} tensors with the "
            f"policy (first: {shared[0]}), so that the divergence between them is always 0",
            remedy="Copy the policy when RL begins.",
        )

    def _at_reference(self, trainer: Trainer, assigned: Assigned, computed: Computed) -> Fault | None:
        """Before the first update, policy and reference are the same: so are their log-probabilities."""
        if assigned.logp_ref is None or trainer.applied > 0:
            return None
        apart = float((assigned.logp_ref - computed.logp)[computed.scored].abs().double().mean())
        if apart <= _CLOSE[trainer.policy.dtype]:
            return None
        return Fault(
            code="reference",
            words="before the first update the reference must give the same log-probabilities as the policy: "
            f"they differ by {apart:.4g} nats per token",
            remedy="Score both at the sampling temperature, from one checkpoint.",
        )

    def _reference_moved(self, trainer: Trainer) -> Fault | None:
        """It stays, or becomes the policy where the recipe says so (rl.reference.reset_every)."""
        if trainer.reference is None or not self._reference:
            return None
        now = _entries(trainer.reference)
        if all(torch.equal(now[name], before) for name, before in self._reference.items()):
            return None
        rl = self.subject.rl
        reset = rl is not None and rl.reference.reset_every is not None
        if reset and all(
            torch.equal(now[name], mine) for name, mine in _entries(trainer.policy).items() if name in now
        ):
            self._reference = now
            return None
        return Fault(
            code="reference",
            words="the reference must stay as it was when RL began: its weights have changed",
            remedy="Copy the policy, never share it; only rl.reference.reset_every moves the reference.",
        )


def _mode(trainer: Trainer) -> Fault | None:
    if not trainer.policy.model.training:
        return None
    return Fault(
        code="mode",
        words="the policy must not be in training mode: dropout would make every pass another one",
        remedy="Call model.eval() and leave it so; sampling and scoring must be repeatable.",
    )


def _entries(policy: CausalPolicy) -> dict[str, Tensor]:
    """A few entries of each tensor."""
    found = {}
    for name, p in policy.model.named_parameters():
        index = spread_entries(p.numel()).to(p.device)
        found[name] = p.detach().reshape(-1)[index].cpu().clone()
    return found
