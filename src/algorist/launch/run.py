"""A new run of a recipe, and how a stopped one goes on."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from algorist.digest import JSON, canonical, digest, file_digest
from algorist.errors import InputError, ResumeMismatch
from algorist.launch.contract import make_contract
from algorist.launch.execute import Finished, execute
from algorist.launch.pause import failures_pause
from algorist.launch.prepare import Prepared, prepare
from algorist.qualify import contract as contracts
from algorist.recipe.load import Resolved, from_json, load, to_json
from algorist.recipe.model import Recipe
from algorist.record import commit
from algorist.record.ledger import EventKind, scan
from algorist.record.run_folder import RunFolder
from algorist.stages.listener import Listener

_TOLD: Final = 6
"""Differences of contracts that a message names."""
Never: Callable[[], bool] = lambda: False  # noqa: E731


def run(
    resolved: Resolved,
    out: Path,
    *,
    listener: Listener,
    plugin: str | None = None,
    stop_requested: Callable[[], bool] = Never,
) -> Finished:
    """A new run in the folder `out`, which must be new or empty."""
    if out.exists():
        RunFolder.create(out)  # refuse a used folder before the slow part
    prepared = prepare(resolved.recipe, base=resolved.base_dir, plugin=plugin, listener=listener)
    try:
        return run_prepared(prepared, out, listener=listener, plugin=plugin, stop_requested=stop_requested)
    finally:
        prepared.close()


def run_prepared(
    prepared: Prepared,
    out: Path,
    *,
    listener: Listener,
    plugin: str | None = None,
    stop_requested: Callable[[], bool] = Never,
) -> Finished:
    """A new run of a recipe that is loaded already; the caller closes `prepared`.

    Raises Paused where the disk is full or fails.
    """
    document = make_contract(prepared)
    with failures_pause(RunFolder(root=out)):
        folder = RunFolder.create(out)
        with folder.lease():
            RunFolder.create(out)  # still new, now that nobody else can write to it
            origin: dict[str, JSON] = {"base": str(prepared.base.resolve()), "plugin": plugin}
            commit.atomic_write(folder.logs / "origin.json", canonical(origin))
            commit.atomic_write(folder.contract, canonical(document))  # from here on a resume can go on
            return execute(prepared, folder, document, listener, stop_requested, resume=False)


def resume(
    path: Path,
    *,
    listener: Listener,
    stop_requested: Callable[[], bool] = Never,
    amend: bool = False,
    overrides: Sequence[str] = (),
) -> Finished:
    """Go on with a run from its newest checkpoint, to the same result as if it had never been stopped.

    amend: go on although something differs from the contract, under a new one that names the old; `overrides` (texts
    like "rl.updates=10") may then change the recipe. Raises Paused where the disk is full or fails.
    """
    folder = RunFolder.open(path)
    if overrides and not amend:
        raise InputError("resume: settings belong to the contract and are changed with --amend only. Add --amend.")
    with failures_pause(folder), folder.lease() as before:
        _settle_amendment(folder)
        document, recipe, base, plugin = read_run(folder)
        recipe = amended(recipe, overrides) if overrides else recipe
        _enough_batches(folder, recipe)
        if before is not None:
            listener.say(
                f"process {before.pid} on {before.host} had this run and ended without giving it back; taken over"
            )
        prepared = prepare(recipe, base=base, plugin=plugin, listener=listener)
        try:
            now = make_contract(prepared)
            if contracts.same(document, now):
                return execute(prepared, folder, document, listener, stop_requested, resume=True)
            if not amend:
                raise _mismatch(document, now, path)
            now["amends"] = digest(document)
            return execute(prepared, folder, now, listener, stop_requested, resume=True, amends=document)
        finally:
            prepared.close()


def _enough_batches(folder: RunFolder, recipe: Recipe) -> None:
    """Batches that are sampled cannot be taken back. Raises InputError where a recipe promises fewer."""
    events, _ = scan(folder.ledger) if folder.ledger.is_file() else ([], None)
    done = sum(event.kind is EventKind.ROLLOUT_BATCH for event in events)
    if recipe.rl is not None and recipe.rl.updates < done:
        raise InputError(
            f"{folder.ledger}: {done} batches are sampled, so rl.updates must be {done} or more: got {recipe.rl.updates}. "
            f"To end now: --set rl.updates={done}."
        )


def _settle_amendment(folder: RunFolder) -> None:
    """Where a kill cut an amendment short the ledger decides: the contract it names is put in force, others are dropped."""
    if not folder.ledger.is_file():
        return
    events, _ = scan(folder.ledger)
    named = {event.contract for event in events}
    for file in sorted((folder.root / "contracts").glob("*.json")):
        if file.stem not in named:
            file.unlink()
        elif (
            file.stem == events[-1].contract == file_digest(file) and file.read_bytes() != folder.contract.read_bytes()
        ):
            commit.atomic_write(folder.contract, file.read_bytes())


def amended(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """A recipe with settings changed, checked as a whole. Raises RecipeError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "contract-recipe.yaml"
        file.write_bytes(canonical(to_json(recipe)))
        return load(file, overrides).recipe


def read_run(folder: RunFolder) -> tuple[dict[str, JSON], Recipe, Path, str | None]:
    """(contract, recipe, folder that relative paths start at, plugin) of a run folder."""
    try:
        document = json.loads(folder.contract.read_bytes())
        recipe = from_json(canonical(document["recipe"]))
        origin = json.loads((folder.logs / "origin.json").read_bytes())
        return document, recipe, Path(origin["base"]), origin["plugin"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResumeMismatch(
            f"{folder.root}: contract.json and logs/origin.json must be those the run wrote ({error}). Put them back, or start "
            "a new run."
        ) from error


def _mismatch(stored: dict[str, JSON], now: dict[str, JSON], path: Path) -> ResumeMismatch:
    """What differs between the run's contract and the present one, in words."""
    found = contracts.differences(stored, now)
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return ResumeMismatch(
        f"{path}: a resume must find what the run began with; different now: {'; '.join(found[:_TOLD])}{more}. Put it back, start a new "
        "run, or go on under a new contract that names this one: algorist resume RUN --amend."
    )
