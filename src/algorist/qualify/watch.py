"""Figures that must stay on their side of a threshold while a run goes on. A pure function of the rows of metrics.jsonl."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from algorist.qualify.config import WatchRule

Row = Mapping[str, float | int | str | bool | None]
_BASELINE: Final = 5
_DEAF: Final = "nonfinite"

CAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "groups/mixed_share": (
        "the problems have become too easy or too hard, so hardly any group has unequal rewards",
        "Change the difficulty of the problems, or end the run.",
    ),
    "policy/entropy_nats": (
        "the policy has collapsed onto few answers, or drifts towards noise",
        "Lower rl.optimizer.lr, add a reference term (beta), or look at the sample rollouts for repetition.",
    ),
    "response/tokens_mean": (
        "responses grow: the loss weighting pays for length, or wrong responses run on",
        "Compare positive and negative advantage mass; try reduction group_token_mean or a length deduction.",
    ),
    "response/truncated_share": (
        "the response budget cuts answers off, and truncated answers are never paid",
        "Raise rl.sampling.response_tokens; algorist calibrate recommends a budget.",
    ),
    "response/duplicate_share": (
        "responses of a group repeat each other: entropy is gone",
        "Raise the temperature, or end the run.",
    ),
    "verdict/error_share": (
        "the verifier fails on many responses: deadline, memory, or hostile answers",
        "Look at the reasons in the rollouts; raise reward.deadline_s or reward.workers.",
    ),
    "reward/missing_share": (
        "many responses have no reward: the engine fails on rows, or the reward raises or is not finite",
        "Look at reward_error in the rollouts. Rows that fail leave their groups; if they fail for what they say, training is biased.",
    ),
    "kl/ref_nats": (
        "the policy has moved far from its reference",
        "Raise beta, lower rl.optimizer.lr, or reset the reference (rl.reference.reset_every).",
    ),
    "grad_norm": (
        "gradients jump: a few tokens dominate, or the rate is too high",
        "Lower rl.optimizer.lr or optimizer.clip_norm.",
    ),
    "router/max_over_mean": (
        "expert load drifts: few experts take most tokens",
        "Freeze the routers: qualify.parameters.frozen.",
    ),
    "memory/resident_gib": (
        "the trainer has grown past its cap",
        "Lower rl.micro_batch_tokens, or raise qualify.memory.trainer_allocator_cap_gib and be admitted again.",
    ),
}
"""Figure -> (usual cause, remedy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """A rule that did not hold for its whole number of batches.

    >>> print(Trip(rule=WatchRule(figure="grad_norm", above=1.0), value=2.0, threshold=1.0, batch=7).sentence)
    watch: grad_norm is 2 in batch 7 (above 1 for 5 batches): gradients jump: ... Lower rl.optimizer.lr ...
    """

    rule: WatchRule
    value: float
    threshold: float
    """The rule's own, or the factor times the baseline."""
    batch: int

    @property
    def cause(self) -> str:
        """The usual cause, in words."""
        return CAUSES.get(self.rule.figure, ("the figure left its range", ""))[0]

    @property
    def remedy(self) -> str:
        """What to do."""
        return CAUSES.get(self.rule.figure, ("", "Look at metrics.jsonl and the last rollouts."))[1]

    @property
    def sentence(self) -> str:
        """One line for people."""
        side = "above" if self.rule.above is not None else "below"
        return (
            f"watch: {self.rule.figure} is {self.value:.4g} in batch {self.batch} ({side} {self.threshold:.4g} for "
            f"{self.rule.batches} batches): {self.cause}. {self.remedy}"
        )


@final
class Watch:
    """Sees one row a batch. After a trip a rule counts anew, so that it does not trip on every following batch.

    >>> watch = Watch([WatchRule(figure="x", above=1.0, batches=2)])
    >>> [len(watch.see({"batch": i, "x": 5.0})) for i in range(5)]
    [0, 1, 0, 1, 0]
    """

    def __init__(self, rules: Sequence[WatchRule]) -> None:
        self.rules = tuple(rules)
        self._count = [0] * len(self.rules)
        self._first: list[list[float]] = [[] for _ in self.rules]

    def catch_up(self, rows: Iterable[Row]) -> None:
        """See the rows of the batches that are already done, silently."""
        for row in rows:
            if row.get("stage") == "rl":
                self.see(row)

    def see(self, row: Row) -> list[Trip]:
        """The rules that trip with this row. A figure that a row lacks changes nothing; one that is not finite trips."""
        trips = []
        broken = str(row.get(_DEAF) or "").split()
        for i, rule in enumerate(self.rules):
            raw = row.get(rule.figure)
            value = math.nan if rule.figure in broken else raw
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            threshold = self._threshold(i, rule, float(value))
            if threshold is None:
                continue
            over = not value <= threshold if rule.above is not None else not value >= threshold
            self._count[i] = self._count[i] + 1 if over else 0
            if self._count[i] == rule.batches:
                self._count[i] = 0
                trips.append(Trip(rule=rule, value=float(value), threshold=threshold, batch=int(row.get("batch") or 0)))
        return trips

    def _threshold(self, i: int, rule: WatchRule, value: float) -> float | None:
        given = rule.above if rule.above is not None else rule.below
        assert given is not None, "a rule has one side (checked by the config)"
        if not rule.relative:
            return given
        if len(self._first[i]) < _BASELINE:
            if math.isfinite(value):
                self._first[i].append(value)
            return None
        return given * sum(self._first[i]) / _BASELINE
