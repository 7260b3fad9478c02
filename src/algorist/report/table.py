"""The closing table of a run, for a terminal."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from algorist.evaluate.statistics import Estimate, PairedDifference
from algorist.report.gather import RunData, gather
from algorist.report.headline import counted, price, status
from algorist.report.words import duration, percent


def summary_table(run: Path) -> Table:
    """Before and after with intervals, the counts, and the time. Raises InputError where `run` is no run folder."""
    data = gather(run)
    table = Table(title=Text(f"{data.name}: {status(data)}"), title_justify="left")
    for name in ("", data.before_label, "after", "difference"):
        table.add_column(name, overflow="fold")
    for label, before, after, paired in _measures(data):
        table.add_row(label, _shown(before), _shown(after), _gain(paired))
    lines = [f"{count} {what}" for count, what in counted(data)]
    if data.wall_s is not None:
        lines.append(f"{duration(data.wall_s)}; intervals: 95 %")
    lines += [f"checks: {words}"] if (words := price(data)) else []
    lines.append(f"receipt: {data.judgement.line}")
    lines += [f"amended: {change}" for change in data.amendments]
    lines += [f"note: {note}" for note in data.notes]
    table.caption, table.caption_justify = Text("\n".join(lines)), "left"
    return table


def _measures(data: RunData) -> list[tuple[str, Estimate | None, Estimate | None, PairedDifference | None]]:
    before, after, c = data.before, data.after, data.comparison
    result = after or before
    if result is None:
        return []
    rows: list[tuple[str, Estimate | None, Estimate | None, PairedDifference | None]] = []
    if result.greedy:
        rows.append(
            ("greedy", before.greedy if before else None, after.greedy if after else None, c.greedy if c else None)
        )
    for name, pick, paired in (
        ("mean", "mean_at", c.mean if c else None),
        ("pass", "pass_at", None),
        ("maj", "maj_at", None),
    ):
        of = {"mean_at": result.mean_at, "pass_at": result.pass_at, "maj_at": result.maj_at}[pick]
        if not of:
            continue
        k = max(of)
        old, new = (_by_name(r, pick).get(k) if r else None for r in (before, after))
        rows.append((f"{name}@{k}", old, new, paired))
    return rows


def _by_name(result: object, pick: str) -> dict[int, Estimate]:
    return dict(getattr(result, pick))


def _shown(estimate: Estimate | None) -> str:
    """One line of at most 18 columns, so that the table fits a terminal of 80."""
    return f"{percent(estimate.value)} ({estimate.low:.0%}–{estimate.high:.0%})" if estimate else "—"


def _gain(paired: PairedDifference | None) -> str:
    if paired is None:
        return ""
    value, low, high = (100 * x for x in (paired.difference.value, paired.difference.low, paired.difference.high))
    return f"{value:+.1f} points ({low:+.0f} to {high:+.0f})"
