"""What a recipe implies: batch sizes and totals in words, so that nobody has to guess what "batch" means."""

from __future__ import annotations

from collections.abc import Mapping

from algorist.recipe.checks import known_count, rl_count
from algorist.recipe.model import Recipe


def derived(recipe: Recipe) -> Mapping[str, float]:
    """Quantities that follow from the settings alone. Prompt lengths and model sizes are known later, from the files.

    Names end in their unit where it is not a count.
    """
    found: dict[str, float | None] = {"problems in the sources": known_count(recipe.problems.source)}
    found["SFT problems"] = recipe.problems.sft_count
    found["RL problems"] = rl_count(recipe) if recipe.rl else None
    if recipe.sft:
        sft = recipe.sft
        found["SFT updates"] = sft.steps
        if sft.steps is None and sft.epochs is not None and sft.batch_size is not None:
            found["SFT updates"] = -(-recipe.problems.sft_count * sft.epochs // sft.batch_size)
        found["SFT examples per update"] = sft.batch_size
        found["most SFT tokens per update"] = sft.batch_tokens
        if sft.steps is not None and sft.batch_size is not None and recipe.problems.sft_count:
            found["SFT passes over its problems"] = round(sft.steps * sft.batch_size / recipe.problems.sft_count, 3)
    if recipe.rl:
        rl = recipe.rl
        responses = rl.prompts_per_batch * rl.group_size
        problems = found["RL problems"]
        found["RL batches"] = rl.updates
        found["RL optimizer updates, at most"] = rl.updates * rl.epochs_per_batch
        found["RL problems per batch"] = rl.prompts_per_batch
        found["RL responses per problem"] = rl.group_size
        found["RL responses per batch"] = responses
        found["RL responses in all"] = responses * rl.updates
        found["most RL response tokens per batch"] = responses * rl.sampling.response_tokens
        found["most RL response tokens in all"] = responses * rl.sampling.response_tokens * rl.updates
        if problems:
            found["RL passes over its problems"] = round(rl.updates * rl.prompts_per_batch / problems, 3)
        found["RL checkpoints"] = -(-rl.updates // recipe.record.checkpoint_every)
    heldout = recipe.problems.heldout
    evaluated = [n for n in (recipe.evaluate.problems, heldout.count) if n is not None]
    total = known_count(heldout.source or recipe.problems.source)
    if not evaluated and heldout.share is not None and total is not None:
        evaluated = [round(total * heldout.share)]
    if evaluated:
        found["evaluation problems"] = min(evaluated)
        per_problem = recipe.evaluate.samples + int(recipe.evaluate.greedy)
        found["responses per evaluation"] = min(evaluated) * per_problem
    return {name: value for name, value in found.items() if value is not None}
