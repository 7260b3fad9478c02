"""Preflight and calibration of a prepared recipe, outside a run: nothing is written, nothing is trained."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from algorist.errors import InputError
from algorist.flow import Group
from algorist.qualify import footprint
from algorist.qualify.admit import predicted, shapes_of
from algorist.qualify.calibrate import Calibration, calibrate
from algorist.qualify.config import MemoryConfig
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.guard import RunGates, preflight
from algorist.qualify.memory import probe_for
from algorist.qualify.signal import Contrast, judge
from algorist.qualify.subject import Subject
from algorist.rollout.engine import SamplingPlan


def judge_all(subject: Subject) -> Iterator[Gate]:
    """Every gate before training, then the signal of the starting policy where RL starts from it."""
    readable = True
    for gate in preflight(subject):
        readable = readable and (gate.passed or gate.name in ("parents", "parameters"))
        yield gate
    if subject.rl is None or not readable:
        words = "the recipe has no rl stage" if subject.rl is None else "not judged: an earlier gate failed"
        yield Gate(name="signal", value=None, threshold=None, unit="", verdict=Verdict.ABSENT, cause=words)
    elif subject.has_sft:
        words = "sft runs first; judged on the first batch after it, before any update"
        yield Gate(name="signal", value=None, threshold=None, unit="", verdict=Verdict.DEFERRED, cause=words)
    else:
        cfg = subject.cfg.signal
        groups = RunGates(subject).sample_groups(max(cfg.prompts, subject.rl.prompts_per_batch), 0)
        yield judge(Contrast.of(groups), minimum=cfg.minimum_useful_share, refuse=cfg.action == "refuse")


def calibration(subject: Subject, *, problems: int, samples: int, longest: int | None) -> Calibration:
    """Sample long, and read every shorter budget and smaller group off the same responses."""
    rl = subject.rl
    if rl is None:
        raise InputError(
            "calibrate: the recipe has no rl stage, so there is no budget to choose. Add rl, or use algorist eval."
        )
    chosen = subject.task.train[:problems]
    prompts = [subject.task.prompts[p.id] for p in chosen]
    room = subject.policy.context - max(len(p.token_ids) for p in prompts)
    budget = min(longest or room, room)
    plan = SamplingPlan(temperature=rl.sampling.temperature, response_tokens=budget, stop_ids=subject.task.stop_ids)
    made = subject.engine.generate(
        prompts, num_samples=samples, plan=plan, policy_version=0, seed=subject.seed, salt="calibrate"
    )
    groups = []
    for problem, group in zip(chosen, made, strict=True):
        asked = [problem] * len(group)
        verdicts = subject.task.grade(asked, group)
        rewards = subject.task.pay(asked, group, verdicts)
        groups.append(
            Group(problem_id=problem.id, rollouts=tuple(group), verdicts=tuple(verdicts), rewards=tuple(rewards))
        )
    cap = subject.cfg.memory.trainer_allocator_cap_gib
    found = calibrate(groups, longest=budget, memory_gib=_memory(subject), cap_gib=cap)
    return replace(found, before_sft=subject.has_sft)


def _memory(subject: Subject) -> Callable[[int, int], float]:
    """(group size, budget) -> predicted peak in GiB, with what this process holds already."""
    kept, own = footprint.count(subject.policy), probe_for(subject.policy, MemoryConfig()).read().own

    def peak(group_size: int, budget: int) -> float:
        sizes = predicted(subject, shapes_of(subject, group_size=group_size, response_tokens=budget), kept)
        return max(0.0, own - sizes["weights"]) + footprint.peak_of(sizes)

    return peak
