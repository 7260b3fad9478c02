"""What a gate found: value, threshold, verdict, and in words the cause and the remedy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from algorist.digest import JSON

_NOTHING: Mapping[str, JSON] = MappingProxyType({})

GATES: Final = (
    "data",
    "verifier_canary",
    "prompt_lengths",
    "template",
    "parents",
    "parameters",
    "cache",
    "memory",
    "signal",
    "rollouts",
    "replay",
    "update",
    "watch_summary",
    "counts",
    "outcome",
    "export_replay",
)
"""The closed list: a receipt that lacks one of them is not a receipt of a qualified run."""


class Verdict(StrEnum):
    """What came of a gate."""

    PASSED = "passed"
    """The value is on the right side of the threshold."""
    FAILED = "failed"
    """It is not; the run ends."""
    REPORTED = "reported"
    """It is not, or has no threshold; the recipe asks for a report only."""
    DEFERRED = "deferred"
    """It can only be judged later: signal before SFT has run."""
    ABSENT = "absent"
    """Nothing to judge: no RL stage, no reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One judged gate.

    >>> gate = Gate(name="signal", value=0.0, threshold=0.02, unit="share of groups", verdict=Verdict.FAILED,
    ...             cause="no response is right", remedy="Use easier problems.")
    >>> print(gate.sentence)
    signal: 0 share of groups (threshold 0.02): failed: no response is right. Use easier problems.
    """

    name: str
    """One of GATES."""
    value: float | None
    """What was measured; None where there is nothing to measure."""
    threshold: float | None
    """What it is held against; None where it is only reported."""
    unit: str
    """Of both."""
    verdict: Verdict
    cause: str = ""
    """Why, in words; '' for a plain pass."""
    remedy: str = ""
    """What to do about it."""
    figures: Mapping[str, JSON] = field(default_factory=lambda: _NOTHING)
    """Everything else that was measured; equal in equal runs."""
    wall: Mapping[str, JSON] = field(default_factory=lambda: _NOTHING)
    """What depends on the machine and the moment: seconds, free memory."""

    @property
    def passed(self) -> bool:
        """False only where the run must end."""
        return self.verdict is not Verdict.FAILED

    @property
    def sentence(self) -> str:
        """One line for people."""
        rule = self.unit == "broken rule"  # there is nothing to measure: the cause says it all
        value = "" if self.value is None or rule else f" {self.value:.4g} {self.unit}"
        bound = "" if self.threshold is None or not value else f" (threshold {self.threshold:.4g})"
        cause = f": {self.cause.rstrip('.')}." if self.cause else ""
        colon = ":" if value else ""
        return f"{self.name}{colon}{value}{bound}: {self.verdict}{cause}{' ' + self.remedy if self.remedy else ''}"

    def payload(self) -> dict[str, JSON]:
        """What the ledger keeps."""
        return {
            "name": self.name,
            "value": self.value,
            "threshold": self.threshold,
            "unit": self.unit,
            "verdict": str(self.verdict),
            "passed": self.passed,
            "cause": self.cause,
            "remedy": self.remedy,
            "figures": dict(self.figures),
        }
