"""A completed evaluation: figures in evaluations/<name>.json and one event on the ledger."""

import time
from collections.abc import Sequence

from algorist.digest import file_digest
from algorist.errors import InputError
from algorist.evaluate.config import EvaluateConfig
from algorist.evaluate.result import EvaluationResult
from algorist.evaluate.runner import evaluate
from algorist.evaluate.statistics import Estimate
from algorist.flow import Problem
from algorist.policy.weights import weights_digest
from algorist.record.ledger import EventKind
from algorist.rollout.engine import RolloutEngine
from algorist.stages.sample import told, verdicts_of
from algorist.stages.session import Session
from algorist.stages.task import Task


def evaluate_policy(
    name: str,
    session: Session,
    cfg: EvaluateConfig,
    task: Task,
    engine: RolloutEngine,
    *,
    response_tokens: int,
    problems: Sequence[Problem] | None = None,
) -> EvaluationResult:
    """Measure the present policy on the held-out problems, or take the result this run already has under that name."""
    done = {e.payload["name"] for e in session.ledger.events if e.kind is EventKind.EVALUATION_COMPLETED}
    if name in done:
        return EvaluationResult.read(session.folder.evaluation(name))
    chosen = task.heldout if problems is None else problems
    if not chosen:
        raise InputError("evaluate: there is no held-out problem. Set problems.heldout.count to 1 or more.")
    session.listener.say(f"evaluating ({name}): {len(chosen)} held-out problems, greedy and {cfg.samples} samples each")
    started = time.monotonic()
    with told(session.ledger, session.position.applied):
        result = evaluate(
            name,
            problems=chosen,
            prompts=[task.prompts[p.id] for p in chosen],
            engine=engine,
            grade=lambda asked, rollouts: verdicts_of(task, asked, rollouts, f"evaluation {name}"),
            cfg=cfg,
            response_tokens=response_tokens,
            stop_ids=task.stop_ids,
            policy_digest=weights_digest(session.policy),
            seed=session.seed,
            canonical=task.canonical,
        )
    result.write(session.folder.evaluation(name))
    session.ledger.append(
        EventKind.EVALUATION_COMPLETED,
        policy_version=session.position.applied,
        payload={
            "name": name,
            "problems": result.problems,
            "responses": result.responses,
            "greedy": result.greedy.value if result.greedy else None,
            "mean_at": {str(k): e.value for k, e in result.mean_at.items()},
            "policy_digest": result.policy_digest,
            "digest": file_digest(session.folder.evaluation(name)),
        },
        wall={"evaluate_s": round(time.monotonic() - started, 3)},
    )
    figures: dict[str, float | int | str | bool | None] = {
        "stage": "evaluate",
        "step": session.position.batches,
        "name": name,
    }
    if result.greedy is not None:
        figures["heldout/greedy"] = result.greedy.value
    figures |= {f"heldout/mean_at_{k}": e.value for k, e in result.mean_at.items()}
    session.metrics.append({**figures, "time/evaluate_s": time.monotonic() - started})
    session.listener.say(f"evaluated ({name}): {headline(result)}")
    return result


def headline(result: EvaluationResult) -> str:
    """Greedy accuracy and mean@n with their intervals, in a line."""
    parts = [] if result.greedy is None else [f"greedy {_percent(result.greedy)}"]
    parts += [f"mean@{k} {_percent(e)}" for k, e in result.mean_at.items()]
    return ", ".join(parts)


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"
