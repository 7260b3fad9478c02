"""A checked recipe to everything the stages need, in memory. Nothing is written."""

import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import torch

from algorist.errors import InputError
from algorist.flow import Problem, Prompt
from algorist.policy.build import build_policy
from algorist.policy.model import CausalPolicy, Row
from algorist.policy.offload import offload_layers
from algorist.problems.load import ProblemSet, load_problems
from algorist.prompts.render import Refused, Renderer
from algorist.prompts.text import tokenizer_texts
from algorist.qualify.exclusions import exclude
from algorist.qualify.policy_gates import freeze
from algorist.qualify.subject import Subject
from algorist.recipe.model import Recipe
from algorist.record import commit
from algorist.reward.reward import resolve
from algorist.rollout.local import LocalEngine
from algorist.stages.listener import Listener
from algorist.stages.task import Task
from algorist.verify.pool import VerifierPool
from algorist.verify.single import check_gold

_PROMPT: Final = ("template", "format", "target", "separator", "system", "stop", "answer_format")
"""Settings of a prompt that a policy is used to."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A recipe come to life. Close it: it owns verifier processes."""

    recipe: Recipe
    problems: ProblemSet
    """With those taken out whose prompt does not fit."""
    policy: CausalPolicy
    engine: LocalEngine
    renderer: Renderer
    task: Task
    targets: tuple[Row, ...]
    """SFT examples as (prompt ids, target ids)."""
    notes: tuple[str, ...]
    """What was dropped, defaulted or found out, in words."""

    base: Path
    """Folder that relative paths of the recipe start at."""

    def close(self) -> None:
        """End the verifier's processes."""
        self.task.verifier.close()


def prepare(recipe: Recipe, *, base: Path, plugin: str | None = None, listener: Listener) -> Prepared:
    """Load problems, policy, prompts, verifier and reward. Raises InputError for whatever cannot be used.

    base: folder that relative paths of the recipe start at. plugin: module with the user's own reward.
    """
    for sink in recipe.record.sinks:  # a missing package is told before anything slow happens
        if importlib.util.find_spec(sink) is None:
            raise InputError(
                f"record.sinks: {sink} is not installed. Install it (pip install {sink}) or drop the sink."
            )
    reward = resolve(recipe.reward.name, plugin=plugin)
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    problems = load_problems(
        recipe.problems,
        seed=recipe.seed,
        base_dir=base,
        gold_check=check_gold,
        solutions=recipe.sft is not None and recipe.sft.target == "solution",
    )
    problems = exclude(problems, recipe.qualify.data.exclusions, base)
    notes = problems.report.lines()
    listener.say(notes[0])
    pool = [*problems.sft, *problems.train]
    notes += _parent_notes(recipe, base)
    policy = build_policy(
        recipe.policy,
        base=base,
        texts=tokenizer_texts(recipe.prompt, pool) if recipe.policy.new else (),
        seed=recipe.seed,
    )
    freeze(policy, recipe.qualify.parameters)
    if recipe.qualify.memory.activation_offload:
        offload_layers(policy)
    listener.say(
        f"policy: {policy.num_parameters() / 1e6:.1f} M parameters, {policy.model.config.model_type}, {recipe.policy.dtype} on "
        f"{policy.device.type}, context {policy.context} tokens"
    )
    renderer = Renderer(recipe.prompt, policy.tokenizer, pool=pool, seed=recipe.seed)
    problems, prompts, targets, refused = _render(recipe, problems, renderer, policy.context)
    notes += refused
    task = Task(
        train=problems.train,
        heldout=problems.heldout[: recipe.evaluate.problems],
        prompts=prompts,
        stop_ids=renderer.stop_ids,
        answer_format=recipe.prompt.answer_format,
        verifier=VerifierPool(workers=recipe.reward.workers, deadline_s=recipe.reward.deadline_s),
        reward=reward,
        canonical=str.strip,
        solutions=_solutions(recipe, problems.train, renderer),
    )
    rows = recipe.rl.sampling.rows if recipe.rl else 256
    for note in notes[1:]:
        listener.say(note)
    return Prepared(
        recipe=recipe,
        problems=problems,
        policy=policy,
        engine=LocalEngine(policy, max_rows=rows),
        renderer=renderer,
        task=task,
        targets=targets,
        notes=tuple(notes),
        base=base,
    )


def _parent_notes(recipe: Recipe, base: Path) -> list[str]:
    """What an exported policy says of itself that the recipe says otherwise.

    Raises InputError where the folder is an export and its files are not those of its manifest: a swapped tokenizer, say.
    """
    folder = None if recipe.policy.path is None else base / recipe.policy.path
    if folder is None or not (folder / commit.MANIFEST).is_file():
        return []
    try:
        commit.verify_directory(folder)
    except InputError as error:
        raise InputError(
            f"{error} The policy is an export whose files are sealed. Take it from its run again, or, where you changed it yourself, "
            f"delete its {commit.MANIFEST}: it is then a model folder like any other."
        ) from error
    try:
        trained = json.loads((folder / "algorist.json").read_bytes())["prompt"]
        now = recipe.prompt.model_dump(mode="json")
        other = [f"{key} {trained[key]!r}, here {now[key]!r}" for key in _PROMPT if trained[key] != now[key]]
    except (OSError, ValueError, LookupError, TypeError):  # an export of another version: nothing to compare
        return []
    return [f"note: {folder.name} was trained with another prompt: {'; '.join(other)}"] if other else []


def subject_of(prepared: Prepared) -> Subject:
    """What the gates look at."""
    recipe = prepared.recipe
    pool = [*prepared.problems.sft, *prepared.problems.train]
    texts = tokenizer_texts(recipe.prompt, pool) if recipe.policy.new else ()
    return Subject(
        cfg=recipe.qualify,
        rl=recipe.rl,
        has_sft=recipe.sft is not None,
        seed=recipe.seed,
        base=prepared.base,
        policy_path=recipe.policy.path,
        problems=prepared.problems,
        dropped_notes=prepared.notes,
        policy=prepared.policy,
        engine=prepared.engine,
        renderer=prepared.renderer,
        task=prepared.task,
        response_tokens=response_tokens(recipe),
        reward_name=recipe.reward.name,
        sft=recipe.sft,
        targets=prepared.targets,
        evaluated_rows=len(prepared.task.heldout) * (recipe.evaluate.samples + int(recipe.evaluate.greedy)),
        start=lambda: build_policy(recipe.policy, base=prepared.base, texts=texts, seed=recipe.seed),
    )


def response_tokens(recipe: Recipe) -> int:
    """Response budget of evaluations: their own, else that of RL, else half of a default context."""
    if recipe.evaluate.response_tokens is not None:
        return recipe.evaluate.response_tokens
    return recipe.rl.sampling.response_tokens if recipe.rl else 256


def _solutions(recipe: Recipe, problems: Sequence[Problem], renderer: Renderer) -> dict[str, tuple[int, ...]]:
    """What RL imitates where its objective learns from the data set: as the sft stage does, else worked solutions.

    Raises InputError where a problem has none.
    """
    if recipe.rl is None or recipe.rl.source != "dataset":
        return {}
    target = recipe.sft.target if recipe.sft else "solution"
    return {problem.id: renderer.target_ids(problem, target) for problem in problems}


def _render(
    recipe: Recipe, problems: ProblemSet, renderer: Renderer, context: int
) -> tuple[ProblemSet, dict[str, Prompt], tuple[Row, ...], list[str]]:
    """Prompts and SFT targets of everything that can be shown to the policy; what cannot is counted with its reason."""
    notes: list[str] = []
    prompts: dict[str, Prompt] = {}

    def note(part: str, total: int, refused: Sequence[Refused]) -> None:
        for reason, count in Counter(row.reason for row in refused).most_common():
            first = next(row for row in refused if row.reason == reason)
            notes.append(
                f"dropped, {reason}: {count} of {total} {part} problems (first: {first.problem_id}, {first.detail})"
            )
        if total and len(refused) == total:
            raise InputError(
                f"problems: no {part} problem can be shown to this policy: {total} of {total} refused, the first because "
                f"{refused[0].detail} ({refused[0].reason}). Shorten prompts, lower response_tokens, or change the model."
            )

    def keep(part: tuple[Problem, ...], name: str, budget: int) -> tuple[Problem, ...]:
        rendered = renderer.render(part, context=context, response_tokens=budget)
        note(name, len(part), rendered.refused)
        prompts.update({p.problem_id: p for p in rendered.prompts})
        return tuple(p for p in part if p.id in prompts)

    train = keep(problems.train, "training", recipe.rl.sampling.response_tokens) if recipe.rl else problems.train
    heldout = keep(problems.heldout, "held-out", response_tokens(recipe))
    targets: tuple[Row, ...] = ()
    sft = problems.sft
    if recipe.sft is not None:
        rows, refused = renderer.render_sft(sft, context=context, target=recipe.sft.target)
        note("SFT", len(sft), refused)
        targets = tuple((row.prompt_ids, row.target_ids) for row in rows)
        kept = {row.problem_id for row in rows}
        sft = tuple(p for p in sft if p.id in kept)
    if recipe.rl and len(train) < recipe.rl.prompts_per_batch:
        raise InputError(
            f"rl.prompts_per_batch must not exceed the training problems: {recipe.rl.prompts_per_batch} > {len(train)}. "
            "Lower it, or give more problems."
        )
    return replace(problems, train=train, sft=sft, heldout=heldout), prompts, targets, notes
