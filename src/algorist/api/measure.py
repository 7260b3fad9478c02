"""A model on a set of problems: greedy accuracy, mean@k, pass@k, maj@k with intervals. The verb `eval` calls this."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from algorist.api.model import OpenModel, open_model
from algorist.errors import InputError
from algorist.evaluate.config import EvaluateConfig
from algorist.evaluate.result import EvaluationResult
from algorist.evaluate.runner import evaluate
from algorist.flow import Problem, Prompt, Rollout, Verdict
from algorist.policy.weights import weights_digest
from algorist.problems.config import JsonlConfig
from algorist.problems.rows import read_file
from algorist.problems.split import distinct
from algorist.prompts.render import Refused
from algorist.rollout.engine import RolloutEngine, SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.stages.listener import Listener, Silent
from algorist.verify import check_gold
from algorist.verify.item import Item
from algorist.verify.pool import VerifierPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An evaluation with what was left out of it."""

    result: EvaluationResult
    dropped: tuple[str, ...]
    """Each line: a reason with its count and first place. Nothing else was left out."""
    num_dropped: int
    """Rows that were not measured."""


def evaluate_model(
    model: OpenModel | str | Path,
    problems: Sequence[Problem],
    *,
    name: str = "evaluation",
    cfg: EvaluateConfig | None = None,
    response_tokens: int | None = None,
    seed: int | None = None,
    rows: int = 256,
    listener: Listener | None = None,
) -> Measured:
    """Measure a model (opened, or the path of a run or a model folder) on problems with known answers.

    cfg: samples, k, temperature; the run's own, or the defaults. response_tokens: response budget. rows: sequences
    decoded side by side. Prompts that do not fit are left out and counted. Raises InputError where none is left.
    """
    if not isinstance(model, OpenModel):
        model = open_model(model)
    cfg = cfg or model.evaluate
    listener = listener or Silent()
    budget = response_tokens or cfg.response_tokens or model.response_tokens
    rendered = model.renderer.render(problems, context=model.policy.context, response_tokens=budget)
    prompts = {prompt.problem_id: prompt for prompt in rendered.prompts}
    kept = [problem for problem in problems if problem.id in prompts]
    if not kept:
        why = f": {rendered.refused[0].detail} ({rendered.refused[0].reason})" if rendered.refused else ""
        raise InputError(
            f"{name}: none of the {len(problems)} problems can be shown to this model{why}. Lower --response-tokens or "
            "shorten the prompts."
        )
    with VerifierPool() as verifier:

        def grade(asked: Sequence[Problem], rollouts: Sequence[Rollout]) -> list[Verdict]:
            items = [
                Item(
                    gold=problem.gold,
                    response=rollout.text,
                    kind=problem.kind,
                    truncated=rollout.truncated,
                    answer_format=model.renderer.cfg.answer_format,
                )
                for problem, rollout in zip(asked, rollouts, strict=True)
            ]
            return verifier.check_many(items)

        result = evaluate(
            name,
            problems=kept,
            prompts=[prompts[problem.id] for problem in kept],
            engine=_Told(
                LocalEngine(model.policy, max_rows=rows), rows, listener, len(kept) * (cfg.greedy + cfg.samples)
            ),
            grade=grade,
            cfg=cfg,
            response_tokens=budget,
            stop_ids=model.renderer.stop_ids,
            policy_digest=weights_digest(model.policy),
            seed=model.seed if seed is None else seed,
        )
    return Measured(
        result=result, dropped=tuple(_refusals(rendered.refused, len(problems))), num_dropped=len(rendered.refused)
    )


def read_problems(cfg: JsonlConfig, base: Path) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """(problems, what was dropped in words) of a file: one per question, each gold verifying against itself.

    Raises InputError for files that cannot be used.
    """
    read = read_file(cfg, base)
    kept, dropped = distinct(read.problems)
    dropped += read.dropped
    lines = [f"{row.where}: {row.reason}{f', {row.detail}' if row.detail else ''}" for row in dropped]
    found: list[Problem] = []
    for problem, where in kept:
        reason = check_gold(problem.gold, problem.kind)
        if reason is None:
            found.append(problem)
        else:
            lines.append(f"{where}: gold_refused, gold {problem.gold!r}: {reason}")
    if not found:
        raise InputError(
            f"{base / cfg.path}: no usable problem ({len(lines)} dropped; first: {lines[0]}). Correct the file."
        )
    return tuple(found), tuple(lines)


def _refusals(refused: Sequence[Refused], total: int) -> list[str]:
    return [
        f"{reason}: {count} of {total} problems (first: "
        + next(f"{row.problem_id}, {row.detail})" for row in refused if row.reason == reason)
        for reason, count in Counter(row.reason for row in refused).most_common()
    ]


@final
class _Told:
    """An engine that tells a listener about every chunk of prompts; results are those of the engine inside."""

    def __init__(self, inner: RolloutEngine, rows: int, listener: Listener, total: int) -> None:
        self._inner, self._rows, self._listener = inner, rows, listener
        self._total, self._done = total, 0
        listener.begin("evaluate", total)

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        plan: SamplingPlan,
        policy_version: int,
        seed: int,
        salt: str = "",
    ) -> list[list[Rollout]]:
        """See `RolloutEngine.generate`."""
        step = max(1, self._rows // num_samples)
        found: list[list[Rollout]] = []
        for first in range(0, len(prompts), step):
            found += self._inner.generate(
                prompts[first : first + step],
                num_samples=num_samples,
                plan=plan,
                policy_version=policy_version,
                seed=seed,
                salt=salt,
            )
            self._done += num_samples * len(prompts[first : first + step])
            self._listener.advance("evaluate", self._done, {})
        return found
