"""What each response is worth, once more, in plain floats: a second opinion on the advantages of a batch.

Written against the papers, not against `objective/`: nothing is shared with it but the settings. Where a method's advantages
need more than rewards and groups (a value head, step rewards, a reference) there is no plain formula, and None is the answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from algorist.objective.config import (
    CISPOConfig,
    DAPOConfig,
    DrGRPOConfig,
    GRPOConfig,
    GSPOConfig,
    Objective,
    OnlineRFTConfig,
    ReinforceConfig,
    RFTConfig,
    RLOOConfig,
    SFTConfig,
)

Grouped = RLOOConfig | DrGRPOConfig | GRPOConfig | DAPOConfig | GSPOConfig | CISPOConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known of one response.

    >>> Outcome(group=0, reward=1.0, correct=True).truncated
    False
    """

    group: int
    reward: float | None
    """None where there is none: the row leaves its group."""
    correct: bool
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What it is worth."""

    advantage: float
    """Of each of its trained tokens."""
    trained: bool
    """False: none of its tokens is."""


def worth(objective: Objective, rows: Sequence[Outcome]) -> list[Worth] | None:
    """Advantage of each row, and whether it is trained; None where rewards and groups do not settle it.

    >>> rows = [Outcome(group=0, reward=r, correct=r > 0) for r in (1.0, 0.0, 0.0, 0.0)]
    >>> [round(w.advantage, 3) for w in worth(RLOOConfig(), rows)]
    [1.0, -0.333, -0.333, -0.333]
    >>> [round(w.advantage, 3) for w in worth(GRPOConfig(beta=0.0), rows)]
    [1.732, -0.577, -0.577, -0.577]
    """
    if isinstance(objective, SFTConfig):
        return _keep(objective, rows, [1.0] * len(rows), [False] * len(rows))
    if isinstance(objective, RFTConfig | OnlineRFTConfig):
        right = [row.correct and row.reward is not None for row in rows]
        drop = [objective.wrong_rows == "drop" and not ok for ok in right]
        return _keep(objective, rows, [float(ok) for ok in right], drop)
    if isinstance(objective, ReinforceConfig):
        if objective.whiten != "none" or _fee(objective.beta, objective.kl_place):
            return None
        known = [row.reward for row in rows if row.reward is not None]
        base = math.fsum(known) / len(known) if objective.baseline == "batch_mean" and known else 0.0
        flat = objective.baseline == "batch_mean" and len(set(known)) < 2
        values = [0.0 if row.reward is None or flat else row.reward - base for row in rows]
        return _keep(objective, rows, values, [False] * len(rows))
    if isinstance(objective, Grouped):
        if objective.redistribution is not None or _fee(objective.beta, objective.kl_place):
            return None
        values, drop = [0.0] * len(rows), [False] * len(rows)
        for members in _groups(rows):
            rewards = [r for i in members if (r := rows[i].reward) is not None]
            flat = len(set(rewards)) < 2
            for i in members:
                if (reward := rows[i].reward) is not None:
                    drop[i] = flat and objective.flat_groups == "drop"
                    values[i] = _relative(objective, reward, rewards)
        return _keep(objective, rows, values, drop)
    return None


def _relative(objective: Grouped, reward: float, rewards: Sequence[float]) -> float:
    """A response against its group; exactly 0 where no two rewards differ."""
    if len(rewards) == 1:
        return reward if objective.group_of_one == "raw" else 0.0
    if len(set(rewards)) < 2:
        return 0.0
    mean = math.fsum(rewards) / len(rewards)
    others = (math.fsum(rewards) - reward) / (len(rewards) - 1)
    if isinstance(objective, RLOOConfig):
        return reward - others
    if isinstance(objective, DrGRPOConfig):
        return reward - mean
    if objective.std == "none":
        return reward - mean
    if objective.std == "leave_one_out":
        rest = list(rewards)
        rest.remove(reward)
        spread = _spread(rest, 1) + objective.std_epsilon if len(set(rest)) > 1 else 1.0
        return (reward - others) / spread
    spread = _spread(rewards, 1 if objective.std == "sample" else 0) + objective.std_epsilon
    return (reward - mean) / spread if spread > 0 else 0.0


def _spread(values: Sequence[float], lost: int) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - lost))


def _groups(rows: Sequence[Outcome]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(row.group, []).append(i)
    return list(found.values())


def _fee(beta: float, place: str) -> bool:
    return beta > 0 and place == "reward"


def _keep(objective: Objective, rows: Sequence[Outcome], values: Sequence[float], drop: Sequence[bool]) -> list[Worth]:
    """Rows without a reward, dropped ones, and truncated ones where asked, train nothing."""
    result = []
    for row, value, out in zip(rows, values, drop, strict=True):
        trained = row.reward is not None and not out and not (objective.mask_truncated and row.truncated)
        result.append(Worth(advantage=value if trained else 0.0, trained=trained))
    return result
