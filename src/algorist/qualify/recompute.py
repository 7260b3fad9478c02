"""The part of an audit that computes batches again from what is stored: order, verdicts, rewards, advantages, losses."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.errors import AlgoristError
from algorist.flow import Batch, Outcome, Problem, Reward, Rollout, Verdict
from algorist.objective import kl, reduce
from algorist.objective.registry import METHODS
from algorist.objective.spec import Credit, CreditInput, TokenBatch
from algorist.problems.order import ProblemOrder
from algorist.qualify import rollouts
from algorist.qualify.agree import bounds_of
from algorist.qualify.check import DAMAGED
from algorist.qualify.evidence import Check, Evidence, near, run_check, whole
from algorist.qualify.history import UPDATES
from algorist.qualify.subject import Subject
from algorist.record import metrics
from algorist.record import rollouts as store
from algorist.record.ledger import Event, EventKind
from algorist.record.rollouts import Stored
from algorist.reward.reward import apply
from algorist.seeds import derive, generator
from algorist.stages.shaping import group_numbers
from algorist.stages.worth import Worth, judge
from algorist.train.rows import Rows
from algorist.train.schedule import learning_rate
from algorist.verify.identity import version as verifier_version

_TOLERANCE = 1e-5
"""Advantages are float64 sums of rewards stored as float64, kept as float32."""


class Skip(Exception):
    """Something cannot be computed again, for the reason it is raised with; it is counted, and says nothing."""


@dataclass(slots=True)
class Tally:
    """What became of one kind of check over many batches."""

    done: int = 0
    not_done: Counter[str] = field(default_factory=Counter)
    """Reason -> how many."""
    faults: list[str] = field(default_factory=list)

    def check(self, name: str, unit: str) -> Check:
        """In words, with what was left out and why."""
        words = f"{self.done} {unit}" + "".join(f"; not {count}: {reason}" for reason, count in self.not_done.items())
        skipped = not self.done and bool(self.not_done)
        return run_check(name, lambda: (f"skipped: {words}" if skipped else words, self.faults), Path())


def recompute(
    evidence: Evidence, subject: Subject, contract: str, *, sample: int, seed: int, tell: Callable[[str], None]
) -> list[Check]:
    """Compute again what was stored under one contract. sample: rollouts graded again; seed picks them."""
    return _Again(evidence, subject, contract, sample=sample, seed=seed).batches(tell)


def credit_of(subject: Subject, stored: Stored) -> tuple[Rows, Worth, Credit]:
    """The advantages that stored rewards, and what the trainer scored, give under the objective of the contract.

    Raises Skip where the file does not hold a score that they need.
    """
    rl = subject.rl
    assert rl is not None, "credit belongs to RL"
    needs = {"logp_ref", "value"} & set(rl.objective.needs)
    scored = {name: scores(stored, name) for name in store.SCORES}
    if missing := sorted(name for name in needs if scored[name] is None):
        raise Skip(f"{missing[0]} was not stored")
    worth = worth_of(subject, stored.batch)
    rows = worth.rows
    inputs = CreditInput(
        rewards=rows.reward, group=rows.group, mask=rows.mask, correct=rows.correct, truncated=rows.truncated,
        quality=worth.quality, step_ends=worth.step_ends, step_rewards=worth.step_rewards, **scored,
    )  # fmt: skip
    return rows, worth, METHODS[rl.objective.name].credit(inputs, rl.objective)


def worth_of(subject: Subject, batch: Batch) -> Worth:
    """Groups, steps and quality of a batch whose rewards are shaped already."""
    rl, by_id = subject.rl, subject.task.by_id
    assert rl is not None, "a batch comes from RL"
    plain = rl.model_copy(update={"shaping": ()})
    worth = judge(batch, plain, by_id, decoder(subject), hidden=subject.task.stop_ids)
    return replace(worth, rows=replace(worth.rows, group=group_numbers(batch, rl.shaping, by_id)))


def scores(stored: Stored, name: str) -> Float[Tensor, "B T"] | None:
    """What the trainer scored before its first step, 0 at padding; None where it was not stored."""
    values = [row[name] for row in stored.rows]
    if not values or any(value is None for value in values):
        return None
    out = torch.zeros(len(values), max(1, *map(len, values)))
    for b, value in enumerate(values):
        out[b, : len(value)] = torch.tensor(value)
    return out


def decoder(subject: Subject) -> Callable[[Sequence[int]], str]:
    """Token ids to text, special tokens left out."""

    def decode(ids: Sequence[int]) -> str:
        text: str = subject.policy.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    return decode


@final
class _Again:
    def __init__(self, e: Evidence, subject: Subject, contract: str, *, sample: int, seed: int) -> None:
        self.e, self.subject, self.contract = e, subject, contract
        self.problems: Mapping[str, Problem] = subject.task.by_id
        self.events = [ev for ev in e.events if ev.contract == contract]
        self.stored = [ev for ev in self.events if ev.kind is EventKind.ROLLOUT_BATCH]
        rows = metrics.read(e.folder.metrics) if e.folder.metrics.is_file() else []
        self.rows = {row.get("batch"): row for row in rows if row.get("stage") == "rl"}
        total = sum(whole(ev, "rollouts") for ev in self.stored)
        picked = generator(seed, "audit").permutation(total)[:sample]
        self.chosen = {int(i) for i in picked}
        self.first = 0  # number of the first response of the batch that is looked at

    # -- batches ----------------------------------------------------------------------------------------------------

    def batches(self, tell: Callable[[str], None]) -> list[Check]:
        """Each batch is read once and looked at in every way."""
        judges: dict[str, tuple[str, Callable[[Event, Stored], Iterator[str]]]] = {
            "problem order and rules": ("batches", self._rules),
            "verdicts": ("responses graded again", self._verdicts),
            "rewards": ("batches", self._rewards),
            "advantages": ("batches", self._advantages),
            "losses": ("updates", self._losses),
        }
        tallies = {name: Tally() for name in judges}
        if self.subject.problems.digest != self.e.contracts[self.contract]["problems"]["digest"]:
            words = "the problem sources give other problems here than the run had: look for a changed or moved file"
            tallies["problem order and rules"].faults.append(f"{self.e.contract_file(self.contract)}: {words}")
            return [tallies["problem order and rules"].check("problem order and rules", "batches")]
        for number, event in enumerate(self.stored, start=1):
            tell(f"batch {event.payload['batch']} computed again, {number} of {len(self.stored)}")
            path = self.e.batch_file(event)
            try:
                stored = self.e.stored(event)
            except AlgoristError as error:
                tallies["problem order and rules"].faults.append(str(error))
                continue
            self.held = len(stored.rows)
            for name, (_, look) in judges.items():
                tally = tallies[name]
                try:
                    for fault in look(event, stored):
                        tally.faults.append(fault if fault.startswith(str(self.e.folder.root)) else f"{path}: {fault}")
                    tally.done += 1 if name != "verdicts" else self._num_chosen()
                except Skip as reason:
                    tally.not_done[str(reason)] += 1
                except (*DAMAGED, AlgoristError, AssertionError, RuntimeError) as error:
                    tally.faults.append(f"{path}: cannot be computed again ({type(error).__name__}: {error})")
            self.first += self.held
        return [tallies[name].check(name, unit) for name, (unit, _) in judges.items()]

    def _num_chosen(self) -> int:
        return sum(self.first <= i < self.first + self.held for i in self.chosen)

    def _rules(self, event: Event, stored: Stored) -> Iterator[str]:
        """The batch is the one that seed and position give, with its prompts, stamps, endings, texts and golds."""
        rl, subject, batch = self.subject.rl, self.subject, stored.batch
        assert rl is not None, "a batch comes from RL"
        if self._failed(event, "rollouts"):
            raise Skip("the run itself ended over it")
        promise = rollouts.Promise(
            problem_ids=tuple(
                ProblemOrder([p.id for p in subject.task.train], seed=subject.seed).at(
                    batch.index, rl.prompts_per_batch
                )
            ),
            group_size=rl.group_size,
            version=event.policy_version,
            prompts=subject.prompt_ids,
            stop_ids=subject.task.stop_ids,
            response_tokens=rl.sampling.response_tokens,
            vocabulary=int(subject.policy.model.config.vocab_size),
            exact_reward=subject.reward_name == "exact",
        )
        order = [(row["group"], row["sample"]) for row in stored.rows]
        if order != sorted(order):
            yield "its rows must be in the order of groups and samples"
        if batch.index != whole(event, "batch"):
            yield f"must be batch {event.payload['batch']}, is {batch.index}"
        fault = rollouts.check(batch, promise, decoder(subject))
        if fault is not None:
            yield fault.words
        for row in stored.rows:
            problem = self.problems.get(row["problem_id"])
            if problem is None:
                return  # named above
            where = f"problem {problem.id}, sample {row['sample']}"
            if (row["question"], row["gold"]) != (problem.question, problem.gold):
                yield f"{where}: question or gold is not that of the problem"
                return
            if row["seed"] != self._seed(row["problem_id"], row["sample"], event):
                yield f"{where}: its seed is not the one that run, batch and problem give"
                return

    def _seed(self, problem: str, sample: int, event: Event) -> int:
        salt = f"batch-{event.payload['batch']}"
        if self.subject.rl is not None and self.subject.rl.source == "dataset":
            return derive(self.subject.seed, "dataset", salt, problem)
        return derive(self.subject.seed, "rollout", salt, event.policy_version, problem, sample)

    def _verdicts(self, event: Event, stored: Stored) -> Iterator[str]:
        """A sample of responses, graded again by the verifier."""
        flat = [
            (r, v) for g in stored.batch.groups for r, v in zip(g.rollouts, g.verdicts, strict=True)
        ]  # fmt: skip
        known = [
            (r, v) for i, (r, v) in enumerate(flat, self.first) if i in self.chosen and r.problem_id in self.problems
        ]
        again = self.subject.task.grade([self.problems[r.problem_id] for r, _ in known], [r for r, _ in known])
        same_verifier = self.e.contracts[self.contract]["verifier"] == verifier_version()
        for (r, old), new in zip(known, again, strict=True):
            if Outcome.ERROR in (old.verdict, new.verdict):
                continue  # a deadline says something about a machine, not about the response
            where = f"problem {r.problem_id}, sample {r.sample}"
            if new.verdict is not old.verdict:
                yield f"{where}: is stored as {old.verdict} and graded {new.verdict} ({new.reason})"
            elif same_verifier and replace(new, ms=0.0) != replace(old, ms=0.0):
                yield f"{where}: what the verifier found (reason, rule, method, answer) is not what it finds again"

    def _rewards(self, event: Event, stored: Stored) -> Iterator[str]:
        """What the stored verdicts are paid, shaped as the recipe says; with the figures of it in the metrics."""
        rl, batch = self.subject.rl, stored.batch
        assert rl is not None, "rewards belong to RL"

        def pay(rollout: Rollout, verdict: Verdict) -> Reward:
            return apply(self.subject.task.reward, self.problems[rollout.problem_id], rollout, verdict)

        groups = tuple(
            replace(g, rewards=tuple(pay(r, v) for r, v in zip(g.rollouts, g.verdicts, strict=True)))
            for g in batch.groups
        )
        mine = judge(
            replace(batch, groups=groups), rl, self.problems, decoder(self.subject), hidden=self.subject.task.stop_ids
        )
        for old, new in zip(batch.groups, mine.batch.groups, strict=True):
            for r, a, b in zip(old.rollouts, old.rewards, new.rewards, strict=True):
                if a.value is None or b.value is None:
                    same = a.value is b.value and a.error == b.error
                else:
                    parts = a.parts.keys() == b.parts.keys() and all(near(a.parts[k], b.parts[k]) for k in b.parts)
                    same = near(a.value, b.value) and parts and a.error == b.error
                if not same:
                    yield f"problem {r.problem_id}, sample {r.sample}: was paid {a.value}, verdict and rule give {b.value}"
                    return
        yield from self._figures(event, mine.figures)

    def _figures(self, event: Event, mine: Mapping[str, Any]) -> Iterator[str]:
        row = self.rows.get(whole(event, "batch"), {})
        for name, value in mine.items() if row else ():
            if not (
                near(row.get(name), float(value), 1e-6) if isinstance(value, int | float) else row.get(name) == value
            ):
                yield f"gives {name} {value}, {self.e.folder.metrics} has {row.get(name)}"
                return

    def _advantages(self, event: Event, stored: Stored) -> Iterator[str]:
        """Every stored advantage from the stored rewards, under the objective of the contract."""
        _, _, credit = credit_of(self.subject, stored)
        flat = [a for group in stored.advantages for a in group]
        for b, (kept, row) in enumerate(zip(flat, stored.rows, strict=True)):
            values = credit.advantage[b][credit.mask[b]]
            mine = float(values[0]) if len(values) else None
            tokens = row["advantage_tokens"] or ()
            by_token = [near(x, y, _TOLERANCE) for x, y in zip(tokens, credit.advantage[b].tolist(), strict=False)]
            even = row["advantage_tokens"] is not None or bool((values == values[:1]).all())
            if (mine is None) is not (kept is None) or not (mine is None or near(kept, mine, _TOLERANCE)):
                yield f"row {b} has advantage {kept}, its rewards give {mine}"
                return
            if not all(by_token) or not even:
                yield f"row {b} has other advantages of single tokens than its rewards give"
                return

    def _losses(self, event: Event, stored: Stored) -> Iterator[str]:
        """Rate of each step, and loss and trained tokens of the first one, within what replay allows."""
        rl, ledger = self.subject.rl, self.e.folder.ledger
        assert rl is not None, "losses belong to RL"
        steps = [
            ev for ev in self.events
            if ev.kind in UPDATES and ev.payload.get("stage") == "rl" and ev.payload["batch"] == event.payload["batch"]
        ]  # fmt: skip
        for ev in steps:
            applied = ev.policy_version - (ev.kind is EventKind.UPDATE_APPLIED)
            if not near(
                ev.payload.get("lr"), learning_rate(rl.optimizer, applied, rl.updates * rl.epochs_per_batch), 1e-12
            ):
                yield f"{ledger}: event {ev.seq} has another learning rate than the schedule"
        if not steps:
            raise Skip("no update followed")
        first, (rows, _, credit) = steps[0], credit_of(self.subject, stored)
        if first.kind is EventKind.UPDATE_SKIPPED:
            cause = "" if not credit.flat else "flat" if credit.mask.any() else "no_tokens"
            if (first.payload.get("cause") in ("flat", "no_tokens") or cause) and first.payload.get("cause") != cause:
                yield f"{ledger}: event {first.seq} skipped for {first.payload.get('cause')}, the batch gives {cause or 'no cause'}"
            return
        if credit.flat:
            yield f"{ledger}: event {first.seq} applied an update, and no token of the batch has an advantage"
            return
        if not near(first.payload.get("tokens/trained"), float(credit.mask.sum())):
            yield f"{ledger}: event {first.seq} trained {first.payload.get('tokens/trained')} tokens, not {int(credit.mask.sum())}"
        yield from self._loss(first, stored, rows, credit)

    def _loss(self, first: Event, stored: Stored, rows: Rows, credit: Credit) -> Iterator[str]:
        rl = self.subject.rl
        assert rl is not None, "a loss belongs to RL"
        old, ref, value = (scores(stored, name) for name in store.SCORES)
        if old is None and rl.source != "online":
            raise Skip("the log-probabilities of the policy that was trained are not stored")
        logp, weight = rows.behaviour if old is None else old, reduce.weights_of(rl.objective, credit, rows.group)
        part = TokenBatch(
            logp=logp, logp_old=logp, logp_behaviour=rows.behaviour, advantage=credit.advantage, mask=credit.mask,
            logp_ref=ref, value=value, value_old=value, returns=credit.returns, pair=credit.pair,
        )  # fmt: skip
        mine = float((METHODS[rl.objective.name].loss(part, rl.objective) * weight).double().sum())
        mass = (credit.advantage * weight).double()
        nats = 1e-4 if old is not None else max(b.nats for b in bounds_of(self.subject))
        allowed = nats * float(mass.abs().sum()) + 1e-4 * abs(mine) + 1e-5
        said = first.payload.get("loss")
        if not (isinstance(said, int | float) and abs(said - mine) <= allowed):
            yield f"{self.e.folder.ledger}: event {first.seq} says loss {said}, the batch gives {mine:.6g}"
        if self.subject.rl is not None and rl.epochs_per_batch == 1:
            figures = {
                "advantage/positive_mass": float(mass.clamp(min=0).sum()),
                "advantage/negative_mass": float(-mass.clamp(max=0).sum()),
            }
            yield from self._figures(first, figures)
            if ref is not None and old is not None:
                figure = float(kl.estimate("k3", old, ref, old)[credit.mask].double().mean())
                row = self.rows.get(whole(first, "batch"))
                if row and not near(row.get("kl/ref_nats"), figure, 1e-3):
                    yield f"gives kl/ref_nats {figure:.6g}, {self.e.folder.metrics} has {row.get('kl/ref_nats')}"

    def _failed(self, batch: Event, name: str) -> bool:
        """The run ended over this batch at a gate of that name."""
        after = [ev for ev in self.e.events if ev.seq > batch.seq]
        nexts = next((ev.seq for ev in after if ev.kind is EventKind.ROLLOUT_BATCH), len(self.e.events))
        return any(
            ev.payload.get("passed") is False and ev.payload.get("name") == name for ev in after if ev.seq < nexts
        )
