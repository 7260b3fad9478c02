"""How long may responses be, and how many per problem? Answered from one set of long samples.

A response of T tokens is finished under a budget L where T <= L, so one sample at the largest budget gives the curve for
every smaller one. With c right answers among n samples, the chance that a group of g has both kinds is, without bias,
1 - C(c, g) / C(n, g) - C(n - c, g) / C(n, g).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

import numpy as np

from algorist.digest import JSON
from algorist.evaluate.statistics import Estimate, bootstrap
from algorist.flow import Finish, Group

_ENOUGH: Final = 0.95
"""Of what the largest budget (or group) gives."""
_SIZES: Final = (2, 4, 8, 16, 32, 64)
_QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
"""Of the sampled lengths: the budgets that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a completion budget would give."""

    response_tokens: int
    finished_share: float
    """Responses that end by themselves within it."""
    success_share: float
    """Responses that are right within it."""
    mixed_share: float
    """Groups (of the sampled size) with both kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """What a group size would give, at the recommended budget."""

    group_size: int
    mixed: Estimate
    """Expected share of groups with both kinds, of gradient that is not zero; the interval is over problems."""
    memory_gib: float
    """Predicted peak of the process that trains with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Curves and what they recommend."""

    problems: int
    samples: int
    budgets: tuple[Budget, ...]
    sizes: tuple[GroupSize, ...]
    response_tokens: int
    """Recommended: the smallest budget with 95 % of the success of the largest one."""
    group_size: int
    """Recommended: the smallest group with 95 % of the contrast of the largest one that memory allows."""
    words: str
    """What limits the run, in words."""
    before_sft: bool = False
    """The recipe fine-tunes first, and these figures are of the policy before that."""

    def to_json(self) -> dict[str, JSON]:
        """For --json."""
        return {
            "problems": self.problems,
            "samples": self.samples,
            "response_tokens": self.response_tokens,
            "group_size": self.group_size,
            "words": self.words,
            "before_sft": self.before_sft,
            "budgets": [
                {
                    "response_tokens": b.response_tokens,
                    "finished_share": b.finished_share,
                    "success_share": b.success_share,
                    "mixed_share": b.mixed_share,
                }
                for b in self.budgets
            ],
            "group_sizes": [
                {
                    "group_size": s.group_size,
                    "mixed_share": s.mixed.value,
                    "mixed_share_low": s.mixed.low,
                    "mixed_share_high": s.mixed.high,
                    "memory_gib": s.memory_gib,
                }
                for s in self.sizes
            ],
        }


def mixed_chance(right: int, samples: int, size: int) -> float:
    """Chance that `size` of `samples` responses, `right` of them right, hold both kinds.

    >>> mixed_chance(1, 4, 2), mixed_chance(0, 4, 2), mixed_chance(2, 4, 4)
    (0.5, 0.0, 1.0)
    """
    assert size <= samples, f"a group of {size} cannot be drawn from {samples} samples"
    return 1.0 - (comb(right, size) + comb(samples - right, size)) / comb(samples, size)


def calibrate(
    groups: Sequence[Group],
    *,
    longest: int,
    memory_gib: Callable[[int, int], float],
    cap_gib: float | None = None,
) -> Calibration:
    """Curves from groups sampled under the budget `longest`.

    memory_gib: (group size, budget) -> predicted peak. Group sizes above cap_gib are not recommended while one is below.
    """
    assert groups, "calibration needs at least one group"
    n = min(len(g.rollouts) for g in groups)
    lengths = [min(longest, max(1, len(r.token_ids))) for g in groups for r in g.rollouts]
    grid = sorted({*(int(x) for x in np.quantile(lengths, _QUANTILES, method="inverted_cdf")), longest})
    budgets = tuple(_budget(groups, L, n) for L in grid)
    best = budgets[-1]
    chosen = next(
        b
        for b in budgets
        if b.success_share >= _ENOUGH * best.success_share and b.finished_share >= _ENOUGH * best.finished_share
    )
    right = [_right(g, chosen.response_tokens, n) for g in groups]
    sizes = tuple(
        GroupSize(
            group_size=size,
            mixed=bootstrap([mixed_chance(c, n, size) for c in right]),
            memory_gib=memory_gib(size, chosen.response_tokens),
        )
        for size in _SIZES
        if size <= n
    )
    fitting = [s for s in sizes if cap_gib is None or s.memory_gib <= cap_gib] or sizes[:1]
    top = max(s.mixed.value for s in fitting)
    group_size = next(s.group_size for s in fitting if s.mixed.value >= _ENOUGH * top)
    return Calibration(
        problems=len(groups), samples=n, budgets=budgets, sizes=sizes, response_tokens=chosen.response_tokens,
        group_size=group_size, words=_words(best, chosen, top),
    )  # fmt: skip


def _budget(groups: Sequence[Group], L: int, n: int) -> Budget:
    rollouts = [r for g in groups for r in g.rollouts]
    return Budget(
        response_tokens=L,
        finished_share=_mean([float(r.finish is Finish.STOP and len(r.token_ids) <= L) for r in rollouts]),
        success_share=_mean([_right(g, L, n) / n for g in groups]),
        mixed_share=_mean([float(0 < _right(g, L, n) < n) for g in groups]),
    )


def _right(group: Group, L: int, n: int) -> int:
    rows = list(zip(group.rollouts, group.rewards, strict=True))[:n]
    return sum(len(r.token_ids) <= L and not r.truncated and (w.value or 0.0) > 0 for r, w in rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def _words(longest: Budget, chosen: Budget, mixed: float) -> str:
    if longest.finished_share < 0.5:
        return (
            f"even with {longest.response_tokens} tokens only {longest.finished_share:.0%} of the responses end: raise the context, "
            "or check that the template lets answers end"
        )
    if longest.success_share == 0.0:
        return (
            "no response is right at any budget: length is not what is missing; give easier problems or fine-tune first"
        )
    if mixed < 0.05:
        return f"hardly any group has both kinds ({mixed:.0%}): change the difficulty of the problems"
    return (
        f"{chosen.response_tokens} tokens keep {chosen.success_share:.1%} right answers of the {longest.success_share:.1%} that "
        f"{longest.response_tokens} tokens give"
    )
