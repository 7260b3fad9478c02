"""The part of an audit that computes again: verdicts, rewards, advantages, losses, log-probabilities, problem order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from algorist.errors import ResumeMismatch
from algorist.flow import Batch, Problem, Rollout
from algorist.objective import reduce
from algorist.objective.registry import METHODS
from algorist.objective.spec import Credit, CreditInput, TokenBatch
from algorist.policy import weights
from algorist.policy.build import copy_policy
from algorist.problems.order import ProblemOrder
from algorist.qualify.audit import Check, Evidence, run_check
from algorist.qualify.guard import bounds_of
from algorist.qualify.replay import Replay, measure
from algorist.qualify.signal import Contrast
from algorist.qualify.subject import Subject
from algorist.record import commit
from algorist.record import rollouts as store
from algorist.record.ledger import Event, EventKind
from algorist.reward.reward import apply
from algorist.seeds import generator
from algorist.stages.shaping import group_numbers
from algorist.stages.worth import judge
from algorist.train import rows as rows_of
from algorist.train.rows import Rows

_TOLERANCE = 1e-5
"""Advantages are float64 sums of rewards stored as float64, kept as float32."""


def recompute(evidence: Evidence, subject: Subject, *, sample: int, seed: int) -> list[Check]:
    """Compute again what the run stored. sample: rollouts graded and replayed; seed picks them."""
    found = _Again(evidence, subject, sample=sample, seed=seed)
    return [
        run_check(name, judge, evidence)
        for name, judge in {
            "problem order": found.order,
            "verdicts and rewards": found.grades,
            "advantages": found.advantages,
            "losses": found.losses,
            "signal": found.signal,
            "log-probabilities": found.replays,
            "weights": found.weights,
        }.items()
    ]


class _Again:
    def __init__(self, evidence: Evidence, subject: Subject, *, sample: int, seed: int) -> None:
        self.subject, self.sample, self.seed = subject, sample, seed
        self.problems: Mapping[str, Problem] = subject.task.by_id
        self.stored: dict[int, tuple[Path, store.Stored, Event]] = {}
        for event in evidence.of(EventKind.ROLLOUT_BATCH):
            path = evidence.folder.rollouts / str(event.payload["file"])
            if path.is_file():
                self.stored[int(str(event.payload["batch"]))] = (path, store.read(path), event)

    def order(self, e: Evidence) -> tuple[str, Iterator[str]]:
        """Every problem as often, and in the place, that seed and position give."""
        rl = self.subject.rl

        def faults() -> Iterator[str]:
            if self.subject.problems.digest != e.contract["problems"]["digest"]:
                yield f"{e.folder.contract}: the problem files give other problems than the run had; order cannot be checked"
                return
            if rl is None:
                return
            order = ProblemOrder([p.id for p in self.subject.task.train], seed=self.subject.seed)
            for index, (path, stored, _) in self.stored.items():
                expected = order.at(index, rl.prompts_per_batch)
                got = [g.problem_id for g in stored.batch.groups]
                if got != expected:
                    yield f"{path}: must hold the problems that seed and position give, it holds others or in another order"
                prompts = self.subject.prompt_ids
                for rollout in (r for g in stored.batch.groups for r in g.rollouts):
                    if prompts.get(rollout.problem_id) != rollout.prompt_ids:
                        yield f"{path}: problem {rollout.problem_id}, sample {rollout.sample}: the prompt is not the rendered one"
                        break

        return f"{len(self.stored)} batches", faults()

    def grades(self, e: Evidence) -> tuple[str, Iterator[str]]:
        """A sample of stored responses, decoded from their tokens, graded and paid again."""
        problems: Mapping[str, Problem] = self.subject.task.by_id
        chosen = self._chosen()
        shaped = bool(e.recipe["rl"].get("shaping")) if e.recipe.get("rl") else False

        def faults() -> Iterator[str]:
            known = [(path, r, v, w) for path, r, v, w in chosen if r.problem_id in problems]
            asked = [problems[r.problem_id] for _, r, _, _ in known]
            verdicts = self.subject.task.grade(asked, [r for _, r, _, _ in known])
            for (path, r, old, paid), problem, new in zip(known, asked, verdicts, strict=True):
                where = f"{path}: problem {r.problem_id}, sample {r.sample}"
                text = self.subject.policy.tokenizer.decode(
                    [t for t in r.token_ids if t not in self.subject.task.stop_ids], skip_special_tokens=True
                )
                if text != r.text:
                    yield f"{where}: the text is not what the token ids say"
                if new.verdict is not old.verdict:
                    yield f"{where}: is stored as {old.verdict} and graded {new.verdict} ({new.reason})"
                    continue
                again = apply(self.subject.task.reward, problem, r, new).value
                if not shaped and again != paid.value:
                    yield f"{where}: was paid {paid.value}, the reward gives {again}"

        return f"{len(chosen)} responses", faults()

    def advantages(self, e: Evidence) -> tuple[str, Iterator[str]]:
        """Every stored advantage from the stored rewards, under the objective of the contract."""
        why_not = self._not_recomputable(e)
        if why_not:
            return why_not, iter(())

        def faults() -> Iterator[str]:
            for path, stored, _ in self.stored.values():
                rows, credit = self._credit(stored.batch)
                flat = [a for group in stored.advantages for a in group]
                for b, kept in enumerate(flat):
                    values = credit.advantage[b][credit.mask[b]]
                    mine = float(values[0]) if len(values) else None
                    if (mine is None) is not (kept is None) or (
                        mine is not None and kept is not None and abs(mine - kept) > _TOLERANCE * max(1.0, abs(mine))
                    ):
                        yield f"{path}: row {b} has advantage {kept}, its rewards give {mine}"
                        break
                del rows

        return f"{len(self.stored)} batches", faults()

    def losses(self, e: Evidence) -> tuple[str, Iterator[str]]:
        """The loss of each batch's first step from stored log-probabilities, within what replay allows."""
        why_not = self._not_recomputable(e) or (
            "skipped: the loss needs values, a reference or the log-probabilities of an older policy"
            if self.subject.rl
            and (self.subject.rl.objective.needs - {"step_rewards"} or self.subject.rl.source != "online")
            else ""
        )
        if why_not:
            return why_not, iter(())
        rl = self.subject.rl
        assert rl is not None, "a recomputable run has RL"
        method, slack = METHODS[rl.objective.name], max(b.nats for b in bounds_of(self.subject))
        steps = {
            ev.payload["batch"]: ev
            for ev in e.of(EventKind.UPDATE_APPLIED)
            if ev.payload.get("stage") == "rl" and ev.payload.get("epoch") == 0
        }

        def faults() -> Iterator[str]:
            for index, (path, stored, _) in self.stored.items():
                event = steps.get(index)
                if event is None:
                    continue
                rows, credit = self._credit(stored.batch)
                weight = reduce.weights_of(rl.objective, credit, rows.group)
                part = TokenBatch(
                    logp=rows.behaviour, logp_old=rows.behaviour, logp_behaviour=rows.behaviour,
                    advantage=credit.advantage, mask=credit.mask,
                )  # fmt: skip
                mine = float((method.loss(part, rl.objective) * weight).double().sum())
                allowed = slack * float((credit.advantage * weight).abs().double().sum()) + 1e-5
                said = event.payload["loss"]
                if not isinstance(said, int | float) or abs(said - mine) > allowed:
                    yield f"{e.folder.ledger}: event {event.seq} says loss {said}, {path.name} gives {mine:.6g}"

        return f"{len(steps)} updates", faults()

    def signal(self, e: Evidence) -> tuple[str, Iterator[str]]:
        """The signal gate from the raw rollouts of batch 0."""
        gate = next((ev for ev in e.of(EventKind.GATE) if ev.payload.get("name") == "signal"), None)

        def faults() -> Iterator[str]:
            if gate is None or 0 not in self.stored:
                return
            path, stored, _ = self.stored[0]
            figures: Any = gate.payload.get("figures")
            mine = Contrast.of(stored.batch.groups).figures()
            if figures.get("groups") != mine["groups"]:
                return  # more problems were sampled for the gate than the batch holds
            for name in ("mixed", "all_right", "all_wrong", "truncated_share", "unsupported_share", "reward_mean"):
                a, b = figures.get(name), mine[name]
                if not isinstance(a, int | float) or abs(a - b) > 1e-9:  # type: ignore[operator]
                    yield f"{e.folder.ledger}: event {gate.seq} says {name} {a}, {path.name} gives {b}"

        return "batch 0", faults()

    def replays(self, e: Evidence) -> tuple[str, Iterator[str]]:
        """Batches whose weights are still there (a checkpoint before them), scored again."""
        rl = self.subject.rl
        if rl is None or rl.source == "dataset":
            return f"skipped: {'no RL stage' if rl is None else 'worked solutions were not sampled'}", iter(())
        sources: dict[int, Path] = {}  # of several checkpoints before one batch (SFT has many) the newest sampled it
        for path in commit.numbered(e.folder.checkpoints):
            batches = _batches_done(path)
            if batches is not None and batches in self.stored:
                sources[batches] = path

        def faults() -> Iterator[str]:
            policy = copy_policy(self.subject.policy)
            for index, checkpoint in sources.items():
                kept = checkpoint / "reference.safetensors"  # offline rollouts come from the policy as RL found it
                if rl.source == "online" or not kept.is_file():
                    kept = checkpoint / "weights.safetensors"
                try:
                    weights.load_state(policy, kept)
                except (ResumeMismatch, OSError, ValueError) as error:
                    yield f"{checkpoint}: its weights cannot be loaded ({error})"
                    continue
                path, stored, _ = self.stored[index]
                rows = rows_of.from_batch(stored.batch)
                found = measure(rows, _score(policy, rows, rl.sampling.temperature, rl.micro_batch_tokens))
                if broken := found.over(bounds_of(self.subject)):
                    yield (
                        f"{path}: was not sampled by the weights of {checkpoint.name}: {broken[0].statistic} difference "
                        f"{_statistic(found, broken[0].statistic):.4g} nats, at most {broken[0].nats:g} allowed"
                    )

        words = ", ".join(f"batch {i} by {p.name}" for i, p in sources.items())
        return words or "skipped: no kept checkpoint is followed by a batch", faults()

    def weights(self, e: Evidence) -> tuple[str, Iterator[str]]:
        """Last checkpoint, export and closing event speak of the same weights."""
        closed = e.of(EventKind.CLOSED)

        def faults() -> Iterator[str]:
            present = commit.numbered(e.folder.checkpoints)
            if not closed or not present:
                return
            policy = copy_policy(self.subject.policy)
            try:
                weights.load_state(policy, present[-1] / "weights.safetensors")
            except (ResumeMismatch, OSError, ValueError) as error:
                yield f"{present[-1]}: its weights cannot be loaded ({error})"
                return
            mine = weights.weights_digest(policy)
            if mine != closed[-1].payload.get("weights"):
                yield f"{present[-1]}: holds weights {mine[:16]}, the run closed with {str(closed[-1].payload.get('weights'))[:16]}"

        return "last checkpoint against the closing event", faults()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _chosen(self) -> list[tuple[Path, Rollout, Any, Any]]:
        every = [
            (path, r, v, w)
            for path, stored, _ in self.stored.values()
            for g in stored.batch.groups
            for r, v, w in zip(g.rollouts, g.verdicts, g.rewards, strict=True)
        ]
        if len(every) <= self.sample:
            return every
        picked = generator(self.seed, "audit").choice(len(every), size=self.sample, replace=False)
        return [every[int(i)] for i in sorted(picked)]

    def _not_recomputable(self, e: Evidence) -> str:
        rl = self.subject.rl
        if rl is None:
            return "skipped: no RL stage"
        needs = rl.objective.needs
        in_reward = e.recipe["rl"]["objective"].get("kl_place") == "reward" and "logp_ref" in needs
        return "skipped: needs values or a fee from the reference" if "value" in needs or in_reward else ""

    def _credit(self, batch: Batch) -> tuple[Rows, Credit]:
        rl = self.subject.rl
        assert rl is not None, "credit belongs to RL"
        # stored rewards are shaped already; groups, steps and quality are read off the rollouts once more
        worth = judge(
            batch, rl.model_copy(update={"shaping": ()}), self.problems, self._decode, hidden=self.subject.task.stop_ids
        )
        rows = replace(worth.rows, group=group_numbers(batch, rl.shaping, self.problems))
        inputs = CreditInput(
            rewards=rows.reward, group=rows.group, mask=rows.mask, correct=rows.correct, truncated=rows.truncated,
            quality=worth.quality, step_ends=worth.step_ends, step_rewards=worth.step_rewards,
        )  # fmt: skip
        return rows, METHODS[rl.objective.name].credit(inputs, rl.objective)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.subject.policy.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def _batches_done(checkpoint: Path) -> int | None:
    """Rollout batches that were finished when a checkpoint of RL (or just before RL) was saved."""
    import json

    try:
        state = json.loads((checkpoint / "state.json").read_bytes())
        return int(state["batches"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@torch.no_grad()
def _score(policy: Any, rows: Rows, temperature: float, max_tokens: int) -> torch.Tensor:
    logp = torch.zeros(rows.mask.shape)
    chosen = rows.mask.any(1).nonzero().squeeze(1).tolist()
    tokens: Sequence[Any] = [rows.tokens[i] for i in chosen]
    with policy.compute():
        for batch in policy.micro_batches(tokens, max_tokens=max_tokens):
            scores = policy.score(batch, tokens, temperature=temperature, num_tokens=rows.num_tokens)
            logp[torch.tensor([chosen[i] for i in scores.rows])] = scores.logp.cpu()
    return logp


def _statistic(found: Replay, name: str) -> float:
    d = found.difference
    return {"mean": d.mean_nats, "p99": d.p99_nats, "max": d.max_nats}[name]
