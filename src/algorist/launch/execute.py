"""A prepared recipe through all its stages, in order: SFT, evaluation, RL, evaluation, export, receipt, report."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from algorist.digest import JSON, canonical, digest, file_digest
from algorist.errors import AdmissionRefused, GateFailed, Stopped
from algorist.evaluate.result import EvaluationResult
from algorist.launch.export import write_export
from algorist.launch.pause import failures_pause
from algorist.launch.prepare import Prepared, response_tokens, subject_of
from algorist.policy import weights
from algorist.qualify import contract as contracts
from algorist.qualify import receipt
from algorist.qualify.guard import RunGates
from algorist.record import commit
from algorist.record.ledger import Counts, EventKind, Ledger, counts
from algorist.record.metrics import Metrics, open_sink
from algorist.record.run_folder import RunFolder
from algorist.record.storage import WriteFailed
from algorist.report import build as build_report
from algorist.report.cost import Cost, cost
from algorist.stages.clocked import Clocked
from algorist.stages.evaluate import evaluate_policy
from algorist.stages.listener import Listener
from algorist.stages.offline import keeps_start
from algorist.stages.rl import train_rl
from algorist.stages.session import Session
from algorist.stages.sft import train_sft


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a run came to."""

    folder: Path
    before: EvaluationResult | None
    """Before RL (before SFT where there is no RL)."""
    after: EvaluationResult | None
    counts: Counts
    """Rollout batches, applied and skipped updates, evaluations."""
    export: Path
    report: Path
    cost: Cost | None
    """Seconds of gates, replay checks and ledger."""


def execute(
    prepared: Prepared,
    folder: RunFolder,
    document: dict[str, JSON],
    listener: Listener,
    stop_requested: Callable[[], bool],
    *,
    resume: bool,
    amends: dict[str, JSON] | None = None,
) -> Finished:
    """Everything that is still to do in a run folder whose lease this process holds, under the contract `document`.

    amends: the contract before, where `document` replaces it. Raises GateFailed, AdmissionRefused, Stopped, Paused.
    """
    recipe = prepared.recipe
    name = digest(document if amends is None else amends)
    _tidy(folder)
    sinks = [open_sink(s, project="algorist", run=recipe.name, folder=folder.logs) for s in recipe.record.sinks]
    with (
        Ledger.open(folder.ledger, contract=name) as ledger,
        Metrics(folder.metrics, sinks) as metrics,
    ):
        if not ledger.events:
            ledger.append(
                EventKind.CONTRACT,
                policy_version=0,
                payload={"name": recipe.name, "recipe_digest": document["recipe_digest"], "seed": recipe.seed},
                wall={"origin": file_digest(folder.logs / "origin.json")},
            )
        session = Session(
            folder=folder,
            ledger=ledger,
            metrics=metrics,
            record=recipe.record,
            policy=prepared.policy,
            contract=name,
            seed=recipe.seed,
            listener=listener,
            stop_requested=stop_requested,
            gates=Clocked(RunGates(subject_of(prepared))),
        )
        if ledger.events[-1].kind is EventKind.CLOSED:
            listener.say("this run is finished; its receipt and report are made again where they are missing")
        else:
            with _ends(session):
                reference = recipe.rl is not None and keeps_start(recipe.rl)
                session.restore(reference=reference) if resume else session.require_room(reference=reference)
                if amends is not None:
                    _amend(session, folder, document, amends)
                _stages(prepared, session)
        events = ledger.events
    issued = receipt.issue(folder, events)
    listener.say(
        f"receipt: {issued.status}{': ' + '; '.join(issued.reasons) if issued.reasons else ''} ({issued.path.name})"
    )
    results = {
        n: EvaluationResult.read(folder.evaluation(n)) for n in ("before", "after") if folder.evaluation(n).exists()
    }
    report = build_report(folder.root)
    return Finished(
        folder=folder.root,
        before=results.get("before"),
        after=results.get("after"),
        counts=counts(events),
        export=folder.export,
        report=report,
        cost=cost(events),
    )


def _tidy(folder: RunFolder) -> None:
    """Remove what a killed process left half written."""
    for place in (folder.root, *(p for p in folder.root.iterdir() if p.is_dir() and p != folder.export)):
        commit.remove_half_written(place)


@contextlib.contextmanager
def _ends(session: Session) -> Iterator[None]:
    """However the stages end, the ledger says so and, where they failed, there is a receipt."""
    ledger, folder = session.ledger, session.folder
    try:
        with failures_pause(folder):
            yield
    except Stopped as error:
        if ledger.events[-1].kind is not EventKind.PAUSED:
            with contextlib.suppress(WriteFailed, OSError):  # what pauses it may be that nothing can be written
                payload: dict[str, JSON] = {"message": str(error)}
                wall: dict[str, JSON] = {**session.spent(), "metrics": file_digest(folder.metrics)}
                ledger.append(
                    EventKind.PAUSED, policy_version=ledger.events[-1].policy_version, payload=payload, wall=wall
                )
        raise
    except (GateFailed, AdmissionRefused) as error:
        try:
            if ledger.events[-1].kind is not EventKind.REFUSED:
                payload = {"name": "run", "passed": False, "message": str(error)}
                ledger.append(EventKind.GATE, policy_version=session.position.applied, payload=payload)
            receipt.issue(folder, ledger.events)
        except WriteFailed as failure:
            raise type(error)(f"{error} This could not be written down: {failure}") from failure
        raise


def _stages(prepared: Prepared, session: Session) -> None:
    recipe, task, engine = prepared.recipe, prepared.task, prepared.engine
    tokens = response_tokens(recipe)

    def measure(name: str) -> None:
        evaluate_policy(name, session, recipe.evaluate, task, engine, response_tokens=tokens)

    session.gates.before_training(session)
    if recipe.rl is None:
        measure("before")
    if recipe.sft is not None and session.position.phase in ("start", "sft"):
        train_sft(session, recipe.sft, prepared.targets)
    if recipe.rl is not None:
        measure("before")
        train_rl(session, recipe.rl, task, engine, evaluate=measure)
    measure("after")
    session.gates.before_export(session)
    _export(prepared, session)
    totals = counts(session.ledger.events)
    session.ledger.append(
        EventKind.CLOSED,
        policy_version=session.position.applied,
        payload={
            "rollout_batches": totals.rollout_batches,
            "updates_applied": totals.updates_applied,
            "updates_skipped": totals.updates_skipped,
            "evaluations_completed": totals.evaluations_completed,
            "batches_promised": recipe.rl.updates if recipe.rl else 0,
            "weights": weights.weights_digest(session.policy),
        },
        wall=session.spent(),
    )


def _export(prepared: Prepared, session: Session) -> None:
    """The Hugging Face folder, committed whole, its manifest digest on the ledger."""
    if session.folder.export.exists():  # left by a kill between the commit and its event
        shutil.rmtree(session.folder.export)
    applied = session.position.applied
    manifest = commit.commit_directory(
        session.folder.export,
        lambda folder: write_export(prepared, session.policy, folder, contract=session.contract, applied=applied),
        schema="algorist/export/1",
        need_bytes=weights.state_bytes(session.policy) + (8 << 20),
    )
    session.ledger.append(
        EventKind.CHECKPOINT,
        policy_version=applied,
        payload={"name": "export", "manifest": manifest.digest, "phase": "done"},
    )


def _amend(session: Session, folder: RunFolder, document: dict[str, JSON], old: dict[str, JSON]) -> None:
    """Both contracts kept, the change on the ledger, the new contract in force: in this order, so that a kill loses none."""
    for kept in (old, document):
        commit.atomic_write(folder.root / "contracts" / f"{digest(kept)}.json", canonical(kept))
    session.contract = session.ledger.contract = digest(document)
    session.ledger.append(
        EventKind.CONTRACT,
        policy_version=session.position.applied,
        payload={
            "name": session.ledger.events[0].payload["name"],
            "recipe_digest": document["recipe_digest"],
            "seed": session.seed,
            "amends": digest(old),
            "changes": contracts.differences(old, document),
        },
    )
    commit.atomic_write(folder.contract, canonical(document))
    session.listener.say(f"contract amended: {'; '.join(contracts.differences(old, document))}")
