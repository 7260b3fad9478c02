"""Learning rate as a pure function of APPLIED updates: skipped batches do not move it."""

import math

from algorist.train.config import OptimizerConfig


def learning_rate(cfg: OptimizerConfig, applied: int, total: int) -> float:
    """lr_t = cfg.lr * warmup(t) * shape(t), with t applied updates so far and `total` planned ones.

    warmup(t) = min(1, (t + 1) / warmup_updates). shape: constant 1; cosine f + (1 - f)(1 + cos(pi t / total)) / 2 with
    f = final_share; multi_step gamma^(milestones passed), a milestone being a share of `total` (DeepSeekMath 2.3).

    >>> cfg = OptimizerConfig(lr=1.0, schedule="multi_step", milestones=(0.5, 0.75), gamma=0.1)
    >>> [round(learning_rate(cfg, t, 4), 4) for t in range(4)]
    [1.0, 1.0, 0.1, 0.01]
    >>> learning_rate(OptimizerConfig(lr=1.0, warmup_updates=4), 0, 10)
    0.25
    """
    warmup = min(1.0, (applied + 1) / cfg.warmup_updates) if cfg.warmup_updates else 1.0
    share = min(1.0, applied / max(1, total))
    if cfg.schedule == "constant":
        shape = 1.0
    elif cfg.schedule == "cosine":
        shape = cfg.final_share + (1 - cfg.final_share) * 0.5 * (1 + math.cos(math.pi * share))
    else:
        shape = cfg.gamma ** sum(share >= milestone for milestone in cfg.milestones)
    return cfg.lr * warmup * shape
