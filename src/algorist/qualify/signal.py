"""Whether the rewards can teach anything: groups with unequal rewards are the only ones a baseline method learns from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from algorist.digest import JSON
from algorist.evaluate.statistics import wilson
from algorist.flow import Finish, Group, Outcome, Problem
from algorist.qualify.gate import Gate, Verdict

_DOMINANT = 0.5
_AGREE, _DOUBT = 4, 0.2
"""Responses that must agree, and the share of such groups that is worth a word."""


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
    """Responses without a reward, whoever failed."""
    engine_share: float
    """Of all responses, those the engine failed on."""
    verifier_share: float
    """Of all responses, those the verifier failed on."""
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
            engine_share=sum(r.finish is Finish.ERROR for r in rollouts) / B,
            verifier_share=sum(v.verdict is Outcome.ERROR for v in verdicts) / B,
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
            "engine_share": self.engine_share,
            "verifier_share": self.verifier_share,
            "stopped_share": self.stopped_share,
            "duplicate_share": self.duplicate_share,
            "reward_mean": self.reward_mean,
            "reward_spread": self.reward_spread,
            "responses": self.responses,
        }


def why_flat(contrast: Contrast) -> tuple[str, str]:
    """(dominating cause, remedy) of missing contrast, in words."""
    if contrast.error_share > _DOMINANT:
        words = f"{contrast.error_share:.0%} of the responses have no reward: "
        if contrast.engine_share > 0.5 * contrast.error_share:
            return (
                f"{words}the engine fails on them (the policy's logits are not finite, or the sampler gave up)",
                "Look for weights that are not finite, for a dtype that overflows, and into the engine's log.",
            )
        if contrast.verifier_share > 0.5 * contrast.error_share:
            return (
                f"{words}the verifier fails on them",
                "Look at the reasons in the rollouts; raise reward.deadline_s or reward.workers.",
            )
        return f"{words}the reward fails on them", "Look at reward_error in the rollouts, and repair the reward."
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


def example(groups: Sequence[Group], problems: Mapping[str, Problem]) -> str:
    """One group without contrast, as a person would want to see it first; '' where there is none."""
    flat = next((g for g in groups if g.flat and g.problem_id in problems), None)
    if flat is None:
        return ""
    problem = problems[flat.problem_id]
    texts = list(dict.fromkeys(r.text for r in flat.rollouts))[:3]
    shown = ", ".join(repr(t if len(t) <= 60 else f"...{t[-57:]}") for t in texts)
    return f" (for example {problem.question[-80:]!r}, gold {problem.gold!r}, responses {shown})"


def against_golds(groups: Sequence[Group], problems: Mapping[str, Problem]) -> str:
    """Problems whose responses all agree on an answer that is not the gold: a confident policy, or a wrong gold."""
    odd = []
    for group in groups:
        answers = {v.extracted for v in group.verdicts}
        wrong = all(v.verdict is Outcome.WRONG for v in group.verdicts)
        if (
            len(group.verdicts) >= _AGREE
            and wrong
            and len(answers) == 1
            and "" not in answers
            and group.problem_id in problems
        ):
            odd.append((problems[group.problem_id], answers.pop()))
    if len(odd) < _DOUBT * max(1, len(groups)):
        return ""
    problem, answer = odd[0]
    return (
        f"in {len(odd)} of {len(groups)} groups all responses agree on an answer that is not the gold (first: {problem.question[-60:]!r}, "
        f"gold {problem.gold!r}, answered {answer!r}). Check a few golds: wrong ones teach wrong answers"
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
