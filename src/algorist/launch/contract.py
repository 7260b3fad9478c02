"""A prepared recipe as a contract: what `qualify.contract` cannot know, because it needs the policy and the problems."""

import hashlib
import json
from collections.abc import Iterable

from algorist.digest import JSON, canonical, file_digest, sha256
from algorist.launch.prepare import Prepared
from algorist.objective.registry import METHODS
from algorist.policy import weights
from algorist.qualify import contract as contracts
from algorist.qualify.policy_gates import config_digest, saved_parent, saved_step
from algorist.recipe.model import Recipe
from algorist.reward.reward import source_digest
from algorist.verify.identity import version as verifier_version


def make_contract(prepared: Prepared) -> dict[str, JSON]:
    """The contract of a prepared recipe; docs/qualification.md names the key of everything in it."""
    recipe, policy = prepared.recipe, prepared.policy
    settings = recipe.model_dump(mode="json")
    template = policy.tokenizer.chat_template
    document = contracts.build(
        recipe=settings,
        recipe_digest=sha256(canonical(settings)),
        policy={
            "weights": weights.weights_digest(policy),
            "tokenizer": weights.tokenizer_digest(policy.tokenizer),
            "chat_template": sha256(str(template).encode()) if template else None,
            "parameters": policy.num_parameters(),
            "layout": policy.layout,
            "dtype": policy.dtype,
            "device": policy.device.type,
        },
        parents=_parents(prepared),
        problems=_problems(prepared),
        verifier=verifier_version(),
        formulas=_formulas(recipe),
        notes=prepared.notes,
    )
    return {**document, "reward": {"name": recipe.reward.name, "source": source_digest(prepared.task.reward)}}


def _parents(prepared: Prepared) -> dict[str, JSON]:
    """Every checkpoint that the run starts from: weights, config, and the training step it says it was saved at.

    Copies that are not declared in qualify.parents are made of the policy in memory: the parents gate looks at them.
    """
    recipe, policy = prepared.recipe, prepared.policy
    own = recipe.policy.path
    found: dict[str, JSON] = {
        "policy": {
            "weights": weights.weights_digest(policy, value_head=False),
            "config": config_digest(policy.model.config),
            "step": None if own is None else saved_step((prepared.base / own).resolve()),
        }
    }
    declared = recipe.qualify.parents
    for name, path in (("reference", declared.reference), ("serving", declared.serving)):
        if path is not None:
            folder = (prepared.base / path).resolve()
            saved, config = saved_parent(folder, policy.dtype)
            found[name] = {"weights": saved, "config": config, "step": saved_step(folder)}
    return found


def _problems(prepared: Prepared) -> dict[str, JSON]:
    """What is asked, how it is split, how golds were read, and what was taken out."""
    problems = prepared.problems
    every = sorted((*problems.train, *problems.sft, *problems.heldout), key=lambda problem: problem.id)
    return {
        "digest": problems.digest,
        "content": _lines([p.id, p.question, p.gold, p.kind, p.family, p.solution, p.metadata] for p in every),
        "golds": _lines([p.id, p.gold, p.kind] for p in every),
        "exclusions": {name: file_digest(prepared.base / name) for name in prepared.recipe.qualify.data.exclusions},
        "train": len(problems.train),
        "sft": len(problems.sft),
        "heldout": len(problems.heldout),
        "evaluated": len(prepared.task.heldout),
    }


def _lines(rows: Iterable[object]) -> str:
    """sha256 over one JSON line a row; read row by row, since problem sets are large.

    >>> _lines([["a", 1]]) == sha256(b'["a", 1]\\n')
    True
    """
    found = hashlib.sha256()
    for row in rows:
        found.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return found.hexdigest()


def _formulas(recipe: Recipe) -> dict[str, JSON]:
    """The formulas that run, per loop."""
    if recipe.rl is None:
        return {}
    return {"rl": dict(METHODS[recipe.rl.objective.name].formula(recipe.rl.objective))}
