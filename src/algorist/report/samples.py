"""Sample rollouts, side by side in their group: a few groups from batches spread over the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorist.errors import InputError
from algorist.record.rollouts import read_rows
from algorist.report.html import Safe, el
from algorist.report.words import number, plural

_BATCHES: Final = 6
_GROUPS_PER_BATCH: Final = 4
_SAMPLES_SHOWN: Final = 8
_TEXT_SHOWN: Final = 6000  # characters of one response
_WORDS: Final = {
    "correct": "✓ right",
    "wrong": "✗ wrong",
    "unsupported": "? no readable answer",
    "error": "! checker failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The stored rows of one problem in one batch.

    Example: `Group(batch=3, index=0, rows=read_rows(path)[:8]).contrast`
    """

    batch: int
    """Rollout batch."""
    index: int
    """Place in the batch."""
    rows: Sequence[Mapping[str, Any]]
    """Rows as the rollout store gives them."""

    @property
    def rewards(self) -> list[float]:
        """Rewards that exist."""
        return [row["reward"] for row in self.rows if row["reward"] is not None]

    @property
    def num_right(self) -> int:
        """Samples judged correct."""
        return sum(row["verdict"] == "correct" for row in self.rows)

    @property
    def contrast(self) -> str:
        """mixed, all-right, all-wrong, or flat (equal rewards, neither all right nor all wrong)."""
        if len(set(self.rewards)) > 1:
            return "mixed"
        return {len(self.rows): "all-right", 0: "all-wrong"}.get(self.num_right, "flat")

    @property
    def kinds(self) -> str:
        """Everything a filter may look for, separated by spaces."""
        extra = {"truncated" for row in self.rows if row["finish"] == "length"}
        extra |= {"failed" for row in self.rows if row["verdict"] == "error" or row["finish"] == "error"}
        extra |= {"disputed" for row in self.rows if row["raw_correct"] and row["verdict"] != "correct"}
        return " ".join([self.contrast, *sorted(extra)])


def choose(folder: Path) -> tuple[list[Group], list[str]]:
    """Groups to show, mixed ones first within a batch, and what could not be read."""
    paths = sorted(folder.glob("batch-*.parquet"))
    most = min(_BATCHES, len(paths))
    picked = [paths[round(i * (len(paths) - 1) / max(1, most - 1))] for i in range(most)]
    groups: list[Group] = []
    notes: list[str] = []
    for path in picked:
        try:
            groups += _spread(_groups(read_rows(path)))
        except InputError as error:
            notes.append(f"rollouts/{path.name} is not shown ({error}).")
    return groups, notes


def section(groups: Sequence[Group], num_batches: int) -> Safe:
    """The picker and the groups; without scripts every group is simply shown."""
    if not groups:
        return el("p", {"class": "quiet"}, "No rollouts were stored in this run folder.")
    options = [el("option", {"value": _key(g), "data-kinds": g.kinds}, _title(g)) for g in groups]
    filters = (
        ("", "all groups"),
        ("mixed", "mixed"),
        ("all-right", "all right"),
        ("all-wrong", "all wrong"),
        ("truncated", "with a truncated response"),
        ("disputed", "right number, not paid"),
        ("failed", "with a failure"),
    )
    present = [(kind, name) for kind, name in filters if not kind or any(kind in g.kinds.split() for g in groups)]
    return el(
        "div",
        {"id": "samples"},
        el(
            "form",
            {"class": "picker", "id": "picker", "hidden": True},
            el(
                "label",
                None,
                "Show ",
                el("select", {"id": "filter"}, [el("option", {"value": k}, n) for k, n in present]),
            ),
            el("label", {"class": "grow"}, "Group ", el("select", {"id": "group"}, options)),
            el("button", {"type": "button", "id": "previous"}, "← Previous"),
            el("button", {"type": "button", "id": "next"}, "Next →"),
        ),
        el("p", {"class": "quiet", "id": "picked", "aria-live": "polite"}, _counted(groups, num_batches)),
        [_group(group) for group in groups],
    )


def _groups(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    by_index: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_index.setdefault(row["group"], []).append(row)
    return [Group(batch=rows[0]["batch"], index=index, rows=by_index[index]) for index in sorted(by_index)]


def _spread(groups: Sequence[Group]) -> list[Group]:
    """Up to four groups of a batch: two mixed where there are, then one of each other kind, then whatever is left."""
    order: list[Group] = []
    mixed = [g for g in groups if g.contrast == "mixed"]
    truncated = [g for g in groups if "truncated" in g.kinds]
    for candidates in (mixed[:2], [g for g in groups if g.contrast == "all-wrong"][:1], truncated[:1], groups):
        order += [g for g in candidates if g not in order]
    return sorted(order[:_GROUPS_PER_BATCH], key=lambda g: g.index)


def _counted(groups: Sequence[Group], num_batches: int) -> str:
    batches = len({g.batch for g in groups})
    return (
        f"{plural(len(groups), 'group')} from {plural(batches, 'batch', 'batches')} of {num_batches}, "
        "spread over the run and chosen for contrast, not for quality; all of them are in rollouts/."
    )


def _key(group: Group) -> str:
    return f"g-{group.batch}-{group.index}"


def _title(group: Group) -> str:
    question = " ".join(str(group.rows[0]["question"] or group.rows[0]["problem_id"]).split())
    short = question if len(question) <= 70 else question[:69] + "…"
    return f"batch {group.batch} · {group.num_right}/{len(group.rows)} right · {short}"


def _group(group: Group) -> Safe:
    first = group.rows[0]
    ordered = sorted(
        group.rows, key=lambda row: (-(row["reward"] if row["reward"] is not None else -1e9), row["sample"])
    )
    half = _SAMPLES_SHOWN // 2
    shown = ordered if len(ordered) <= _SAMPLES_SHOWN else [*ordered[:half], *ordered[-half:]]
    hidden = len(ordered) - len(shown)
    largest = max((abs(row["advantage"]) for row in ordered if row["advantage"] is not None), default=0.0)
    return el(
        "article",
        {"class": "group", "id": _key(group), "data-kinds": group.kinds},
        el("h3", None, f"Batch {group.batch}, group {group.index}"),
        el(
            "dl",
            {"class": "facts"},
            _fact("question", el("span", {"class": "wrap"}, str(first["question"] or "(not stored)"))),
            _fact("reference answer", str(first["gold"]) if first["gold"] is not None else "(not stored)"),
            _fact("right", f"{group.num_right} of {len(group.rows)}"),
            _fact("mean reward", number(sum(group.rewards) / len(group.rewards)) if group.rewards else "none"),
            _fact("contrast", group.contrast.replace("-", " ")),
        ),
        el("div", {"class": "responses"}, [_response(row, largest) for row in shown]),
        el("p", {"class": "quiet"}, f"{hidden} more between the best and the worst {half} are in rollouts/.")
        if hidden
        else None,
    )


def _response(row: Mapping[str, Any], largest: float) -> Safe:
    verdict = str(row["verdict"])
    text = str(row["text"])
    cut = len(text) - _TEXT_SHOWN
    return el(
        "section",
        {"class": f"response {verdict}", "aria-label": f"sample {row['sample']}"},
        el(
            "header",
            None,
            el("span", {"class": f"badge {verdict}"}, _WORDS.get(verdict, verdict)),
            el("span", {"class": "badge warn"}, "truncated") if row["finish"] == "length" else None,
            el("span", {"class": "badge warn"}, "right number, not paid")
            if row["raw_correct"] and verdict != "correct"
            else None,
            el("span", {"class": "quiet"}, f"sample {row['sample']}"),
        ),
        el("pre", {"tabindex": 0, "aria-label": "response text"}, text[:_TEXT_SHOWN] or "(empty)"),
        el("p", {"class": "quiet"}, f"… {cut:,} more characters") if cut > 0 else None,
        _advantage_bar(row["advantage"], largest),
        el(
            "dl",
            {"class": "facts"},
            _fact("advantage", "none" if row["advantage"] is None else f"{row['advantage']:+.3f}"),
            _fact("reward", _reward(row)),
            _fact("answer", str(row["extracted"]) or "—"),
            _fact("why", " · ".join(str(row[n]) for n in ("reason", "rule", "method") if row[n])),
            _fact("tokens", str(len(row["token_ids"]))),
            _fact("policy", f"after {plural(min(row['policy_version'], default=0), 'update')}"),
        ),
    )


def _reward(row: Mapping[str, Any]) -> str:
    if row["reward"] is None:
        return f"none ({row['reward_error']})"
    parts = row["reward_parts"]
    told = " = " + " ".join(f"{value:+g} {name}" for name, value in parts.items()) if len(parts) > 1 else ""
    return number(row["reward"]) + told


def _advantage_bar(advantage: float | None, largest: float) -> Safe | None:
    if advantage is None or not largest:
        return None
    width = 50 * abs(advantage) / largest
    x, tone = (50.0, "good") if advantage >= 0 else (50 - width, "other")
    return el(
        "svg",
        {"viewBox": "0 0 100 6", "class": "bar", "preserveAspectRatio": "none", "aria-hidden": "true"},
        el("rect", {"x": 0, "y": 2.5, "width": 100, "height": 1, "class": "rail"}),
        el("rect", {"x": f"{x:.1f}", "y": 0, "width": f"{width:.1f}", "height": 6, "class": f"fill {tone}"}),
        el("rect", {"x": 49.8, "y": 0, "width": 0.4, "height": 6, "class": "rail"}),
    )


def _fact(name: str, value: str | Safe) -> Safe:
    return el("div", None, el("dt", None, name), el("dd", None, value))
