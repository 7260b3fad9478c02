"""The curves of a comparison: means over seeds with their intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from algorist.evaluate.result import EvaluationResult
from algorist.evaluate.seeds import over_seeds
from algorist.evaluate.statistics import Estimate
from algorist.report.chart import Chart, Line, smooth, thin
from algorist.report.comparison_data import Comparison, MethodRun, estimate, measures
from algorist.report.figure import figure
from algorist.report.html import Child, el

_TONES: Final = ("accent", "other", "good", "bad", "quiet")
Pick = Callable[[EvaluationResult], float | None]


def curves(comparison: Comparison) -> Child:
    """Training reward and held-out accuracy: all methods together, then each with its interval over seeds."""
    rewards = {
        label: _over_seeds([_rewards(run) for run in comparison.of(label)], comparison) for label in comparison.labels
    }
    charts = [
        _together(
            "Training reward",
            "mean correctness",
            {label: [(x, e.value) for x, e in points] for label, points in rewards.items()},
            "rollout batch",
            "Mean over seeds, smoothed. Methods that sample once from the start show no rise here: their responses do not change.",
        )
    ]
    for title, pick in (("Held-out greedy accuracy", _greedy), ("Held-out mean accuracy of samples", _mean)):
        points = {
            label: _over_seeds([_heldout(run, pick) for run in comparison.of(label)], comparison)
            for label in comparison.labels
        }
        if any(len(p) > 1 for p in points.values()):
            lines = {label: [(x, e.value) for x, e in p] for label, p in points.items()}
            charts.append(
                _together(
                    title,
                    "share of problems",
                    lines,
                    "batches done",
                    "On problems that are never trained on.",
                    dots=True,
                )
            )
            charts += [_alone(label, title, p, lines) for label, p in points.items() if p]
    charts += [
        _alone(label, "Training reward", p, {k: [(x, e.value) for x, e in q] for k, q in rewards.items()})
        for label, p in rewards.items()
        if p
    ]
    drawn = [
        figure(chart, "wide" if chart.wide else "narrow")
        for chart in charts
        if any(line.points for line in chart.lines)
    ]
    return el("div", {"class": "charts"}, drawn) if drawn else None


def _rewards(run: MethodRun) -> list[tuple[float, float]]:
    """Correctness of each batch, smoothed; before shaping where there is any."""
    points = []
    for row in run.rows:
        value = row.get("reward/unshaped_mean", row.get("reward/mean"))
        if isinstance(value, int | float) and isinstance(row.get("batch"), int):
            points.append((float(row["batch"]), float(value)))  # type: ignore[arg-type]
    return smooth(points, max(1, len(points) // 8))


def _heldout(run: MethodRun, pick: Pick) -> list[tuple[float, float]]:
    last = float(len(run.rows))
    found = [(0.0, run.before), *((float(n), r) for n, r in run.during), (last, run.after)]
    return [(x, value) for x, result in found if result is not None and (value := pick(result)) is not None]


def _greedy(result: EvaluationResult) -> float | None:
    return result.greedy.value if result.greedy else None


def _mean(result: EvaluationResult) -> float | None:
    return result.mean_at[result.samples].value if result.samples in result.mean_at else None


def _over_seeds(runs: Sequence[Sequence[tuple[float, float]]], comparison: Comparison) -> list[tuple[float, Estimate]]:
    """Mean and interval over the seeds at every x that all of them have."""
    if not runs:
        return []
    tables = [dict(run) for run in runs]
    xs = sorted(set(tables[0]).intersection(*tables[1:]))
    result = []
    for x in xs:
        values = [t[x] for t in tables]
        if len(values) > 1:
            result.append((x, over_seeds(values, confidence=comparison.confidence, share=True)))
        else:
            result.append((x, Estimate(value=values[0], low=values[0], high=values[0])))
    return result


def _together(
    title: str,
    y_label: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    x_label: str,
    note: str,
    *,
    dots: bool = False,
) -> Chart:
    return Chart(
        title=title,
        x_label=x_label,
        y_label=y_label,
        wide=True,
        percent=True,
        note=note,
        lines=[
            Line(name=label, tone=_TONES[i % 5], dashed=i >= 5, points=thin(points), dots=dots)
            for i, (label, points) in enumerate(lines.items())
        ],
    )


def _alone(
    label: str, title: str, points: Sequence[tuple[float, Estimate]], every: Mapping[str, Sequence[tuple[float, float]]]
) -> Chart:
    """One method with its interval over seeds; the others behind it."""
    others = [
        Line(name=other, tone="quiet", faint=True, points=thin(p)) for other, p in every.items() if other != label and p
    ]
    own = Line(
        name=label,
        tone="accent",
        points=[(x, e.value) for x, e in points],
        band=[(x, e.low, e.high) for x, e in points] if len(points) > 1 else (),
    )
    return Chart(
        title=f"{label}: {title[:1].lower()}{title[1:]}",
        x_label="batches",
        y_label="share",
        percent=True,
        lines=[*others, own],
        note="Band: interval over seeds. Grey: the other methods.",
    )


def against_k(comparison: Comparison) -> Child:
    """pass@k and maj@k of the start and of every method."""
    charts = []
    for title, field, note in (
        ("pass@k", "pass@", "At least one of k samples is right."),
        ("maj@k", "maj@", "The most frequent answer of k samples is right."),
    ):
        lines = {
            label: _by_k([r.after for r in comparison.of(label) if r.after], field, comparison)
            for label in comparison.labels
        }
        start = [r.before for r in comparison.of(comparison.labels[0]) if r.before]
        lines = {"start": _by_k(start, field, comparison), **lines}
        if not any(len(points) > 2 for points in lines.values()):
            continue
        chart = _together(
            title,
            "share of problems",
            {k: [(x, e.value) for x, e in v] for k, v in lines.items()},
            "k samples",
            note,
            dots=True,
        )
        charts.append(Chart(**{**{f: getattr(chart, f) for f in chart.__slots__}, "log2_x": True}))
        for label, points in list(lines.items())[1:]:
            charts.append(
                Chart(
                    title=f"{label}: {title}",
                    x_label="k samples",
                    y_label="share of problems",
                    percent=True,
                    log2_x=True,
                    note="Bands: intervals over seeds.",
                    lines=[_banded("start", "quiet", lines["start"]), _banded("after", "accent", points)],
                )
            )
    return (
        el("div", {"class": "charts"}, [figure(c, "wide" if c.wide else "narrow") for c in charts]) if charts else None
    )


def _banded(name: str, tone: str, points: Sequence[tuple[float, Estimate]]) -> Line:
    return Line(
        name=name,
        tone=tone,
        dots=True,
        points=[(x, e.value) for x, e in points],
        band=[(x, e.low, e.high) for x, e in points],
    )


def _by_k(results: Sequence[EvaluationResult], field: str, comparison: Comparison) -> list[tuple[float, Estimate]]:
    if not results:
        return []
    found = []
    for k in sorted({int(n.removeprefix(field)) for n in measures(results[0]) if n.startswith(field)} | {1}):
        own = [_at(result, field, k) for result in results]
        if all(own):
            known = [e for e in own if e]
            found.append((float(k), estimate([e.value for e in known], known, comparison.confidence)))
    return found


def _at(result: EvaluationResult, field: str, k: int) -> Estimate | None:
    return (result.pass_at if field == "pass@" else result.maj_at).get(k)
