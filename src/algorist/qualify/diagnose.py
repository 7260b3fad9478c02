"""Why sampler and trainer disagree: every usual fault is tried out on the worst rows; the one that explains them is named.

A fault is a hypothesis with its own way of scoring. It is accepted where it leaves less than a quarter of the difference
and no more than rounding explains, so that a coincidence does not get a name. A plain forward pass is the third opinion: it
says which of the two sides is wrong.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from algorist.policy.model import CausalPolicy
from algorist.qualify.naive import Variant, response_logits, token_logp, variant_logp
from algorist.qualify.replay import Replay, worst_rows
from algorist.train.rows import Rows

_ROWS, _TOKENS = 8, 256
"""Worst rows that are looked at, and how far into each: their logits are kept."""
_ACCEPT, _SURE = 0.25, 0.01
"""Share of the difference that an explanation may leave; below the second nothing better is looked for."""
_CLOSE = {"float32": 0.01, "bfloat16": 0.08}
"""Most nats per token that a right explanation leaves: rounding, which bfloat16 has more of."""
_EQUAL = {"float32": 1e-3, "bfloat16": 0.08}
"""A token that agrees."""
_TOP_P = (0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Large ones first: of two that explain equally well the larger is named."""
_TOP_K = (1, 2, 3, 5, 10, 20, 40, 50, 100)
_TEMPERATURES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 2.0, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A named fault.

    >>> Cause(code="shift", words="w", remedy="r", residual_nats=0.0).code
    'shift'
    """

    code: str
    """temperature, top_p, half_head, shift, rows, prompt, stale, cache, precision, changed_rows, unknown, ..."""
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

    row: int
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    values: Tensor
    """[T] the log-probabilities to be explained: the stored ones, or the trainer's where those are the odd ones."""
    mask: Tensor
    """[T]"""
    logits: Tensor
    """[T, V] of a plain forward pass."""

    def plain(self, variant: Variant) -> Tensor:
        """[T] log-probabilities of the plain pass under another distribution."""
        index = torch.tensor([list(self.response)], device=self.logits.device).T
        return variant_logp(self.logits, variant).gather(-1, index).squeeze(-1).float().cpu()


def diagnose(
    policy: CausalPolicy,
    rows: Rows,
    replay: Replay,
    *,
    temperature: float,
    scored_at: float | None = None,
    prompts: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
    older: Iterable[Older] = (),
    names: Sequence[str] = (),
) -> Cause:
    """The fault that explains the differences best, cheapest hypotheses first.

    temperature: of the recipe; scored_at: what the trainer uses. prompts: name of another way of writing the prompt -> the
    prompt ids it gives for each row of the batch. names: of the rows, for people.
    """
    plain_reasons = list(_at_once(policy, replay, temperature, scored_at))
    if plain_reasons:
        return plain_reasons[0]
    chosen = worst_rows(replay, replay.mask, _ROWS)
    cases = [_case(policy, rows, replay, b) for b in chosen]
    own = _residual(cases, [c.plain(Variant(temperature=temperature)) for c in cases])
    close = _CLOSE[policy.dtype]
    side = "sampler"
    if own < min(_ACCEPT * _size(replay, chosen), close):  # the plain pass takes the sampler's side: the trainer is odd
        side = "trainer"
        cases = [replace(c, values=c.values + replay.gaps[c.row, : len(c.response)]) for c in cases]
        own = _residual(cases, [c.plain(Variant(temperature=temperature)) for c in cases])

    def explains(cause: Cause) -> bool:
        return cause.residual_nats < min(_ACCEPT * own, close)

    groups: tuple[Callable[[], list[Cause]], ...] = (
        lambda: _scoring(policy, cases, temperature, side),
        lambda: _values(cases, temperature, side),
        lambda: _others(rows, replay, cases, side),
        lambda: _prompts(policy, cases, temperature, prompts or {}) if side == "sampler" else [],
        lambda: [_stale(weights, cases, temperature) for weights in older] if side == "sampler" else [],
    )
    found: list[Cause] = []
    for group in groups:
        found += [cause for cause in group() if explains(cause)]
        if any(cause.residual_nats < _SURE * own for cause in found):
            break  # what comes after costs more
    if found:
        best = min(found, key=lambda cause: round(cause.residual_nats, 5))
        return replace(best, words=f"{best.words}{_part(replay, policy.dtype)}")
    cause = _pattern(replay, policy.dtype, side) or _unknown(own, side)
    return replace(cause, words=f"{cause.words}{_where(rows, replay, chosen, names)}")


def _at_once(policy: CausalPolicy, replay: Replay, temperature: float, scored_at: float | None) -> Iterator[Cause]:
    """What needs no trying out."""
    if policy.model.training:
        yield Cause(
            code="mode",
            words="the policy is in training mode, so that dropout changes every pass",
            remedy="Call model.eval() and leave it so; sampling and scoring must be repeatable.",
            residual_nats=0.0,
        )
    if scored_at is not None and not math.isclose(scored_at, temperature):
        yield Cause(
            code="temperature",
            words=f"the trainer scores at temperature {scored_at:g}, the recipe samples at temperature {temperature:g}: the "
            "temperature is not applied on one side",
            remedy="Score at rl.sampling.temperature.",
            residual_nats=0.0,
        )
    if not bool(torch.isfinite(replay.gaps[replay.mask]).all()):
        yield Cause(
            code="nonfinite",
            words="log-probabilities are not numbers on one side",
            remedy="Look for weights that are not finite, and for a mask that leaves no token.",
            residual_nats=math.inf,
        )


def _case(policy: CausalPolicy, rows: Rows, replay: Replay, b: int) -> _Case:
    prompt, response = rows.tokens[b]
    T = min(len(response), _TOKENS)
    logits = response_logits(policy, prompt, response[:T], Variant())
    return _Case(
        row=b, prompt=tuple(prompt), response=tuple(response[:T]), values=rows.behaviour[b, :T], mask=replay.mask[b, :T], logits=logits
    )  # fmt: skip


def _residual(cases: Sequence[_Case], scored: Sequence[Tensor]) -> float:
    gaps = [(logp - c.values)[c.mask].abs() for c, logp in zip(cases, scored, strict=True)]
    joined = torch.cat(gaps).double() if gaps else torch.zeros(0, dtype=torch.float64)
    return float(torch.nan_to_num(joined, nan=torch.inf, posinf=torch.inf).mean()) if len(joined) else 0.0


def _size(replay: Replay, chosen: Sequence[int]) -> float:
    index = torch.tensor(list(chosen), dtype=torch.int64)
    return float(replay.gaps[index][replay.mask[index]].abs().double().mean()) if chosen else 0.0


# -- hypotheses -----------------------------------------------------------------------------------------------------


def _scoring(policy: CausalPolicy, cases: Sequence[_Case], temperature: float, side: str) -> list[Cause]:
    """Another distribution over the same tokens: temperature, masks, precision."""
    other = {"sampler": "the trainer", "trainer": "the sampler"}[side]

    def tried(variant: Variant) -> float:
        return _residual(cases, [c.plain(variant) for c in cases])

    def passed(variant: Variant) -> float:
        return _residual(cases, [token_logp(policy, c.prompt, c.response, variant) for c in cases])

    best = _best_temperature(lambda t: tried(Variant(temperature=t)))
    causes = [
        Cause(
            code="temperature",
            words=f"the {side}'s log-probabilities are those of temperature {best:.3g}, {other} works at {temperature:g}: the "
            "temperature is not applied on one side, or another one is",
            remedy="Store log-probabilities of the distribution that was really sampled (logits / temperature).",
            residual_nats=tried(Variant(temperature=best)),
        )
    ]
    for name, values in (("top_p", _TOP_P), ("top_k", _TOP_K)):
        for value in values:
            if name == "top_p":
                variant, kept = Variant(temperature=temperature, top_p=value), f"the top-p mass of {value:g} only"
            else:
                variant, kept = Variant(temperature=temperature, top_k=int(value)), f"the {value} likeliest tokens only"
            remedy = "Set rl.sampling.top_p to 1" if name == "top_p" else "Switch top-k off in the sampler"
            causes.append(
                Cause(
                    code=name,
                    words=f"the {side} kept {kept}, {other} scores over all tokens: the mask is missing",
                    remedy=f"{remedy}, or apply the sampler's mask when scoring.",
                    residual_nats=tried(variant),
                )
            )
    precise = [(torch.bfloat16, "bfloat16"), (torch.float16, "float16")]
    for dtype, name in precise:
        causes.append(
            Cause(
                code="half_head",
                words=f"the {side} computed its output head in {name}, which alone moves log-probabilities by about 0.03 nats",
                remedy="Compute the head in float32 on both sides.",
                residual_nats=passed(Variant(temperature=temperature, head=dtype)),
            )
        )
    if policy.dtype == "float32":
        for head in (torch.float32, torch.bfloat16):
            causes.append(
                Cause(
                    code="half_compute",
                    words=f"the {side} computed in bfloat16, the contract says float32",
                    remedy="Set policy.dtype to bfloat16 on both sides, or the sampler to float32.",
                    residual_nats=passed(Variant(temperature=temperature, compute=torch.bfloat16, head=head)),
                )
            )
    return causes


def _best_temperature(residual: Callable[[float], float]) -> float:
    """The grid's best, then closer by halving the distance to its neighbours."""
    best = min(_TEMPERATURES, key=lambda t: round(residual(t), 6))
    if residual(best) < 1e-4:
        return best
    step = 0.1 * best
    while step > 1e-3 * best:
        best = min((best - step, best, best + step), key=residual)
        step /= 2
    return best


def _values(cases: Sequence[_Case], temperature: float, side: str) -> list[Cause]:
    """The right numbers, written down wrongly: shifted, scaled, summed, averaged, constant."""
    scored = [c.plain(Variant(temperature=temperature)) for c in cases]
    logp = torch.cat([s[c.mask] for c, s in zip(cases, scored, strict=True)]).double()
    values = torch.cat([c.values[c.mask] for c in cases]).double()
    scale = float((values @ logp) / (logp @ logp).clamp(min=1e-12))
    offset = float((values - logp).median())
    named = {round(1 / math.log(2), 3): "in bits, not nats", round(1 / math.log(10), 3): "to base 10, not nats"}
    what = named.get(round(scale, 3), f"{scale:.3g} times what they should be")
    equal = float((values - values.median()).abs().max()) < 1e-5  # values that are merely all small are no constant
    store = "Store log p of each drawn token in nats, under the sampling distribution, one value a token."
    tried: list[tuple[str, str, str, float]] = [
        ("units", f"the {side}'s log-probabilities are {what}", store,
         float((values - scale * logp).abs().mean()) if abs(scale) > 1e-3 else math.inf),
        ("offset", f"the {side}'s log-probabilities are off by {offset:.4g} nats at every token", store,
         float((values - logp - offset).abs().mean())),
        ("constant", f"the {side} gives every token the same log-probability ({float(values.median()):.4g})", store,
         0.0 if equal else math.inf),
        ("constant", f"the {side} gives every token the mean of its response", store,
         _residual(cases, [torch.full_like(s, float(s[c.mask].mean())) for c, s in zip(cases, scored, strict=True)])),
        ("units", f"the {side} stores the sum up to each token instead of the token's own log-probability", store,
         _residual(cases, [s.cumsum(0) for s in scored])),
    ]  # fmt: skip
    remedy = "The logits at position t - 1 score the token at position t; align both sides to that."
    for step, neighbour in ((-1, "next"), (1, "previous")):
        gaps = []
        for case, s in zip(cases, scored, strict=True):
            if len(s) > 1:
                a, b = (s[1:], case.values[:-1]) if step == -1 else (s[:-1], case.values[1:])
                gaps.append((a - b)[case.mask[:-1] & case.mask[1:]].abs())
        joined = torch.cat(gaps).double() if gaps else torch.zeros(0)
        words = (
            f"every log-probability of the {side} belongs to the {neighbour} token: the two sides are shifted by one"
        )
        tried.append(("shift", words, remedy, float(joined.mean()) if len(joined) else math.inf))
    return [Cause(code=c, words=w, remedy=r, residual_nats=x) for c, w, r, x in tried]


def _others(rows: Rows, replay: Replay, cases: Sequence[_Case], side: str) -> list[Cause]:
    """The values of each row are those of another row of the batch."""
    trainer = rows.behaviour + replay.gaps
    length = replay.mask.sum(1)
    residuals = []
    for case in cases:
        T = len(case.response)
        same = ((length == length[case.row]) & (torch.arange(len(length)) != case.row)).nonzero().squeeze(1)
        known = trainer if side == "sampler" else rows.behaviour
        gaps = (known[same, :T] - case.values).abs().mean(1)
        residuals.append(float(gaps.min()) if len(gaps) else math.inf)
    worst = max(residuals, default=math.inf)
    return [
        Cause(
            code="rows",
            words=f"the {side}'s log-probabilities are those of other rows of the batch: rows and values are in another order",
            remedy="Keep tokens and log-probabilities of a row together; sort or gather both or none.",
            residual_nats=worst,
        )
    ]


def _prompts(
    policy: CausalPolicy, cases: Sequence[_Case], temperature: float, prompts: Mapping[str, Sequence[tuple[int, ...]]]
) -> list[Cause]:
    """The sampler saw another prompt than the stored one."""
    variant, causes = Variant(temperature=temperature), []
    for name, by_row in prompts.items():
        others = [by_row[c.row] for c in cases]
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


# -- what is left: where the differences lie -------------------------------------------------------------------------


def _pattern(replay: Replay, dtype: str, side: str) -> Cause | None:
    """No hypothesis fits: which tokens are off says something all the same."""
    size, mask = replay.gaps.abs(), replay.mask
    off = mask & ~(size <= _EQUAL[dtype])
    rows_off, rows_with = int(off.any(1).sum()), int(mask.any(1).sum())
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    first = mask & (mask.cumsum(1) == 1)
    long = mask.sum(1) > 1
    residual = replay.difference.mean_nats
    if bool(long.any()) and bool(off.any()) and not bool((off & ~last)[long].any()):
        words = f"only the last token is off in the {side}'s values, the one that ends a response ({rows_off} of {rows_with} of them)"
        remedy = "Score the stop token like every other one; it is part of the response."
        return Cause(code="last_token", words=words, remedy=remedy, residual_nats=residual)
    begins = bool(long.any()) and bool((size[first & long[:, None]] <= 0.1 * _EQUAL[dtype]).all())
    if begins and bool(off.any()):
        words = (
            f"the first token of every response agrees and later ones do not ({rows_off} of {rows_with} responses): the {side} loses "
            "track of what was sampled before, or mixes up later values"
        )
        remedy = "Look at the key-value cache, position ids and attention mask of decoding, and at rows that share a cache line."
        return Cause(code="cache", words=words, remedy=remedy, residual_nats=residual)
    if replay.difference.max_nats < 0.1 and dtype == "float32" and rows_off > 0.5 * rows_with:
        words = (
            f"the differences are small and everywhere (at most {replay.difference.max_nats:.2g} nats): the {side} computes with less "
            "precision or slightly other weights (quantised, half precision, another kernel, scaled logits)"
        )
        remedy = "Compare dtype, quantisation and weights digest of sampler and trainer."
        return Cause(code="precision", words=words, remedy=remedy, residual_nats=residual)
    if rows_off <= 0.8 * rows_with:
        words = (
            f"{rows_with - rows_off} responses agree to the last token, {rows_off} do not: those hold other tokens or values than were "
            "sampled (text encoded again, rows mixed up, part of them from other weights)"
        )
        remedy = "Store token ids and log-probabilities as sampled; text is derived from them and never encoded again."
        return Cause(code="changed_rows", words=words, remedy=remedy, residual_nats=residual)
    return None


def _part(replay: Replay, dtype: str) -> str:
    """In how many responses, where it is not in most."""
    off, rows = int((replay.gaps.abs() > _EQUAL[dtype]).any(1).sum()), int(replay.mask.any(1).sum())
    return f" (in {off} of {rows} responses)" if off < 0.5 * rows else ""


def _unknown(residual: float, side: str) -> Cause:
    return Cause(
        code="unknown",
        words=f"no usual fault (temperature, top-p, top-k, shift, prompt, precision, older weights, other rows) explains the {side}'s "
        "values; sampler and trainer do not hold the same policy",
        remedy="Compare weights digests (adapters merged?), configs and software versions of sampler and trainer.",
        residual_nats=residual,
    )


def _where(rows: Rows, replay: Replay, chosen: Sequence[int], names: Sequence[str]) -> str:
    """The worst token, as a place to look at."""
    if not chosen:
        return ""
    b = chosen[0]
    t = int(torch.where(replay.mask[b], replay.gaps[b].abs(), -torch.ones(())).argmax())
    stored, gap = float(rows.behaviour[b, t]), float(replay.gaps[b, t])
    name = f"{names[b]}, " if names else ""
    return f" (worst: {name}token {t}: stored {stored:.4g}, trainer {stored + gap:.4g})"
