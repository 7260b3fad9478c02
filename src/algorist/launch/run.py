"""All stages of a recipe, in order: SFT, evaluation, RL, evaluation, export, report; and how a stopped run goes on."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from algorist.digest import JSON, canonical, digest, sha256
from algorist.errors import AdmissionRefused, GateFailed, InputError, ResumeMismatch
from algorist.evaluate.result import EvaluationResult
from algorist.launch.prepare import Prepared, prepare, response_tokens, subject_of
from algorist.policy import weights
from algorist.qualify import contract as contracts
from algorist.qualify import receipt
from algorist.qualify.guard import RunGates
from algorist.recipe.load import Resolved, from_json, load, to_json
from algorist.recipe.model import Recipe
from algorist.record import commit
from algorist.record.ledger import Counts, EventKind, Ledger, counts
from algorist.record.metrics import Metrics, open_sink
from algorist.record.run_folder import RunFolder
from algorist.report import build as build_report
from algorist.reward.reward import source_digest
from algorist.stages.evaluate import evaluate_policy
from algorist.stages.listener import Listener
from algorist.stages.rl import train_rl
from algorist.stages.session import Session
from algorist.stages.sft import train_sft
from algorist.verify.identity import version as verifier_version

Never: Callable[[], bool] = lambda: False  # noqa: E731


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
    """A new run of a recipe that is loaded already; the caller closes `prepared`."""
    document = make_contract(prepared)
    folder = RunFolder.create(out)
    with folder.lease():
        commit.atomic_write(folder.contract, canonical(document))
        origin: dict[str, JSON] = {"base": str(prepared.base.resolve()), "plugin": plugin}
        commit.atomic_write(folder.logs / "origin.json", canonical(origin))
        return _execute(prepared, folder, document, listener, stop_requested, resume=False)


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
    like "rl.updates=10") may then change the recipe.
    """
    folder = RunFolder.open(path)
    document, recipe, base, plugin = read_run(folder)
    if overrides and not amend:
        raise InputError("resume: settings belong to the contract and are changed with --amend only. Add --amend.")
    if overrides:
        recipe = amended(recipe, overrides)
    with folder.lease():
        prepared = prepare(recipe, base=base, plugin=plugin, listener=listener)
        try:
            now = make_contract(prepared)
            if contracts.same(document, now):
                return _execute(prepared, folder, document, listener, stop_requested, resume=True)
            if not amend:
                raise _mismatch(document, now, path)
            now["amends"] = digest(document)
            return _execute(prepared, folder, now, listener, stop_requested, resume=True, amends=document)
        finally:
            prepared.close()


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


def make_contract(prepared: Prepared) -> dict[str, JSON]:
    """The contract of a prepared recipe; see `qualify.contract`."""
    recipe, policy = prepared.recipe, prepared.policy
    problems = prepared.problems
    settings = recipe.model_dump(mode="json")
    document = contracts.build(
        recipe=settings,
        recipe_digest=sha256(canonical(settings)),
        policy={
            "weights": weights.weights_digest(policy),
            "tokenizer": weights.tokenizer_digest(policy.tokenizer),
            "parameters": policy.num_parameters(),
            "layout": policy.layout,
            "dtype": policy.dtype,
            "device": policy.device.type,
        },
        problems={
            "digest": problems.digest,
            "train": len(problems.train),
            "sft": len(problems.sft),
            "heldout": len(problems.heldout),
            "evaluated": len(prepared.task.heldout),
        },
        verifier=verifier_version(),
        formulas=formulas(recipe),
        notes=prepared.notes,
    )
    return {**document, "reward": {"name": recipe.reward.name, "source": source_digest(prepared.task.reward)}}


def formulas(recipe: Recipe) -> dict[str, JSON]:
    """The formulas that run, per loop."""
    from algorist.objective.registry import METHODS

    if recipe.rl is None:
        return {}
    return {"rl": dict(METHODS[recipe.rl.objective.name].formula(recipe.rl.objective))}


def _execute(
    prepared: Prepared,
    folder: RunFolder,
    document: dict[str, JSON],
    listener: Listener,
    stop_requested: Callable[[], bool],
    *,
    resume: bool,
    amends: dict[str, JSON] | None = None,
) -> Finished:
    recipe = prepared.recipe
    name = digest(document)
    sinks = [open_sink(s, project="algorist", run=recipe.name, folder=folder.logs) for s in recipe.record.sinks]
    with (
        Ledger.open(folder.ledger, contract=name, amend=amends is not None) as ledger,
        Metrics(folder.metrics, sinks) as metrics,
    ):
        if not ledger.events:
            ledger.append(
                EventKind.CONTRACT,
                policy_version=0,
                payload={"name": recipe.name, "recipe_digest": document["recipe_digest"], "seed": recipe.seed},
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
            gates=RunGates(subject_of(prepared)),
        )
        if resume and ledger.events[-1].kind is EventKind.CLOSED:
            listener.say("this run is finished; its report is built again")
        else:
            if resume:
                session.restore()
            if amends is not None:
                _amend(session, folder, document, amends)
            try:
                _stages(prepared, session)
            except (GateFailed, AdmissionRefused) as error:
                if ledger.events[-1].kind is not EventKind.REFUSED:
                    ledger.append(
                        EventKind.GATE,
                        policy_version=session.position.applied,
                        payload={"name": "run", "passed": False, "message": str(error)},
                    )
                receipt.issue(folder, ledger.events)
                raise
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
    )


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
    )


def _export(prepared: Prepared, session: Session) -> None:
    """The Hugging Face folder, committed whole, its manifest digest on the ledger."""
    prompt = prepared.recipe.prompt.model_copy(update={"examples": prepared.renderer.examples})
    facts: dict[str, JSON] = {
        "contract": session.contract,
        "recipe": prepared.recipe.name,
        "weights": weights.weights_digest(session.policy),
        "prompt": prompt.model_dump(mode="json"),
    }
    if session.folder.export.exists():  # left by a kill between the commit and its event
        import shutil

        shutil.rmtree(session.folder.export)
    manifest = commit.commit_directory(
        session.folder.export,
        lambda folder: weights.export(
            session.policy,
            folder,
            stop_ids=prepared.task.stop_ids,
            card=_card(prepared, session),
            facts=facts,
        ),
        schema="algorist/export/1",
        need_bytes=4 * session.policy.num_parameters() + (8 << 20),
    )
    session.ledger.append(
        EventKind.CHECKPOINT,
        policy_version=session.position.applied,
        payload={"name": "export", "manifest": manifest.digest, "phase": "done"},
    )


def _card(prepared: Prepared, session: Session) -> str:
    recipe = prepared.recipe
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "---",
        f"# {recipe.name}",
        "",
        recipe.description or "A policy trained with Algorist.",
        "",
        f"- contract: `{session.contract}`",
        f"- parameters: {prepared.policy.num_parameters():,}",
        f"- trained on {len(prepared.problems.train):,} problems with answers that were checked, "
        f"{session.position.applied} applied updates",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model, tokenizer = (cls.from_pretrained(".") for cls in (AutoModelForCausalLM, AutoTokenizer))',
        "```",
        "",
    ]
    return "\n".join(lines)


def _amend(session: Session, folder: RunFolder, document: dict[str, JSON], old: dict[str, JSON]) -> None:
    """Both contracts kept, the change on the ledger, the new contract in force: in this order, so that a kill loses none."""
    for kept in (old, document):
        commit.atomic_write(folder.root / "contracts" / f"{digest(kept)}.json", canonical(kept))
    session.ledger.append(
        EventKind.CONTRACT,
        policy_version=session.position.applied,
        payload={
            "name": str(session.folder.root.name),
            "recipe_digest": document["recipe_digest"],
            "seed": session.seed,
            "amends": digest(old),
            "changes": contracts.differences(old, document),
        },
    )
    commit.atomic_write(folder.contract, canonical(document))
    session.listener.say(f"contract amended: {'; '.join(contracts.differences(old, document))}")


def _mismatch(stored: dict[str, JSON], now: dict[str, JSON], path: Path) -> ResumeMismatch:
    """What differs between the run's contract and the present one, in words."""
    found = contracts.differences(stored, now)
    return ResumeMismatch(
        f"{path}: a resume must find what the run began with; different now: {'; '.join(found)[:600]}. Put it back, start a new "
        "run, or go on under a new contract that names this one: algorist resume RUN --amend."
    )
