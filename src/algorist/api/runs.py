"""Recipes and runs from Python; the verbs `run`, `sft`, `rl` and `resume` call these."""

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from algorist.errors import AdmissionRefused, GateFailed, InputError, Stopped
from algorist.launch.execute import Finished
from algorist.launch.run import resume as launch_resume
from algorist.launch.run import run as launch_run
from algorist.recipe.checks import check_files
from algorist.recipe.failure import raise_all
from algorist.recipe.load import Resolved, load
from algorist.record.run_folder import RunFolder
from algorist.record.storage import WriteFailed
from algorist.report.page import build
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
    if plugin is not None:
        import_plugin(plugin)
    out, told = Path(out), listener or Silent()
    return _with_report(
        out, lambda: launch_run(resolved, out, listener=told, plugin=plugin, stop_requested=stop_requested)
    )


def resume(
    path: str | Path,
    *,
    listener: Listener | None = None,
    stop_requested: Callable[[], bool] = Never,
    amend: bool = False,
    overrides: Sequence[str] = (),
) -> Finished:
    """Go on with a stopped or killed run, to the same result as if it had never been stopped.

    amend: go on under a new contract that names the old one, where something differs; `overrides` may then change the recipe.
    Raises InputError where `path` is no run folder, ResumeMismatch (5) where the run cannot find what it began with.
    """
    path, told = Path(path), listener or Silent()
    folder = RunFolder.open(path)
    plugin = plugin_of(folder)
    if plugin is not None:
        import_plugin(plugin)
    return _with_report(
        path,
        lambda: launch_resume(path, listener=told, stop_requested=stop_requested, amend=amend, overrides=overrides),
    )


def plugin_of(folder: RunFolder) -> str | None:
    """The module that a run was started with, where it was started with one."""
    try:
        value = json.loads((folder.logs / "origin.json").read_bytes()).get("plugin")
    except (OSError, ValueError, AttributeError):  # the resume itself says what is wrong with the file
        return None
    return value if isinstance(value, str) else None


def import_plugin(name: str) -> None:
    """Import a module named on the command line; one in the current folder is found too.

    Raises InputError with what the module itself raised.
    """
    if name.endswith(".py"):
        module = name.removesuffix(".py").replace("/", ".").strip(".")
        raise InputError(
            f"--plugin takes the name of a module, not a file: got {name}. Drop the .py: --plugin {module}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        importlib.import_module(name)
    except Exception as error:
        raise InputError(
            f"--plugin {name}: the module could not be imported ({type(error).__name__}: {error}). It must be importable "
            "from here, for example a .py file in the current folder."
        ) from error


def _with_report(folder: Path, work: Callable[[], Finished]) -> Finished:
    """Do the work; where it was refused, failed or stopped, build the page about what there is so far."""
    try:
        return work()
    except (AdmissionRefused, GateFailed, Stopped):
        if (folder / "ledger.jsonl").is_file():
            with contextlib.suppress(WriteFailed):  # the error says that the disk is full; the page can be built later
                build(folder)
        raise


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
