"""Combinations across rooms that cannot work, each with the place and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from algorist.errors import RecipeError
from algorist.objective.knobs import GroupKnobs
from algorist.objective.shaping_config import EffortLength, Overlong
from algorist.problems.arithmetic import num_problems, shares, space
from algorist.problems.config import ArithmeticConfig, JsonlConfig, ReasoningGymConfig, SourceConfig
from algorist.recipe.model import Recipe
from algorist.recipe.source import KeyPath, Written, dotted
from algorist.train.config import OptimizerConfig


def check(recipe: Recipe, written: Written) -> list[RecipeError]:
    """All impossible combinations of a recipe whose single values are right, in the order of the file."""
    found = [
        written.origin(at).error(message, fix)
        for rule in (
            _stages,
            _sources_of_responses,
            _shaping,
            _efforts,
            _group,
            _lengths,
            _spaces,
            _problem_counts,
            _families,
            _solutions,
            _evaluation,
            _schedules,
        )
        for at, message, fix in rule(recipe)
    ]
    return sorted(found, key=lambda error: (str(error.path or ""), error.line or 0))


def check_files(recipe: Recipe, written: Written, base_dir: Path) -> list[RecipeError]:
    """Problem files that a recipe names and that do not exist."""
    found = []
    for at, source in _sources(recipe):
        if isinstance(source, JsonlConfig) and not (base_dir / source.path).exists():
            message = f"{dotted(at)}.path does not exist: {base_dir / source.path}"
            found.append(written.origin((*at, "path")).error(message, "Give a path relative to the recipe."))
    return found


Finding = tuple[KeyPath, str, str]
"""Where, what must hold and what was got, what to do."""


def _stages(recipe: Recipe) -> Iterator[Finding]:
    if recipe.sft is None and recipe.rl is None:
        yield (), "a recipe needs sft, rl or both: got neither, so nothing would be trained", "Add `rl: ...`."
    if recipe.sft is not None and recipe.problems.sft_count == 0:
        yield ("sft",), "sft needs problems.sft_count > 0: got 0", "Say how many training problems SFT may see."
    if recipe.sft is None and recipe.problems.sft_count > 0:
        at = ("problems", "sft_count")
        yield (
            at,
            "problems.sft_count keeps problems out of RL, and there is no sft stage",
            "Add `sft: ...` or set it to 0.",
        )


def _group(recipe: Recipe) -> Iterator[Finding]:
    if recipe.rl is None:
        return
    rl, objective = recipe.rl, recipe.rl.objective
    needed = objective.min_group_size
    if rl.group_size < needed:
        why = "a group of one has no baseline"
        message = f"rl.group_size must be >= {needed} for {objective.name} ({why}): got {rl.group_size}"
        yield ("rl", "group_size"), message, f"Set {needed} or more, or use reinforce."
    if rl.epochs_per_batch > 1 and not objective.reuse:
        message = (
            f"rl.epochs_per_batch must be 1 for {objective.name}, which has no ratio to the sampling policy: "
            f"got {rl.epochs_per_batch}"
        )
        yield ("rl", "epochs_per_batch"), message, "Set it to 1, or use an objective with a ratio, such as grpo."
    if rl.reference.reset_every is not None and "logp_ref" not in objective.needs:
        message = "rl.reference.reset_every is set, and the objective uses no reference (beta is 0)"
        yield ("rl", "reference", "reset_every"), message, "Set rl.objective.beta above 0, or remove it."


_NO_REWARD = ("sft", "rft", "online_rft", "dpo", "grpo_process")
"""Objectives that read verdicts or step rewards, not the response's reward."""


def _sources_of_responses(recipe: Recipe) -> Iterator[Finding]:
    """What learning from responses of another policy, or from the data set, rules out."""
    if recipe.rl is None or recipe.rl.source == "online":
        return
    rl, name = recipe.rl, recipe.rl.objective.name
    if rl.reference.reset_every is not None and "logp_ref" in rl.objective.needs:
        message = f"rl.reference.reset_every is set, and {name} keeps the policy it samples from as its reference"
        yield ("rl", "reference", "reset_every"), message, "Remove it."
    if rl.source == "dataset":
        if rl.group_size != 1:
            message = f"rl.group_size must be 1 for {name} (one worked solution per problem): got {rl.group_size}"
            yield ("rl", "group_size"), message, "Set it to 1."
        if recipe.sft is None:  # else the sft stage's own target
            yield from _with_solutions(
                recipe, ("rl", "objective", "name"), f"rl.objective {name}", "Use the sft stage."
            )


def _shaping(recipe: Recipe) -> Iterator[Finding]:
    if recipe.rl is None:
        return
    rl = recipe.rl
    name, needs = rl.objective.name, rl.objective.needs
    if rl.shaping and name in _NO_REWARD:
        message = f"rl.shaping changes rewards, and {name} does not read them"
        yield ("rl", "shaping"), message, "Remove it, or use an objective that does, such as grpo."
    for index, cfg in enumerate(rl.shaping):
        if cfg.name in [other.name for other in rl.shaping[:index]]:
            message = f"rl.shaping holds {cfg.name} twice, and each may change the rewards once"
            yield ("rl", "shaping", index), message, "Remove one."
        budget = rl.sampling.response_tokens
        if isinstance(cfg, Overlong) and cfg.max_tokens - cfg.buffer_tokens >= budget:
            begins = cfg.max_tokens - cfg.buffer_tokens
            message = (
                f"rl.shaping overlong must begin below the response budget of {budget} tokens: got {begins} "
                "(max_tokens - buffer_tokens)"
            )
            yield ("rl", "shaping", index, "max_tokens"), message, f"Set max_tokens to {budget}."
    redistributes = isinstance(rl.objective, GroupKnobs) and rl.objective.redistribution is not None
    if redistributes and rl.quality is None:
        message = "rl.objective.redistribution needs to know what makes a correct response good: rl.quality is null"
        yield ("rl", "objective", "redistribution"), message, "Set rl.quality to brevity or arithmetic."
    if rl.quality is not None and not redistributes:
        message = f"rl.quality is read by rl.objective.redistribution only: got {rl.quality} without it"
        yield ("rl", "quality"), message, "Remove it, or set rl.objective.redistribution to {}."
    if rl.process is not None and "step_rewards" not in needs:
        message = f"rl.process scores steps, and {name} has no step rewards"
        yield ("rl", "process"), message, "Remove it, or use grpo_process."


def _efforts(recipe: Recipe) -> Iterator[Finding]:
    """Efforts, the prompt that shows them and the price that is put on length under them go together."""
    efforts, prompt = recipe.problems.efforts, recipe.prompt
    if efforts and not prompt.shows_effort:
        message = "problems.efforts are set, and the prompt does not show them"
        yield (
            ("problems", "efforts"),
            message,
            "Write {effort} into prompt.format, or into prompt.system of a chat template.",
        )
    if prompt.shows_effort and not efforts:
        message = "the prompt says {effort}, and problems.efforts is empty"
        yield ("prompt",), message, "Set problems.efforts, for example to [20, 80]."
    for index, cfg in enumerate(recipe.rl.shaping if recipe.rl else ()):
        if isinstance(cfg, EffortLength) and set(cfg.levels) != set(efforts):
            message = f"rl.shaping effort_length prices the levels {sorted(cfg.levels)}, problems.efforts are {sorted(efforts)}"
            yield ("rl", "shaping", index, "levels"), message, "Name the same levels in both."


def _context(recipe: Recipe) -> int | None:
    sizes = [recipe.policy.context, recipe.policy.new.context if recipe.policy.new else None]
    known = [size for size in sizes if size is not None]
    return min(known) if known else None


def shortest_prompt_tokens(recipe: Recipe) -> int:
    """A lower bound of every prompt's length, in tokens: exact signs for a char tokenizer, else 1."""
    new, prompt = recipe.policy.new, recipe.prompt
    if new is None or new.tokenizer.kind != "char" or prompt.template == "chat":
        return 1
    one = len(prompt.question_format.replace("{question}", ""))
    shown = prompt.examples if isinstance(prompt.examples, tuple) else ()
    answer = len(prompt.target_format.replace("{answer}", "")) + len(prompt.separator)
    return 1 + one + sum(one + answer + len(example.question) + len(example.answer) for example in shown)


def _lengths(recipe: Recipe) -> Iterator[Finding]:
    policy, context = recipe.policy, _context(recipe)
    if policy.context is not None and policy.new is not None and policy.context > policy.new.context:
        message = f"policy.context must be <= policy.new.context ({policy.new.context}): got {policy.context}"
        yield ("policy", "context"), message, "Remove it, or raise policy.new.context."
    budgets: list[tuple[KeyPath, int]] = []
    if recipe.rl is not None:
        budgets.append((("rl", "sampling", "response_tokens"), recipe.rl.sampling.response_tokens))
    if recipe.evaluate.response_tokens is not None:
        budgets.append((("evaluate", "response_tokens"), recipe.evaluate.response_tokens))
    shortest = shortest_prompt_tokens(recipe)
    for at, budget in budgets:
        if context is not None and shortest + budget > context:
            message = (
                f"{dotted(at)} and the prompt must fit the context of {context} tokens: "
                f"got {budget} after a prompt of at least {shortest}"
            )
            yield (
                at,
                message,
                f"Set it to {context - shortest} or less, or raise the context."
                if context > shortest
                else "Raise the context.",
            )
    if recipe.rl is not None and recipe.rl.micro_batch_tokens < shortest + recipe.rl.sampling.response_tokens:
        message = (
            f"rl.micro_batch_tokens must hold one prompt and response, at least {shortest} + "
            f"{recipe.rl.sampling.response_tokens} tokens: got {recipe.rl.micro_batch_tokens}"
        )
        yield ("rl", "micro_batch_tokens"), message, "Raise it."


def _sources(recipe: Recipe) -> Iterator[tuple[KeyPath, SourceConfig]]:
    for at, sources in (
        (("problems", "source"), recipe.problems.source),
        (("problems", "heldout", "source"), recipe.problems.heldout.source or ()),
    ):
        for index, source in enumerate(sources):
            yield (at if len(sources) == 1 else (*at, index)), source


def known_count(sources: Sequence[SourceConfig]) -> int | None:
    """Problems that sources promise together, where all of them say so; duplicates may make it fewer."""
    total = 0
    for source in sources:
        if isinstance(source, ArithmeticConfig):
            count = num_problems(source)
        else:
            count = source.limit if isinstance(source, JsonlConfig) else source.count
        if count is None:
            return None
        total += count
    return total


def rl_count(recipe: Recipe) -> int | None:
    """Problems left for RL after held-out and SFT problems are taken out; None where the sources do not tell."""
    problems, total = recipe.problems, known_count(recipe.problems.source)
    if total is None:
        return None
    held = 0
    if problems.heldout.source is None:
        held = (
            problems.heldout.count
            if problems.heldout.count is not None
            else round(total * (problems.heldout.share or 0.0))
        )
    return (total - held - problems.sft_count) * max(1, len(problems.efforts))


def _spaces(recipe: Recipe) -> Iterator[Finding]:
    for at, source in _sources(recipe):
        if not isinstance(source, ArithmeticConfig):
            continue
        for index, (family, wanted) in enumerate(zip(source.families, shares(source), strict=True)):
            size = space(family).size
            if wanted is not None and wanted > size:
                message = f"{dotted(at)}.count asks for {wanted} problems of {family.name}, which has {size} at most"
                yield (*at, "families", index), message, "Lower the count, or widen the family's digits or ranges."


def _problem_counts(recipe: Recipe) -> Iterator[Finding]:
    problems, left = recipe.problems, rl_count(recipe)
    if problems.heldout.source is not None:
        own = known_count(problems.heldout.source)
        if own is not None and problems.heldout.count is not None and problems.heldout.count > own:
            message = (
                f"problems.heldout.count must be <= the {own} problems of its source: got {problems.heldout.count}"
            )
            yield ("problems", "heldout", "count"), message, "Lower it, or raise the source's count."
    if left is None:
        return
    needed = recipe.rl.prompts_per_batch if recipe.rl else 0
    if left < 0:
        total = known_count(problems.source)
        taken = (total or 0) - left // max(1, len(problems.efforts))
        message = f"held-out and SFT problems must fit into the {total} problems of problems.source: got {taken}"
        at = ("problems", "source", "count") if len(problems.source) == 1 else ("problems", "source")
        yield at, message, "Lower problems.heldout or problems.sft_count, or raise the source's count."
    elif left < needed:
        message = f"rl.prompts_per_batch must be <= the {left} problems left for RL: got {needed}"
        yield ("rl", "prompts_per_batch"), message, "Lower it, or raise the count of problems.source."


def _families(recipe: Recipe) -> Iterator[Finding]:
    if recipe.problems.heldout.by != "family":
        return
    at = ("problems", "heldout", "by")
    names: set[str] = set()
    for where, source in _sources(recipe):
        if isinstance(source, JsonlConfig):
            if source.family is None:
                message = (
                    f"problems.heldout.by: family needs {dotted(where)}.family, the field that names each row's family"
                )
                yield at, message, "Name that field, or use by: content."
            return
        names |= {f.name for f in source.families} if isinstance(source, ArithmeticConfig) else {source.dataset}
    if len(names) < 2:
        message = (
            f"problems.heldout.by: family needs at least two families: got {len(names)} ({', '.join(sorted(names))})"
        )
        yield at, message, "Add a family, or use by: content."


def _solutions(recipe: Recipe) -> Iterator[Finding]:
    if recipe.sft is None or recipe.sft.target != "solution":
        return
    yield from _with_solutions(recipe, ("sft", "target"), "sft.target: solution", "Set sft.target: gold")


def _with_solutions(recipe: Recipe, at: KeyPath, what: str, otherwise: str) -> Iterator[Finding]:
    """Every source of training problems has worked solutions."""
    for where, source in _sources(recipe):
        if where[:2] == ("problems", "heldout"):
            continue
        if isinstance(source, ReasoningGymConfig) or (isinstance(source, JsonlConfig) and source.solution is None):
            message = f"{what} needs worked solutions, and {dotted(where)} ({source.kind}) names none"
            fix = otherwise.rstrip(".") + (
                "." if isinstance(source, ReasoningGymConfig) else f", or name the field: {dotted(where)}.solution."
            )
            yield at, message, fix


def _evaluation(recipe: Recipe) -> Iterator[Finding]:
    evaluate, heldout = recipe.evaluate, recipe.problems.heldout
    if evaluate.response_tokens is None and recipe.rl is None:
        message = "evaluate.response_tokens is missing, and there is no rl.sampling to take it from"
        yield ("evaluate", "response_tokens"), message, "Add it."
    if evaluate.problems is not None and heldout.count is not None and evaluate.problems > heldout.count:
        message = f"evaluate.problems must be <= problems.heldout.count ({heldout.count}): got {evaluate.problems}"
        yield ("evaluate", "problems"), message, "Lower it, or hold out more."


def _schedules(recipe: Recipe) -> Iterator[Finding]:
    stages: list[tuple[str, OptimizerConfig, int | None]] = []
    if recipe.sft is not None:
        stages.append(("sft", recipe.sft.optimizer, recipe.sft.steps))
    if recipe.rl is not None:
        stages.append(("rl", recipe.rl.optimizer, recipe.rl.updates * recipe.rl.epochs_per_batch))
    for stage, optimizer, updates in stages:
        if updates is not None and optimizer.warmup_updates >= updates:
            warmup = optimizer.warmup_updates
            message = f"{stage}.optimizer.warmup_updates must be below the stage's {updates} updates: got {warmup}"
            yield (stage, "optimizer", "warmup_updates"), message, "Lower it."
