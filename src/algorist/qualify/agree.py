"""Sampler and trainer are one policy: stored log-probabilities are the trainer's, and tokens are what their seeds draw.

All rows are scored where a replay is due; on every other batch the step's own forward pass tells, before a weight moves.
"""

import time
from collections.abc import Sequence
from typing import final

import torch
from jinja2 import TemplateError

from algorist.digest import JSON
from algorist.errors import GateFailed
from algorist.flow import Batch, Problem, Rollout
from algorist.policy import weights
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.qualify import draws, replay
from algorist.qualify.diagnose import Cause, Older, diagnose
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.replay import Bound
from algorist.qualify.subject import Subject
from algorist.record import commit
from algorist.record.ledger import EventKind
from algorist.stages.session import Session
from algorist.train.rows import Rows
from algorist.train.trainer import Computed, Trainer

_SOME = 8
"""Rows of a batch that are scored where nothing is due."""
_TILT, _CERTAIN = 0.01, 20.0
"""A temperature that is off by more than one per cent, by more than so many standard errors, is no rounding (measured in bfloat16:
0.001 and 2 in honest runs, 0.05 and 100 where the temperature is 5 % off)."""


def bounds_of(subject: Subject) -> list[Bound]:
    """What replay must keep: the contract's bound and, for float32, the sharper one."""
    assert subject.rl is not None, "replay belongs to RL"
    cfg = subject.rl.replay
    bounds = [Bound(statistic=cfg.statistic, nats=cfg.nats)]
    if subject.policy.dtype == "float32":
        bounds.append(Bound(statistic="mean", nats=min(cfg.nats, subject.cfg.float32.mean_nats)))
    return bounds


@final
class Agreement:
    """The replay gate of one run."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        tokenizer, size = subject.policy.tokenizer, int(subject.policy.model.config.vocab_size)
        texts = [tokenizer.decode([i]) for i in range(min(size, len(tokenizer)))]
        self._classes = replay.token_classes(texts, special=sorted(subject.task.stop_ids))
        self._problems = subject.task.by_id
        self._open: tuple[Batch, Rows] | None = None
        """A batch whose step is still to come."""
        self._replayed = False
        """All of its rows were scored already."""

    def whole(self, session: Session, sampler: Trainer, batch: Batch, rows: Rows) -> None:
        """Score every row of a batch: one event on the ledger. Raises GateFailed, with the cause."""
        rl = self.subject.rl
        assert rl is not None, "replay belongs to RL"
        started = time.monotonic()
        scored = sampler.score(rows, rows.mask.any(1))
        found = replay.measure(rows, scored.logp, self._classes)
        rollouts = [r for group in batch.groups for r in group.rollouts]
        drawn = draws.check(rollouts, scored.logp, scored.below, rows.mask, dtype=sampler.policy.dtype)
        bounds = bounds_of(self.subject)
        broken = found.over(bounds)
        cause = self._cause(session, sampler, batch, rows, found) if broken else None
        payload: dict[str, JSON] = {
            "batch": batch.index,
            "statistic": rl.replay.statistic,
            "bound_nats": rl.replay.nats,
            "bounds": [{"statistic": b.statistic, "nats": b.nats} for b in bounds],
            **found.payload(),
            "draws": drawn.payload(),
            "passed": not broken,
            "cause": "" if cause is None else cause.code,
        }
        wall: dict[str, JSON] = {"replay_s": round(time.monotonic() - started, 3)}
        session.ledger.append(EventKind.REPLAY_CHECK, policy_version=sampler.applied, payload=payload, wall=wall)
        self._open, self._replayed = (batch, rows), True
        if cause is not None:
            d, bound = found.difference, broken[0]
            raise GateFailed(
                f"replay: the trainer must agree with the sampler on stored tokens to {bound.nats:g} nats ({bound.statistic} per "
                f"token), batch {batch.index} has mean {d.mean_nats:.4g}, p99 {d.p99_nats:.4g}, max {d.max_nats:.4g} over "
                f"{d.num_tokens} tokens. Cause: {cause.words}. {cause.remedy}"
            )
        self._outlier(session, sampler, batch, rows, found)
        self._tilted(session, sampler, batch, replay.tilt(found, scored.logp, scored.entropy))
        if drawn.broken:
            words, remedy = draws.explain(sampler.policy, rollouts, drawn, rl.sampling.temperature)
            first = rollouts[drawn.rows[0]]
            self._fail(
                session, sampler, value=drawn.off, threshold=drawn.allowed * drawn.tokens,
                unit="tokens that are not what their seeds draw",
                cause=f"batch {batch.index}: {drawn.off} of {drawn.tokens} stored tokens are not the draws of the policy that is "
                f"trained (first: problem {first.problem_id}, sample {first.sample}): {words}", remedy=remedy,
            )  # fmt: skip

    def watch(self, batch: Batch, rows: Rows) -> None:
        """The next step trains on this batch, and nothing was replayed."""
        self._open, self._replayed = (batch, rows), False

    def step(self, session: Session, trainer: Trainer, computed: Computed) -> None:
        """The first step on a batch, from its own forward pass; where it disagrees, the whole batch is replayed to say why."""
        if self._open is None:
            return
        (batch, rows), self._open = self._open, None
        rollouts = [r for group in batch.groups for r in group.rollouts]
        found = replay.measure(rows, computed.logp, mask=computed.scored)
        drawn = draws.check(rollouts, computed.logp, computed.below, computed.scored, dtype=trainer.policy.dtype)
        broken = found.over(bounds_of(self.subject))
        odd, tilt = replay.outlier(found, self._limits()), replay.tilt(found, computed.logp, computed.entropy)
        if not broken and odd is None and not drawn.broken and not _is_tilted(tilt):
            return
        self.whole(session, trainer, batch, rows)
        self._open = None
        self._tilted(session, trainer, batch, tilt)
        if broken:  # the rows without gradient made the mean of the whole batch small enough
            d, bound = found.difference, broken[0]
            cause = self._cause(session, trainer, batch, rows, found)
            self._fail(
                session, trainer, value=d.mean_nats, threshold=bound.nats, unit=f"nats, {bound.statistic} per token with gradient",
                cause=f"batch {batch.index}: {cause.words}", remedy=cause.remedy,
            )  # fmt: skip

    def some(self, session: Session, sampler: Trainer, batch: Batch, rows: Rows) -> None:
        """A few rows, another few in each batch, where no step of the sampler's own weights will tell; all, if one is off."""
        B = len(rows.tokens)
        which = torch.zeros(B, dtype=torch.bool)
        which[(torch.arange(_SOME) * max(1, B // _SOME) + batch.index) % B] = True
        scored = sampler.score(rows, which & rows.mask.any(1))
        mask = rows.mask & which[:, None]
        found = replay.measure(rows, scored.logp, mask=mask)
        rollouts = [r for group in batch.groups for r in group.rollouts]
        drawn = draws.check(rollouts, scored.logp, scored.below, mask, dtype=sampler.policy.dtype)
        if found.over(bounds_of(self.subject)) or drawn.broken or replay.outlier(found, self._limits()) is not None:
            self.whole(session, sampler, batch, rows)

    def skipped(self, session: Session, sampler: Trainer) -> None:
        """No step was taken on this batch: whether its sampler is at fault is asked all the same."""
        if self._open is not None and not self._replayed:
            self.whole(session, sampler, *self._open)
        self._open = None

    # -- inside -----------------------------------------------------------------------------------------------------

    def _limits(self) -> replay.Limits:
        cfg = self.subject.cfg
        if self.subject.policy.dtype == "float32":
            return replay.Limits(token_nats=cfg.float32.max_nats, row_nats=None)
        return replay.Limits(token_nats=None, row_nats=cfg.bfloat16.row_nats)

    def _outlier(self, session: Session, sampler: Trainer, batch: Batch, rows: Rows, found: replay.Replay) -> None:
        """A token (float32) or a response (bfloat16) that is off while the mean is not."""
        odd = replay.outlier(found, self._limits())
        if odd is None:
            return
        cause = self._cause(session, sampler, batch, rows, found)
        self._fail(
            session, sampler, value=odd.nats, threshold=odd.limit, unit=f"nats at a {odd.what}",
            cause=f"batch {batch.index}: {cause.words}", remedy=cause.remedy,
        )  # fmt: skip

    def _tilted(self, session: Session, sampler: Trainer, batch: Batch, tilt: tuple[float, float]) -> None:
        """Differences that are small, and all in the direction of another temperature."""
        if _is_tilted(tilt):
            mine = sampler.temperature
            self._fail(
                session, sampler, value=tilt[0], threshold=1.0, unit="times the temperature",
                cause=f"batch {batch.index}: the sampler's log-probabilities are those of temperature {tilt[0] * mine:.3g}, the trainer "
                f"works at {mine:g}: each difference is small, and all point the same way",
                remedy="Store log-probabilities of the distribution that was really sampled (logits / temperature).",
            )  # fmt: skip

    def _fail(
        self, session: Session, sampler: Trainer, *, value: float, threshold: float, unit: str, cause: str, remedy: str
    ) -> None:
        gate = Gate(
            name="replay",
            value=value,
            threshold=threshold,
            unit=unit,
            verdict=Verdict.FAILED,
            cause=cause,
            remedy=remedy,
        )
        session.ledger.append(EventKind.GATE, policy_version=sampler.applied, payload=gate.payload())
        raise GateFailed(gate.sentence)

    def _cause(self, session: Session, sampler: Trainer, batch: Batch, rows: Rows, found: replay.Replay) -> Cause:
        rl = self.subject.rl
        assert rl is not None, "replay belongs to RL"
        rollouts = [r for group in batch.groups for r in group.rollouts]
        return diagnose(
            sampler.policy, rows, found, temperature=rl.sampling.temperature, scored_at=sampler.temperature,
            prompts=self._other_prompts(rollouts), older=self._older(session),
            names=[f"problem {r.problem_id}, sample {r.sample}" for r in rollouts],
        )  # fmt: skip

    def _other_prompts(self, rollouts: Sequence[Rollout]) -> dict[str, list[tuple[int, ...]]]:
        """Other ways of writing the prompt of each row, to find out which one the sampler saw."""
        tokenizer = self.subject.policy.tokenizer
        ids = [r.prompt_ids for r in rollouts]
        asked = [self._problems[r.problem_id] for r in rollouts]
        others: dict[str, list[tuple[int, ...]]] = {
            "without its first token": [x[1:] for x in ids],
            "without its last token": [x[:-1] for x in ids],
            "the bare question": [self._encode(p.question) for p in asked],
            "twice in a row": [x + x for x in ids],
            "with a space after it": [x + self._encode(" ") for x in ids],
            "without white space": [self._encode("".join(tokenizer.decode(list(x)).split())) for x in ids],
            "the prompt of the next problem": _neighbours(rollouts, 1),
            "the prompt of the problem before": _neighbours(rollouts, -1),
        }
        marks = {"beginning": tokenizer.bos_token_id, "end": tokenizer.eos_token_id, "padding": tokenizer.pad_token_id}
        for name, token in marks.items():
            if token is not None:
                what = "padding" if name == "padding" else f"{name}-of-sequence"
                article = "an" if name == "end" else "a"
                others[f"with {article} {what} token before it"] = [(token, *x) for x in ids]
                others[f"with two {what} tokens before it"] = [(token, token, *x) for x in ids]
                others[f"with {article} {what} token after it"] = [(*x, token) for x in ids]
        if tokenizer.chat_template:
            others |= {
                f"the tokenizer's chat template{words}": [self._chat(p, generation) for p in asked]
                for words, generation in (("", True), (" without its generation prompt", False))
            }
        return others

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.subject.policy.tokenizer.encode(text, add_special_tokens=False))

    def _chat(self, problem: Problem, generation: bool) -> tuple[int, ...]:
        messages = [{"role": "user", "content": problem.question}]
        tokenizer = self.subject.policy.tokenizer
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation)
        except (
            TemplateError,
            TypeError,
            ValueError,
        ):  # a template that needs more than a question explains nothing here
            return ()
        return self._encode(text)

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


def _is_tilted(tilt: tuple[float, float]) -> bool:
    ratio, certainty = tilt
    return abs(ratio - 1.0) > _TILT and certainty > _CERTAIN


def _neighbours(rollouts: Sequence[Rollout], step: int) -> list[tuple[int, ...]]:
    """The prompt of the problem `step` places further, for each row."""
    prompts = dict.fromkeys((r.problem_id, r.prompt_ids) for r in rollouts)
    order = list(prompts)
    place = {problem: i for i, (problem, _) in enumerate(order)}
    return [order[(place[r.problem_id] + step) % len(order)][1] for r in rollouts]
