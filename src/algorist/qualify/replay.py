"""d_t = log pi_trainer(y_t) - log mu(y_t) of stored tokens: the policy that is trained must be the one that sampled.

Statistics over all tokens, by position in the response and by class of token; what is wrong, where something is, is
named in `qualify.diagnose`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from algorist.digest import JSON
from algorist.train.rows import Rows
from algorist.train.trainer import Difference, gate_value

_FEW = 6
"""Fewest tokens that a tilt is read from, each counted by its weight."""
_EDGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a contract promises about the differences.

    >>> Bound(statistic="mean", nats=0.02).statistic
    'mean'
    """

    statistic: str
    """mean, p99 or max of |d_t|."""
    nats: float
    """Its largest allowed value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What one replay found."""

    difference: Difference
    """Over all trained tokens."""
    by_position: Mapping[str, float]
    """'8-15' -> mean |d_t| in nats of the tokens at these places of their responses."""
    by_class: Mapping[str, float]
    """digit, letter, space, sign, special -> mean |d_t| in nats."""
    gaps: Float[Tensor, "B T"]
    """d_t, 0 outside the mask."""
    mask: Bool[Tensor, "B T"]
    """Tokens that were compared."""

    def over(self, bounds: Sequence[Bound]) -> list[Bound]:
        """The bounds that do not hold; a difference that is not a number holds none."""
        return [b for b in bounds if not gate_value(self.difference, b.statistic) <= b.nats]

    def payload(self) -> dict[str, JSON]:
        """What the ledger keeps."""
        return {
            "mean_nats": self.difference.mean_nats,
            "p99_nats": self.difference.p99_nats,
            "max_nats": self.difference.max_nats,
            "tokens": self.difference.num_tokens,
            "by_position": dict(self.by_position),
            "by_class": dict(self.by_class),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a single token, or the mean over one response, may be off; None: not looked at.

    A mean over a batch hides one wrong row among hundreds. Rounding moves single tokens by up to 1e-4 nats in float32,
    and by up to 0.2 in bfloat16 (measured), so that there only a whole response tells.
    """

    token_nats: float | None
    row_nats: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """The worst token or response, where it lies above its limit."""

    what: str
    """token or response."""
    nats: float
    limit: float


def outlier(found: Replay, limits: Limits) -> Outlier | None:
    """The first limit that does not hold; a difference that is not a number holds none."""
    if limits.token_nats is not None and not found.difference.max_nats <= limits.token_nats:
        return Outlier(what="token", nats=found.difference.max_nats, limit=limits.token_nats)
    if limits.row_nats is not None:
        mean = found.gaps.abs().sum(1) / found.mask.sum(1).clamp(min=1)
        worst = float(mean.max()) if len(mean) else 0.0
        if not worst <= limits.row_nats:
            return Outlier(what="response", nats=worst, limit=limits.row_nats)
    return None


def tilt(found: Replay, logp: Float[Tensor, "B T"], entropy: Float[Tensor, "B T"]) -> tuple[float, float]:
    """(ratio, certainty) of another temperature that the differences look like; (1, 0) where there is nothing to tell from.

    d log p_T(y) / d ln T = -(log p_T(y) + H), so stored - trained = ln(T_stored / T_trained) times that, plus rounding. A tilt
    far below the bound on the mean is certain after a few hundred tokens, as rounding has no direction. certainty: of
    ln(ratio), in standard errors that hold where surprising tokens are rounded worse than sure ones (HC3, MacKinnon and
    White 1985). A few surprising tokens among sure ones tell nothing.

    >>> tilt(Replay(difference=Difference.of(torch.zeros(1)), by_position={}, by_class={}, gaps=torch.zeros(1, 1),
    ...             mask=torch.ones(1, 1, dtype=torch.bool)), -torch.ones(1, 1), torch.ones(1, 1))
    (1.0, 0.0)
    """
    slope = -(logp + entropy)[found.mask].double()
    size = float(slope @ slope)
    if size <= 0 or size**2 / float(slope.pow(4).sum()) < _FEW:
        return 1.0, 0.0
    off = -found.gaps[found.mask].double()
    log_ratio = float(slope @ off) / size
    rest = (off - log_ratio * slope) / (1 - slope**2 / size)
    error = float((slope * rest).norm()) / size
    return math.exp(log_ratio), abs(log_ratio) / max(error, 1e-12)


def measure(
    rows: Rows, logp: Float[Tensor, "B T"], classes: Sequence[str] = (), *, mask: Bool[Tensor, "B T"] | None = None
) -> Replay:
    """Compare the trainer's log-probabilities of stored tokens with the stored ones.

    classes: [V] class of each token id, from `token_classes`; empty: not told apart. mask: the tokens compared; all.
    """
    mask = rows.mask if mask is None else mask
    gaps = torch.where(mask, logp - rows.behaviour, torch.zeros(()))
    size = gaps.abs()
    positions: dict[str, float] = {}
    place = torch.arange(mask.shape[1]).expand_as(mask)
    for low, high in zip(_EDGES, (*_EDGES[1:], 2**31), strict=True):
        inside = mask & (place >= low) & (place < high)
        if inside.any():
            name = str(low) if high == low + 1 else f"{low}-{high - 1}" if high < 2**31 else f"{low}-"
            positions[name] = float(size[inside].double().mean())
    return Replay(
        difference=Difference.of(gaps[mask]),
        by_position=positions,
        by_class=_by_class(rows, size, classes) if classes else {},
        gaps=gaps,
        mask=mask,
    )


def _by_class(rows: Rows, size: Float[Tensor, "B T"], classes: Sequence[str]) -> dict[str, float]:
    sums: dict[str, list[float]] = {}
    for b, (_, response) in enumerate(rows.tokens):
        values, kept = size[b].tolist(), rows.mask[b].tolist()
        for t, token in enumerate(response):
            if kept[t]:
                sums.setdefault(classes[token] if token < len(classes) else "special", []).append(values[t])
    return {name: sum(values) / len(values) for name, values in sorted(sums.items())}


def token_classes(texts: Sequence[str], special: Sequence[int]) -> list[str]:
    """digit, letter, space, sign or special for each token, by its text.

    >>> token_classes(["<eos>", "42", " the", "\\n", "+="], special=[0])
    ['special', 'digit', 'letter', 'space', 'sign']
    """
    result = []
    for i, text in enumerate(texts):
        bare = text.strip()
        if i in special:
            result.append("special")
        elif not bare:
            result.append("space")
        elif any(c.isdigit() for c in bare):
            result.append("digit")
        elif any(c.isalpha() for c in bare):
            result.append("letter")
        else:
            result.append("sign")
    return result


def worst_rows(replay: Replay, mask: Bool[Tensor, "B T"], count: int) -> list[int]:
    """Rows with the largest mean |d_t|, worst first; a row whose difference is not a number is the worst."""
    size = torch.where(mask, replay.gaps.abs(), torch.zeros(()))
    mean = size.sum(1) / mask.sum(1).clamp(min=1)
    mean = torch.where(mask.any(1), torch.nan_to_num(mean, nan=torch.inf, posinf=torch.inf), -torch.ones(()))
    order = mean.argsort(descending=True, stable=True).tolist()
    return [b for b in order if mean[b] >= 0][:count]
