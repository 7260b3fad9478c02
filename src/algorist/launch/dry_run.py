"""A rehearsal in memory: load everything, sample and train one small step, and say what the run would take."""

import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch

from algorist.flow import Prompt, Rollout
from algorist.launch.prepare import Prepared, response_tokens
from algorist.objective.config import SFTConfig as SFTObjective
from algorist.objective.registry import METHODS
from algorist.policy.model import Row
from algorist.rollout.engine import SamplingPlan
from algorist.stages.listener import Listener
from algorist.stages.offline import keeps_start
from algorist.train import rows as rows_of
from algorist.train.trainer import Trainer

_PROBE_PROMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one micro-step measured and what follows from it. Times are from one step: good to a factor of two."""

    probe_rollouts: int
    """Responses that were sampled."""
    probe_tokens: int
    """Response tokens trained in the micro-step."""
    rollout_s: float
    """Seconds of one full rollout batch, scaled from the probe."""
    train_s: float
    """Seconds of one full update, scaled from the probe."""
    evaluate_s: float
    """Seconds of one evaluation, scaled from the probe."""
    total_s: float
    """Seconds of all SFT steps, batches and the two evaluations around RL."""
    weights_gib: float
    """Weights, gradients and two moments in float32, plus the reference where there is one."""
    peak_gib: float
    """Peak resident memory of this process so far (CPU), or of the allocator (CUDA)."""
    truncated: int
    """Probe responses that the budget ended."""


MEASURED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "probe_rollouts": "responses sampled here",
        "probe_tokens": "response tokens trained on here",
        "rollout_s": "seconds per rollout batch, about",
        "train_s": "seconds per update, about",
        "evaluate_s": "seconds per evaluation, about",
        "total_s": "seconds in all, about",
        "weights_gib": "GiB of weights, gradients, moments",
        "peak_gib": "GiB of memory at the peak, so far",
        "truncated": "responses here that the budget ended",
    }
)
"""Field of an Estimate -> what a person reads."""


def rehearse(prepared: Prepared, listener: Listener) -> Estimate:
    """One sampled probe batch and one optimizer step on it, both thrown away. Nothing is written.

    The listener hears before each part what is done and, from the first prompt on, how long it may take.
    """
    recipe, policy = prepared.recipe, prepared.policy
    problems = (prepared.problems.train if recipe.rl else prepared.task.heldout)[:_PROBE_PROMPTS]
    prompts = [prepared.task.prompts[p.id] for p in problems]
    budget = recipe.rl.sampling.response_tokens if recipe.rl else response_tokens(recipe)
    size = min(recipe.rl.group_size, 8) if recipe.rl else 1
    plan = SamplingPlan(temperature=1.0, response_tokens=budget, stop_ids=prepared.task.stop_ids)

    def generate(prompts: list[Prompt]) -> list[list[Rollout]]:
        return prepared.engine.generate(
            prompts, num_samples=size, plan=plan, policy_version=0, seed=recipe.seed, salt="rehearsal"
        )

    listener.say(f"dry run 1 of 3: sampling {size} responses to the first problem, at most {budget} tokens each")
    started = time.monotonic()
    generate(prompts[:1])  # the first pass pays for allocation
    first_s = time.monotonic() - started
    listener.say(
        f"dry run 2 of 3: {first_s:.1f} s; sampling {len(prompts)} x {size}, some {first_s * len(prompts):.0f} s or less"
    )
    started = time.monotonic()
    groups = generate(prompts)
    rollout_s = time.monotonic() - started
    rollouts = [r for group in groups for r in group if r.token_ids]
    targets: list[Row] = [(r.prompt_ids, r.token_ids) for r in rollouts]
    optimizer = recipe.rl.optimizer if recipe.rl else recipe.sft.optimizer if recipe.sft else None
    train_s, tokens = 0.0, sum(len(r.token_ids) for r in rollouts)
    if optimizer is not None and targets:
        trainer = Trainer(
            policy=policy,
            optimizer_cfg=optimizer,
            method=METHODS["sft"],
            objective=SFTObjective(),
            total_updates=1,
            temperature=1.0,
            micro_batch_tokens=recipe.rl.micro_batch_tokens if recipe.rl else 4096,
        )
        listener.say(f"dry run 3 of 3: {rollout_s:.1f} s; one optimizer step on {tokens:,} response tokens")
        started = time.monotonic()
        trainer.step(trainer.assign(rows_of.from_targets(targets)), batch=0)
        train_s = time.monotonic() - started
    return _scale(prepared, len(rollouts), tokens, rollout_s, train_s, sum(r.truncated for r in rollouts))


def _scale(
    prepared: Prepared, rollouts: int, tokens: int, rollout_s: float, train_s: float, truncated: int
) -> Estimate:
    recipe = prepared.recipe
    rows = recipe.rl.prompts_per_batch * recipe.rl.group_size if recipe.rl else 0
    per_row = rollout_s / max(1, rollouts)
    full_rollout, full_train = per_row * rows, train_s * rows / max(1, rollouts)
    evaluate_s = per_row * len(prepared.task.heldout) * (recipe.evaluate.samples + int(recipe.evaluate.greedy))
    sft_steps = 0.0
    if recipe.sft is not None and prepared.targets:
        per_step = recipe.sft.batch_size or 16
        steps = recipe.sft.steps or (recipe.sft.epochs or 1.0) * len(prepared.targets) / per_step
        sft_steps = steps * train_s * per_step / max(1, rollouts)
    total = sft_steps + 2 * evaluate_s
    if recipe.rl:
        total += recipe.rl.updates * (full_rollout + full_train * recipe.rl.epochs_per_batch)
    copies = 4 + (1 if recipe.rl and keeps_start(recipe.rl) else 0)
    return Estimate(
        probe_rollouts=rollouts,
        probe_tokens=tokens,
        rollout_s=full_rollout,
        train_s=full_train,
        evaluate_s=evaluate_s,
        total_s=total,
        weights_gib=copies * 4 * prepared.policy.num_parameters() / 2**30,
        peak_gib=_peak_gib(prepared.policy.device),
        truncated=truncated,
    )


def _peak_gib(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
