"""The figures of a rollout batch, and what they mean in words."""

from algorist.flow import Batch, Outcome
from algorist.stages.gates import Figures
from algorist.train.rows import Rows


def batch_figures(batch: Batch, rows: Rows) -> Figures:
    """The row of metrics.jsonl as far as the batch itself tells it."""
    verdicts = [v for g in batch.groups for v in g.verdicts]
    values = [v for g in batch.groups for v in g.values]
    lengths = [len(r) for _, r in rows.tokens]
    flat = [g for g in batch.groups if g.flat]
    top = [g for g in flat if g.values and max(g.values) > 0]
    B = max(1, len(verdicts))
    raw = [v.raw_correct for v in verdicts if v.raw_correct is not None]

    def share(outcome: Outcome) -> float:
        return sum(v.verdict is outcome for v in verdicts) / B

    return {
        "stage": "rl",
        "step": batch.index,
        "batch": batch.index,
        "policy_version": batch.policy_version,
        "rollouts": len(verdicts),
        "reward/mean": sum(values) / max(1, len(values)),
        "reward/raw_correct_mean": sum(raw) / len(raw) if raw else None,
        "groups/total": len(batch.groups),
        "groups/all_right": len(top),
        "groups/mixed": len(batch.groups) - len(flat),
        "groups/all_wrong": len(flat) - len(top),
        "groups/excluded_rows": len(verdicts) - len(values),
        "response/tokens_mean": sum(lengths) / B,
        "response/tokens_max": max(lengths, default=0),
        "response/truncated_share": float(rows.truncated.double().mean()) if len(rows.truncated) else 0.0,
        "verdict/unsupported_share": share(Outcome.UNSUPPORTED),
        "verdict/error_share": share(Outcome.ERROR),
        "tokens/sampled": sum(lengths),
        "update/skipped": None,
    }


def why_flat(num_batches: int, figures: Figures) -> str:
    """What a run without signal dies of, in words."""
    right, wrong = figures["groups/all_right"], figures["groups/all_wrong"]
    if number(figures, "groups/excluded_rows") >= number(figures, "rollouts"):
        cause = "no response got a reward: the verifier, the reward or the engine failed on every row"
    elif number(figures, "groups/all_right") > number(figures, "groups/all_wrong"):
        cause = "every problem is solved by all of its responses: the task is too easy now"
    elif number(figures, "response/truncated_share") > 0.5:
        cause = "most responses are cut off by the response budget before their answer"
    elif number(figures, "verdict/unsupported_share") > 0.5:
        cause = "most responses hold no answer the verifier can read"
    else:
        cause = "no response to any problem is right: the task is too hard for this policy"
    truncated, unsupported = (number(figures, f"{n}_share") for n in ("response/truncated", "verdict/unsupported"))
    return (
        f"{num_batches} batches in a row gave no signal (rl.max_flat_batches): {cause} (in the last one {right} groups all "
        f"right, {wrong} all wrong, {truncated:.0%} truncated, {unsupported:.0%} without a readable answer). Change the "
        "problems' difficulty, rl.sampling.response_tokens, or prompt.answer_format."
    )


def headline(figures: Figures) -> dict[str, float | str]:
    """The few figures worth a line on a terminal."""
    shown: dict[str, float | str] = {
        "reward": number(figures, "reward/mean"),
        "mixed": f"{figures['groups/mixed']}/{figures['groups/total']}",
        "tokens": number(figures, "response/tokens_mean"),
        "grad": number(figures, "grad_norm"),
    }
    if figures["update/skipped"]:
        shown["skipped"] = str(figures["update/skipped"])
    return shown


def number(figures: Figures, name: str) -> float:
    """A figure as a number; 0 where it is none."""
    value = figures.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
