"""From rewards to token credit. All arithmetic is float64; results are exact zeros where there is nothing to learn."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algorist.errors import InputError
from algorist.objective.knobs import Baseline, Std


def group_advantage(
    rewards: Float[Tensor, "B"],
    group: Int[Tensor, "B"],
    *,
    baseline: Baseline = "mean",
    std: Std = "population",
    epsilon: float = 0.0,
    group_of_one: Literal["refuse", "zero", "raw"] = "refuse",
) -> Float[Tensor, "B"]:
    """A_i = (r_i - mean r) / (std r + epsilon) within a group. DeepSeekMath 4.1.2; oracle paper.sec_4_1_2.

    baseline: the group's mean, the mean of the others (RLOO), or none. std: population (the paper does not say which),
    sample (G - 1), leave_one_out (mean and sample std of the others; no division where they do not differ), none.
    Rows with a nan reward leave their group first and get exactly 0. A group whose rewards are equal (max == min, not
    std < eps: equal float32 rewards have a computed std of 7e-9) gets exactly 0. Groups may differ in size and lie
    interleaved. A group of one row: `group_of_one`; a group of which one row is left after errors: 0, or raw.

    Raises InputError for a row without a group (negative number) and for a refused group of one.

    >>> r, one = torch.tensor([0.9, 0.1, 0.3, 0.7]), torch.zeros(4, dtype=torch.int64)
    >>> group_advantage(r, one).round(decimals=2).tolist()
    [1.26, -1.26, -0.63, 0.63]
    >>> r = torch.tensor([1.0, 0.0, 0.0, 0.0])
    >>> group_advantage(r, one, baseline="leave_one_out", std="none").round(decimals=3).tolist()
    [1.0, -0.333, -0.333, -0.333]
    """
    out = torch.zeros(rewards.shape, dtype=torch.float64, device=rewards.device)
    for rows, size in _groups(rewards, group):
        r = rewards[rows].to(torch.float64)
        if size == 1 and group_of_one == "refuse":
            raise InputError(
                f"every problem needs at least 2 rollouts for a group baseline: group {int(group[rows[0]])} has 1. "
                "Raise rl.group_size, or set group_of_one: zero or raw"
            )
        if len(r) == 1:
            out[rows] = r if group_of_one == "raw" else 0.0
        elif bool(r.max() > r.min()) or baseline == "none":
            out[rows] = _relative(r, baseline, std, epsilon)
    return out


def step_advantage(
    step_rewards: Float[Tensor, "B K"],
    step_ends: Int[Tensor, "B K"],
    group: Int[Tensor, "B"],
    scored: Bool[Tensor, "B"],
    num_tokens: int,
    *,
    std: Std = "population",
    epsilon: float = 0.0,
) -> Float[Tensor, "B T"]:
    """A_it = sum of normalised rewards of the steps ending at or after t. DeepSeekMath 4.1.3; oracle paper.sec_4_1_3.

    All step rewards of a group are normalised together (mean and std over its steps, not over its rows). Steps: end
    index >= 0 and a finite reward; a token after the last step gets 0. Equal step rewards give exactly 0, and so does a
    group of which fewer than two rows are scored. std: leave_one_out has no meaning for steps and is refused.

    >>> r, e = torch.tensor([[0.9, 0.8, 0.9], [0.9, 0.2, torch.nan]]), torch.tensor([[0, 1, 2], [0, 1, -1]])
    >>> both = torch.tensor([True, True])
    >>> step_advantage(r, e, torch.tensor([0, 0]), both, 3).round(decimals=2).tolist()
    [[1.39, 0.81, 0.59], [-1.39, -1.98, 0.0]]
    """
    if std == "leave_one_out":
        raise InputError("std: leave_one_out is not defined for step rewards: use population, sample or none")
    out = torch.zeros(len(group), num_tokens, dtype=torch.float64, device=step_rewards.device)
    position = torch.arange(num_tokens, device=step_rewards.device)
    present = (step_ends >= 0) & torch.isfinite(step_rewards) & scored[:, None]
    row_scores = torch.where(scored, 0.0, torch.nan)
    for rows, _ in _groups(row_scores, group):
        r = step_rewards[rows].to(torch.float64)
        flat = r[present[rows]]
        if len(rows) < 2 or flat.numel() == 0 or not bool(flat.max() > flat.min()):
            continue
        spread = _spread(flat, std, epsilon)
        if not bool(spread > 0):
            continue
        normal = torch.where(present[rows], (r - flat.mean()) / spread, 0.0)
        reaches = step_ends[rows][:, :, None] >= position
        out[rows] = (normal[:, :, None] * reaches).sum(1)
    return out


def gae(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    holes: Literal["jump", "zero"] = "jump",
) -> Float[Tensor, "B T"]:
    """A_t = sum_k (gamma lam)^k delta_{t+k}, delta_t = r_t + gamma V_{t+1} - V_t. Schulman et al. 2016, eq. 16.

    Values and rewards outside the mask are never read. Where the mask has holes (tool output inside a response):
    "jump" makes the next trained token the successor; "zero" makes each hole a step with value and reward 0. They
    differ unless lam = 1, even in sign:

    >>> r, v = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.25, 0.75]])
    >>> m = torch.tensor([[True, False, True]])
    >>> gae(r, v, m, lam=0.5).tolist(), gae(r, v, m, lam=0.5, holes="zero").tolist()
    ([[0.375, 0.0, 0.25]], [[-0.0625, 0.0, 0.25]])
    """
    r = torch.where(mask, rewards, 0.0).to(torch.float64)
    v = torch.where(mask, values, 0.0).to(torch.float64)
    out = torch.zeros_like(r)
    next_value = torch.zeros(len(r), dtype=torch.float64, device=r.device)
    running = torch.zeros_like(next_value)
    for t in reversed(range(r.shape[1])):
        here = mask[:, t]
        delta = r[:, t] + gamma * next_value - v[:, t]
        step = delta + gamma * lam * running
        out[:, t] = torch.where(here, step, 0.0)
        move = here if holes == "jump" else torch.ones_like(here)
        running = torch.where(move, step, running)
        next_value = torch.where(move, v[:, t], next_value)
    return out


def whiten(
    advantage: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], std: Literal["population", "sample"]
) -> Float[Tensor, "B T"]:
    """(A - mean) / std over all trained tokens of the batch, so long responses weigh more. REINFORCE++ (Hu 2025).

    Exactly 0 everywhere when the advantages do not differ.

    >>> a, m = torch.tensor([[1.0, 1.0], [-1.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> whiten(a, m, "population").round(decimals=3).tolist()
    [[0.707, 0.707], [-1.414, 0.0]]
    """
    taken = advantage[mask].to(torch.float64)
    if taken.numel() < 2 or not bool(taken.max() > taken.min()):
        return torch.zeros_like(advantage, dtype=torch.float64)
    spread = _spread(taken, std, 0.0)
    if not bool(spread > 0):
        return torch.zeros_like(advantage, dtype=torch.float64)
    return torch.where(mask, (advantage.to(torch.float64) - taken.mean()) / spread, 0.0)


def last_token(values: Float[Tensor, "B"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Each row's value on its last trained token, 0 elsewhere; an empty row gets none (never index -1).

    >>> last_token(torch.tensor([2.0, 3.0]), torch.tensor([[True, True], [False, False]])).tolist()
    [[0.0, 2.0], [0.0, 0.0]]
    """
    after = mask.flip(-1).cumsum(-1).flip(-1)
    return torch.where(mask & (after == 1), values[:, None], 0.0)


def flat_rows(rewards: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Bool[Tensor, "B"]:
    """True for scored rows of groups in which no two rewards differ.

    >>> flat_rows(torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1])).tolist()
    [True, True, False, False]
    """
    out = torch.zeros(rewards.shape, dtype=torch.bool, device=rewards.device)
    for rows, _ in _groups(rewards, group):
        r = rewards[rows]
        out[rows] = not bool(r.max() > r.min())
    return out


def check_groups(group: Int[Tensor, "B"]) -> None:
    """Refuses rows without a group.

    >>> check_groups(torch.tensor([0, -1]))
    Traceback (most recent call last):
        ...
    algorist.errors.InputError: every row needs a group number >= 0: row 1 has -1. Give each rollout its problem's group
    """
    missing = (group < 0).nonzero().flatten()
    if len(missing):
        row = int(missing[0])
        raise InputError(
            f"every row needs a group number >= 0: row {row} has {int(group[row])}. "
            "Give each rollout its problem's group"
        )


def _groups(rewards: Tensor, group: Tensor) -> list[tuple[Tensor, int]]:
    """Scored row indices of each group, with the number of rows it has in all."""
    check_groups(group)
    scored = torch.isfinite(rewards)
    out = []
    for number in group.unique():
        here = group == number
        rows = (here & scored).nonzero().flatten()
        if len(rows):
            out.append((rows, int(here.sum())))
    return out


def _relative(r: Tensor, baseline: Baseline, std: Std, epsilon: float) -> Tensor:
    G = len(r)
    others = (r.sum() - r) / (G - 1)
    if std == "leave_one_out":
        rest = torch.stack([torch.cat([r[:i], r[i + 1 :]]) for i in range(G)])
        varied = rest.amax(-1) > rest.amin(-1)
        spread = rest.std(-1, correction=1) if G > 2 else torch.zeros_like(r)
        centred = r - rest.mean(-1)
        return torch.where(varied, centred / (spread + epsilon).clamp(min=1e-300), centred)
    centred = r - {"mean": r.mean(), "leave_one_out": others, "none": torch.zeros_like(r)}[baseline]
    if std == "none":
        return centred
    spread = _spread(r, std, epsilon)
    return centred / spread if bool(spread > 0) else torch.zeros_like(r)  # a gap of 1e-200 squares to 0


def _spread(r: Tensor, std: str, epsilon: float) -> Tensor:
    if std == "none":
        return torch.ones((), dtype=r.dtype, device=r.device)
    return r.std(correction=1 if std == "sample" else 0) + epsilon
