"""The admission gate of a prepared run: predict, measure one micro-step where a figure is promised, judge."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from algorist.policy.model import Row
from algorist.qualify import footprint, memory
from algorist.qualify.config import MemoryConfig
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.subject import Subject
from algorist.seeds import generator

_NOISE_GIB = 1 / 32
"""Differences between a measured and a predicted micro-step up to this are the allocator's."""


def measure_admission(subject: Subject, probe: memory.MemoryProbe | None = None) -> Gate:
    """Predicted and, where cap or free memory are promised, measured peak against what the machine offers.

    What is refused by prediction is not tried. Else one row of full length is trained and thrown away; where it needs more
    than predicted, every row of a micro-batch is taken to need so much more.
    """
    cfg, policy = subject.cfg.memory, subject.policy
    probe = probe or memory.probe_for(policy, cfg)
    if cfg.declared is not None:
        largest = cfg.declared.tensor or "what the declared peak consists of is not said"
        return memory.admission(cfg, probe.read(), peak=cfg.declared.peak_gib, largest=largest)
    promised = cfg.trainer_allocator_cap_gib is not None or cfg.driver_free_memory_gib > 0
    tidy = memory.return_freed_memory if promised and policy.device.type == "cpu" else lambda: None
    kept, shapes = footprint.count(policy), shapes_of(subject)
    sizes = predicted(subject, shapes, kept)
    tidy()
    gate = _judge(cfg, probe.read(), sizes)
    if not promised or not gate.passed:
        return gate
    row = _row(subject)
    try:
        micro_step(subject, (row[0], row[1][:1]))  # what a first step loads and sets up belongs to the process
        tidy()
        reading = probe.read()
        measured = probe.peak_of(lambda: micro_step(subject, row))
    except torch.OutOfMemoryError as error:
        cause = f"one row of {len(row[0]) + len(row[1]):,} tokens does not fit the device: {str(error).splitlines()[0]}"
        return replace(gate, verdict=Verdict.FAILED, cause=cause, remedy="Shorter responses, or more free memory.")
    excess = 0.0 if measured is None else max(_excess(subject, s, kept, row, measured) for s in shapes)
    return _judge(cfg, reading, sizes, excess=excess, measured=measured)


def _judge(
    cfg: MemoryConfig,
    reading: memory.Reading,
    sizes: Mapping[str, float],
    *,
    excess: float = 0.0,
    measured: float | None = None,
) -> Gate:
    """The gate over the predicted tensors, what the process holds besides, and what a measured row showed above both."""
    tensor = max(sizes, key=lambda name: sizes[name])
    largest = f"{tensor}, {sizes[tensor]:.3g} GiB"
    process = max(0.0, reading.own - sizes["weights"])
    if process > sizes[tensor]:
        largest += f"; the process itself holds {process:.3g} GiB"
    whole = {"libraries and data of the process": process, **sizes, "what one measured row needs above that": excess}
    peak = footprint.peak_of(whole)
    return memory.admission(cfg, reading, peak=peak, largest=largest, measured=measured, sizes=whole)


def _excess(subject: Subject, shape: footprint.Shape, kept: footprint.Kept, row: Row, measured: float) -> float:
    """GiB that a micro-batch needs above the prediction, judged by one measured row."""
    nodes, line = footprint.layout(subject.policy, [row], max_tokens=1 << 30)
    one = replace(shape, nodes=nodes, line=line, cache_rows=0, reference=False)
    sizes = footprint.predict(subject.policy, one, kept) | {"weights": 0.0, "moments": 0.0}
    above = measured - footprint.peak_of(sizes)
    return above * max(1.0, shape.nodes / nodes) if above > _NOISE_GIB else 0.0


def shapes_of(
    subject: Subject, *, group_size: int | None = None, response_tokens: int | None = None
) -> list[footprint.Shape]:
    """What the largest batches of this run look like to memory, stage by stage: the longest prompts, full responses.

    group_size, response_tokens: another group size or budget than the recipe's, for RL.
    """
    rl, sft, offload = subject.rl, subject.sft, subject.cfg.memory.activation_offload
    prompts = sorted(subject.prompt_ids.values(), key=len, reverse=True) or [(0,)]
    most = rl.sampling.rows if rl else 256
    cache_rows, cache_tokens = min(most, subject.evaluated_rows), len(prompts[0]) + subject.response_tokens
    shapes = []
    if sft is not None and subject.targets:
        rows = sorted(subject.targets, key=lambda row: -len(row[0]) - len(row[1]))
        size = sft.batch_size or max(1, (sft.batch_tokens or 1) // (len(rows[0][0]) + len(rows[0][1])))
        nodes, line = footprint.layout(subject.policy, rows[:size], max_tokens=sft.micro_batch_tokens)
        shapes.append(
            footprint.Shape(
                nodes=nodes,
                line=line,
                cache_rows=cache_rows,
                cache_tokens=cache_tokens,
                reference=False,
                offload=offload,
            )
        )
    if rl is not None:
        size, budget = group_size or rl.group_size, response_tokens or rl.sampling.response_tokens
        asked = [ids for ids in prompts[: rl.prompts_per_batch] for _ in range(size)]
        enough = size + 2 * rl.micro_batch_tokens // budget  # rows that fill the largest micro-batch
        rows = [(ids, _response(subject, i, budget)) for i, ids in enumerate(asked[:enough])]
        nodes, line = footprint.layout(subject.policy, rows, max_tokens=rl.micro_batch_tokens)
        shapes.append(
            footprint.Shape(
                nodes=nodes, line=line, cache_rows=max(cache_rows, min(most, len(asked))),
                cache_tokens=max(cache_tokens, len(prompts[0]) + budget), reference="logp_ref" in rl.objective.needs,
                offload=offload,
            )
        )  # fmt: skip
    assert shapes, "a recipe has a stage that trains (checked when it is loaded)"
    return shapes


def predicted(subject: Subject, shapes: Sequence[footprint.Shape], kept: footprint.Kept) -> dict[str, float]:
    """GiB of each large tensor of the stage that needs most."""
    return max((footprint.predict(subject.policy, shape, kept) for shape in shapes), key=footprint.peak_of)


def micro_step(subject: Subject, row: Row) -> None:
    """Forward and backward over one row; the weights stay as they are."""
    policy = subject.policy
    for batch in policy.micro_batches([row], max_tokens=1 << 30):
        with policy.compute():
            scores = policy.score(batch, [row], temperature=1.0)
        loss: torch.Tensor = -scores.logp.sum()
        loss.backward()
    for parameter in policy.parameters():
        parameter.grad = None


def _row(subject: Subject) -> Row:
    """The longest prompt with a response of full length."""
    return max(subject.prompt_ids.values(), key=len, default=(0,)), _response(subject, 0, subject.plan.response_tokens)


def _response(subject: Subject, number: int, length: int) -> list[int]:
    """A response that no other number has."""
    vocabulary = int(subject.policy.model.config.vocab_size)
    return [int(t) for t in generator(subject.seed, "micro-step", number).integers(0, vocabulary, length)]
