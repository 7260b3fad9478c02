"""The gates that need no training, in order."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from algorist.qualify import data, policy_gates
from algorist.qualify.admit import measure_admission
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.subject import Subject


def preflight(subject: Subject) -> Iterable[Gate]:
    """The gates that need no training, cheapest first; what fails does not hide what comes after."""
    needed: list[str] = []
    for judge in (
        data.data_gate, data.canary_gate, data.lengths_gate, data.template_gate, policy_gates.parameters_gate,
    ):  # fmt: skip
        gate = timed(lambda judge=judge: judge(subject))  # type: ignore[misc]
        if gate.name in ("template", "parameters") and not gate.passed:
            needed.append(gate.name)
        yield gate
    yield timed(lambda: policy_gates.parents_gate(subject, None))
    if not needed:
        admitted = timed(lambda: measure_admission(subject))
        yield admitted
        if admitted.passed:
            yield timed(lambda: policy_gates.cache_gate(subject))
        else:  # what is refused must not be allocated all the same
            words = "not judged: memory was refused"
            yield Gate(name="cache", value=None, threshold=None, unit="", verdict=Verdict.DEFERRED, cause=words)
    else:  # a prompt the policy cannot read must not reach it, nor any prompt weights that are no numbers
        for name in ("memory", "cache"):
            words = f"not judged: the {needed[0]} gate failed"
            yield Gate(name=name, value=None, threshold=None, unit="", verdict=Verdict.DEFERRED, cause=words)


def timed(judge: Callable[[], Gate]) -> Gate:
    """A gate with the seconds it took among its wall-clock values."""
    started = time.monotonic()
    gate = judge()
    return replace(gate, wall={**gate.wall, "gate_s": round(time.monotonic() - started, 3)})
