"""Held-out problems to an evaluation: one greedy response and n sampled ones each, checked like a training response."""

from collections.abc import Callable, Sequence

from algorist.evaluate.config import EvaluateConfig
from algorist.evaluate.result import EvaluationResult, record_of, summarise
from algorist.flow import Problem, Prompt, Rollout, Verdict
from algorist.rollout.engine import RolloutEngine, SamplingPlan
from algorist.seeds import derive

Grader = Callable[[Sequence[Problem], Sequence[Rollout]], list[Verdict]]
"""(problem per rollout, rollouts) -> verdicts, in order."""


def evaluate(
    name: str,
    *,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    engine: RolloutEngine,
    grade: Grader,
    cfg: EvaluateConfig,
    response_tokens: int,
    stop_ids: frozenset[int],
    policy_digest: str,
    seed: int,
    canonical: Callable[[str], str] = str.strip,
) -> EvaluationResult:
    """Greedy accuracy, mean@n, pass@k and maj@k of one policy on `problems`, with intervals.

    The random numbers do not depend on the policy version, so that two policies are compared on common random numbers.
    """
    stops = frozenset(stop_ids)
    sampled = SamplingPlan(
        temperature=cfg.temperature, top_p=cfg.top_p, response_tokens=response_tokens, stop_ids=stops
    )
    # greedy decoding is sampling at temperature 0: one row a problem
    likeliest = SamplingPlan(temperature=0.0, response_tokens=response_tokens, stop_ids=stops)
    draw = derive(seed, "evaluate")
    samples = engine.generate(
        prompts, num_samples=cfg.samples, plan=sampled, policy_version=0, seed=draw, salt="sampled"
    )
    greedy = (
        engine.generate(prompts, num_samples=1, plan=likeliest, policy_version=0, seed=draw, salt="greedy")
        if cfg.greedy
        else [[] for _ in problems]
    )
    rows = [(p, r) for p, g, s in zip(problems, greedy, samples, strict=True) for r in (*g, *s)]
    verdicts = iter(grade([p for p, _ in rows], [r for _, r in rows]))
    records = []
    for problem, first, rest in zip(problems, greedy, samples, strict=True):
        of_greedy = [next(verdicts) for _ in first]
        of_samples = [next(verdicts) for _ in rest]
        records.append(
            record_of(
                problem.id,
                greedy=of_greedy[0] if of_greedy else None,
                samples=of_samples,
                truncated=sum(r.truncated for r in (*first, *rest)),
                canonical=canonical,
            )
        )
    return summarise(
        name,
        policy_digest=policy_digest,
        records=records,
        ks=cfg.ks,
        confidence=cfg.confidence,
        resamples=cfg.bootstrap,
        seed=derive(seed, "bootstrap"),
    )
