"""Random batches, every variant of every method, and naive losses in plain floats to differentiate by hand."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from algorist import paper
from algorist.objective import reduce
from algorist.objective.config import parse
from algorist.objective.knobs import Objective
from algorist.objective.registry import METHODS
from algorist.objective.spec import Credit, CreditInput, Method, TokenBatch

torch.set_num_threads(1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A random batch with the credit a method gives it, in float64."""

    method: Method
    cfg: Objective
    rows: CreditInput
    credit: Credit
    tokens: TokenBatch
    weight: Tensor

    def loss(self, logp: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        part = replace(self.tokens, logp=logp)
        return (self.method.loss(select(part, rows), self.cfg) * self.weight[rows]).sum()

    def gradient(self) -> Tensor:
        logp = self.tokens.logp.detach().clone().requires_grad_()
        return torch.autograd.grad(self.loss(logp), logp)[0]


def select(batch: TokenBatch, rows: slice | Tensor) -> TokenBatch:
    """Some rows of a batch."""
    fields = {name: getattr(batch, name) for name in TokenBatch.__slots__}
    return TokenBatch(**{name: x if x is None else x[rows] for name, x in fields.items()})


def make_rows(seed: int, *, P: int = 3, G: int = 4, T: int = 5, holes: bool = True) -> CreditInput:
    """Interleaved groups of uneven rewards; every row has a trained token, lengths differ."""
    g = torch.Generator().manual_seed(seed)
    B = P * G
    lengths = torch.randint(1, T + 1, (B,), generator=g)
    mask = torch.arange(T) < lengths[:, None]
    if holes:
        mask = mask & ((torch.rand(B, T, generator=g) > 0.2) | (torch.arange(T) == 0))
    rewards = torch.rand(B, generator=g, dtype=torch.float64)
    rewards[:P], rewards[-P:] = 0.9, 0.1  # every group has a right and a wrong answer
    K = 3
    step_ends = torch.sort(torch.randint(0, T, (B, K), generator=g)).values
    step_ends[torch.rand(B, K, generator=g) > 0.7] = -1

    def logp() -> Tensor:
        return -2 * torch.rand(B, T, generator=g, dtype=torch.float64)

    return CreditInput(
        rewards=rewards,
        group=torch.arange(B) % P,
        mask=mask,
        truncated=torch.rand(B, generator=g) > 0.8,
        logp_old=logp(),
        logp_ref=logp(),
        value=torch.randn(B, T, generator=g, dtype=torch.float64),
        step_ends=step_ends,
        step_rewards=torch.rand(B, K, generator=g, dtype=torch.float64),
        quality=0.5 + torch.rand(B, generator=g, dtype=torch.float64) / 2,
    )


def make_case(cfg: Objective, seed: int, *, drift: float = 0.3, **shape: Any) -> Case:
    """Rows, their credit, and a current policy `drift` nats away from the old one (0: on policy)."""
    method = METHODS[cfg.name]  # type: ignore[attr-defined]
    rows = make_rows(seed, **shape)
    credit = method.credit(rows, cfg)
    g = torch.Generator().manual_seed(seed + 1)
    assert rows.logp_old is not None
    assert rows.value is not None

    def near(x: Tensor, by: float) -> Tensor:
        return x + by * torch.randn(x.shape, generator=g, dtype=torch.float64)

    tokens = TokenBatch(
        logp=near(rows.logp_old, drift),
        logp_old=rows.logp_old,
        logp_behaviour=near(rows.logp_old, drift),
        logp_ref=rows.logp_ref,
        advantage=credit.advantage.double(),
        mask=credit.mask,
        value=near(rows.value, 0.5),
        value_old=rows.value,
        returns=None if credit.returns is None else credit.returns.double(),
        pair=credit.pair,
    )
    weight = reduce.weights_of(cfg, credit, rows.group, dtype=torch.float64)
    return Case(method=method, cfg=cfg, rows=rows, credit=credit, tokens=tokens, weight=weight)


def default(name: str, **keys: Any) -> Objective:
    """The smallest recipe entry of a method, with some keys changed."""
    return parse({"name": name, **METHODS[name].example, **keys})


KNOBS: tuple[dict[str, Any], ...] = (
    {},
    *({"reduction": kind} for kind in ("sequence_mean", "token_mean", "group_token_mean")),
    {"reduction": "constant", "reduction_constant": 7},
    {"reduction_rows": "nonempty"},
    {"reduction_rows": "all"},
    {"mask_truncated": True},
    *({"beta": 0.3, "kl": kind, "kl_place": "loss"} for kind in ("k1", "k2", "k3", "k3_plus", "k3_importance")),
    {"beta": 0.3, "kl": "k2", "kl_place": "loss", "kl_clamp": 0.1},
    *({"beta": 0.3, "kl": kind, "kl_place": "reward"} for kind in ("k1", "k2", "k3")),
    *({"std": kind, "std_epsilon": 1e-4} for kind in ("sample", "leave_one_out", "none")),
    {"flat_groups": "drop"},
    {"redistribution": {}},
    {"dual_clip": 1.1},
    {"log_ratio_clamp": 0.2},
    *({"ratio": level} for level in ("token", "geometric", "product")),
    {"ratio": "token", "log_ratio_clamp": 0.2},
    {"ratio": "product", "clip": 0.2},
    {"correction": {"kind": "truncate", "high": 1.1, "low": 0.9}},
    *({"correction": {"kind": "truncate", "level": level, "high": 1.1}} for level in ("geometric", "product")),
    *(
        {"correction": {"kind": "mask", "level": "geometric", "carry": carry, "low": 0.8, "high": 1.2}}
        for carry in ("level", "token", "one")
    ),
    {"correction": {"veto": 0.6}},
    {"whiten": "sample"},
    {"baseline": "batch_mean"},
    {"wrong_rows": "drop"},
    {"length": "sum"},
    {"holes": "zero"},
    {"value_clip": 0.1},
)


def variants() -> Iterator[Objective]:
    """Every method with every knob it has, one at a time."""
    from pydantic import ValidationError

    for name in METHODS:
        for keys in KNOBS:
            base = dict(METHODS[name].example)
            if "reduction" in keys:
                base.pop("reduction_constant", None)
            try:
                yield parse({"name": name, **base, **keys})
            except ValidationError:
                continue  # this method does not have the knob


def label(cfg: Objective) -> str:
    """A readable test id: what differs from the smallest entry."""
    base = default(cfg.name).model_dump()  # type: ignore[attr-defined]
    changed = {k: v for k, v in cfg.model_dump().items() if v != base[k]}
    return f"{cfg.name}-{changed}" if changed else cfg.name  # type: ignore[attr-defined]


# -- naive losses: what each method minimises, in plain floats, of nested lists of the trained tokens only


def ragged(x: Tensor, mask: Tensor) -> list[list[float]]:
    """Trained tokens of each row."""
    return [row[m].tolist() for row, m in zip(x, mask, strict=True)]


def naive_loss(case: Case, logp: list[list[float]]) -> float:
    """The printed objective of the method under its default settings, negated."""
    mask, b = case.tokens.mask, case.tokens
    old, ref, adv = (ragged(x, mask) for x in (b.logp_old, b.logp_ref, b.advantage))  # type: ignore[arg-type]
    start = ragged(b.logp.detach(), mask)
    return NAIVE[case.method.name](case.cfg, logp, start, old, ref, adv, case)


def _ratios(logp: list[list[float]], old: list[list[float]]) -> list[list[float]]:
    return [[math.exp(p - q) for p, q in zip(x, y, strict=True)] for x, y in zip(logp, old, strict=True)]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _imitate(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    return -_mean([paper.eq_8(p, a[0] == 1.0) for p, a in zip(logp, adv, strict=True)])


def _dpo(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    assert case.tokens.pair is not None
    pair = case.tokens.pair.tolist()
    total = []
    for number in range(max(pair) + 1):
        i, j = (k for k, p in enumerate(pair) if p == number)
        good, bad = (i, j) if adv[i][0] > 0 else (j, i)
        total.append(paper.eq_12(logp[good], ref[good], logp[bad], ref[bad], cfg.beta))
    return -_mean(total)


def _ppo(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    return -_mean([paper.eq_1(r, a, cfg.clip_low) for r, a in zip(_ratios(logp, old), adv, strict=True)])


def _grpo(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    kls = [[paper.eq_4(p, q) for p, q in zip(x, y, strict=True)] for x, y in zip(logp, ref, strict=True)]
    return -paper.eq_3(_ratios(logp, old), adv, kls, cfg.clip_low, cfg.beta)


def _score_function(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    terms = [a * p for x, y in zip(logp, adv, strict=True) for p, a in zip(x, y, strict=True)]
    return -_mean(terms)


def _clip_terms(cfg: Any, logp: Any, old: Any, adv: Any) -> list[float]:
    return [
        min(r * a, paper.clip(r, 1 - cfg.clip_low, 1 + cfg.clip_high) * a)
        for x, y in zip(_ratios(logp, old), adv, strict=True)
        for r, a in zip(x, y, strict=True)
    ]


def _dr_grpo(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    return -sum(_clip_terms(cfg, logp, old, adv)) / (len(logp) * cfg.reduction_constant)


def _dapo(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    return -_mean(_clip_terms(cfg, logp, old, adv))


def _gspo(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    total = []
    for x, y, a in zip(logp, old, adv, strict=True):
        s = math.exp(_mean([p - q for p, q in zip(x, y, strict=True)]))
        total.append(min(s * a[0], paper.clip(s, 1 - cfg.clip_low, 1 + cfg.clip_high) * a[0]))
    return -_mean(total)


def _cispo(cfg: Any, logp: Any, start: Any, old: Any, ref: Any, adv: Any, case: Case) -> float:
    terms = [
        paper.clip(r, 1 - cfg.clip_low, 1 + cfg.clip_high) * a * p
        for x, y, z in zip(_ratios(start, old), adv, logp, strict=True)
        for r, a, p in zip(x, y, z, strict=True)
    ]
    return -_mean(terms)


NAIVE: dict[str, Callable[..., float]] = {
    "sft": _imitate,
    "rft": _imitate,
    "online_rft": _imitate,
    "dpo": _dpo,
    "ppo": _ppo,
    "grpo": _grpo,
    "grpo_process": _grpo,
    "rloo": _score_function,
    "reinforce": _score_function,
    "dr_grpo": _dr_grpo,
    "dapo": _dapo,
    "gspo": _gspo,
    "cispo": _cispo,
}


@pytest.fixture(scope="session")
def bench() -> Any:
    """This module, for the tests beside it."""
    import sys

    return sys.modules[__name__]
