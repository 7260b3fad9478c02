"""A finished run, its export, or any Hugging Face folder, opened as the run's own sampler sees it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, final

from pydantic import ValidationError

from algorist.digest import canonical, digest
from algorist.errors import InputError, ResumeMismatch
from algorist.evaluate.config import EvaluateConfig
from algorist.policy.build import build_policy
from algorist.policy.config import PolicyConfig
from algorist.policy.model import CausalPolicy
from algorist.prompts.config import PromptConfig
from algorist.prompts.render import Renderer
from algorist.recipe.load import from_json
from algorist.recipe.model import Recipe

_DEFAULT_RESPONSE_TOKENS = 512


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """A model with everything needed to ask it as it was trained."""

    policy: CausalPolicy
    renderer: Renderer
    """Question to token ids, and the ids that end a response."""
    evaluate: EvaluateConfig
    """The run's own evaluation settings, or the defaults."""
    response_tokens: int
    """Response budget of the run, or a default that fits the context."""
    seed: int
    """Seed of the run, or 0."""
    folder: Path
    """The Hugging Face folder that was opened."""
    run: Path | None
    """The run it belongs to, where there is one."""
    recipe: Recipe | None
    """The recipe of that run."""
    prompt_from: str
    """Where the prompt settings come from, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """What is known about a model folder before it is loaded."""

    folder: Path
    run: Path | None = None
    recipe: Recipe | None = None
    facts: dict[str, Any] | None = None
    """algorist.json of an export."""


def open_model(
    path: str | Path,
    *,
    prompt: PromptConfig | None = None,
    prompt_from: str = "as given",
    dtype: Literal["float32", "bfloat16"] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> OpenModel:
    """Open a run folder (its export), an export, or a Hugging Face causal LM folder.

    Prompt settings: `prompt`; else those of the export or its run; else the tokenizer's chat template; else plain.
    Raises InputError where the folder is none of the three, does not load, or its run is not finished.
    """
    origin = find(Path(path))
    recipe = origin.recipe
    policy = build_policy(
        PolicyConfig(
            path=str(origin.folder.resolve()),
            dtype=dtype or (recipe.policy.dtype if recipe else "float32"),
            device=device,
            context=recipe.policy.context if recipe else None,
        ),
        base=Path(),
        texts=(),
        seed=0,
    )
    if prompt is None:
        renderer, prompt_from = _renderer(origin, policy)
    else:
        renderer = Renderer(prompt, policy.tokenizer)
    budget = _DEFAULT_RESPONSE_TOKENS if recipe is None else _budget(recipe)
    return OpenModel(
        policy=policy,
        renderer=renderer,
        evaluate=recipe.evaluate if recipe else EvaluateConfig(),
        response_tokens=min(budget, max(1, policy.context // 2)) if recipe is None else budget,
        seed=recipe.seed if recipe else 0,
        folder=origin.folder,
        run=origin.run,
        recipe=recipe,
        prompt_from=prompt_from,
    )


def find(path: Path) -> _Origin:
    """The model folder that a path means, and its run where there is one. Nothing is loaded."""
    if not path.exists():
        raise InputError(f"{path}: no such folder. Give a run folder, its export, or a Hugging Face model folder.")
    if (path / "contract.json").is_file() or (path / "ledger.jsonl").is_file():
        folder = path / "export"
        if not (folder / "config.json").is_file():
            raise InputError(
                f"{path}: this run has no exported model yet, so it is not finished. Finish it: algorist resume {path}"
            )
        return _of_run(folder, path)
    if (path / "config.json").is_file():
        return _of_run(path, path.resolve().parent)
    if (path / "state.json").is_file() and (path / "weights.safetensors").is_file():
        raise InputError(
            f"{path}: is a checkpoint to resume from, not a model folder. Give the run folder, {path.parent.parent}."
        )
    raise InputError(
        f"{path}: must be a run folder, its export, or a Hugging Face model folder: it holds neither contract.json nor "
        "config.json. Check the path."
    )


def _of_run(folder: Path, run: Path) -> _Origin:
    """A model folder and, where the run beside it wrote it, that run's recipe."""
    facts = _read(folder / "algorist.json")
    contract = _read(run / "contract.json")
    if contract is None or facts is None or facts.get("contract") != digest(contract):
        return _Origin(folder=folder, facts=facts)
    try:
        recipe = from_json(canonical(contract["recipe"]))
    except (KeyError, TypeError, ValidationError) as error:
        raise ResumeMismatch(f"{run}/contract.json: its recipe cannot be read ({error}). Put the file back.") from error
    return _Origin(folder=folder, run=run, recipe=recipe, facts=facts)


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is no such file or it is something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _renderer(origin: _Origin, policy: CausalPolicy) -> tuple[Renderer, str]:
    """The prompts of the export, else of its run, else of the tokenizer's chat template, else plain."""
    stored = (origin.facts or {}).get("prompt")
    if stored is not None:
        try:
            return Renderer(_prompt_config(stored), policy.tokenizer), "as in its training (algorist.json)"
        except ValidationError as error:
            raise InputError(
                f"{origin.folder}/algorist.json: its prompt settings cannot be read ({error.errors()[0]['msg']}). "
                "Export the run again."
            ) from error
    if origin.recipe is not None:
        return _of_recipe(origin, policy), "as in its run (contract.json)"
    if policy.tokenizer.chat_template:
        return Renderer(PromptConfig(template="chat"), policy.tokenizer), "the tokenizer's chat template"
    return Renderer(PromptConfig(), policy.tokenizer), "plain, as the tokenizer has no chat template"


def _prompt_config(stored: Any) -> PromptConfig:
    fields = dict(stored) if isinstance(stored, dict) else stored
    if isinstance(fields, dict):
        if isinstance(fields.get("examples"), list):
            fields["examples"] = tuple(fields["examples"])
        if isinstance(fields.get("stop"), list):
            fields["stop"] = tuple(fields["stop"])
    return PromptConfig.model_validate(fields, strict=True)


def _of_recipe(origin: _Origin, policy: CausalPolicy) -> Renderer:
    recipe = origin.recipe
    assert recipe is not None, "called with a recipe"
    if not isinstance(recipe.prompt.examples, int) or recipe.prompt.examples == 0:
        return Renderer(recipe.prompt, policy.tokenizer)
    # examples were drawn from the training problems: draw them again
    problems = own_problems(recipe, origin.run)
    return Renderer(recipe.prompt, policy.tokenizer, pool=[*problems.sft, *problems.train], seed=recipe.seed)


def own_problems(recipe: Recipe, run: Path | None) -> Any:
    """The problem set of a run, loaded again from where its recipe says. Raises InputError where files moved."""
    from algorist.problems.load import load_problems
    from algorist.verify import check_gold

    origin = _read(run / "logs" / "origin.json") if run is not None else None
    return load_problems(
        recipe.problems,
        seed=recipe.seed,
        base_dir=Path(origin["base"]) if origin and "base" in origin else Path(),
        gold_check=check_gold,
        solutions=recipe.sft is not None and recipe.sft.target == "solution",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOn:
    """What a run learned from, as far as its files tell."""

    ids: frozenset[str]
    """Content ids of problems."""
    questions: frozenset[str]
    """Keys of the questions whose text is known; they match whatever the gold is."""
    unknown: str
    """What could not be known, in words; empty where everything is."""


def trained_on(recipe: Recipe, run: Path) -> TrainedOn:
    """Problems that a run sampled from in RL (its rollouts) or was shown in SFT (its recipe's split, read again)."""
    from algorist.problems.split import question_key

    ids: set[str] = set()
    for path in sorted((run / "rollouts").glob("*.parquet")):
        ids.update(_problem_ids(path))
    try:
        own = own_problems(recipe, run)
    except (InputError, OSError) as error:
        why = f"the run's own problems cannot be read again ({error})"
        return TrainedOn(ids=frozenset(ids), questions=frozenset(), unknown=why)
    if recipe.sft is not None:
        ids.update(problem.id for problem in own.sft)
    known = frozenset(question_key(p.question) for p in (*own.train, *own.sft) if p.id in ids)
    return TrainedOn(ids=frozenset(ids), questions=known, unknown="")


def _problem_ids(path: Path) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.ParquetFile(path).read(columns=["problem_id"])["problem_id"].to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: must be a Parquet file of rollouts, could not be read ({error})") from error


def _budget(recipe: Recipe) -> int:
    if recipe.evaluate.response_tokens is not None:
        return recipe.evaluate.response_tokens
    return recipe.rl.sampling.response_tokens if recipe.rl else 256


def with_prompt(model: OpenModel, prompt: PromptConfig, *, pool: Sequence[Any] = (), seed: int = 0) -> OpenModel:
    """The same model asked in another way."""
    return replace(
        model, renderer=Renderer(prompt, model.policy.tokenizer, pool=pool, seed=seed), prompt_from="as given"
    )
