"""How long may responses be, and how many per problem? Answered from one set of long samples.

A response of T tokens is finished under a budget L where T <= L, so one sample at the largest budget gives the curve for
every smaller one. With c right answers among n samples, the chance that a group of g has both kinds is, without bias,
1 - C(c, g) / C(n, g) - C(n - c, g) / C(n, g).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from algorist.digest import JSON
from algorist.flow import Finish, Group

_ENOUGH = 0.95
"""Of what the largest budget (or group) gives."""
_SIZES = (2, 4, 8, 16, 32, 64)


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
    mixed_share: float
    """Expected share of groups with both kinds: of gradient that is not zero."""
    memory_gib: float
    """Predicted peak of the trainer."""


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
    """Recommended: the smallest group with 95 % of the contrast of the largest one."""
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
                {"group_size": s.group_size, "mixed_share": s.mixed_share, "memory_gib": s.memory_gib}
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


def calibrate(groups: Sequence[Group], *, longest: int, memory_gib: dict[int, float]) -> Calibration:
    """Curves from groups sampled under the budget `longest`. memory_gib: group size -> predicted peak."""
    assert groups, "calibration needs at least one group"
    n = min(len(g.rollouts) for g in groups)
    grid = sorted({max(1, round(longest * x)) for x in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)})
    budgets = tuple(_budget(groups, L, n) for L in grid)
    best = budgets[-1].success_share
    chosen = next(
        b
        for b in budgets
        if b.success_share >= _ENOUGH * best and b.finished_share >= _ENOUGH * budgets[-1].finished_share
    )
    sizes = tuple(
        GroupSize(
            group_size=size,
            mixed_share=_mean([mixed_chance(_right(g, chosen.response_tokens, n), n, size) for g in groups]),
            memory_gib=memory_gib.get(size, 0.0),
        )
        for size in _SIZES
        if size <= n
    )
    top = sizes[-1].mixed_share if sizes else 0.0
    group_size = next((s.group_size for s in sizes if top > 0 and s.mixed_share >= _ENOUGH * top), n)
    return Calibration(
        problems=len(groups), samples=n, budgets=budgets, sizes=sizes, response_tokens=chosen.response_tokens,
        group_size=group_size, words=_words(budgets[-1], chosen, top),
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
