"""The admission gate of a prepared run: predict, measure one micro-step where a figure is promised, judge."""

import torch

from algorist.policy.model import Row
from algorist.qualify import memory
from algorist.qualify.gate import Gate
from algorist.qualify.subject import Subject
from algorist.seeds import generator


def measure_admission(subject: Subject, probe: memory.MemoryProbe | None = None) -> Gate:
    """Predicted and, where cap or free memory are promised, measured peak against what the machine offers."""
    cfg = subject.cfg.memory
    probe = probe or memory.probe_for(subject.policy, cfg)
    reading = probe.read()
    sizes = memory.predict(subject.policy, shape_of(subject))
    tensor = max(sizes, key=lambda name: sizes[name])
    if cfg.declared is not None:
        return memory.admission(cfg, reading, peak=cfg.declared.peak_gib, tensor=cfg.declared.tensor or tensor)
    peak, measured = memory.predicted_peak(sizes), None
    if cfg.trainer_allocator_cap_gib is not None or cfg.driver_free_memory_gib > 0:
        row = _row(subject)
        measured = probe.peak_of(lambda: micro_step(subject, row))
        if measured is not None:
            rows = max(
                1, min(shape_of(subject).micro_batch_tokens, shape_of(subject).rows * _length(row)) // _length(row)
            )
            held = reading.own + sizes["moments"] + sizes["reference"]
            peak = max(peak, held + measured * rows)
    return memory.admission(cfg, reading, peak=peak, tensor=tensor, measured=measured)


def shape_of(subject: Subject) -> memory.Shape:
    """What a batch of this run looks like to memory."""
    rl = subject.rl
    longest = max((len(ids) for ids in subject.prompt_ids.values()), default=1)
    return memory.Shape(
        micro_batch_tokens=rl.micro_batch_tokens if rl else 4096,
        rows=min(rl.prompts_per_batch * rl.group_size, rl.sampling.rows) if rl else 64,
        length_tokens=longest + subject.plan.response_tokens,
        reference=rl is not None and "logp_ref" in rl.objective.needs,
        offload=subject.cfg.memory.activation_offload,
    )


def micro_step(subject: Subject, row: Row) -> None:
    """Forward and backward over one row of full length; the weights stay as they are."""
    policy = subject.policy
    for batch in policy.micro_batches([row], max_tokens=1 << 30):
        with policy.compute():
            scores = policy.score(batch, [row], temperature=1.0)
        loss: torch.Tensor = -scores.logp.sum()
        loss.backward()
    for parameter in policy.parameters():
        parameter.grad = None


def _row(subject: Subject) -> Row:
    longest = max(subject.prompt_ids.values(), key=len)
    tokens = generator(subject.seed, "micro-step").integers(
        0, int(subject.policy.model.config.vocab_size), subject.plan.response_tokens
    )
    return longest, [int(t) for t in tokens]


def _length(row: Row) -> int:
    return len(row[0]) + len(row[1])
