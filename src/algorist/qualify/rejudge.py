"""The part of an audit that judges gates again: those that need no training, and the signal."""

from collections.abc import Callable, Iterator
from typing import Any

from algorist.qualify import data, policy_gates
from algorist.qualify.evidence import Evidence, near
from algorist.qualify.gate import Gate
from algorist.qualify.signal import Contrast
from algorist.qualify.subject import Subject
from algorist.record.ledger import Event, EventKind


def rejudge(e: Evidence, subject: Subject, contract: str) -> tuple[str, Iterator[str]]:
    """Problems, verifier, prompts, starting policy and first rollouts give the verdicts that were given under a contract."""
    judges: dict[str, Callable[[Subject], Gate]] = {
        "data": data.data_gate, "verifier_canary": data.canary_gate, "prompt_lengths": data.lengths_gate,
        "template": data.template_gate,
    }  # fmt: skip
    if contract == e.events[0].contract:  # after an amendment the policy is a trained one
        judges |= {"parameters": policy_gates.parameters_gate, "parents": lambda s: policy_gates.parents_gate(s, None)}
    said = {ev.payload.get("name"): ev for ev in reversed(e.of(EventKind.GATE)) if ev.contract == contract}

    def faults() -> Iterator[str]:
        for name, judge in judges.items():
            if name in said:
                where = f"{e.folder.ledger}: event {said[name].seq} ({name})"
                yield from (f"{where} {fault}" for fault in _gate(said[name], judge(subject), whole=e.same_sources))
        if "signal" in said:
            yield from _signal(e, said["signal"])

    return ", ".join(name for name in [*judges, "signal"] if name in said) or "skipped: none was judged", faults()


def _gate(said: Event, mine: Gate, *, whole: bool) -> Iterator[str]:
    """whole: every word must be the same, not only the verdict."""
    payload = mine.payload()
    for name in payload if whole else ("verdict", "value", "threshold", "passed"):
        a, b = said.payload.get(name), payload[name]
        if not (near(a, b) if isinstance(b, float) else a == b):
            yield f"has {name} {a!r}, judged again it is {b!r}"
            return


def _signal(e: Evidence, gate: Event) -> Iterator[str]:
    """From the raw rollouts of the batch before it."""
    before = [ev for ev in e.of(EventKind.ROLLOUT_BATCH) if ev.seq < gate.seq and ev.contract == gate.contract]
    if not before:
        return
    path, figures = e.batch_file(before[-1]), _mapping(gate.payload.get("figures"))
    mine: dict[str, Any] = Contrast.of(e.stored(before[-1]).batch.groups).figures()
    if figures.get("groups") != mine["groups"]:
        if not figures.get("groups", 0) > mine["groups"]:  # further problems were sampled for the gate alone
            yield f"{e.folder.ledger}: event {gate.seq} judged {figures.get('groups')} groups, {path.name} holds {mine['groups']}"
        return
    share = mine["mixed"] / max(1, mine["groups"])
    for name, value in {**mine, "value": share}.items():
        said = gate.payload.get("value") if name == "value" else figures.get(name)
        if not near(said, value):
            yield f"{e.folder.ledger}: event {gate.seq} says {name} {said}, {path.name} gives {value}"


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"figures must be a mapping, got {value!r}")
    return value
