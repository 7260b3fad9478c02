"""From a graded batch to what an objective's credit reads: shaped rewards, groups, step rewards, quality."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from algorist.flow import Batch, Problem
from algorist.stages.config import ProcessConfig, RLConfig
from algorist.stages.gates import Figures
from algorist.stages.process import score_steps
from algorist.stages.shaping import group_numbers, qualities, shape_batch
from algorist.stages.tokens import Decode
from algorist.train import rows as rows_of
from algorist.train.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A batch with everything `Trainer.assign` needs of it."""

    batch: Batch
    """With shaped rewards."""
    rows: Rows
    """Of that batch; groups are problems, or (problem, effort) where efforts are priced."""
    step_ends: Int[Tensor, "B K"] | None
    step_rewards: Float[Tensor, "B K"] | None
    """None where the objective has no step rewards."""
    quality: Float[Tensor, "B"] | None
    """None where the objective redistributes nothing."""
    figures: Figures
    """What shaping and steps put into metrics.jsonl."""


def judge(
    graded: Batch, cfg: RLConfig, problems: Mapping[str, Problem], decode: Decode, *, hidden: Collection[int]
) -> Worth:
    """Apply rl.shaping, rl.process and rl.quality to a batch with its rule rewards. Pure."""
    shaped = shape_batch(graded, cfg.shaping, problems, decode, hidden=hidden)
    batch = shaped.batch
    steps = None
    if "step_rewards" in cfg.objective.needs:
        steps = score_steps(batch, problems, cfg.process or ProcessConfig(), decode, hidden=hidden)
    quality = None if cfg.quality is None else qualities(batch, cfg.quality)
    return Worth(
        batch=batch,
        rows=replace(rows_of.from_batch(batch), group=group_numbers(batch, cfg.shaping, problems)),
        step_ends=None if steps is None else steps.ends,
        step_rewards=None if steps is None else steps.rewards,
        quality=quality,
        figures={
            **shaped.figures,
            **({} if steps is None else steps.figures),
            **({} if quality is None else {"quality/mean": _mean(quality)}),
        },
    )


def _mean(quality: Float[Tensor, "B"]) -> float | None:
    """Over the responses that have one."""
    known = quality[torch.isfinite(quality)]
    return float(known.mean()) if len(known) else None
