"""Reward shaping: rewards in, rewards out, each change kept apart by name. Applied before any baseline.

None of these makes a signal in a group without a correct response, except the length term of effort subgroups, which
says so and can be switched off. `redistribute` acts on advantages instead.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algorist.config import Config
from algorist.errors import InputError
from algorist.objective.knobs import Redistribution
from algorist.objective.shaping_config import EffortLength, LengthDeduction, Overlong


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapingInput:
    """What shaping may look at, for all B rows of a rollout batch.

    Example:
        >>> rows = ShapingInput(rewards=torch.tensor([1.0, 0.0]), group=torch.tensor([0, 0]),
        ...                     correct=torch.tensor([True, False]), length=torch.tensor([10, 20]))
        >>> rows.scored.tolist()
        [True, True]
    """

    rewards: Float[Tensor, "B"]
    """nan where there is none."""
    group: Int[Tensor, "B"]
    """Group number of each row; (problem, effort) where efforts are used."""
    correct: Bool[Tensor, "B"]
    """Verdict of each row."""
    length: Int[Tensor, "B"]
    """Generated tokens."""
    reasoning_length: Int[Tensor, "B"] | None = None
    """Generated tokens before the answer."""
    effort: Int[Tensor, "B"] | None = None
    """Effort level of the row's prompt."""

    @property
    def scored(self) -> Bool[Tensor, "B"]:
        """Rows that have a reward."""
        return torch.isfinite(self.rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """Rewards after shaping, and what each step added."""

    rewards: Float[Tensor, "B"]
    """float64; nan where the input was."""
    parts: Mapping[str, Float[Tensor, "B"]]
    """What each shaping added to each row, by name; 0 for rows without a reward."""


def shape(rows: ShapingInput, configs: Sequence[Config]) -> Shaped:
    """rewards + the sum of all parts. Parts depend on the rows as given, not on each other, so their order is free.

    >>> rows = ShapingInput(rewards=torch.tensor([1.0, 1.0, 1.0, 0.0]), group=torch.zeros(4, dtype=torch.int64),
    ...                     correct=torch.tensor([True, True, True, False]), length=torch.tensor([10, 10, 40, 99]))
    >>> shape(rows, [LengthDeduction()]).rewards.tolist()
    [1.0, 1.0, 0.9, 0.0]
    """
    rewards = rows.rewards.to(torch.float64)
    parts: dict[str, Tensor] = {}
    for cfg in configs:
        name, part = _NAMES[type(cfg)], _FUNCTIONS[type(cfg)](rows, cfg)
        if name in parts:
            raise InputError(f"each shaping may appear once: got {name} twice")
        parts[name] = torch.where(rows.scored, part, 0.0)
        rewards = rewards + parts[name]
    return Shaped(rewards=rewards, parts=parts)


def length_deduction(rows: ShapingInput, cfg: LengthDeduction) -> Float[Tensor, "B"]:
    """-X clip((l / l* - 1 - delta) / (s - delta), 0, 1)^gamma if correct and the pass rate is above A. MiMo eq. 4.

    l* is the reference_quantile (linear interpolation) of the correct lengths of the group, A minimum_pass_rate
    (strict, over scored rows), delta tolerated_excess, s saturation_excess, X maximum_deduction. Wrong rows and groups
    at or below A are unchanged; a reference length of 0 deducts nothing.

    >>> rows = ShapingInput(rewards=torch.tensor([1.0, 0.0, 0.0, 0.0]), group=torch.zeros(4, dtype=torch.int64),
    ...                     correct=torch.tensor([True, False, False, False]), length=torch.tensor([9, 9, 9, 9]))
    >>> length_deduction(rows, LengthDeduction()).abs().sum().item()
    0.0
    """
    out = torch.zeros(rows.length.shape, dtype=torch.float64, device=rows.length.device)
    right = rows.correct & rows.scored
    for number in rows.group.unique():
        here = (rows.group == number) & rows.scored
        winners = (here & right).nonzero().flatten()
        if len(winners) == 0 or len(winners) / int(here.sum()) <= cfg.minimum_pass_rate:
            continue
        lengths = rows.length[winners].to(torch.float64)
        reference = torch.quantile(lengths, cfg.reference_quantile)
        if reference > 0:
            excess = lengths / reference - 1 - cfg.tolerated_excess
            share = (excess / (cfg.saturation_excess - cfg.tolerated_excess)).clamp(0, 1)
            out[winners] = -cfg.maximum_deduction * share**cfg.exponent
    return out


def overlong(rows: ShapingInput, cfg: Overlong) -> Float[Tensor, "B"]:
    """0 up to max - buffer, then linear to -factor at max, -factor beyond. DAPO eq. 13; every row, right or wrong.

    >>> rows = ShapingInput(rewards=torch.zeros(4), group=torch.zeros(4, dtype=torch.int64),
    ...                     correct=torch.zeros(4, dtype=torch.bool), length=torch.tensor([80, 90, 100, 101]))
    >>> overlong(rows, Overlong(max_tokens=100, buffer_tokens=20)).tolist()
    [0.0, -0.5, -1.0, -1.0]
    """
    over = rows.length.to(torch.float64) - (cfg.max_tokens - cfg.buffer_tokens)
    return 0.0 - cfg.factor * (over / cfg.buffer_tokens).clamp(0, 1)


def effort_price(effort: int, cfg: EffortLength) -> float:
    """k(b) = k0 exp(-(b - b_min) / tau), tau = lam mean_spacing(B). DeepSeek-V4.1 eq. 10.

    >>> cfg = EffortLength(levels=(20, 40, 60), k0=0.5, norm_tokens=100, maximum=1.0, lam=1.0)
    >>> effort_price(20, cfg), round(effort_price(40, cfg) / effort_price(20, cfg), 4)
    (0.5, 0.3679)
    """
    low, high = min(cfg.levels), max(cfg.levels)
    tau = cfg.tau if cfg.tau is not None else (cfg.lam or 0.0) * (high - low) / (len(cfg.levels) - 1)
    return cfg.k0 * math.exp(-(effort - low) / tau)


def effort_length(rows: ShapingInput, cfg: EffortLength) -> Float[Tensor, "B"]:
    """r_len = -min(C_max, k(b) l / L_norm), l the reasoning tokens. DeepSeek-V4.1 eq. 9; no correctness gate.

    all_failed: "off" gives 0 to subgroups without a correct response, where length would be the only signal.

    Raises InputError without reasoning lengths or efforts, and for an effort outside the declared levels.

    >>> rows = ShapingInput(rewards=torch.tensor([1.0, 0.0]), group=torch.tensor([0, 0]),
    ...                     correct=torch.tensor([True, False]), length=torch.tensor([60, 90]),
    ...                     reasoning_length=torch.tensor([50, 80]), effort=torch.tensor([20, 20]))
    >>> effort_length(rows, EffortLength(levels=(20,), k0=0.1, norm_tokens=100, maximum=0.06, tau=10)).tolist()
    [-0.05, -0.06]
    """
    if rows.reasoning_length is None or rows.effort is None:
        raise InputError("effort_length needs reasoning_length and effort of every row")
    strange = sorted(set(rows.effort.tolist()) - set(cfg.levels))
    if strange:
        raise InputError(f"efforts must be among effort_length.levels {list(cfg.levels)}: got {strange}")
    price = torch.tensor([effort_price(b, cfg) for b in rows.effort.tolist()], dtype=torch.float64)
    part = -(price.to(rows.length.device) * rows.reasoning_length / cfg.norm_tokens).clamp(max=cfg.maximum)
    if cfg.all_failed == "off":
        for number in rows.group.unique():
            here = rows.group == number
            if not bool((here & rows.correct & rows.scored).any()):
                part = torch.where(here, 0.0, part)
    return part


def subgroups(problem: Int[Tensor, "B"], effort: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """One group number per (problem, effort): different efforts are never compared. DeepSeek-V4.1 eq. 8.

    >>> subgroups(torch.tensor([0, 0, 1, 0]), torch.tensor([20, 40, 20, 20])).tolist()
    [0, 1, 2, 0]
    """
    _, index = torch.stack([problem, effort]).unique(dim=1, return_inverse=True)
    return index


def redistribute(
    advantage: Float[Tensor, "B"],
    correct: Bool[Tensor, "B"],
    scored: Bool[Tensor, "B"],
    group: Int[Tensor, "B"],
    quality: Float[Tensor, "B"],
    cfg: Redistribution,
) -> Float[Tensor, "B"]:
    """A'_i = lambda f_i A_i if correct, lambda = sum A / sum f A over those; then minus the group mean. GAR, eq. 3.

    lambda is held at or below `cap`. Only groups with correct and wrong rows; a group in which a correct row has no
    quality in (0, 1] keeps its advantages. Uncapped, the sum over the correct rows is preserved and re-centring changes
    nothing for a zero-mean advantage.

    >>> a, right = torch.tensor([0.5, 0.5, -0.5, -0.5]), torch.tensor([True, True, False, False])
    >>> f, one = torch.tensor([1.0, 0.5, 1.0, 1.0]), torch.zeros(4, dtype=torch.int64)
    >>> redistribute(a, right, torch.ones(4, dtype=torch.bool), one, f, Redistribution()).round(decimals=4).tolist()
    [0.6667, 0.3333, -0.5, -0.5]
    """
    out = advantage.to(torch.float64).clone()
    for number in group.unique():
        rows = (group == number) & scored
        winners = (rows & correct).nonzero().flatten()
        f, a = quality[winners].to(torch.float64), out[winners]
        usable = bool(((f > 0) & (f <= 1)).all())
        if len(winners) == 0 or len(winners) == int(rows.sum()) or not usable or float((f * a).sum()) == 0.0:
            continue
        factor = (a.sum() / (f * a).sum()).clamp(max=cfg.cap)
        out[winners] = factor * f * a
        members = rows.nonzero().flatten()
        out[members] = out[members] - out[members].mean()
    return out


_FUNCTIONS: Mapping[type[Config], Callable[[ShapingInput, Any], Tensor]] = {
    LengthDeduction: length_deduction,
    Overlong: overlong,
    EffortLength: effort_length,
}
_NAMES: Mapping[type[Config], str] = {
    LengthDeduction: "length_deduction",
    Overlong: "overlong",
    EffortLength: "effort_length",
}
