"""Are the tokens those that their seeds draw? A sampler that stores right log-probabilities of wrong draws passes a replay.

The engine promises y_t = min{v : F_t(v) > u_t}, u_t the t-th number of the row's own stream (`rollout.local.sample`), so under
the policy that is trained every stored token must satisfy F_t(y_t - 1) <= u_t < F_t(y_t), up to rounding. What does not was
drawn from another distribution (temperature, top-p or top-k in the draw alone), selected, or put there afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from algorist.digest import JSON
from algorist.flow import Rollout
from algorist.policy.model import CausalPolicy
from algorist.qualify.naive import Variant, response_logits, variant_logp

_SLACK = {"float32": 2e-3, "bfloat16": 0.15}
"""Most probability by which rounding moves the edge of a draw (measured: 1e-5, and 0.03 in bfloat16)."""
_SHARE = {"float32": 0.0, "bfloat16": 0.01}
"""Share of draws that may lie further off all the same."""
_ROWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What was found of some tokens."""

    tokens: int
    """Tokens looked at."""
    off: int
    """Draws that lie outside their interval by more than rounding."""
    rows: tuple[int, ...]
    """Rows that hold them, most first."""
    allowed: float
    """Share that may."""

    @property
    def broken(self) -> bool:
        """True where more tokens than allowed are not what their seeds draw."""
        return self.off > self.allowed * self.tokens

    def payload(self) -> dict[str, JSON]:
        """What the ledger keeps."""
        return {"tokens": self.tokens, "off": self.off}


def check(
    rollouts: Sequence[Rollout],
    logp: Float[Tensor, "B T"],
    below: Float[Tensor, "B T"],
    scored: Bool[Tensor, "B T"],
    *,
    dtype: str,
) -> Draws:
    """Hold each draw against the interval [below, below + exp(logp)] that the policy gives its token."""
    u = uniforms(rollouts, logp.shape[1])
    distance = torch.maximum(below - u, u - (below + logp.exp()))
    off = scored & ~(distance <= _SLACK[dtype])
    by_row = off.sum(1)
    order = by_row.argsort(descending=True, stable=True).tolist()
    rows = tuple(b for b in order if by_row[b] > 0)
    return Draws(tokens=int(scored.sum()), off=int(off.sum()), rows=rows, allowed=_SHARE[dtype])


def uniforms(rollouts: Sequence[Rollout], num_tokens: int) -> Float[Tensor, "B T"]:
    """u_t of each row, as its seed gives them."""
    rows = [np.random.Generator(np.random.Philox(key=r.seed)).random(num_tokens) for r in rollouts]
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, num_tokens, dtype=torch.float64)


def explain(policy: CausalPolicy, rollouts: Sequence[Rollout], found: Draws, temperature: float) -> tuple[str, str]:
    """(cause, remedy) in words: the distribution that would have drawn these tokens, where one does."""
    chosen = [rollouts[b] for b in found.rows[:_ROWS]]
    tried = {
        **{f"temperature {t:g}": Variant(temperature=t) for t in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0) if t != temperature},
        **{f"top-p {p:g}": Variant(temperature=temperature, top_p=p) for p in (0.5, 0.8, 0.9, 0.95, 0.99)},
        **{f"top-k {k}": Variant(temperature=temperature, top_k=k) for k in (1, 2, 5, 10, 20, 50)},
    }  # fmt: skip
    names = {1: "the likeliest token (greedy)"}
    for name, variant in tried.items():
        if _share_off(policy, chosen, variant) <= found.allowed:
            drawn = names.get(variant.top_k or 0, f"draws of {name}")
            return (
                f"they are {drawn}, while the log-probabilities are those of temperature {temperature:g}",
                "Draw from the distribution whose log-probabilities are stored: apply temperature and masks to both.",
            )
    return (
        "no other temperature, top-p or top-k draws them either: rows were selected, copied or replaced after sampling, or the "
        "engine uses other random numbers than its seeds give",
        "Keep what was drawn, once, for every row; filter rewards, never rollouts.",
    )


@torch.no_grad()
def _share_off(policy: CausalPolicy, rollouts: Sequence[Rollout], variant: Variant) -> float:
    off = tokens = 0
    for r in rollouts:
        logp = variant_logp(response_logits(policy, r.prompt_ids, r.token_ids, variant), variant).double()
        upto = logp.exp().cumsum(-1)
        index = torch.tensor([list(r.token_ids)], device=logp.device).T
        high = upto.gather(-1, index).squeeze(-1).cpu()
        low = high - logp.gather(-1, index).squeeze(-1).exp().cpu()
        u = uniforms([r], len(r.token_ids))[0]
        off += int((~(torch.maximum(low - u, u - high) <= _SLACK[policy.dtype])).sum())
        tokens += len(r.token_ids)
    return off / max(1, tokens)
