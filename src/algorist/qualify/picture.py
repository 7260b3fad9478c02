"""What a gate looked at, in one phrase for people: counts, shares and sizes instead of a bare value."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from algorist.qualify.gate import Gate

Figures = Mapping[str, Any]


def found(gate: Gate) -> str:
    """The figures of a gate in words; its value and threshold where it has no phrase of its own.

    >>> from algorist.qualify.gate import Verdict
    >>> print(found(Gate(name="cache", value=1e-7, threshold=0.001, unit="nats", verdict=Verdict.PASSED,
    ...                  figures={"max_nats": 5e-7, "p99_nats": 5e-7, "tokens": 63})))
    decoding with cache against one plain pass: 1e-07 nats on average, 5e-07 at most, over 63 tokens (bound 0.001)
    """
    if not gate.passed or gate.name not in _PHRASES:
        return _value(gate)
    try:
        return _PHRASES[gate.name](gate, {**gate.figures, **gate.wall})
    except (KeyError, TypeError, ValueError):  # a gate that ended early has fewer figures
        return _value(gate)


def _value(gate: Gate) -> str:
    if gate.value is None:
        return ""
    bound = "" if gate.threshold is None else f" (threshold {gate.threshold:.4g})"
    return f"{gate.value:.4g} {gate.unit}{bound}"


def _data(_: Gate, f: Figures) -> str:
    parts = f"{f['train']:,} problems for RL, {f['sft']:,} for SFT, {f['heldout']:,} held out"
    return (
        f"{parts}; {f['golds_refused']:,} golds refused, {f['duplicates']:,} duplicates, "
        f"{f['heldout_in_training']:,} held-out questions in training, {f['prior_exposure']:,} excluded"
    )


def _canary(_: Gate, f: Figures) -> str:
    return (
        f"{f['answers']:,} known answers, {f['misjudged']:,} misjudged; right ones are paid {f['reward_right']:.4g}, "
        f"wrong ones {f['reward_wrong']:.4g}"
    )


def _lengths(_: Gate, f: Figures) -> str:
    longest = f"longest {f['prompt_tokens_max']:,} + {f['response_tokens']:,} response tokens of {f['context']:,}"
    return f"{f['shown']:,} prompts shown, {f['dropped']:,} problems dropped; {longest}"


def _template(_: Gate, f: Figures) -> str:
    stops = ", ".join(map(str, f["stop_ids"]))
    return f"{f['template']}, {f['prompts']:,} prompts looked at, {f['doubled_bos']:,} with two BOS; stop ids {stops}"


def _parents(_: Gate, f: Figures) -> str:
    if not f["digests"]:
        return "no parents to match"
    steps = f", step {f['declared_step']:,}" if f["declared_step"] is not None else ""
    return f"{' = '.join(f['digests'])}: weights {next(iter(f['digests'].values()))[:12]}{steps}"


def _parameters(_: Gate, f: Figures) -> str:
    routers = f"{f['router_tensors']:,} of routers, {f['router_tensors_trainable']:,} of these trainable"
    return f"{f['trainable']:,} of {f['parameters']:,} parameters trainable; frozen tensors {f['frozen_tensors']:,}; {routers}"


def _memory(_: Gate, f: Figures) -> str:
    cap = f["trainer_allocator_cap_gib"]
    measured = f["measured_micro_step_gib"]
    peak = f"predicted peak {f['peak_gib']:.3g} GiB (largest: {f['largest']})"
    if measured is not None:
        peak += f", one row of full length measured: {measured:.3g} GiB"
    whose = "declared" if f["declared"] else f"{f['source']}"
    promised = (
        "no cap promised" if cap is None else f"cap {cap:g} GiB, {f['driver_free_memory_gib']:g} GiB to stay free"
    )
    return f"{peak}; {f['free_gib']:.3g} of {f['total_gib']:.3g} GiB free ({whose}); {promised}"


def _cache(gate: Gate, f: Figures) -> str:
    return (
        f"decoding with cache against one plain pass: {gate.value:.2g} nats on average, {f['max_nats']:.2g} at most, "
        f"over {f['tokens']:,} tokens (bound {gate.threshold:g})"
    )


def _signal(_: Gate, f: Figures) -> str:
    share = f"{f['mixed_share_low']:.0%} to {f['mixed_share_high']:.0%}"
    return (
        f"{f['groups']:,} groups of {f['responses'] // max(1, f['groups'])}: {f['mixed']:,} mixed ({share} of all there are), "
        f"{f['all_right']:,} all right, {f['all_wrong']:,} all wrong; of the responses {f['truncated_share']:.0%} truncated, "
        f"{f['unsupported_share']:.0%} unreadable, {f['duplicate_share']:.0%} repeated"
    )


_PHRASES: Final[Mapping[str, Callable[[Gate, Figures], str]]] = {
    "data": _data,
    "verifier_canary": _canary,
    "prompt_lengths": _lengths,
    "template": _template,
    "parents": _parents,
    "parameters": _parameters,
    "memory": _memory,
    "cache": _cache,
    "signal": _signal,
}
