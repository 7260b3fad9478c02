"""Which curves a report shows, made from the rows of metrics.jsonl and the evaluations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from algorist.evaluate.result import EvaluationResult
from algorist.evaluate.statistics import Estimate
from algorist.record.ledger import EventKind
from algorist.record.metrics import Row
from algorist.report.chart import Chart, Line, Points, smooth, thin
from algorist.report.gather import RunData

BATCH: Final = "rollout batch"
_HEALTH: Final = (
    "reward/mean",
    "groups/mixed",
    "response/tokens_mean",
    "response/truncated_share",
    "policy/entropy_nats",
    "advantage/positive_mass",
    "loss",
    "grad_norm",
    "lr",
    "kl/ref_nats",
    "replay/mean_nats",
    "time/rollout_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The rows of one stage by name.

    >>> Curves(rows=[{"batch": 3, "loss": 0.5}, {"batch": 4, "loss": None}]).of("loss")
    [(3.0, 0.5)]
    """

    rows: Sequence[Row]
    """Of one stage, in file order."""

    def of(self, name: str, *, x: str = "batch") -> list[tuple[float, float]]:
        """(x, value) of every row that has a finite number under `name`; the step where a row has no batch."""
        points: list[tuple[float, float]] = []
        for index, row in enumerate(self.rows):
            value, at = row.get(name), row.get(x, row.get("step", index))
            if _is_number(value) and _is_number(at):
                points.append((float(at), float(value)))  # type: ignore[arg-type]
        return sorted(points)

    def has(self, name: str) -> bool:
        """True where at least one row has a number under `name`."""
        return bool(self.of(name))


def split(rows: Sequence[Row]) -> tuple[Curves, Curves]:
    """The RL rows (or rows without a stage) and the SFT rows.

    >>> rl, sft = split([{"stage": "sft", "step": 0, "sft/loss": 2.0}, {"step": 0, "loss": 1.0}])
    >>> rl.has("loss"), sft.has("sft/loss"), rl.has("sft/loss")
    (True, True, False)
    """
    return (
        Curves(rows=[row for row in rows if row.get("stage", "rl") == "rl"]),
        Curves(rows=[row for row in rows if row.get("stage") == "sft"]),
    )


def learning(data: RunData) -> list[Chart]:
    """Training reward and held-out accuracy over the batches; SFT loss where there was SFT."""
    rl, sft = split(data.rows)
    reward = rl.of("reward/mean")
    window = max(1, len(reward) // 12)
    averaged = f", mean of {window} batches" if window > 1 else ""
    raw = thin(smooth(rl.of("reward/raw_correct_mean"), window))
    lines = [
        Line(name="each batch", tone="accent", points=thin(reward) if window > 1 else [], faint=True),
        Line(name="training reward" + averaged, tone="accent", points=thin(smooth(reward, window))),
        Line(name="any right number (raw)", tone="good", points=raw, dashed=True),
        Line(name="held-out greedy accuracy", tone="other", points=thin(_held_out(data, rl)), dots=True),
    ]
    curves = _chart(
        title="Training reward and held-out accuracy",
        y_label="mean reward, accuracy",
        lines=lines,
        wide=True,
        top=1.0 if _nearly_full(lines) else None,
        marks=_skipped(data),
        marks_name="skipped update",
        note="Training reward is on the problems being trained on; held-out problems are never trained on."
        + _thinned(reward),
    )
    sft_loss = _simple(
        "SFT loss",
        "nats per token",
        {"loss": sft.of("sft/loss", x="step")},
        x_label="SFT step",
        note="Loss on the SFT targets.",
    )
    return [chart for chart in (curves, sft_loss) if chart]


def against_k(data: RunData) -> list[Chart]:
    """pass@k and maj@k against k, before and after, with their intervals."""
    notes = (
        (
            "pass@k",
            "share of problems",
            lambda r: r.pass_at,
            "The chance that at least one of k samples is right: what the policy can reach.",
        ),
        (
            "maj@k",
            "share of problems",
            lambda r: r.maj_at,
            "The chance that the most frequent answer of k samples is right; a tied vote is shared.",
        ),
    )
    charts = [_k_chart(data, title, y_label, pick, note) for title, y_label, pick, note in notes]
    return [chart for chart in charts if chart]


def signal(data: RunData) -> list[Chart]:
    """Where the gradient comes from: reward contrast and advantage mass."""
    rl, _ = split(data.rows)
    names = {"all right": "groups/all_right", "mixed": "groups/mixed", "all wrong": "groups/all_wrong"}
    lines = _aligned({label: rl.of(name) for label, name in names.items()}, ("good", "accent", "quiet"))
    contrast = _chart(
        title="Reward contrast",
        y_label="groups per batch",
        lines=lines,
        stacked=True,
        wide=True,
        counts=True,
        note="Only mixed groups, whose samples differ in reward, move the policy; flat ones teach nothing.",
    )
    mass = _simple(
        "Advantage mass",
        "weighted advantages, summed per batch",
        {
            "pushing up": rl.of("advantage/positive_mass"),
            "pushing down": [(x, -abs(y)) for x, y in rl.of("advantage/negative_mass")],
        },
        tones=("good", "other"),
        note="The two should stay of the same order.",
    )
    return [chart for chart in (contrast, mass) if chart]


def responses(data: RunData) -> list[Chart]:
    """Length, truncation, unreadable answers, rows left out."""
    rl, _ = split(data.rows)
    length = _simple(
        "Response length",
        "tokens per response",
        {"mean": rl.of("response/tokens_mean"), "longest": rl.of("response/tokens_max")},
        tones=("accent", "quiet"),
    )
    ended = _simple(
        "Truncated and unreadable",
        "share of responses",
        {
            "truncated": rl.of("response/truncated_share"),
            "no readable answer": rl.of("verdict/unsupported_share"),
            "checker failed": rl.of("verdict/error_share"),
        },
        tones=("other", "accent", "bad"),
        percent=True,
        note="None of these is paid; a rise here is often mistaken for a policy that gets worse.",
    )
    excluded = _simple(
        "Rows left out",
        "rows per batch",
        {"excluded rows": rl.of("groups/excluded_rows")},
        counts=True,
        note="Rows the checker or sampler failed on leave their group before the baseline.",
    )
    return [chart for chart in (length, ended, excluded) if chart]


def policy(data: RunData) -> list[Chart]:
    """Entropy, distance from the reference, agreement of sampler and trainer, and the optimizer."""
    rl, _ = split(data.rows)
    charts = [
        _simple(
            "Entropy",
            "nats per token",
            {"entropy": rl.of("policy/entropy_nats")},
            note="Near zero the policy has stopped exploring.",
        ),
        _simple("KL to the reference", "nats per token", {"KL": rl.of("kl/ref_nats")}),
        _simple(
            "Replay difference",
            "nats per token",
            {
                "mean": rl.of("replay/mean_nats"),
                "99th percentile": rl.of("replay/p99_nats"),
                "largest": rl.of("replay/max_nats"),
            },
            tones=("accent", "other", "quiet"),
            note="How far the trainer's log-probabilities of stored tokens are from the sampler's.",
        ),
        _simple("Loss", "loss as minimised", {"loss": rl.of("loss")}, from_zero=False),
        _simple("Gradient norm", "norm, before clipping", {"gradient norm": rl.of("grad_norm")}),
        _simple("Learning rate", "per update", {"learning rate": rl.of("lr")}),
    ]
    return [chart for chart in charts if chart]


def speed(data: RunData) -> list[Chart]:
    """Seconds by phase and tokens, per batch."""
    rl, _ = split(data.rows)
    phases = {"rollout": rl.of("time/rollout_s"), "verify": rl.of("time/verify_s"), "train": rl.of("time/train_s")}
    lines = _aligned({name: points for name, points in phases.items() if points}, ("accent", "other", "good"))
    charts = [
        _chart(title="Time", y_label="seconds per batch", lines=lines, stacked=True),
        _simple(
            "Tokens",
            "tokens per batch",
            {"sampled": rl.of("tokens/sampled"), "trained on": rl.of("tokens/trained")},
            tones=("quiet", "accent"),
        ),
    ]
    return [chart for chart in charts if chart]


def not_recorded(data: RunData) -> list[str]:
    """Usual metrics that no RL row has; a report says what it could not draw."""
    rl, _ = split(data.rows)
    return [name for name in _HEALTH if not rl.has(name)] if rl.rows else []


def _held_out(data: RunData, rl: Curves) -> list[tuple[float, float]]:
    """Greedy accuracy against batches sampled so far, from completed evaluations and from metrics."""
    found = dict(rl.of("heldout/greedy"))
    batches = 0
    for event in data.events:
        batches += event.kind is EventKind.ROLLOUT_BATCH
        greedy = event.payload.get("greedy")
        if event.kind is EventKind.EVALUATION_COMPLETED and _is_number(greedy):
            found[float(batches)] = float(greedy)  # type: ignore[arg-type]
    return sorted(found.items())


def _aligned(parts: Mapping[str, Points], tones: Sequence[str]) -> list[Line]:
    """Parts of a stack with the same x everywhere; a part without a value there counts as 0."""
    values = {name: dict(points) for name, points in parts.items()}
    xs = sorted(set().union(*values.values()))
    return [
        Line(name=name, tone=tone, points=thin([(x, at.get(x, 0.0)) for x in xs], 120))
        for (name, at), tone in zip(values.items(), tones, strict=False)
    ]


def _skipped(data: RunData) -> list[float]:
    batches = [e.payload.get("batch") for e in data.events if e.kind is EventKind.UPDATE_SKIPPED]
    return [float(b) for b in batches if _is_number(b)]  # type: ignore[arg-type]


def _k_chart(
    data: RunData, title: str, y_label: str, pick: Callable[[EvaluationResult], Mapping[int, Estimate]], note: str
) -> Chart | None:
    lines = []
    for name, result, tone in ((data.before_label, data.before, "quiet"), ("after", data.after, "accent")):
        by_k = sorted(pick(result).items()) if result else []
        points = [(float(k), e.value) for k, e in by_k]
        band = [(float(k), e.low, e.high) for k, e in by_k]
        lines.append(Line(name=name, tone=tone, points=points, band=band, dots=True))
    return _chart(
        title=title, y_label=y_label, lines=lines, x_label="k samples", percent=True, log2_x=True, top=1.0, note=note
    )


def _simple(
    title: str,
    y_label: str,
    curves: Mapping[str, Points],
    *,
    x_label: str = BATCH,
    tones: Sequence[str] = ("accent",),
    note: str = "",
    percent: bool = False,
    counts: bool = False,
    from_zero: bool = True,
) -> Chart | None:
    lines = [
        Line(name=name, tone=tone, points=thin(points))
        for (name, points), tone in zip(curves.items(), tones, strict=True)
        if points
    ]
    return _chart(
        title=title,
        y_label=y_label,
        lines=lines,
        x_label=x_label,
        note=note,
        percent=percent,
        counts=counts,
        from_zero=from_zero,
    )


def _chart(*, title: str, y_label: str, lines: Sequence[Line], x_label: str = BATCH, **more: object) -> Chart | None:
    shown = [line for line in lines if line.points]
    if not shown:
        return None
    return Chart(title=title, y_label=y_label, x_label=x_label, lines=shown, **more)  # type: ignore[arg-type]


def _nearly_full(lines: Sequence[Line]) -> bool:
    ys = [y for line in lines for _, y in line.points]
    return bool(ys) and min(ys) >= 0 and 0.5 < max(ys) <= 1


def _thinned(points: Points) -> str:
    shown = len(thin(points))
    return f" {len(points)} batches are drawn as {shown} means." if shown < len(points) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
