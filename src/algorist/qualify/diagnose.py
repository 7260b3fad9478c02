"""Why sampler and trainer disagree: every usual fault is tried out on the worst rows; the one that explains them is named.

A fault is a hypothesis with its own way of scoring. It is accepted where it leaves less than a quarter of the difference
and no more than rounding explains, so that a coincidence does not get a name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from algorist.policy.model import CausalPolicy
from algorist.qualify.naive import Variant, token_logp
from algorist.qualify.replay import Replay, worst_rows
from algorist.train.rows import Rows

_ROWS = 8
_ACCEPT = 0.25
_CLOSE = {"float32": 0.01, "bfloat16": 0.08}
"""Most nats per token that a right explanation leaves: rounding, which bfloat16 has more of."""
_TOP_P = (0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Large ones first: of two that explain equally well the larger is named."""
_TOP_K = (1, 5, 10, 20, 40, 50, 100)
_TEMPERATURES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A named fault.

    >>> Cause(code="shift", words="w", remedy="r", residual_nats=0.0).code
    'shift'
    """

    code: str
    """temperature, top_p, top_k, shift, prompt, half_head, half_compute, stale, retokenised, unknown."""
    words: str
    """What is wrong, in words."""
    remedy: str
    """What to do."""
    residual_nats: float
    """Mean |difference| of the worst rows that this fault leaves unexplained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """Weights that the run had before, to see whether the sampler still uses them."""

    name: str
    load: Callable[[], CausalPolicy]
    """Called only when everything cheaper failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One of the worst rows."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    behaviour: Tensor
    """[T]"""
    mask: Tensor
    """[T]"""


def diagnose(
    policy: CausalPolicy,
    rows: Rows,
    replay: Replay,
    *,
    temperature: float,
    prompts: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
    older: Iterable[Older] = (),
) -> Cause:
    """The fault that explains the differences best, cheapest hypotheses first.

    prompts: name of another way of writing the prompt -> the prompt ids it gives for each row of the batch.
    """
    chosen = worst_rows(replay, rows.mask, _ROWS)
    cases = [_case(rows, b) for b in chosen]
    own = _residual(cases, [token_logp(policy, c.prompt, c.response, Variant(temperature=temperature)) for c in cases])
    close = _CLOSE[policy.dtype]

    def explains(cause: Cause) -> bool:
        return cause.residual_nats < min(_ACCEPT * own, close)

    for group in (_scoring(policy, cases, temperature), _shifts(policy, cases, temperature)):
        best = min(group, key=lambda cause: round(cause.residual_nats, 5))
        if explains(best):
            return best
    found = _prompts(policy, cases, chosen, temperature, prompts or {})
    for weights in older:
        found.append(_stale(weights, cases, temperature))
    if found:
        best = min(found, key=lambda cause: round(cause.residual_nats, 5))
        if explains(best):
            return best
    if partly := _part_agrees(rows, replay, _CLOSE[policy.dtype]):
        return partly
    return Cause(
        code="unknown",
        words="no usual fault (temperature, top-p, top-k, shift, prompt, precision, older weights, other tokens) explains it; "
        "sampler and trainer do not hold the same policy",
        remedy="Compare the two weights digests and the software versions of sampler and trainer.",
        residual_nats=own,
    )


def _case(rows: Rows, b: int) -> _Case:
    prompt, response = rows.tokens[b]
    T = len(response)
    return _Case(prompt=tuple(prompt), response=tuple(response), behaviour=rows.behaviour[b, :T], mask=rows.mask[b, :T])


def _residual(cases: Sequence[_Case], scored: Sequence[Tensor]) -> float:
    gaps = [(logp - c.behaviour)[c.mask].abs() for c, logp in zip(cases, scored, strict=True)]
    joined = torch.cat(gaps).double() if gaps else torch.zeros(0, dtype=torch.float64)
    return float(torch.nan_to_num(joined, nan=torch.inf, posinf=torch.inf).mean()) if len(joined) else 0.0


def _scoring(policy: CausalPolicy, cases: Sequence[_Case], temperature: float) -> list[Cause]:
    """Another distribution over the same tokens: temperature, masks, precision."""

    def tried(variant: Variant) -> float:
        return _residual(cases, [token_logp(policy, c.prompt, c.response, variant) for c in cases])

    causes = []
    for t in dict.fromkeys((1.0, *_TEMPERATURES)):
        if t != temperature:
            words = (
                f"the sampler's log-probabilities are those of temperature {t:g}, the trainer scores at {temperature:g}: "
                "the temperature is not applied on one side"
            )
            remedy = "Store log-probabilities of the distribution that was really sampled (logits / temperature)."
            causes.append(
                Cause(code="temperature", words=words, remedy=remedy, residual_nats=tried(Variant(temperature=t)))
            )
    for p in _TOP_P:
        words = (
            f"the sampler kept the top-p mass of {p:g} only, the trainer scores over all tokens: the mask is missing"
        )
        remedy = "Set rl.sampling.top_p to 1, or apply the sampler's mask when scoring."
        variant = Variant(temperature=temperature, top_p=p)
        causes.append(Cause(code="top_p", words=words, remedy=remedy, residual_nats=tried(variant)))
    for k in _TOP_K:
        words = (
            f"the sampler kept the {k} likeliest tokens only, the trainer scores over all tokens: the mask is missing"
        )
        variant = Variant(temperature=temperature, top_k=k)
        causes.append(
            Cause(code="top_k", words=words, remedy="Switch top-k off in the sampler.", residual_nats=tried(variant))
        )
    head = Variant(temperature=temperature, head=torch.bfloat16)
    words = "the sampler computed its output head in bfloat16, which alone moves log-probabilities by about 0.03 nats"
    remedy = "Compute the head in float32 on both sides."
    causes.append(Cause(code="half_head", words=words, remedy=remedy, residual_nats=tried(head)))
    if policy.dtype == "float32":
        words = "the sampler computed in bfloat16, the contract says float32"
        remedy = "Set policy.dtype to bfloat16 on both sides, or the sampler to float32."
        for variant in (
            Variant(temperature=temperature, compute=torch.bfloat16),
            Variant(temperature=temperature, compute=torch.bfloat16, head=torch.bfloat16),
        ):
            causes.append(Cause(code="half_compute", words=words, remedy=remedy, residual_nats=tried(variant)))
    return causes


def _shifts(policy: CausalPolicy, cases: Sequence[_Case], temperature: float) -> list[Cause]:
    """The stored values belong to the neighbouring token."""
    causes = []
    scored = [token_logp(policy, c.prompt, c.response, Variant(temperature=temperature)) for c in cases]
    for step, side in ((1, "next"), (-1, "previous")):
        gaps = []
        for case, logp in zip(cases, scored, strict=True):
            if len(logp) < 2:
                continue
            a, b = (logp[1:], case.behaviour[:-1]) if step == 1 else (logp[:-1], case.behaviour[1:])
            keep = case.mask[:-1] & case.mask[1:]
            gaps.append((a - b)[keep].abs())
        residual = float(torch.cat(gaps).double().mean()) if gaps and sum(len(g) for g in gaps) else float("inf")
        words = f"every stored log-probability belongs to the {side} token: the two sides are shifted by one"
        remedy = "The logits at position t - 1 score the token at position t; align both sides to that."
        causes.append(Cause(code="shift", words=words, remedy=remedy, residual_nats=residual))
    return causes


def _prompts(
    policy: CausalPolicy,
    cases: Sequence[_Case],
    chosen: Sequence[int],
    temperature: float,
    prompts: Mapping[str, Sequence[tuple[int, ...]]],
) -> list[Cause]:
    """The sampler saw another prompt than the stored one."""
    variant, causes = Variant(temperature=temperature), []
    for name, by_row in prompts.items():
        others = [by_row[b] for b in chosen]
        if any(not other for other in others) or all(o == c.prompt for o, c in zip(others, cases, strict=True)):
            continue
        scored = [token_logp(policy, o, c.response, variant) for o, c in zip(others, cases, strict=True)]
        words = f"the responses fit another prompt than the stored one ({name}): sampler and trainer use different templates"
        remedy = "Render prompts once, and hand the same token ids to both sides."
        causes.append(Cause(code="prompt", words=words, remedy=remedy, residual_nats=_residual(cases, scored)))
    return causes


def _stale(older: Older, cases: Sequence[_Case], temperature: float) -> Cause:
    policy, variant = older.load(), Variant(temperature=temperature)
    residual = _residual(cases, [token_logp(policy, c.prompt, c.response, variant) for c in cases])
    words = f"the sampler still uses the weights of {older.name}: an update did not reach it"
    remedy = "Publish weights to the sampler after every update, and drop its prefix cache."
    return Cause(code="stale", words=words, remedy=remedy, residual_nats=residual)


def _part_agrees(rows: Rows, replay: Replay, close: float) -> Cause | None:
    """Part of the responses agree to the last token, others do not: their tokens are not those that were sampled."""
    exact = wrong = late = 0
    for b in range(len(rows.tokens)):
        if not rows.mask[b].any():
            continue
        off = ~(replay.gaps[b][rows.mask[b]].abs() <= close)
        exact += int(not off.any())
        wrong += int(off.any())
        late += int(off.any() and not off[0])
    if not wrong or exact < 0.2 * (exact + wrong):
        return None
    return Cause(
        code="retokenised",
        words=f"{exact} responses agree to the last token, {wrong} do not ({late} of them agree at first): their stored tokens are "
        "not those that were sampled, as after encoding the text again, or other weights sampled them",
        remedy="Store the sampled token ids; text is derived from them and never encoded again.",
        residual_nats=replay.difference.mean_nats,
    )
