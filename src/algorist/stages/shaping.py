"""Reward shaping in the loop: a graded batch in, the same batch with shaped rewards and its groups out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor

from algorist.errors import InputError
from algorist.flow import Batch, Outcome, Problem, Reward, Rollout, Verdict
from algorist.objective.shaping import ShapingInput, shape, subgroups
from algorist.objective.shaping_config import EffortLength, ShapingConfig
from algorist.reward.steps import check_step
from algorist.stages.config import Quality
from algorist.stages.gates import Figures
from algorist.stages.tokens import Decode, pieces

THINK_END = "</think>"
"""What a chat model writes between its reasoning and its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedBatch:
    """A batch whose rewards are final, and what its shaping did."""

    batch: Batch
    """Each reward is the rule's plus all parts; `parts` holds every summand by name."""
    figures: Figures
    """For metrics.jsonl; empty where nothing is configured."""


def shape_batch(
    batch: Batch,
    cfgs: Sequence[ShapingConfig],
    problems: Mapping[str, Problem],
    decode: Decode,
    *,
    hidden: Collection[int],
) -> ShapedBatch:
    """r_i + sum of parts, each part kept by name in Reward.parts; formulas in objective.shaping.

    A group without a correct response gets no part at all, whatever is configured, so that nothing is learned from
    failures but the one term that is meant to: `effort_length` with all_failed: keep. (DAPO pays overlong there too.)
    Rows without a reward stay without one.

    Raises InputError where effort_length meets a problem without an effort.
    """
    if not cfgs:
        return ShapedBatch(batch=batch, figures={})
    rollouts = [r for g in batch.groups for r in g.rollouts]
    verdicts = [v for g in batch.groups for v in g.verdicts]
    rewards = [r for g in batch.groups for r in g.rewards]
    number = _group_numbers(rollouts)
    efforts = None
    reasoning = None
    if any(isinstance(cfg, EffortLength) for cfg in cfgs):
        efforts = torch.tensor([effort_of(problems[r.problem_id]) for r in rollouts], dtype=torch.int64)
        number = subgroups(number, efforts)
        reasoning = torch.tensor(
            [reasoning_tokens(r, v, decode, hidden=hidden) for r, v in zip(rollouts, verdicts, strict=True)],
            dtype=torch.int64,
        )
    rows = ShapingInput(
        rewards=_values(rewards),
        group=number,
        correct=torch.tensor([v.verdict is Outcome.CORRECT for v in verdicts], dtype=torch.bool),
        length=torch.tensor([len(r.token_ids) for r in rollouts], dtype=torch.int64),
        reasoning_length=reasoning,
        effort=efforts,
    )
    failed = _all_failed(rows)
    parts = {
        name: part if name == "effort_length" else torch.where(failed, 0.0, part)
        for name, part in shape(rows, cfgs).parts.items()
    }
    shaped = iter(_with_parts(rewards, parts))
    groups = tuple(replace(g, rewards=tuple(next(shaped) for _ in g.rewards)) for g in batch.groups)
    return ShapedBatch(batch=replace(batch, groups=groups), figures=_figures(rows, parts, failed))


def group_numbers(batch: Batch, cfgs: Sequence[ShapingConfig], problems: Mapping[str, Problem]) -> Int[Tensor, "B"]:
    """Group number of each row: one a problem, or one a (problem, effort) where efforts are priced. V4.1 eq. 8."""
    rollouts = [r for g in batch.groups for r in g.rollouts]
    number = _group_numbers(rollouts)
    if not any(isinstance(cfg, EffortLength) for cfg in cfgs):
        return number
    efforts = [effort_of(problems[r.problem_id]) for r in rollouts]
    return subgroups(number, torch.tensor(efforts, dtype=torch.int64))


def effort_of(problem: Problem) -> int:
    """The effort level of a problem's prompt, from its metadata.

    >>> effort_of(Problem(id="p", question="1+1?", gold="2", source="s", metadata=(("effort", "40"),)))
    40
    """
    text = dict(problem.metadata).get("effort")
    if text is None or not text.strip().isdigit():
        raise InputError(
            f"problem {problem.id}: rl.shaping effort_length needs an effort of every problem (a whole number in its "
            f"metadata): got {'none' if text is None else repr(text)}. Give each problem its effort, or remove effort_length."
        )
    return int(text)


def reasoning_tokens(rollout: Rollout, verdict: Verdict, decode: Decode, *, hidden: Collection[int] = ()) -> int:
    """l: generated tokens before the answer. DeepSeek-V4.1 eq. 9 counts reasoning only.

    Reasoning ends with the last </think>, else where the last occurrence of the extracted answer begins. A response
    without a readable answer is all reasoning.

    >>> from algorist.flow import Finish
    >>> ids = tuple(map(ord, "3+4=7"))
    >>> r = Rollout(problem_id="p", sample=0, prompt_ids=(1,), token_ids=ids, behaviour_logp=(0.0,) * 5, seed=0,
    ...             policy_version=(0,) * 5, loss_mask=(True,) * 5, finish=Finish.STOP, text="3+4=7")
    >>> v = Verdict(verdict=Outcome.CORRECT, reason="equal", extracted="7")
    >>> reasoning_tokens(r, v, lambda ids: "".join(map(chr, ids)))
    4
    """
    at = rollout.text.rfind(THINK_END)
    end = at + len(THINK_END) if at >= 0 else rollout.text.rfind(verdict.extracted) if verdict.extracted else -1
    if end < 0:
        return len(rollout.token_ids)
    parts = pieces(rollout.token_ids, rollout.text, decode, hidden=hidden)
    reached = accumulate(len(part) for part in parts)
    return sum(at <= end for token, at in zip(rollout.token_ids, reached, strict=True) if token not in hidden)


def qualities(batch: Batch, kind: Quality) -> Float[Tensor, "B"]:
    """f_i in (0, 1] of each correct response, nan elsewhere: what groupwise redistribution (GAR) reads.

    brevity: shortest correct response of the group / this one, in tokens. arithmetic: share of the stated equations that
    hold, (1 + right) / (1 + all), so that it is never 0. Both are stand-ins for the ranking by a grader in MiMo-V2.6.
    """
    out: list[float] = []
    for group in batch.groups:
        right = [v.verdict is Outcome.CORRECT for v in group.verdicts]
        lengths = [max(1, len(r.token_ids)) for r in group.rollouts]
        shortest = min((n for n, ok in zip(lengths, right, strict=True) if ok), default=1)
        for rollout, ok, length in zip(group.rollouts, right, lengths, strict=True):
            if not ok:
                out.append(float("nan"))
            elif kind == "brevity":
                out.append(shortest / length)
            else:
                claims = check_step(rollout.text)
                out.append((1 + sum(c.judgement != "false" for c in claims)) / (1 + len(claims)))
    return torch.tensor(out, dtype=torch.float64)


# -- inside ---------------------------------------------------------------------------------------------------------


def _group_numbers(rollouts: Sequence[Rollout]) -> Int[Tensor, "B"]:
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(r.problem_id, len(numbers)) for r in rollouts], dtype=torch.int64)


def _values(rewards: Sequence[Reward]) -> Float[Tensor, "B"]:
    return torch.tensor([float("nan") if r.value is None else r.value for r in rewards], dtype=torch.float64)


def _all_failed(rows: ShapingInput) -> Tensor:
    out = torch.zeros(rows.group.shape, dtype=torch.bool)
    for number in rows.group.unique():
        here = rows.group == number
        out |= here & ~(here & rows.correct & rows.scored).any()
    return out


def _with_parts(rewards: Sequence[Reward], parts: Mapping[str, Tensor]) -> list[Reward]:
    shaped = []
    for i, reward in enumerate(rewards):
        if reward.value is None:
            shaped.append(reward)
            continue
        own = {name: float(part[i]) for name, part in parts.items()}
        told = reward.parts or {"reward": reward.value}
        shaped.append(replace(reward, value=reward.value + sum(own.values()), parts={**told, **own}))
    return shaped


def _figures(rows: ShapingInput, parts: Mapping[str, Tensor], failed: Tensor) -> Figures:
    """The unshaped mean, each part's mean, and how many all-failed groups learn from the length term alone."""
    scored = rows.scored
    count = max(1, int(scored.sum()))
    figures: Figures = {"reward/unshaped_mean": float(rows.rewards[scored].sum()) / count}
    for name, part in parts.items():
        figures[f"reward/{name}_mean"] = float(part[scored].sum()) / count
        figures[f"reward/{name}_share"] = int((part[scored] != 0).sum()) / count
    lost = rows.group[failed].unique()
    figures["groups/all_failed"] = len(lost)
    if "effort_length" in parts:
        terms = [parts["effort_length"][(rows.group == number) & scored] for number in lost]
        figures["groups/length_signal_only"] = sum(bool((term != term[:1]).any()) for term in terms)
    return figures
