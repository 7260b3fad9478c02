"""The Hugging Face folder that a run delivers: a pure function of recipe, contract and weights, so that an audit can make it again."""

from pathlib import Path

from algorist.digest import JSON
from algorist.launch.prepare import Prepared
from algorist.policy import weights
from algorist.policy.model import CausalPolicy


def write_export(prepared: Prepared, policy: CausalPolicy, folder: Path, *, contract: str, applied: int) -> None:
    """Model, tokenizer, model card, and algorist.json with what the export is of. applied: updates it was trained by."""
    prompt = prepared.recipe.prompt.model_copy(update={"examples": prepared.renderer.examples})
    facts: dict[str, JSON] = {
        "contract": contract,
        "recipe": prepared.recipe.name,
        "weights": weights.weights_digest(policy, value_head=False),  # a value head is not exported
        "step": applied,
        "prompt": prompt.model_dump(mode="json"),
    }
    card = _card(prepared, contract, applied)
    weights.export(policy, folder, stop_ids=prepared.task.stop_ids, card=card, facts=facts)


def _card(prepared: Prepared, contract: str, applied: int) -> str:
    recipe, problems = prepared.recipe, prepared.problems
    stages = [f"{len(problems.sft):,} by SFT"] if recipe.sft else []
    stages += [f"{len(problems.train):,} by RL"] if recipe.rl else []
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "---",
        f"# {recipe.name}",
        "",
        recipe.description or "A policy trained with Algorist.",
        "",
        f"- contract: `{contract}`",
        f"- parameters: {prepared.policy.num_parameters():,}",
        f"- problems it was trained from, with answers that were checked: {' and '.join(stages)}; {applied:,} applied updates",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model, tokenizer = (cls.from_pretrained(".") for cls in (AutoModelForCausalLM, AutoTokenizer))',
        "```",
        "",
    ]
    return "\n".join(lines)
