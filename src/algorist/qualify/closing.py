"""Gates at the end of a run: everything promised was done, and what came of it is said, good or bad."""

from algorist.evaluate.result import EvaluationResult, compare
from algorist.qualify.gate import Gate, Verdict
from algorist.record.ledger import EventKind
from algorist.stages.config import RLConfig
from algorist.stages.session import Session

_NONFINITE_SHARE = 0.2
"""Of all batches; more of them means that the run mostly skipped what it should have learned from."""


def counts_gate(session: Session, rl: RLConfig | None) -> Gate:
    """Promised against done, by kind of event; a run without any applied update has not trained."""
    events = session.ledger.events
    batches = sum(e.kind is EventKind.ROLLOUT_BATCH for e in events)
    updates = [e for e in events if e.kind in (EventKind.UPDATE_APPLIED, EventKind.UPDATE_SKIPPED)]
    of_rl = [e for e in updates if e.payload.get("stage") == "rl"]
    decided = {e.payload.get("batch") for e in of_rl}
    sft = sum(e.payload.get("stage") == "sft" for e in updates)
    applied = sum(e.kind is EventKind.UPDATE_APPLIED for e in (of_rl if rl else updates))
    nonfinite = sum(str(e.payload.get("cause")).startswith("nonfinite") for e in updates)
    promised = rl.updates if rl else 0
    missing = abs(promised - batches) + abs(batches - len(decided)) + abs(sft - session.position.sft_steps)
    cause = remedy = ""
    if missing:
        cause = (
            f"{promised} batches were promised, {batches} sampled, {len(decided)} decided; {session.position.sft_steps} SFT steps "
            f"done, {sft} recorded"
        )
        remedy = "Events are missing; the run cannot be trusted. Start a new one."
    elif not applied:
        cause = "no update was applied: the weights are those the stage began with"
        remedy = "Look at why updates were skipped (algorist why RUN)."
    elif nonfinite > _NONFINITE_SHARE * len(updates):
        cause = f"{nonfinite} of {len(updates)} updates were skipped for a loss or gradient that is not finite"
        remedy = "Lower optimizer.lr or set optimizer.clip_norm; the last weights are probably damaged."
    return Gate(
        name="counts",
        value=missing,
        threshold=0,
        unit="events missing",
        verdict=Verdict.FAILED if cause else Verdict.PASSED,
        cause=cause,
        remedy=remedy,
        figures={
            "promised": promised,
            "batches": batches,
            "applied": applied,
            "skipped": len(updates) - sum(e.kind is EventKind.UPDATE_APPLIED for e in updates),
            "nonfinite": nonfinite,
            "sft_steps": sft,
        },
    )


def outcome_gate(session: Session) -> Gate:
    """Held-out accuracy after against before, paired by problem, as the report has it. A fall is reported, not failed: the run
    did what it promised; its receipt is not that of a qualified run."""
    name, unit = "outcome", "mean accuracy gained"
    files = [session.folder.evaluation(n) for n in ("before", "after")]
    if not all(file.is_file() for file in files):
        return Gate(
            name=name,
            value=None,
            threshold=None,
            unit=unit,
            verdict=Verdict.ABSENT,
            cause="no evaluation on both sides",
        )
    before, after = (EvaluationResult.read(file) for file in files)
    found = compare(before, after)
    paired = {"mean accuracy of the samples": found.mean, "greedy accuracy": found.greedy}
    differences = {name: d.difference for name, d in paired.items() if d is not None}
    if not differences:
        return Gate(
            name=name, value=None, threshold=None, unit=unit, verdict=Verdict.ABSENT, cause="nothing was measured"
        )
    fell = {name: d for name, d in differences.items() if d.high < 0}
    words = [f"{name} fell by {-d.value:.1%} ({-d.high:.1%} to {-d.low:.1%})" for name, d in fell.items()]
    return Gate(
        name=name,
        value=next(iter(differences.values())).value,
        threshold=None,
        unit=unit,
        verdict=Verdict.REPORTED if fell else Verdict.PASSED,
        cause=f"on held-out problems {' and '.join(words)}" if fell else "",
        remedy="Lower rl.optimizer.lr, or look for a reward that is not what is evaluated." if fell else "",
        figures={name: [d.low, d.value, d.high] for name, d in differences.items()},
    )


def recorded(session: Session) -> set[str]:
    """Names of the gates judged since the last contract or refusal."""
    names: set[str] = set()
    for event in session.ledger.events:
        if event.kind in (EventKind.CONTRACT, EventKind.REFUSED):
            names.clear()
        elif event.kind in (EventKind.GATE, EventKind.ADMISSION):
            names.add(str(event.payload.get("name")))
        elif event.kind is EventKind.REPLAY_CHECK:
            names.add("replay")
    return names
