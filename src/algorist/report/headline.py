"""The result in one sentence, and the counts that must not be confused."""

from collections.abc import Mapping
from typing import Any

from algorist.record.ledger import EventKind
from algorist.report.gather import RunData
from algorist.report.panels import split
from algorist.report.words import duration, number, percent, plural


def sentence(data: RunData) -> str:
    """What was trained, how, and what came of it."""
    return " ".join(part for part in (_trained(data), _came_of_it(data)) if part)


def counted(data: RunData) -> list[tuple[str, str]]:
    """(count, what) of the ledger's four kinds of events, with the causes of skips."""
    c = data.counts
    causes = ", ".join(f"{count} {cause.replace('_', ' ')}" for cause, count in data.skip_causes.items())
    return [
        (f"{c.rollout_batches:,}", "rollout batches sampled"),
        (f"{c.updates_applied:,}", "RL updates applied"),
        (f"{c.updates_skipped:,}", "RL updates skipped" + (f" ({causes})" if causes else "")),
        *([(f"{data.sft_updates:,}", "SFT updates applied")] if data.sft_updates else []),
        (f"{c.evaluations_completed:,}", "evaluations completed"),
    ]


def took(data: RunData) -> str:
    """Wall-clock time, the share of each phase, and the machine."""
    rl, _ = split(data.rows)
    phases = {name: sum(y for _, y in rl.of(f"time/{name}_s")) for name in ("rollout", "verify", "train")}
    total = sum(phases.values())
    spent = (
        ", ".join(f"{name} {value / total:.0%}" for name, value in phases.items() if value > 0.005 * total)
        if total
        else ""
    )
    parts = [
        f"{duration(data.wall_s)} from first to last event" if data.wall_s is not None else "",
        f"RL time: {spent}" if spent else "",
        data.hardware,
    ]
    return "; ".join(part for part in parts if part)


def price(data: RunData) -> str:
    """What being checked cost, as shares of the run's time; '' where the ledger does not say."""
    if data.cost is None:
        return ""
    shares = data.cost.shares
    checks = plural(data.cost.replay_checks, "replay check")
    return f"gates {shares['gates']:.1%}, {checks} {shares['replay']:.1%}, ledger {shares['ledger']:.1%} of the time"


def status(data: RunData) -> str:
    """Finished, refused, paused, or not finished."""
    last = data.events[-1].kind if data.events else None
    if last in (EventKind.REFUSED, EventKind.PAUSED):
        return str(last)
    return "finished" if data.closed else "not finished"


def _trained(data: RunData) -> str:
    if status(data) == "refused":
        said = data.events[-1].payload
        reason = str(said.get("message") or said.get("reason") or "see the ledger")
        return f"Refused before training: {reason.rstrip('.')}."
    rl = data.recipe.get("rl")
    method = _method(rl) if isinstance(rl, Mapping) else ""
    who = _policy(data)
    stages = [name for name, key in (("SFT", "sft"), (method or "RL", "rl")) if data.recipe.get(key)]
    how = " and then ".join(stages)
    tokens = sum(y for _, y in split(data.rows)[0].of("tokens/sampled"))
    sampled = f", {number(tokens)} sampled tokens" if tokens else ""
    with_ = f" with {how}" if how else ""
    waits = " The run is paused." if status(data) == "paused" else " The run has not been closed."
    open_ = "" if data.closed else f"{waits} Figures are as far as it got."
    return f"{who} was trained{with_}: {plural(data.counts.updates_applied, 'RL update')}{sampled}.{open_}"


def _came_of_it(data: RunData) -> str:
    c = data.comparison
    if data.before and data.after and c and c.greedy and data.before.greedy and data.after.greedy:
        was, now = data.before.greedy, data.after.greedy
        when = "" if data.before_label == "before" else f" {data.before_label}"
        verb = "rose" if c.greedy.difference.low > 0 else "fell" if c.greedy.difference.high < 0 else "went"
        apart = "the two intervals are separate" if was.separate_from(now) else "the two intervals overlap"
        return (
            f"On {plural(data.after.problems, 'held-out problem')} greedy accuracy {verb} from {percent(was.value)}{when} "
            f"to {percent(now.value)}; {apart}. {c.greedy.better} problems were newly solved, {c.greedy.worse} lost."
        )
    if data.after and data.after.greedy:
        return f"Greedy accuracy afterwards is {percent(data.after.greedy.value)}; there is no evaluation from before."
    if data.before and data.before.greedy:
        return f"Greedy accuracy {data.before_label} is {percent(data.before.greedy.value)}; there is no evaluation from after."
    return "No evaluation was completed, so nothing is known about what it learned."


def _policy(data: RunData) -> str:
    policy = data.recipe.get("policy")
    size = data.policy.get("parameters")
    count = f" ({number(float(size))} parameters)" if isinstance(size, int | float) else ""
    if isinstance(policy, Mapping):
        new = policy.get("new")
        if isinstance(new, Mapping):
            shape = f"{new.get('num_layers', '?')} layers, width {new.get('hidden_size', '?')}"
            return f"A new Llama model of {shape}{count}"
        path = policy.get("path") or policy.get("package")
        if path:
            return f"{str(path).rstrip('/').rsplit('/', 1)[-1]}{count}"
    return f"The policy{count}"


def _method(rl: Mapping[str, Any]) -> str:
    objective = rl.get("objective")
    if isinstance(objective, Mapping):
        return str(objective.get("name") or objective.get("method") or "").upper()
    return str(objective or "").upper()
