"""Recipes and runs from Python; the verbs `run`, `sft`, `rl` and `resume` call these."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from algorist.errors import InputError
from algorist.launch.run import Finished
from algorist.launch.run import resume as launch_resume
from algorist.launch.run import run as launch_run
from algorist.recipe.checks import check_files
from algorist.recipe.failure import raise_all
from algorist.recipe.load import Resolved, load
from algorist.reward.reward import RewardFunction
from algorist.stages.listener import Listener, Silent

Never: Callable[[], bool] = lambda: False  # noqa: E731


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Resolved:
    """A recipe file with every default filled in and everything about it checked, problem files included.

    overrides: texts like "rl.updates=10", as after --set. Raises RecipeError (exit code 2) naming all that is wrong.
    """
    resolved = load(path, overrides)
    raise_all(check_files(resolved.recipe, resolved.written, resolved.base_dir))
    return resolved


def run(
    recipe: Resolved | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    reward: RewardFunction | None = None,
    plugin: str | None = None,
    listener: Listener | None = None,
    stop_requested: Callable[[], bool] = Never,
) -> Finished:
    """All stages of a recipe, in the new folder `out`.

    reward: a function (problem, rollout, verdict) -> float | Reward of your own. It must have a name in an importable
    module (no lambda, no inner function), since the contract and a later resume name it: this is the same as
    `plugin=MODULE` with `reward.name` set to the function's name.
    Raises InputError and RecipeError (2), GateFailed (4), Stopped (75); see `algorist.errors`.
    """
    if isinstance(recipe, Resolved) and (overrides or reward is not None):
        raise InputError("run: overrides and reward go with a recipe path; a resolved recipe is used as it is.")
    if reward is not None:
        if plugin is not None:
            raise InputError("run: give a reward or a plugin, not both.")
        plugin, name = named(reward)
        overrides = [*overrides, f"reward.name={name}"]
    resolved = recipe if isinstance(recipe, Resolved) else load_recipe(recipe, overrides)
    return launch_run(
        resolved, Path(out), listener=listener or Silent(), plugin=plugin, stop_requested=stop_requested
    )


def resume(
    path: str | Path, *, listener: Listener | None = None, stop_requested: Callable[[], bool] = Never
) -> Finished:
    """Go on with a stopped or killed run, to the same result as if it had never been stopped.

    Raises InputError where `path` is no run folder, ResumeMismatch (5) where the run cannot find what it began with.
    """
    return launch_resume(Path(path), listener=listener or Silent(), stop_requested=stop_requested)


def named(reward: RewardFunction) -> tuple[str, str]:
    """(module, name) of a reward function. Raises InputError where it cannot be found again by them.

    >>> from algorist.reward.reward import exact
    >>> named(exact)
    ('algorist.reward.reward', 'exact')
    """
    module, name = getattr(reward, "__module__", ""), getattr(reward, "__qualname__", "")
    if vars(sys.modules.get(module, sys)).get(name) is not reward:
        raise InputError(
            f"run: a reward must be a function at the top of a module, so that a resume finds it again: got {reward!r}. "
            "Give it a name there."
        )
    return module, name
