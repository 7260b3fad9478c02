"""Process supervision in the loop: responses to steps, steps to rewards, step ends to token indices. DeepSeekMath 4.1.3."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from algorist.flow import Batch, Outcome, Problem, Verdict
from algorist.objective.steps import pad
from algorist.reward.steps import ArithmeticScorer, Step, StepScorer, split, token_ends
from algorist.stages.config import ProcessConfig
from algorist.stages.gates import Figures
from algorist.stages.tokens import Decode, pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRewards:
    """What `Trainer.assign` needs for step rewards, for all B rows of a batch with at most K steps."""

    ends: Int[Tensor, "B K"]
    """Index of each step's last token; -1 where a row has fewer steps."""
    rewards: Float[Tensor, "B K"]
    """float64; nan where a step is not judged."""
    figures: Figures
    """For metrics.jsonl."""


def score_steps(
    batch: Batch, problems: Mapping[str, Problem], cfg: ProcessConfig, decode: Decode, *, hidden: Collection[int]
) -> StepRewards:
    """Every response of a batch, split, scored and mapped onto its own token ids.

    hidden: ids that a response's text leaves out (stop ids). A blank response has no steps.
    """
    scorer = scorer_of(cfg)
    ends: list[Sequence[int]] = []
    rewards: list[Sequence[float | None]] = []
    for group in batch.groups:
        question = problems[group.problem_id].question
        for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True):
            steps = steps_of(rollout.text, cfg.separators)
            parts = pieces(rollout.token_ids, rollout.text, decode, hidden=hidden)
            ends.append(token_ends(steps, parts))
            rewards.append(scorer.score(question, [step.text for step in steps], _right(verdict)))
    step_ends, step_rewards = pad(ends, rewards)
    return StepRewards(ends=step_ends, rewards=step_rewards, figures=_figures(step_ends, step_rewards))


def scorer_of(cfg: ProcessConfig) -> StepScorer:
    """The scorer a recipe names; a learned process model fits behind the same interface."""
    return ArithmeticScorer(unchecked=cfg.unchecked)


def steps_of(text: str, separators: Sequence[str]) -> tuple[Step, ...]:
    """Steps of a response: as `reward.steps.split`, or, with separators, whatever lies between them and line ends.

    >>> [step.text for step in steps_of("7+5=12,4+3+1=8:47+35=82", [",", ":"])]
    ['7+5=12', '4+3+1=8', '47+35=82']
    """
    if not separators:
        return split(text)
    found: list[Step] = []
    start = 0
    while start < len(text):
        cuts = [(at, len(mark)) for mark in ("\n", *separators) if (at := text.find(mark, start)) >= 0]
        end, width = min(cuts, key=lambda cut: (cut[0], -cut[1]), default=(len(text), 0))
        part = text[start:end]
        if part.strip():
            left = start + len(part) - len(part.lstrip())
            found.append(Step(start=left, end=left + len(part.strip()), text=part.strip()))
        start = end + max(1, width)
    return tuple(found)


def _right(verdict: Verdict) -> bool | None:
    return None if verdict.verdict is Outcome.ERROR else verdict.verdict is Outcome.CORRECT


def _figures(ends: Tensor, rewards: Tensor) -> Figures:
    present = ends >= 0
    judged = present & torch.isfinite(rewards)
    steps = int(present.sum())
    return {
        "steps/mean": steps / max(1, len(ends)),
        "steps/judged_share": int(judged.sum()) / max(1, steps),
        "steps/reward_mean": float(rewards[judged].sum()) / max(1, int(judged.sum())),
    }
