"""What a recipe implies: batch sizes and totals, so that nobody has to guess what "batch" means."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from algorist.recipe.checks import known_count, rl_count
from algorist.recipe.model import Recipe

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "problems": "problems in the sources",
        "sft_problems": "SFT problems",
        "rl_problems": "RL problems",
        "sft_updates": "SFT updates",
        "sft_examples_per_update": "SFT examples per update",
        "sft_tokens_per_update_max": "most SFT tokens per update",
        "sft_passes": "SFT passes over its problems",
        "rl_batches": "RL batches",
        "rl_updates_max": "RL optimizer updates, at most",
        "rl_problems_per_batch": "RL problems per batch",
        "rl_responses_per_problem": "RL responses per problem",
        "rl_responses_per_batch": "RL responses per batch",
        "rl_responses": "RL responses in all",
        "rl_response_tokens_per_batch_max": "most RL response tokens per batch",
        "rl_response_tokens_max": "most RL response tokens in all",
        "rl_passes": "RL passes over its problems",
        "rl_checkpoints": "RL checkpoints",
        "evaluation_problems": "evaluation problems",
        "evaluation_responses": "responses per evaluation",
    }
)
"""Name of a quantity -> what a person reads."""


def derived(recipe: Recipe) -> Mapping[str, float]:
    """Quantities that follow from the settings alone. Prompt lengths and model sizes are known later, from the files.

    Each has its words in WORDS; `_max` is what cannot be exceeded.
    """
    found: dict[str, float | None] = {"problems": known_count(recipe.problems.source)}
    found["sft_problems"] = recipe.problems.sft_count
    found["rl_problems"] = rl_count(recipe) if recipe.rl else None
    if recipe.sft:
        sft = recipe.sft
        found["sft_updates"] = sft.steps
        if sft.steps is None and sft.epochs is not None and sft.batch_size is not None:
            found["sft_updates"] = -(-recipe.problems.sft_count * sft.epochs // sft.batch_size)
        found["sft_examples_per_update"] = sft.batch_size
        found["sft_tokens_per_update_max"] = sft.batch_tokens
        if sft.steps is not None and sft.batch_size is not None and recipe.problems.sft_count:
            found["sft_passes"] = round(sft.steps * sft.batch_size / recipe.problems.sft_count, 3)
    if recipe.rl:
        rl = recipe.rl
        responses = rl.prompts_per_batch * rl.group_size
        problems = found["rl_problems"]
        found["rl_batches"] = rl.updates
        found["rl_updates_max"] = rl.updates * rl.epochs_per_batch
        found["rl_problems_per_batch"] = rl.prompts_per_batch
        found["rl_responses_per_problem"] = rl.group_size
        found["rl_responses_per_batch"] = responses
        found["rl_responses"] = responses * rl.updates
        found["rl_response_tokens_per_batch_max"] = responses * rl.sampling.response_tokens
        found["rl_response_tokens_max"] = responses * rl.sampling.response_tokens * rl.updates
        if problems:
            found["rl_passes"] = round(rl.updates * rl.prompts_per_batch / problems, 3)
        found["rl_checkpoints"] = -(-rl.updates // recipe.record.checkpoint_every)
    heldout = recipe.problems.heldout
    evaluated = [n for n in (recipe.evaluate.problems, heldout.count) if n is not None]
    total = known_count(heldout.source or recipe.problems.source)
    if not evaluated and heldout.share is not None and total is not None:
        evaluated = [round(total * heldout.share)]
    if evaluated:
        found["evaluation_problems"] = min(evaluated)
        per_problem = recipe.evaluate.samples + int(recipe.evaluate.greedy)
        found["evaluation_responses"] = min(evaluated) * per_problem
    return {name: value for name, value in found.items() if value is not None}
