"""`report.html`: one file, no network, every text of the run escaped, scripts and styles pinned by their digest."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from algorist.evaluate.statistics import Estimate
from algorist.record.commit import atomic_write
from algorist.record.ledger import Event
from algorist.report import gates, panels, samples
from algorist.report.chart import Chart
from algorist.report.figure import figure, intervals
from algorist.report.findings import findings
from algorist.report.gather import RunData, gather, moment
from algorist.report.headline import counted, price, sentence, status, took
from algorist.report.html import Child, Safe, el, join
from algorist.report.verdict import NOT_JUDGED
from algorist.report.words import duration, percent, points, yaml_like

_EVENTS_SHOWN: Final = 400
_TEXT_SHOWN: Final = 160
"""Characters of one value in the ledger's table."""
_ORDER: Final = ("estimator", "std", "epsilon", "reduction", "denominator", "kl", "ratio", "clip", "importance")
"""Formulas in reading order; others follow by name."""


def build(run: Path) -> Path:
    """Write `report.html` into a run folder from what the folder holds, and return its path.

    The same folder gives the same bytes. Raises InputError where `run` is no run folder, DiskFull; parts that are
    missing or damaged are named on the page instead.
    """
    data = gather(run)
    atomic_write(data.folder.report, render(data).encode())
    return data.folder.report


def render(data: RunData) -> str:
    """The page as text."""
    groups, sample_notes = samples.choose(data.folder.rollouts)
    notes = [*data.notes, *sample_notes]
    num_batches = len(list(data.folder.rollouts.glob("batch-*.parquet")))
    sections: list[tuple[str, str, Child]] = [
        ("gates", "Gates", gates.section(data.judgement)),
        ("learning", "Learning", _charts(panels.learning(data))),
        ("k", "More samples per problem", _charts(panels.against_k(data))),
        ("signal", "Where the signal comes from", _charts(panels.signal(data))),
        ("responses", "Responses", _charts(panels.responses(data))),
        ("policy", "Policy and optimizer", _charts(panels.policy(data), _absent(data))),
        ("speed", "Time and tokens", _charts(panels.speed(data))),
        ("rollouts", "Sample rollouts", samples.section(groups, num_batches)),
        ("formulas", "Formulas that ran", _formulas(data)),
        ("evaluations", "Evaluations", _evaluations(data)),
        ("recipe", "Recipe", _recipe(data)),
        ("ledger", "Ledger", _ledger(data)),
    ]
    shown = [section for section in sections if section[2]]
    body = join(
        [
            el("a", {"class": "skip", "href": "#result"}, "To the result"),
            el(
                "div",
                {"class": "page"},
                _header(data),
                el("nav", {"aria-label": "Sections"}, el("ul", None, [_link(key, title) for key, title, _ in shown])),
                el("main", None, _result(data, notes), [_section(*section) for section in shown]),
                _footer(data),
            ),
        ]
    )
    return document(f"{data.name} · Algorist report", body)


def document(title: str, body: Safe) -> str:
    """A whole page around `body`: styles and script inside it, pinned by digest, and nothing fetched."""
    css, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_pin(css)}'; script-src '{_pin(script)}'; base-uri 'none'; form-action 'none'"
    )
    head = el(
        "head",
        None,
        el("meta", {"charset": "utf-8"}),
        el("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        el("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        el("meta", {"name": "color-scheme", "content": "light dark"}),
        el("title", None, title),
        el("style", None, Safe(css)),
    )
    page = el("html", {"lang": "en"}, head, el("body", None, body, el("script", None, Safe(script))))
    return f"<!doctype html>\n{page}\n"


def _asset(name: str) -> str:
    return files("algorist.report").joinpath(name).read_text(encoding="utf-8")


def _pin(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _header(data: RunData) -> Safe:
    return el(
        "header",
        {"class": "top"},
        el("div", None, el("p", {"class": "eyebrow"}, "Algorist run report"), el("h1", None, data.name)),
        el("button", {"type": "button", "id": "theme", "hidden": True}, "Dark page"),
    )


def _result(data: RunData, notes: Sequence[str]) -> Safe:
    cards = [
        card for card in (_accuracy_card(data, "greedy"), _accuracy_card(data, "mean"), _counts_card(data)) if card
    ]
    return el(
        "section",
        {"id": "result", "aria-label": "Result"},
        _verdict(data),
        el("p", {"class": "lead"}, sentence(data)),
        el("div", {"class": "cards"}, cards),
        _list("Worth a look", findings(data), warn=True),
        _list("Not shown on this page", notes, warn=True),
        _list("Amended: the contract was replaced while the run went on", data.amendments),
        _list("Noted when the run was prepared", data.remarks),
    )


def _verdict(data: RunData) -> Safe:
    found = data.judgement
    if status(data) == "paused":
        message = str(data.events[-1].payload.get("message"))
        return el("p", {"class": "verdict"}, el("strong", {"class": "badge quiet"}, "paused"), f" {message}")
    tone = "good" if found.status == "qualified" else "quiet" if found.status == NOT_JUDGED else "bad"
    words = (
        f" {'; '.join(found.reasons)}." if found.reasons else " Every gate of the contract was judged and none failed."
    )
    noted = [str(gate.get("name")) for gate in found.gates if gate.get("verdict") == "reported"]
    if noted and not found.reasons:
        words += f" Worth reading: {', '.join(noted)}."
    receipt = join([" Receipt ", el("code", None, found.receipt)]) if found.receipt else None
    badge = el("strong", {"class": f"badge {tone}"}, found.status)
    return el("p", {"class": "verdict"}, badge, words, receipt)


def _absent(data: RunData) -> str:
    names = panels.not_recorded(data)
    return f"Not recorded in this run, so not drawn: {', '.join(names)}." if names else ""


def _accuracy_card(data: RunData, which: str) -> Safe | None:
    before, after = data.before, data.after
    n = after.samples if after else before.samples if before else 0
    if which == "greedy":
        title, was, now = "Greedy accuracy", before.greedy if before else None, after.greedy if after else None
        paired = data.comparison.greedy if data.comparison else None
    else:
        title, paired = f"mean@{n} accuracy", data.comparison.mean if data.comparison else None
        was, now = (r.mean_at.get(r.samples) if r else None for r in (before, after))
    if not was and not now:
        return None
    share = f"{after.confidence:.0%}" if after else f"{before.confidence:.0%}" if before else ""
    problems = (after or before).problems if (after or before) else 0  # type: ignore[union-attr]
    tone = (
        "up" if paired and paired.difference.low > 0 else "down" if paired and paired.difference.high < 0 else "quiet"
    )
    return el(
        "div",
        {"class": "card"},
        el("h3", None, f"{title}, {problems} held-out problems"),
        el(
            "p",
            {"class": "big"},
            el("span", {"class": "was"}, f"{percent(was.value)} → ") if was else None,
            percent(now.value) if now else "not measured after",
        ),
        el("p", {"class": "quiet"}, f"{data.before_label} → after") if was and now else None,
        el(
            "p",
            {"class": "quiet"},
            el("span", {"class": tone}, points(paired.difference)),
            f", paired {share} interval",
        )
        if paired
        else None,
        intervals(_interval_words(title, data.before_label, was, now), was, now),
    )


def _interval_words(title: str, before: str, was: Estimate | None, now: Estimate | None) -> str:
    ends = [
        f"{name} {percent(e.value)}, interval {percent(e.low)} to {percent(e.high)}"
        for name, e in ((before, was), ("after", now))
        if e
    ]
    return f"{title}: {'; '.join(ends)}"


def _counts_card(data: RunData) -> Safe:
    rows = [el("div", None, el("dt", None, name), el("dd", None, value)) for value, name in counted(data)]
    return el(
        "div",
        {"class": "card"},
        el("h3", None, "What happened"),
        el("dl", {"class": "counts"}, rows),
        el("p", {"class": "quiet"}, took(data)),
        el("p", {"class": "quiet"}, f"Being checked took: {words}.") if (words := price(data)) else None,
    )


def _list(title: str, items: Sequence[str], *, warn: bool = False) -> Safe | None:
    if not items:
        return None
    entries = [el("li", None, item) for item in items]
    return el("div", {"class": "note warn" if warn else "note"}, el("h3", None, title), el("ul", None, entries))


def _link(key: str, title: str) -> Safe:
    return el("li", None, el("a", {"href": f"#{key}"}, title))


def _section(key: str, title: str, body: Child) -> Safe:
    return el("section", {"id": key, "aria-labelledby": f"{key}-title"}, el("h2", {"id": f"{key}-title"}, title), body)


def _charts(charts: Sequence[Chart], below: str = "") -> Safe | None:
    if not charts:
        return None
    pair = len(charts) == 2 and not any(chart.wide for chart in charts)
    figures = [figure(chart, "wide" if chart.wide else "half" if pair else "narrow") for chart in charts]
    grid = el("div", {"class": "charts two" if pair else "charts"}, figures)
    return join([grid, el("p", {"class": "quiet"}, below) if below else None])


def _formulas(data: RunData) -> Safe:
    if not data.formulas:
        return el("p", {"class": "quiet"}, "The contract of this run records no formulas.")
    tables = [
        el("table", {"class": "formulas"}, el("caption", None, loop.upper()) if loop else None, el("tbody", None, rows))
        for loop, formulas in data.formulas.items()
        if (rows := [_formula(name, formulas[name]) for name in sorted(formulas, key=_place)])
    ]
    return el("div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "Formulas"}, tables)


def _formula(name: str, text: str) -> Safe:
    return el("tr", None, el("th", {"scope": "row"}, name.replace("_", " ")), el("td", None, text))


def _place(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _evaluations(data: RunData) -> Safe | None:
    results = [r for r in (data.before, data.after, *data.others) if r]
    if not results:
        return None
    heads = ("name", "problems", "greedy", "mean", "no readable answer", "truncated", "checker failed", "policy")
    rows = []
    for r in results:
        mean = r.mean_at.get(r.samples)
        cells = [data.before_label if r is data.before else r.name, f"{r.problems:,}", _cell(r.greedy), _cell(mean)]
        cells += [f"{n} of {r.responses:,}" for n in (r.unsupported, r.truncated, r.errors)]
        rows.append(
            el(
                "tr",
                None,
                [el("td", {"class": "name"}, c) for c in cells],
                el("td", None, el("code", None, r.policy_digest[:12])),
            )
        )
    head = el("thead", None, el("tr", None, [el("th", {"scope": "col"}, h) for h in heads]))
    table = el("table", None, head, el("tbody", None, rows))
    resamples = f"{results[-1].resamples:,} resamples"
    said = f"Intervals: Wilson for greedy, percentile bootstrap over problems for samples ({resamples}). "
    return join(
        [
            el("div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "Evaluations"}, table),
            el(
                "p",
                {"class": "quiet"},
                said
                + f"A tied vote in maj@k is {results[-1].ties}. Truncated and unreadable responses count as not right.",
            ),
        ]
    )


def _cell(estimate: Estimate | None) -> str:
    return f"{percent(estimate.value)} ({percent(estimate.low)} to {percent(estimate.high)})" if estimate else "—"


def _recipe(data: RunData) -> Safe:
    if not data.recipe:
        return el("p", {"class": "quiet"}, "contract.json holds no recipe.")
    pre = el("pre", None, yaml_like(data.recipe))
    return el("div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "Recipe"}, pre)


def _ledger(data: RunData) -> Safe:
    chain = data.chain
    holds = "The hash chain holds" if chain.ok else "The hash chain is broken"
    half = _EVENTS_SHOWN // 2
    many = len(data.events) > _EVENTS_SHOWN
    shown = [*data.events[:half], *data.events[-half:]] if many else data.events
    left_out = f" {len(data.events) - _EVENTS_SHOWN:,} events in the middle are only in ledger.jsonl." if many else ""
    start = moment(data.events[0]) if data.events else None
    heads = (("#", "n"), ("after", "n"), ("event", ""), ("updates in this stage", "n"), ("what", ""))
    head = el("thead", None, el("tr", None, [el("th", {"scope": "col", "class": c}, h) for h, c in heads]))
    rows = []
    for event in shown:
        at = moment(event)
        after = duration((at - start).total_seconds()) if at and start else "—"
        rows.append(
            el(
                "tr",
                None,
                el("td", {"class": "n"}, str(event.seq)),
                el("td", {"class": "n"}, after),
                el("td", {"class": "name"}, event.kind.replace("_", " ")),
                el("td", {"class": "n"}, str(event.policy_version)),
                el("td", None, _payload(event)),
            )
        )
    table = el("table", None, head, el("tbody", None, rows))
    return join(
        [
            el(
                "p",
                None,
                f"{holds} over {chain.num_events:,} events; its head is ",
                el("code", None, chain.head),
                f".{left_out}",
            ),
            el("div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "Ledger events"}, table),
        ]
    )


def _payload(event: Event) -> str:
    """What an event says, its name first and what holds several figures last."""
    said = [(name, value) for name, value in event.payload.items() if not _empty(value)]
    said.sort(key=lambda item: (item[0] != "name", isinstance(item[1], Mapping | list)))
    return "; ".join(f"{name}: {_brief(value)}" for name, value in said)


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, str | Mapping | list) and not value)


def _brief(value: object) -> str:
    """A value of the ledger in words; of a long list or object whole entries only, and how many are left out.

    >>> _brief({"mixed": 3, "none": None, "cause": "flat"}), _brief([[1, 2], "a"])
    ('mixed 3, cause flat', '[1, 2], a')
    >>> _brief(list(range(100000, 100040)))[-27:]
    '100018, 100019, and 20 more'
    """
    if isinstance(value, Mapping):
        entries = [f"{name} {_scalar(item)}" for name, item in value.items() if not _empty(item)]
    elif isinstance(value, list):
        entries = [_scalar(item) for item in value]
    else:
        text = _scalar(value)
        return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN - 1]}…"
    shown, used = 0, 0
    while shown < len(entries) and used + len(entries[shown]) <= _TEXT_SHOWN:
        used += len(entries[shown]) + 2
        shown += 1
    rest = len(entries) - shown
    left_out = [f"and {rest} more" if shown else f"{rest} entries"] if rest else []
    return ", ".join([*entries[:shown], *left_out])


def _scalar(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _footer(data: RunData) -> Safe:
    digest = data.events[-1].contract if data.events else ""
    return el(
        "footer",
        None,
        "Made from the files of this run folder alone. Contract ",
        el("code", None, digest),
    )
