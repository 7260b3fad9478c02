"""Whether the rewards can teach anything: groups with unequal rewards are the only ones a baseline method learns from."""

from collections.abc import Sequence
from dataclasses import dataclass

from algorist.digest import JSON
from algorist.evaluate.statistics import wilson
from algorist.flow import Finish, Group, Outcome
from algorist.qualify.gate import Gate, Verdict

_DOMINANT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """What N groups say about the signal.

    >>> Contrast.of([]).groups
    0
    """

    groups: int
    mixed: int
    """Groups with two different rewards."""
    all_right: int
    """Flat groups whose responses are right."""
    all_wrong: int
    """Flat groups whose responses are not."""
    useful_share: float
    """Share of rewarded rollouts that carry gradient: those in mixed groups."""
    truncated_share: float
    unsupported_share: float
    """Responses without a readable answer."""
    error_share: float
    """Responses the verifier failed on, or without a reward."""
    stopped_share: float
    duplicate_share: float
    """Responses equal to an earlier one of their group."""
    reward_mean: float
    reward_spread: float
    """Mean over groups of max - min."""
    responses: int

    @classmethod
    def of(cls, groups: Sequence[Group]) -> "Contrast":
        """Count groups."""
        rollouts = [r for g in groups for r in g.rollouts]
        verdicts = [v for g in groups for v in g.verdicts]
        values = [v for g in groups for v in g.values]
        flat = [g for g in groups if g.flat]
        right = [g for g in flat if g.values and max(g.values) > 0]
        distinct = sum(len({r.token_ids for r in g.rollouts}) for g in groups)
        B = max(1, len(rollouts))
        return cls(
            groups=len(groups),
            mixed=len(groups) - len(flat),
            all_right=len(right),
            all_wrong=len(flat) - len(right),
            useful_share=sum(len(g.values) for g in groups if not g.flat) / max(1, len(values)),
            truncated_share=sum(r.truncated for r in rollouts) / B,
            unsupported_share=sum(v.verdict is Outcome.UNSUPPORTED for v in verdicts) / B,
            error_share=sum(r.value is None for g in groups for r in g.rewards) / B,
            stopped_share=sum(r.finish is Finish.STOP for r in rollouts) / B,
            duplicate_share=(len(rollouts) - distinct) / B,
            reward_mean=sum(values) / max(1, len(values)),
            reward_spread=sum(max(g.values) - min(g.values) for g in groups if g.values) / max(1, len(groups)),
            responses=len(rollouts),
        )

    @property
    def mixed_share(self) -> float:
        """Mixed groups of all."""
        return self.mixed / max(1, self.groups)

    def figures(self) -> dict[str, JSON]:
        """For ledger and receipts."""
        interval = wilson(self.mixed, self.groups) if self.groups else None
        return {
            "groups": self.groups,
            "mixed": self.mixed,
            "all_right": self.all_right,
            "all_wrong": self.all_wrong,
            "mixed_share_low": interval.low if interval else 0.0,
            "mixed_share_high": interval.high if interval else 1.0,
            "useful_share": self.useful_share,
            "truncated_share": self.truncated_share,
            "unsupported_share": self.unsupported_share,
            "error_share": self.error_share,
            "stopped_share": self.stopped_share,
            "duplicate_share": self.duplicate_share,
            "reward_mean": self.reward_mean,
            "reward_spread": self.reward_spread,
            "responses": self.responses,
        }


def why_flat(contrast: Contrast) -> tuple[str, str]:
    """(dominating cause, remedy) of missing contrast, in words."""
    if contrast.error_share > _DOMINANT:
        return (
            f"{contrast.error_share:.0%} of the responses have no reward: the verifier or the reward fails on them",
            "Look at reward_error in the rollouts; raise reward.deadline_s or repair the reward.",
        )
    if contrast.truncated_share > _DOMINANT:
        never = contrast.stopped_share == 0.0
        return (
            f"{contrast.truncated_share:.0%} of the responses are cut off by the response budget"
            + (", and none ever sampled a stop token" if never else ""),
            "Raise rl.sampling.response_tokens (algorist calibrate RECIPE recommends one), or "
            + ("check that the template ends answers with a stop id." if never else "ask for shorter answers."),
        )
    if contrast.unsupported_share > _DOMINANT:
        return (
            f"no final answer could be read from {contrast.unsupported_share:.0%} of the responses",
            "Set prompt.answer_format to where the answers stand, show examples, or fine-tune the format first (sft).",
        )
    if contrast.all_right > contrast.all_wrong:
        return (
            f"every response is right in {contrast.all_right} of {contrast.groups} groups: the problems are too easy",
            "Give harder problems.",
        )
    if contrast.duplicate_share > 0.9:
        return (
            f"{contrast.duplicate_share:.0%} of the responses repeat another one of their group",
            "Raise rl.sampling.temperature; a policy without variety gives groups without contrast.",
        )
    return (
        f"no response is right in {contrast.all_wrong} of {contrast.groups} groups: the problems are too hard",
        "Give easier problems, a larger group, or supervised fine-tuning first (sft).",
    )


def judge(contrast: Contrast, *, minimum: float, refuse: bool) -> Gate:
    """The gate over a measured contrast."""
    low = contrast.mixed_share < minimum
    cause, remedy = why_flat(contrast) if low or contrast.mixed_share < 0.5 else ("", "")
    verdict = (Verdict.FAILED if refuse else Verdict.REPORTED) if low else Verdict.PASSED
    return Gate(
        name="signal",
        value=contrast.mixed_share,
        threshold=minimum,
        unit="share of groups with unequal rewards",
        verdict=verdict,
        cause=cause,
        remedy=remedy if low else "",
        figures=contrast.figures(),
    )
