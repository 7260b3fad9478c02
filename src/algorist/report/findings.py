"""What a reader should look at first, in plain sentences with the figure behind each."""

from collections.abc import Sequence

from algorist.report.gather import RunData
from algorist.report.panels import Curves, split
from algorist.report.words import number, percent, plural

_LATE = 0.25  # the last quarter of the batches stands for "at the end"


def findings(data: RunData) -> list[str]:
    """Sentences about signal, truncation, checking, entropy, skips and replay; empty where nothing stands out."""
    rl, _ = split(data.rows)
    found = [
        _signal(rl),
        _share(
            rl,
            "response/truncated_share",
            0.1,
            "of the responses at the end were cut off by the budget, unpaid: raise rl.sampling.response_tokens.",
        ),
        _share(
            rl,
            "verdict/unsupported_share",
            0.1,
            "of the responses at the end had no readable answer. Look at a few below: is the answer format taught?",
        ),
        _share(
            rl, "verdict/error_share", 0.01, "of the responses at the end could not be checked; they left their groups."
        ),
        _entropy(rl),
        _skips(data),
        _gain(data),
    ]
    return [sentence for sentence in found if sentence]


def _late(points: Sequence[tuple[float, float]]) -> float | None:
    tail = [y for _, y in points[-max(1, int(len(points) * _LATE)) :]]
    return sum(tail) / len(tail) if tail else None


def _signal(rl: Curves) -> str:
    mixed = _late(rl.of("groups/mixed"))
    right, wrong = _late(rl.of("groups/all_right")), _late(rl.of("groups/all_wrong"))
    if mixed is None or right is None or wrong is None or not mixed + right + wrong:
        return ""
    share = mixed / (mixed + right + wrong)
    if share >= 0.2:
        return ""
    cause = (
        "nearly all are solved: the problems have become too easy"
        if right > wrong
        else "nearly all fail: the problems are too hard for this policy"
    )
    return f"Only {percent(share)} of the groups at the end were mixed and carried signal; {cause}."


def _share(rl: Curves, name: str, limit: float, words: str) -> str:
    late = _late(rl.of(name))
    return f"{percent(late)} {words}" if late is not None and late > limit else ""


def _entropy(rl: Curves) -> str:
    points = rl.of("policy/entropy_nats")
    late = _late(points)
    if late is None or len(points) < 4 or late > 0.1 * points[0][1]:
        return ""
    return f"Entropy fell from {number(points[0][1])} to {number(late)} nats per token: hardly any exploring is left."


def _skips(data: RunData) -> str:
    skipped, applied = data.counts.updates_skipped, data.counts.updates_applied
    if not skipped or skipped < 0.25 * (skipped + applied):
        return ""
    causes = ", ".join(f"{count} {cause}" for cause, count in data.skip_causes.items())
    return f"{plural(skipped, 'update')} of {skipped + applied} were skipped ({causes})."


def _gain(data: RunData) -> str:
    comparison = data.comparison
    if comparison is None or comparison.greedy is None:
        return ""
    low, high = comparison.greedy.difference.low, comparison.greedy.difference.high
    if low > 0:
        return ""
    if high < 0:
        return "Greedy accuracy on held-out problems fell: the training made the policy worse."
    return "The interval of the greedy difference includes zero: this run alone does not show a gain."
