"""Verdict to reward: the built-in exact rule, and rewards of the user's own.

A user's reward comes from Python (a callable), from an installed entry point of the group `algorist.rewards`, or from a
module named on the command line (--plugin). A recipe can only name it; it cannot point at code.
"""

import importlib
import importlib.metadata
import inspect
import math
from collections.abc import Callable
from numbers import Real
from pathlib import Path

from algorist.digest import file_digest
from algorist.errors import GateFailed, InputError
from algorist.flow import Finish, Outcome, Problem, Reward, Rollout, Verdict
from algorist.patience import Overdue, patience

RewardFunction = Callable[[Problem, Rollout, Verdict], float | Reward]
"""(problem, rollout, verdict) -> reward. An exception or a non-finite value is a typed outcome, never a 0."""

ENTRY_POINTS = "algorist.rewards"
PATIENCE_S = 60.0
"""A reward that has not answered by then hangs: the run ends instead of waiting for ever."""


def exact(problem: Problem, rollout: Rollout, verdict: Verdict) -> Reward:
    """1 for a supported right final answer, 0 for a wrong or unsupported one; none where the checker failed.

    >>> p = Problem(id="p", question="1+1?", gold="2", source="s")
    >>> v = Verdict(verdict=Outcome.ERROR, reason="timeout")
    >>> exact(p, None, v).error
    'verifier: timeout'
    """
    if verdict.verdict is Outcome.ERROR:
        return Reward(value=None, error=f"verifier: {verdict.reason}")
    value = float(verdict.verdict is Outcome.CORRECT)
    return Reward(value=value, parts={"correct": value})


def resolve(name: str, *, plugin: str | None = None) -> RewardFunction:
    """The reward a recipe names: built-in, function of the plugin module, or installed entry point (in this order).

    >>> resolve("exact") is exact
    True
    """
    if name == "exact":
        return exact
    if plugin is not None:
        module = _import(plugin)
        found = vars(module).get(name)
        if callable(found):
            return _checked(found, f"{plugin}.{name}")
    installed = {e.name: e for e in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name in installed:
        return _checked(installed[name].load(), f"entry point {name}")
    known = ", ".join(["exact", *sorted(installed)])
    where = f"module {plugin} has no function of that name and " if plugin else ""
    raise InputError(
        f"reward.name must be a known reward: {name!r}: {where}no entry point of the group {ENTRY_POINTS} has it (known: "
        f"{known}). Give the module that defines it with --plugin MODULE."
    )


def apply(function: RewardFunction, problem: Problem, rollout: Rollout, verdict: Verdict) -> Reward:
    """The reward of one rollout; whatever goes wrong inside becomes a reward without a value, with its cause.

    Raises GateFailed where the function does not answer within `PATIENCE_S` (on the main thread, where it can be stopped).

    >>> p = Problem(id="p", question="1+1?", gold="2", source="s")
    >>> r = Rollout(problem_id="p", sample=0, prompt_ids=(1,), token_ids=(), behaviour_logp=(), policy_version=(),
    ...             loss_mask=(), finish=Finish.STOP, text="", seed=0)
    >>> apply(lambda *_: 1 / 0, p, r, Verdict(verdict=Outcome.WRONG, reason="different")).error
    'reward: ZeroDivisionError: division by zero'
    """
    if rollout.finish is Finish.ERROR:
        return Reward(value=None, error="rollout: the engine failed on this row")
    try:
        with patience(PATIENCE_S, f"problem {problem.id}, sample {rollout.sample}"):
            result: object = function(problem, rollout, verdict)  # a user's function may return anything
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's function: any end of it is data about one rollout
        return Reward(value=None, error=f"reward: {type(error).__name__}: {error}")
    except Overdue as overdue:
        raise GateFailed(
            f"reward: the reward function must answer within {PATIENCE_S:g} s: it hangs on {overdue}. Give it a limit of its own "
            "after which it returns a Reward without a value."
        ) from overdue
    if isinstance(result, Reward):
        reward = result
    elif isinstance(result, Real):
        reward = Reward(value=float(result), parts={"reward": float(result)})
    else:
        return Reward(value=None, error=f"reward: must return a number or a Reward, got {type(result).__name__}")
    if reward.value is not None and not math.isfinite(reward.value):
        return Reward(value=None, error=f"reward: must be finite, got {reward.value}")
    return reward


def source_digest(function: RewardFunction) -> str:
    """sha256 of the file that defines a reward, so that a contract knows the user's code too; "" where there is no file.

    >>> len(source_digest(exact)), source_digest(max)
    (64, '')
    """
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:  # a builtin, or an object without source
        return ""
    return file_digest(Path(file)) if file is not None and Path(file).is_file() else ""


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"--plugin {name}: the module could not be imported ({error}). It must be importable from here, for example "
            "a .py file in the current folder."
        ) from error


def _checked(function: object, where: str) -> RewardFunction:
    if not callable(function):
        raise InputError(
            f"{where}: a reward must be a function (problem, rollout, verdict) -> number, got {function!r}."
        )
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError as error:
        raise InputError(
            f"{where}: a reward is called with (problem, rollout, verdict): its signature is "
            f"{inspect.signature(function)}. Take three positional arguments."
        ) from error
    except ValueError:  # a builtin without a signature
        pass
    return function
