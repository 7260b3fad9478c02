"""The gates of a run, in order, as the loops meet them. Every verdict is an event on the ledger."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import final

from algorist.digest import JSON
from algorist.errors import AdmissionRefused, AlgoristError, GateFailed
from algorist.flow import Batch, Group, Problem
from algorist.policy import weights
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.problems.order import ProblemOrder
from algorist.qualify import data, memory, policy_gates, replay, rollouts, routers, signal
from algorist.qualify.admit import measure_admission
from algorist.qualify.closing import counts_gate, outcome_gate, recorded
from algorist.qualify.diagnose import Cause, Older, diagnose
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.replay import Bound
from algorist.qualify.subject import Subject
from algorist.qualify.watch import Watch
from algorist.record import commit, metrics
from algorist.record.ledger import EventKind
from algorist.stages.session import Session
from algorist.train.rows import Rows
from algorist.train.trainer import Trainer

Figures = dict[str, float | int | str | bool | None]


def preflight(subject: Subject) -> Iterable[Gate]:
    """The gates that need no training, cheapest first; what fails does not hide what comes after."""
    readable = True
    for judge in (data.data_gate, data.canary_gate, data.lengths_gate, data.template_gate):
        gate = timed(lambda judge=judge: judge(subject))  # type: ignore[misc]
        readable = gate.passed
        yield gate
    yield timed(lambda: policy_gates.parameters_gate(subject))
    yield timed(lambda: policy_gates.parents_gate(subject, None))
    if readable:
        admitted = timed(lambda: measure_admission(subject))
        yield admitted
        if admitted.passed:
            yield timed(lambda: policy_gates.cache_gate(subject))
        else:  # what is refused must not be allocated all the same
            words = "not judged: memory was refused"
            yield Gate(name="cache", value=None, threshold=None, unit="", verdict=Verdict.DEFERRED, cause=words)
    else:  # a prompt the policy cannot read must not reach it
        for name in ("memory", "cache"):
            words = "not judged: the template gate failed"
            yield Gate(name=name, value=None, threshold=None, unit="", verdict=Verdict.DEFERRED, cause=words)


def timed(judge: Callable[[], Gate]) -> Gate:
    """A gate with the seconds it took among its wall-clock values."""
    started = time.monotonic()
    gate = judge()
    return replace(gate, wall={**gate.wall, "gate_s": round(time.monotonic() - started, 3)})


def bounds_of(subject: Subject) -> list[Bound]:
    """What replay must keep: the contract's bound and, for float32, the sharper one."""
    assert subject.rl is not None, "replay belongs to RL"
    cfg = subject.rl.replay
    bounds = [Bound(statistic=cfg.statistic, nats=cfg.nats)]
    if subject.policy.dtype == "float32":
        bounds.append(Bound(statistic="mean", nats=min(cfg.nats, subject.cfg.float32.mean_nats)))
    return bounds


@final
class RunGates:
    """What `algorist run` gives to the loops. See `stages.gates.Gates`."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._watch = Watch(subject.cfg.watch)
        self._order = ProblemOrder([p.id for p in subject.task.train], seed=subject.seed)
        tokenizer, size = subject.policy.tokenizer, int(subject.policy.model.config.vocab_size)
        texts = [tokenizer.decode([i]) for i in range(min(size, len(tokenizer)))]
        self._classes = replay.token_classes(texts, special=sorted(subject.task.stop_ids))
        self._problems: Mapping[str, Problem] = subject.task.by_id
        self._load = routers.Load(subject.policy)

    # -- the moments ------------------------------------------------------------------------------------------------

    def before_training(self, session: Session) -> None:
        """Preflight at the start of a run; admission whenever a process takes it over."""
        known = recorded(session)
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

    def before_update(self, session: Session, trainer: Trainer, batch: Batch, rows: Rows) -> Figures:
        """The batch is what the contract says; its policy is the trainer's; the first one shows that there is a signal.

        First is batch 0, and after an amendment the next batch: a new contract is judged on what is sampled under it.
        """
        rl = self.subject.rl
        assert rl is not None, "a batch comes from RL"
        known = recorded(session)
        due = batch.index % rl.replay.every == 0 or "replay" not in known
        self._check_rollouts(session, trainer, batch, thorough=due, first=batch.index == 0 or "rollouts" not in known)
        contrast = signal.Contrast.of(batch.groups)
        if batch.index == 0:
            gate = policy_gates.parents_gate(self.subject, trainer.reference) if trainer.reference else None
            if gate is not None and not gate.passed:
                _append(session, gate)
                refuse(session, [gate])
        if batch.index == 0 or "signal" not in known:
            self._check_signal(session, trainer, contrast, batch)
        if due:
            self._check_replay(session, trainer, batch, rows)
        figures: Figures = {
            "groups/mixed_share": contrast.mixed_share,
            "response/duplicate_share": contrast.duplicate_share,
            "reward/spread_mean": contrast.reward_spread,
        }
        return figures | self._load.figures()

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

    def _check_rollouts(self, session: Session, trainer: Trainer, batch: Batch, *, thorough: bool, first: bool) -> None:
        rl, task = self.subject.rl, self.subject.task
        assert rl is not None, "a batch comes from RL"
        promise = rollouts.Promise(
            problem_ids=tuple(self._order.at(batch.index, rl.prompts_per_batch)),
            group_size=rl.group_size,
            version=trainer.applied,
            prompts=self.subject.prompt_ids,
            stop_ids=task.stop_ids,
            response_tokens=rl.sampling.response_tokens,
            vocabulary=int(self.subject.policy.model.config.vocab_size),
            exact_reward=self.subject.reward_name == "exact",
        )
        decode = self._decode if thorough else None
        fault = rollouts.check(batch, promise, decode)
        if fault is not None:
            gate = Gate(
                name="rollouts", value=1, threshold=0, unit="broken rule", verdict=Verdict.FAILED, cause=fault.words,
                remedy=fault.remedy, figures={"code": fault.code, "batch": batch.index},
            )  # fmt: skip
            _append(session, gate)
            raise GateFailed(gate.sentence)
        if first:  # later batches are checked too; only a broken rule is worth a line
            _append(session, Gate(name="rollouts", value=0, threshold=0, unit="broken rule", verdict=Verdict.PASSED))

    def _decode(self, ids: Iterable[int]) -> str:
        text: str = self.subject.policy.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _check_signal(self, session: Session, trainer: Trainer, contrast: signal.Contrast, batch: Batch) -> None:
        cfg = self.subject.cfg.signal
        groups = list(batch.groups)
        if contrast.mixed_share < cfg.minimum_useful_share and len(groups) < cfg.prompts:
            groups += self.sample_groups(cfg.prompts, trainer.applied, skip=len(groups), first=batch.index)
            contrast = signal.Contrast.of(groups)
        gate = signal.judge(contrast, minimum=cfg.minimum_useful_share, refuse=cfg.action == "refuse")
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
        made = self.subject.engine.generate(
            prompts, num_samples=rl.group_size, plan=self.subject.plan, policy_version=version, seed=self.subject.seed,
            salt=f"batch-{first}",
        )  # fmt: skip
        groups = []
        for problem, group in zip(chosen, made, strict=True):
            asked = [problem] * len(group)
            verdicts = task.grade(asked, group)
            groups.append(
                Group(
                    problem_id=problem.id,
                    rollouts=tuple(group),
                    verdicts=tuple(verdicts),
                    rewards=tuple(task.pay(asked, group, verdicts)),
                )
            )
        return groups

    def _check_replay(self, session: Session, trainer: Trainer, batch: Batch, rows: Rows) -> None:
        rl = self.subject.rl
        assert rl is not None, "replay belongs to RL"
        started = time.monotonic()
        logp, _ = trainer.score(rows, rows.mask.any(1))
        found = replay.measure(rows, logp, self._classes)
        bounds = bounds_of(self.subject)
        broken = found.over(bounds)
        cause: Cause | None = None
        if broken:
            cause = diagnose(
                trainer.policy, rows, found, temperature=rl.sampling.temperature,
                prompts=self._other_prompts(batch), older=self._older(session),
            )  # fmt: skip
        payload: dict[str, JSON] = {
            "batch": batch.index,
            "statistic": rl.replay.statistic,
            "bound_nats": rl.replay.nats,
            "bounds": [{"statistic": b.statistic, "nats": b.nats} for b in bounds],
            **found.payload(),
            "passed": not broken,
            "cause": "" if cause is None else cause.code,
        }
        wall: dict[str, JSON] = {"replay_s": round(time.monotonic() - started, 3)}
        session.ledger.append(EventKind.REPLAY_CHECK, policy_version=trainer.applied, payload=payload, wall=wall)
        if cause is not None:
            d, bound = found.difference, broken[0]
            raise GateFailed(
                f"replay: the trainer must agree with the sampler on stored tokens to {bound.nats:g} nats ({bound.statistic} per "
                f"token), batch {batch.index} has mean {d.mean_nats:.4g}, p99 {d.p99_nats:.4g}, max {d.max_nats:.4g} over "
                f"{d.num_tokens} tokens. Cause: {cause.words}. {cause.remedy}"
            )

    def _other_prompts(self, batch: Batch) -> dict[str, list[tuple[int, ...]]]:
        """Other ways of writing the prompt of each row, to find out which one the sampler saw."""
        tokenizer, renderer = self.subject.policy.tokenizer, self.subject.renderer
        ids = [r.prompt_ids for g in batch.groups for r in g.rollouts]
        asked = [self._problems[r.problem_id] for g in batch.groups for r in g.rollouts]
        others = {
            "without its first token": [x[1:] for x in ids],
            "without its last token": [x[:-1] for x in ids],
            "the bare question": [tuple(tokenizer.encode(p.question, add_special_tokens=False)) for p in asked],
        }
        if tokenizer.bos_token_id is not None:
            others["with a beginning-of-sequence token before it"] = [(tokenizer.bos_token_id, *x) for x in ids]
        if tokenizer.chat_template and renderer.cfg.template != "chat":
            others["the tokenizer's chat template"] = [
                tuple(
                    tokenizer.encode(
                        tokenizer.apply_chat_template(
                            [{"role": "user", "content": p.question}], tokenize=False, add_generation_prompt=True
                        ),
                        add_special_tokens=False,
                    )
                )
                for p in asked
            ]
        return others

    def _older(self, session: Session) -> list[Older]:
        """Weights of the run's checkpoints, newest first."""

        def load(path: object) -> CausalPolicy:
            policy = copy_policy(self.subject.policy)
            weights.load_state(policy, path / "weights.safetensors")  # type: ignore[operator]
            return policy

        found = reversed(commit.numbered(session.folder.checkpoints))
        older = [Older(name=f"checkpoint {p.name}", load=lambda p=p: load(p)) for p in found]  # type: ignore[misc]
        start = self.subject.start
        return older if start is None else [*older, Older(name="the start of the run", load=start)]

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
