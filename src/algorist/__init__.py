"""Algorist trains language models to do mathematics with rewards that can be checked, and proves every step of it.

The names below are the public Python surface: each is the same function or type that the command line uses, imported
when it is first asked for, so that `import algorist` stays quick.

    >>> import algorist
    >>> algorist.check("1/2", "The answer is 0.5.").verdict.value
    'correct'
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from algorist.api.ask import Answer, sample
    from algorist.api.measure import evaluate_model
    from algorist.api.model import OpenModel, open_model
    from algorist.api.qualify import audit, calibrate, compare, preflight, why
    from algorist.api.runs import load_recipe, resume, run
    from algorist.errors import AlgoristError, InputError, RecipeError
    from algorist.evaluate.result import EvaluationResult
    from algorist.flow import (
        Batch,
        Finish,
        Group,
        Outcome,
        Problem,
        Prompt,
        Reward,
        Rollout,
        Update,
        Verdict,
    )
    from algorist.launch.execute import Finished
    from algorist.recipe.load import Resolved
    from algorist.report.page import build as build_report
    from algorist.verify import check, check_gold

_HOMES = {
    "AlgoristError": "errors",
    "Answer": "api.ask",
    "Batch": "flow",
    "EvaluationResult": "evaluate.result",
    "Finish": "flow",
    "Finished": "launch.run",
    "Group": "flow",
    "InputError": "errors",
    "OpenModel": "api.model",
    "Outcome": "flow",
    "Problem": "flow",
    "Prompt": "flow",
    "RecipeError": "errors",
    "Resolved": "recipe.load",
    "Reward": "flow",
    "Rollout": "flow",
    "Update": "flow",
    "Verdict": "flow",
    "audit": "api.qualify",
    "build_report": "report.page:build",
    "calibrate": "api.qualify",
    "check": "verify",
    "check_gold": "verify",
    "compare": "api.qualify",
    "evaluate_model": "api.measure",
    "load_recipe": "api.runs",
    "open_model": "api.model",
    "preflight": "api.qualify",
    "resume": "api.runs",
    "run": "api.runs",
    "sample": "api.ask",
    "why": "api.qualify",
}
"""Public name -> module that holds it."""

__all__ = [
    "AlgoristError",
    "Answer",
    "Batch",
    "EvaluationResult",
    "Finish",
    "Finished",
    "Group",
    "InputError",
    "OpenModel",
    "Outcome",
    "Problem",
    "Prompt",
    "RecipeError",
    "Resolved",
    "Reward",
    "Rollout",
    "Update",
    "Verdict",
    "audit",
    "build_report",
    "calibrate",
    "check",
    "check_gold",
    "compare",
    "evaluate_model",
    "load_recipe",
    "open_model",
    "preflight",
    "resume",
    "run",
    "sample",
    "why",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        try:
            return version("algorist")
        except PackageNotFoundError:  # a source tree that was never installed
            return "0"
    if name not in _HOMES:
        raise AttributeError(f"module 'algorist' has no attribute {name!r}; public names: {', '.join(__all__)}")
    module, _, own = _HOMES[name].partition(":")
    return getattr(import_module(f"algorist.{module}"), own or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
