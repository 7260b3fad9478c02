"""Predicted peak against measured peak of one optimizer step and one round of sampling, each case in a fresh process.

    python benchmarks/bench_memory.py [--out benchmarks/results/memory.json]

Predicted: `qualify.footprint`, before anything is trained. Measured: the largest resident set of the process (VmHWM) over
two optimizer steps on rows of full length (so that AdamW's moments are there) and over sampling without a stop token.
Exit code 1 where the two differ by more than 15 %.
"""

import argparse
import gc
import json
import multiprocessing
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

TOLERANCE = 0.15
GROUP = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """A policy and the shape of its batches."""

    name: str
    policy: dict
    prompt: int
    response: int
    batch_rows: int
    micro_batch_tokens: int
    offload: bool = False
    reference: bool = False
    value: bool = False
    method: str = "rloo"


def new(h: int, ff: int, layers: int, heads: int, **more: object) -> dict:
    return {
        "new": {
            "hidden_size": h, "intermediate_size": ff, "num_layers": layers, "num_heads": heads, "context": 2048, **more,
        }
    }  # fmt: skip


MEDIUM, MIXTURE = new(256, 768, 6, 4), new(256, 384, 6, 4, experts=8)
SMOLLM2 = {"package": "smollm2"}
CASES = (
    Case(name="stand-in", policy=new(128, 384, 3, 4), prompt=8, response=48, batch_rows=256, micro_batch_tokens=16384),
    Case(name="medium", policy=MEDIUM, prompt=16, response=240, batch_rows=32, micro_batch_tokens=8192),
    Case(name="medium, offload", policy=MEDIUM, prompt=16, response=240, batch_rows=32, micro_batch_tokens=8192, offload=True),
    Case(name="medium, small micro-batch", policy=MEDIUM, prompt=16, response=240, batch_rows=32, micro_batch_tokens=1024),
    Case(
        name="medium, bfloat16", policy={**MEDIUM, "dtype": "bfloat16"}, prompt=16, response=240, batch_rows=32,
        micro_batch_tokens=8192,
    ),
    Case(
        name="medium, bfloat16, offload", policy={**MEDIUM, "dtype": "bfloat16"}, prompt=16, response=240, batch_rows=32,
        micro_batch_tokens=8192, offload=True,
    ),
    Case(
        name="medium, reference", policy=MEDIUM, prompt=16, response=240, batch_rows=32, micro_batch_tokens=8192,
        reference=True, method="grpo",
    ),
    Case(
        name="medium, value head", policy=MEDIUM, prompt=16, response=240, batch_rows=32, micro_batch_tokens=8192,
        reference=True, value=True, method="ppo",
    ),
    Case(name="mixture of 8 experts", policy=MIXTURE, prompt=16, response=240, batch_rows=32, micro_batch_tokens=8192),
    Case(
        name="mixture of 8 experts, offload", policy=MIXTURE, prompt=16, response=240, batch_rows=32,
        micro_batch_tokens=8192, offload=True,
    ),
    Case(name="long rows", policy=new(512, 1536, 4, 8), prompt=16, response=1489, batch_rows=4, micro_batch_tokens=4096),
    Case(
        name="long rows, offload", policy=new(512, 1536, 4, 8), prompt=16, response=1489, batch_rows=4,
        micro_batch_tokens=4096, offload=True,
    ),
    Case(
        name="grouped heads", policy=new(512, 1024, 4, 8, num_kv_heads=2), prompt=16, response=240, batch_rows=16,
        micro_batch_tokens=4096,
    ),
    Case(name="sampling dominates", policy=MEDIUM, prompt=16, response=600, batch_rows=128, micro_batch_tokens=1024),
    Case(name="SmolLM2-135M", policy=SMOLLM2, prompt=24, response=104, batch_rows=8, micro_batch_tokens=1024),
    Case(
        name="SmolLM2-135M, bfloat16, offload", policy={**SMOLLM2, "dtype": "bfloat16"}, prompt=24, response=104,
        batch_rows=16, micro_batch_tokens=2048, offload=True,
    ),
    Case(
        name="SmolLM2-135M, reference", policy=SMOLLM2, prompt=24, response=40, batch_rows=8, micro_batch_tokens=512,
        reference=True, method="grpo",
    ),
)  # fmt: skip


def measure(case: Case) -> dict:
    """Predict, then do it. Called in a process of its own."""
    import numpy as np
    import torch

    from algorist.flow import Prompt
    from algorist.objective.registry import METHODS
    from algorist.policy.build import build_policy, copy_policy
    from algorist.policy.config import PolicyConfig
    from algorist.policy.offload import offload_layers
    from algorist.qualify import footprint
    from algorist.qualify.memory import CpuProbe, return_freed_memory
    from algorist.rollout.engine import SamplingPlan
    from algorist.rollout.local import LocalEngine
    from algorist.train.config import OptimizerConfig
    from algorist.train.rows import Rows
    from algorist.train.trainer import Trainer

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    policy = build_policy(PolicyConfig.model_validate(case.policy), base=Path(), texts=["0123456789+=ab \n"], seed=0)
    if case.offload:
        offload_layers(policy)
    gc.collect()
    return_freed_memory()
    probe, vocabulary = CpuProbe(), int(policy.model.config.vocab_size)
    rng = np.random.default_rng(0)
    asked = [tuple(rng.integers(0, vocabulary, case.prompt).tolist()) for _ in range(case.batch_rows // GROUP)]
    prompts = [Prompt(problem_id=str(i), text="", token_ids=ids) for i, ids in enumerate(asked)]
    tokens = [(p.token_ids, rng.integers(0, vocabulary, case.response).tolist()) for p in prompts for _ in range(GROUP)]
    nodes, line = footprint.layout(policy, tokens, max_tokens=case.micro_batch_tokens)
    shape = footprint.Shape(
        nodes=nodes, line=line, cache_rows=case.batch_rows, cache_tokens=case.prompt + case.response,
        reference=case.reference, offload=case.offload,
    )  # fmt: skip
    sizes = footprint.predict(policy, shape, footprint.count(policy))
    for batch in policy.micro_batches([((3,), (4,))], max_tokens=8):  # what a first step loads belongs to the process
        policy.score(batch, [((3,), (4,))], temperature=1.0).logp.sum().backward()
    policy.model.zero_grad(set_to_none=True)
    return_freed_memory()
    held = probe.read().own
    process = max(0.0, held - sizes["weights"])
    peak = process + footprint.peak_of(sizes)

    mask = torch.ones(case.batch_rows, case.response, dtype=torch.bool)
    rows = Rows(
        tokens=tokens, group=torch.arange(case.batch_rows) // GROUP, mask=mask,
        reward=(torch.arange(case.batch_rows) % 2).double(), behaviour=torch.zeros(mask.shape),
        truncated=torch.zeros(case.batch_rows, dtype=torch.bool), correct=None, texts=[],
    )  # fmt: skip
    method = METHODS[case.method]
    trainer = Trainer(
        policy=policy, optimizer_cfg=OptimizerConfig(lr=1e-6), method=method, objective=method.config(), total_updates=2,
        temperature=1.0, micro_batch_tokens=case.micro_batch_tokens, reference=copy_policy(policy) if case.reference else None,
    )  # fmt: skip
    assert case.value == (policy.value_head is not None), "the case says whether there is a value head"
    probe.read()
    for batch in range(2):
        update, _ = trainer.step(trainer.assign(rows), batch=batch)
        assert update.applied, update
    training = probe.read().high
    plan = SamplingPlan(temperature=1.0, response_tokens=case.response, stop_ids=frozenset())
    LocalEngine(policy, max_rows=case.batch_rows).generate(
        prompts, num_samples=GROUP, plan=plan, policy_version=0, seed=0
    )
    sampling = probe.read().high
    measured = max(training, sampling)
    return {
        "case": asdict(case),
        "parameters": policy.num_parameters(),
        "sizes_gib": {name: round(size, 4) for name, size in sizes.items() if size},
        "process_gib": round(process, 3),
        "predicted_gib": round(peak, 3),
        "measured_gib": round(measured, 3),
        "training_gib": round(training, 3),
        "sampling_gib": round(sampling, 3),
        "ratio": round(peak / measured, 3),
        "ratio_without_process": round((peak - process) / (measured - process), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'case':34} {'process':>8} {'predicted':>10} {'training':>9} {'sampling':>9} {'ratio':>6}  without process")
    for case in CASES:
        if options.only not in case.name:
            continue
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measure, (case,))
        rows.append(row)
        print(
            f"{case.name:34} {row['process_gib']:8.3f} {row['predicted_gib']:10.3f} {row['training_gib']:9.3f} "
            f"{row['sampling_gib']:9.3f} {row['ratio']:6.3f}  {row['ratio_without_process']:6.3f}",
            flush=True,
        )
    off = [row["case"]["name"] for row in rows if abs(row["ratio"] - 1) > TOLERANCE]
    print(
        f"{len(rows)} cases, {len(rows) - len(off)} predicted to {TOLERANCE:.0%}"
        + (f"; not: {', '.join(off)}" if off else "")
    )
    if options.out:
        options.out.write_text(json.dumps({"tolerance": TOLERANCE, "rows": rows}, indent=1) + "\n")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
