"""The gates of a run, in order, as the loops meet them. Every verdict is an event on the ledger."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar, final

from algorist.digest import JSON
from algorist.errors import AdmissionRefused, AlgoristError, GateFailed
from algorist.flow import Batch, Group, Outcome, Problem, Rollout, Update
from algorist.flow import Verdict as Judged
from algorist.problems.order import ProblemOrder
from algorist.qualify import canary, credit, memory, policy_gates, rollouts, routers, signal
from algorist.qualify.admit import measure_admission
from algorist.qualify.agree import Agreement
from algorist.qualify.agree import bounds_of as bounds_of
from algorist.qualify.closing import counts_gate, outcome_gate, recorded
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.preflight import preflight as preflight
from algorist.qualify.preflight import timed
from algorist.qualify.steps import Steps
from algorist.qualify.subject import Subject
from algorist.qualify.takeover import still_there
from algorist.qualify.watch import Watch
from algorist.record import metrics
from algorist.record.ledger import EventKind
from algorist.stages.sample import attempt, judged, whole_groups
from algorist.stages.session import Session
from algorist.train.rows import Rows
from algorist.train.trainer import Assigned, Computed, Trainer
from algorist.verify.item import Item
from algorist.verify.pool import first_look

Figures = dict[str, float | int | str | bool | None]
P = ParamSpec("P")
T = TypeVar("T")


def _clocked(moment: Callable[Concatenate["RunGates", P], T]) -> Callable[Concatenate["RunGates", P], T]:
    """A moment of a batch whose seconds are counted."""

    def look(self: "RunGates", /, *args: P.args, **kwargs: P.kwargs) -> T:
        started = time.monotonic()
        try:
            return moment(self, *args, **kwargs)
        finally:
            self.spent_s += time.monotonic() - started

    return look


@final
class RunGates:
    """What `algorist run` gives to the loops. See `stages.gates.Gates`."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._watch = Watch(subject.cfg.watch)
        self._order = ProblemOrder([p.id for p in subject.task.train], seed=subject.seed)
        self._problems: Mapping[str, Problem] = subject.task.by_id
        self._load = routers.Load(subject.policy)
        self._agreement = Agreement(subject)
        self._steps = Steps(subject, self._decode)
        self._shown: Counter[str] = Counter()
        self.spent_s = 0.0
        """Seconds spent on the batches since it was last told."""

    # -- the moments ------------------------------------------------------------------------------------------------

    def before_training(self, session: Session) -> None:
        """Preflight at the start of a run; admission whenever a process takes it over."""
        known = recorded(session)
        still_there(self.subject, session)
        failed: list[Gate] = []
        fresh = "data" not in known
        for gate in preflight(self.subject) if fresh else [timed(lambda: measure_admission(self.subject))]:
            if fresh or not gate.passed:
                _append(session, gate)
            if gate.verdict is Verdict.REPORTED:  # a failed one is said by the error it ends in
                session.listener.say(gate.sentence)
            if not gate.passed:
                failed.append(gate)
        rl = self.subject.rl
        if fresh and (rl is None or rl.source == "dataset"):
            without = ("signal", "rollouts", "replay") if rl else ("signal", "rollouts", "replay", "watch_summary")
            for name in without:
                cause = "responses come from the data set, nothing is sampled" if rl else "the recipe has no rl stage"
                _append(
                    session, Gate(name=name, value=None, threshold=None, unit="", verdict=Verdict.ABSENT, cause=cause)
                )
        if failed:
            refuse(session, failed)
        memory.enforce_cap(self.subject.policy, self.subject.cfg.memory)
        self._watch.catch_up(metrics.read(session.folder.metrics) if session.folder.metrics.is_file() else [])
        session.listener.say("gates before training: all passed")

    @_clocked
    def after_sampling(
        self,
        session: Session,
        sampler: Trainer,
        index: int,
        problems: Sequence[Problem],
        groups: Sequence[Sequence[Rollout]],
    ) -> None:
        """The engine answered what it was asked, from the weights it should have, and no weight moved meanwhile."""
        rl = self.subject.rl
        if rl is None or rl.source == "dataset":  # worked solutions have no sampler that could be wrong
            return
        self._broken(
            session,
            sampler,
            index,
            rollouts.check_sampled(groups, self._promise(sampler, index), self._decode, index=index),
        )
        self._broken(session, sampler, index, self._repeated(index, problems))
        self._steps.at_rest(session)

    @_clocked
    def before_update(self, session: Session, sampler: Trainer, batch: Batch, rows: Rows) -> Figures:
        """The policy is the trainer's, verdicts and rewards are those of their responses; the first batch has a signal.

        In this order, so that a wrong sampler is never called a hard problem. First is batch 0, and after an amendment the
        next batch: a new contract is judged on what is sampled under it.
        """
        rl = self.subject.rl
        assert rl is not None, "a batch comes from RL"
        known = recorded(session)
        if batch.index == 0 and sampler.reference is not None:
            gate = policy_gates.parents_gate(self.subject, sampler.reference)
            if not gate.passed:
                _append(session, gate)
                refuse(session, [gate])
        self._broken(session, sampler, batch.index, credit.same_rows(self.subject, batch, rows))
        if batch.index % rl.replay.every == 0 or "replay" not in known:
            self._agreement.whole(session, sampler, batch, rows)
        elif rl.source == "online":
            self._agreement.watch(batch, rows)
        else:
            self._agreement.some(session, sampler, batch, rows)
        self._check_paid(session, sampler, batch)
        if "rollouts" not in known:  # later batches are checked too; only a broken rule is worth a line
            _append(session, Gate(name="rollouts", value=0, threshold=0, unit="broken rule", verdict=Verdict.PASSED))
        contrast = signal.Contrast.of(batch.groups)
        if batch.index == 0 or "signal" not in known:
            self._check_signal(session, sampler, contrast, batch)
        self._steps.expect(session, batch, sampler if rl.source == "online" else None)
        figures: Figures = {
            "groups/mixed_share": contrast.mixed_share,
            "response/duplicate_share": contrast.duplicate_share,
            "reward/spread_mean": contrast.reward_spread,
            "reward/missing_share": contrast.error_share,
            "time/gates_s": self._told(),
        }
        return figures | self._load.figures()

    @_clocked
    def before_step(self, session: Session, trainer: Trainer, assigned: Assigned, computed: Computed) -> None:
        """Tokens, advantages, loss and gradients of one step are the contract's; no weight has moved."""
        rl = self.subject.rl
        if session.position.phase == "rl" and rl is not None and rl.source == "online":
            self._agreement.step(session, trainer, computed)
        self._steps.before(session, trainer, assigned, computed)

    @_clocked
    def after_step(self, session: Session, trainer: Trainer, update: Update) -> None:
        """The weights moved as promised, or not at all where the update was skipped."""
        self._steps.after(session, trainer, update)
        rl = self.subject.rl
        if not update.applied and session.position.phase == "rl" and rl is not None and rl.source == "online":
            self._agreement.skipped(session, trainer)

    def after_batch(self, session: Session, trainer: Trainer, figures: Figures) -> None:
        """Watched figures; a rule that trips reports, pauses or stops as the recipe says."""
        cap = self.subject.cfg.memory.trainer_allocator_cap_gib
        if cap is not None:
            self._check_resident(session, cap)
        trips = self._watch.see(figures)
        ending = next((trip for trip in trips if trip.rule.action != "report"), None)
        for trip in trips:
            payload: dict[str, JSON] = {
                "name": "watch",
                "figure": trip.rule.figure,
                "value": trip.value,
                "threshold": trip.threshold,
                "batch": trip.batch,
                "action": trip.rule.action,
                "verdict": str(Verdict.REPORTED if trip.rule.action == "report" else Verdict.FAILED),
                "passed": trip.rule.action == "report",
                "cause": trip.cause,
                "remedy": trip.remedy,
            }
            session.ledger.append(EventKind.GATE, policy_version=trainer.applied, payload=payload)
            if trip is not ending:  # that one is said by the error below
                session.listener.say(trip.sentence)
        if ending is not None and ending.rule.action == "pause":
            session.pause = ending.sentence
        elif ending is not None:
            raise GateFailed(ending.sentence)

    def before_export(self, session: Session) -> None:
        """Everything promised was done, and the last weights still replay."""
        done = recorded(session)
        failed = []
        for name, judge in (
            ("counts", lambda session: counts_gate(session, self.subject.rl)),
            ("outcome", outcome_gate),
            ("export_replay", self._export_replay),
        ):
            if name not in done:
                gate = timed(lambda judge=judge: judge(session))  # type: ignore[misc]
                _append(session, gate)
                if gate.verdict is Verdict.REPORTED:
                    session.listener.say(gate.sentence)
                if not gate.passed:
                    failed.append(gate)
        if self.subject.rl is not None and "watch_summary" not in done:
            tripped = [e.payload for e in session.ledger.events if e.payload.get("name") == "watch"]
            cause = "; ".join(dict.fromkeys(str(p["figure"]) for p in tripped))
            verdict = Verdict.REPORTED if tripped else Verdict.PASSED
            gate = Gate(
                name="watch_summary", value=len(tripped), threshold=None, unit="trips", verdict=verdict, cause=cause
            )
            _append(session, gate)
        if failed:
            raise GateFailed(" ".join(gate.sentence for gate in failed))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _told(self) -> float:
        """What was spent since the last batch asked; what this one still takes is told by the next."""
        spent, self.spent_s = self.spent_s, 0.0
        return spent

    def _promise(self, sampler: Trainer, index: int) -> rollouts.Promise:
        rl, task = self.subject.rl, self.subject.task
        assert rl is not None, "a batch comes from RL"
        return rollouts.Promise(
            seed=self.subject.seed,
            problem_ids=tuple(self._order.at(index, rl.prompts_per_batch)),
            group_size=rl.group_size,
            version=sampler.applied,
            prompts=self.subject.prompt_ids,
            stop_ids=task.stop_ids,
            response_tokens=rl.sampling.response_tokens,
            vocabulary=int(self.subject.policy.model.config.vocab_size),
            exact_reward=self.subject.reward_name == "exact",
        )

    def _repeated(self, index: int, problems: Sequence[Problem]) -> rollouts.Fault | None:
        """Every problem once before any a second time, counted since this process took over."""
        self._shown.update(p.id for p in problems)
        most = max(self._shown.values())
        known = len(self._order.ids)
        if most <= 1 + -(-self._shown.total() // known) or most <= 2:
            return None
        often = next(p for p, count in self._shown.items() if count == most)
        return rollouts.Fault(
            code="problems",
            words=f"batch {index}: every problem must be shown before any is shown again: problem {often} was shown {most} times among "
            f"{self._shown.total()} prompts, and there are {known} problems",
            remedy="Take the order from problems.order, with the number of the batch.",
        )

    def _broken(self, session: Session, sampler: Trainer, index: int, fault: rollouts.Fault | None) -> None:
        """End the run where a rule of the batch does not hold."""
        if fault is None:
            return
        gate = Gate(
            name="rollouts", value=1, threshold=0, unit="broken rule", verdict=Verdict.FAILED, cause=fault.words,
            remedy=fault.remedy, figures={"code": fault.code, "batch": index},
        )  # fmt: skip
        _append(session, gate)
        raise GateFailed(gate.sentence)

    def _check_paid(self, session: Session, sampler: Trainer, batch: Batch) -> None:
        """Verdicts against a second look at every response, and known answers to the problems of this batch."""
        subject = self.subject
        self._broken(session, sampler, batch.index, credit.same_shaping(subject, batch, self._decode))
        fault = rollouts.check_paid(batch, self._promise(sampler, batch.index), self._second_look)
        self._broken(session, sampler, batch.index, fault)
        asked = [self._problems[g.problem_id] for g in batch.groups]
        self._broken(session, sampler, batch.index, canary.misjudged(subject, asked))

    def _second_look(self, rollout: Rollout) -> tuple[str, Outcome] | None:
        """Judged here and alone, without the pool; None where that would need a proof."""
        problem = self._problems[rollout.problem_id]
        item = Item(
            gold=problem.gold, response=rollout.text, kind=problem.kind, truncated=rollout.truncated,
            answer_format=self.subject.task.answer_format,
        )  # fmt: skip
        seen = first_look(item)
        return (problem.gold, seen.verdict) if isinstance(seen, Judged) else None

    def _decode(self, ids: Iterable[int]) -> str:
        text: str = self.subject.policy.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _check_signal(self, session: Session, trainer: Trainer, contrast: signal.Contrast, batch: Batch) -> None:
        cfg = self.subject.cfg.signal
        groups = list(batch.groups)
        if contrast.mixed_share < 2 * cfg.minimum_useful_share and len(groups) < cfg.prompts:
            groups += self.sample_groups(cfg.prompts, trainer.applied, skip=len(groups), first=batch.index)
            contrast = signal.Contrast.of(groups)
        gate = signal.judge(contrast, minimum=cfg.minimum_useful_share, refuse=cfg.action == "refuse")
        if gate.cause:
            gate = replace(gate, cause=gate.cause + signal.example(groups, self._problems))
        doubt = signal.against_golds(groups, self._problems)
        if doubt:
            session.listener.say(f"signal: {doubt}")
        _append(session, gate)
        if not gate.passed:
            refuse(session, [gate])

    def sample_groups(self, count: int, version: int, *, skip: int = 0, first: int = 0) -> list[Group]:
        """Groups of the problems that the batches from `first` on will hold, sampled, graded and paid as there."""
        rl, task = self.subject.rl, self.subject.task
        assert rl is not None, "groups are those of RL"
        total = min(count, len(self._order.ids))
        size = rl.prompts_per_batch
        ahead = (i for k in range(-(-total // size)) for i in self._order.at(first + k, size))
        ids = list(dict.fromkeys(ahead)) if first else self._order.at(0, total)
        chosen = [self._problems[i] for i in ids[skip:total]]
        if not chosen:
            return []
        prompts = [task.prompts[p.id] for p in chosen]
        size = rl.group_size
        made = attempt(
            "the engine must answer every prompt",
            "signal",
            lambda: self.subject.engine.generate(
                prompts, num_samples=size, plan=self.subject.plan, policy_version=version, seed=self.subject.seed,
                salt=f"batch-{first}",
            ),
        )  # fmt: skip
        whole_groups(made, chosen, size, "signal")
        verdicts, rewards = judged(task, chosen, made, "signal")
        return [
            Group(
                problem_id=problem.id,
                rollouts=tuple(group),
                verdicts=tuple(verdicts[i * size : (i + 1) * size]),
                rewards=tuple(rewards[i * size : (i + 1) * size]),
            )
            for i, (problem, group) in enumerate(zip(chosen, made, strict=True))
        ]

    def _check_resident(self, session: Session, cap: float) -> None:
        probe = memory.probe_for(self.subject.policy, self.subject.cfg.memory)
        own = probe.read().high
        if own > cap:
            gate = Gate(
                name="memory", value=cap, threshold=None, unit="GiB cap", verdict=Verdict.FAILED,
                cause=f"the trainer holds {own:.4g} GiB, its cap is {cap:g} GiB",
                remedy="Lower rl.micro_batch_tokens, or raise qualify.memory.trainer_allocator_cap_gib.",
                wall={"own_gib": round(own, 3)},
            )  # fmt: skip
            _append(session, gate)
            raise AdmissionRefused(gate.sentence)

    def _export_replay(self, session: Session) -> Gate:
        """A few fresh rollouts of the final weights, scored by one plain pass each; frozen parameters did not move."""
        gate = policy_gates.cache_gate(self.subject)
        frozen = policy_gates.frozen_digest(self.subject.policy)
        before = next(
            (e.payload["figures"] for e in session.ledger.events if e.payload.get("name") == "parameters"), {}
        )
        gate = replace(gate, name="export_replay", figures={**gate.figures, "frozen": frozen})
        if isinstance(before, Mapping) and before.get("frozen", frozen) != frozen:
            cause = "parameters that are declared frozen have moved"
            remedy = "Keep them out of the optimizer; the receipt cannot call this checkpoint qualified."
            gate = replace(gate, verdict=Verdict.FAILED, cause=cause, remedy=remedy)
        return gate


def refuse(session: Session, failed: list[Gate]) -> None:
    """Record that the run ended before training, and end it: exit code 3 for memory, 4 for any other gate."""
    message = " ".join(gate.sentence for gate in failed)
    memory_only = all(gate.name == "memory" for gate in failed)
    error: AlgoristError = AdmissionRefused(message) if memory_only else GateFailed(message)
    session.ledger.append(
        EventKind.REFUSED,
        policy_version=session.position.applied,
        payload={"gates": [g.name for g in failed], "message": message, "exit_code": error.exit_code},
        wall={g.name: dict(g.wall) for g in failed},
    )
    raise error


def _append(session: Session, gate: Gate) -> None:
    kind = EventKind.ADMISSION if gate.name == "memory" else EventKind.GATE
    wall = dict(gate.wall)
    payload = gate.payload()
    if kind is EventKind.ADMISSION and not gate.figures.get("declared"):
        # figures of the machine and the moment are no part of what equal runs have in common
        wall |= {"cause": payload["cause"], "remedy": payload["remedy"]}
        payload |= {"cause": "", "remedy": ""}
    session.ledger.append(kind, policy_version=session.position.applied, payload=payload, wall=wall)
