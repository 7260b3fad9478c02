"""`compare.html`: several methods on one page, from `Comparison` alone; self-contained like every report."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from algorist.report.comparison_charts import against_k, curves
from algorist.report.comparison_data import Coefficients, Comparison, GroupCoefficients, table
from algorist.report.html import Child, Safe, el, join
from algorist.report.page import document
from algorist.report.words import duration, number, percent, plural

_TEXT_SHOWN: Final = 600


def render(comparison: Comparison) -> str:
    """The page as text; the same comparison gives the same bytes."""
    sections: list[tuple[str, str, Child]] = [
        ("table", "After training", _final(comparison)),
        ("curves", "Learning curves", curves(comparison)),
        ("k", "More samples per problem", against_k(comparison)),
        ("coefficients", "The same responses under every method", _coefficients(comparison)),
        ("formulas", "Formulas that ran", _formulas(comparison)),
        ("runs", "Runs", _runs(comparison)),
    ]
    shown = [section for section in sections if section[2]]
    links = [el("li", None, el("a", {"href": f"#{key}"}, title)) for key, title, _ in shown]
    body = el(
        "div",
        {"class": "page"},
        el(
            "header",
            {"class": "top"},
            el("div", None, el("p", {"class": "eyebrow"}, "Algorist comparison"), el("h1", None, comparison.name)),
            el("button", {"type": "button", "id": "theme", "hidden": True}, "Dark page"),
        ),
        el("nav", {"aria-label": "Sections"}, el("ul", None, links)),
        el(
            "main",
            None,
            el("p", {"class": "lead"}, sentence(comparison)),
            _failed(comparison),
            [
                el(
                    "section",
                    {"id": key, "aria-labelledby": f"{key}-title"},
                    el("h2", {"id": f"{key}-title"}, title),
                    part,
                )
                for key, title, part in shown
            ],
        ),
    )
    return document(f"{comparison.name} · Algorist comparison", body)


def sentence(comparison: Comparison) -> str:
    """What was compared on which terms."""
    budget, seeds = comparison.budget, len(comparison.seeds)
    over = f"{plural(seeds, 'seed')}"
    return (
        f"{plural(len(comparison.labels), 'method')} from the same start, {over} each: the same problems in the same order, "
        f"{budget['responses']:,} sampled responses in {plural(budget['batches'], 'batch', 'batches')} of "
        f"{budget['problems_per_batch']} × {budget['responses_per_problem']}, at most "
        f"{budget['response_tokens_at_most']} tokens each."
    )


# -- parts ----------------------------------------------------------------------------------------------------------


def _failed(comparison: Comparison) -> Safe | None:
    lost = [run for run in comparison.runs if run.failed]
    if not lost:
        return None
    items = [el("li", None, f"{run.label}, seed {run.seed}: {run.failed}") for run in lost]
    return el("div", {"class": "note warn"}, el("h3", None, "Did not finish"), el("ul", None, items))


def _final(comparison: Comparison) -> Child:
    found = table(comparison)
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    if not names:
        return None
    first = comparison.labels[0]
    shown = [n for n in names if n == "greedy" or n.startswith("mean@")] + _largest(names)
    tables = []
    for name in shown:
        rows = [
            el(
                "tr",
                None,
                el("th", {"scope": "row"}, label),
                el("td", {"class": "n"}, _cell(row.get("before"))),
                el("td", {"class": "n"}, _cell(row["after"])),
                el("td", {"class": "n"}, _points(row.get("gain"))),
                el("td", {"class": "n"}, "—" if label == first else _points(row.get("against_first"))),
                el("td", {"class": "n"}, ", ".join(f"{100 * v:.1f}" for v in row["by_seed"].values())),
            )
            for label in comparison.labels
            if (row := _row(found, label, name)) is not None
        ]
        heads = ("method", "start", "after", "gain", f"against {first}", "by seed, %")
        tables.append(
            el(
                "table",
                None,
                el("caption", None, name),
                el(
                    "thead",
                    None,
                    el(
                        "tr",
                        None,
                        [el("th", {"scope": "col", "class": "n" if h != "method" else ""}, h) for h in heads],
                    ),
                ),
                el("tbody", None, rows),
            )
        )
    said = (
        f"Intervals: Student's t over {len(comparison.seeds)} seeds, {comparison.confidence:.0%}; gain and difference are paired by "
        "seed, in percentage points. An interval that holds 0 shows no difference."
        if len(comparison.seeds) > 1
        else f"One seed: intervals of start and after are over problems, {comparison.confidence:.0%}; nothing here speaks about seeds."
    )
    return join([_scroll("Final measures", tables), el("p", {"class": "quiet"}, said)])


def _largest(names: Sequence[str]) -> list[str]:
    """pass@k and maj@k of the largest k."""
    found = []
    for prefix in ("pass@", "maj@"):
        ks = [int(name.removeprefix(prefix)) for name in names if name.startswith(prefix)]
        found += [f"{prefix}{max(ks)}"] if ks else []
    return found


def _row(found: Mapping[str, Mapping[str, Any]], label: str, name: str) -> Any:
    return found[label].get(name)


def _cell(e: Any) -> str:
    return "—" if e is None else f"{percent(e['value'])} ({percent(e['low'])} to {percent(e['high'])})"


def _points(e: Any) -> str:
    if e is None:
        return "—"
    value = f"{100 * e['value']:+.1f}"
    return value if e["low"] is None else f"{value} ({100 * e['low']:+.1f} to {100 * e['high']:+.1f})"


def _coefficients(comparison: Comparison) -> Child:
    if not comparison.coefficients:
        return None
    about = (
        "Groups of the first batch, sampled from the shared start, so policy, old policy and reference are equal and these are the "
        "coefficients (DeepSeekMath eq. 5) each method really used: how hard it pushes each token's log-probability, before the "
        "reduction over tokens and responses. Positive is up. Where tokens of one response differ, stretches are shown."
    )
    return join([el("p", None, about), [_group(group, comparison.labels) for group in comparison.coefficients]])


def _group(group: GroupCoefficients, labels: Sequence[str]) -> Safe:
    heads = ["response", "verdict", *labels]
    head = el("tr", None, [el("th", {"scope": "col", "class": "n" if i > 1 else ""}, h) for i, h in enumerate(heads)])
    rows = [_response(response, labels) for response in group.responses]
    caption = el("caption", None, f"{group.question}  (reference answer {group.gold})")
    return _scroll("Coefficients", el("table", None, caption, el("thead", None, head), el("tbody", None, rows)))


def _response(response: Coefficients, labels: Sequence[str]) -> Safe:
    text = response.text[:_TEXT_SHOWN] or "(empty)"
    return el(
        "tr",
        None,
        el("td", None, el("code", None, text)),
        el("td", None, el("span", {"class": f"badge {response.verdict}"}, response.verdict)),
        [el("td", {"class": "n"}, _pushes(response.by_label[label])) for label in labels],
    )


def _pushes(stretches: Sequence[tuple[str, float]]) -> Child:
    shown = [(text, value) for text, value in stretches if text or len(stretches) == 1]
    values = {value for _, value in shown}
    if len(values) <= 1:
        return _signed(next(iter(values), 0.0))
    return [el("div", None, el("code", None, text[:40]), f" {_signed(value)}") for text, value in shown]


def _signed(value: float) -> Safe:
    tone = "up" if value > 0 else "down" if value < 0 else "quiet"
    return el("span", {"class": tone}, "0" if value == 0 else f"{value:+.3f}")


def _formulas(comparison: Comparison) -> Child:
    keys = list(dict.fromkeys(key for formula in comparison.formulas.values() for key in formula))
    heads = el("tr", None, el("th", {"scope": "col"}, ""), [el("th", {"scope": "col"}, x) for x in comparison.labels])
    rows = [
        el(
            "tr",
            None,
            el("th", {"scope": "row"}, key.replace("_", " ")),
            [el("td", None, comparison.formulas[label].get(key, "—")) for label in comparison.labels],
        )
        for key in ("settings", *keys)
        if key != "settings"
    ]
    own = el(
        "tr",
        None,
        el("th", {"scope": "row"}, "own settings"),
        [el("td", None, ", ".join(comparison.settings[label])) for label in comparison.labels],
    )
    return _scroll("Formulas", el("table", None, el("thead", None, heads), el("tbody", None, own, rows)))


def _runs(comparison: Comparison) -> Child:
    heads = ("method", "seed", "responses", "tokens", "updates applied", "skipped", "time", "folder")
    head = el(
        "tr", None, [el("th", {"scope": "col", "class": "n" if 0 < i < 7 else ""}, h) for i, h in enumerate(heads)]
    )
    rows = [
        el(
            "tr",
            None,
            el("th", {"scope": "row"}, run.label),
            [
                el("td", {"class": "n"}, text)
                for text in (
                    str(run.seed), f"{run.rollouts:,}", number(run.tokens), str(run.applied), str(run.skipped), duration(run.train_s)
                )
            ],
            el("td", None, el("code", None, run.folder)),
        )
        for run in comparison.runs
    ]  # fmt: skip
    return _scroll("Runs", el("table", None, el("thead", None, head), el("tbody", None, rows)))


def _scroll(label: str, body: Child) -> Safe:
    return el("div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": label}, body)
