"""The page and the table say what the run folder holds, and name what it does not."""

import json
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from algorist import report
from algorist.errors import InputError
from algorist.record import ledger, rollouts
from algorist.record.ledger import EventKind, Ledger
from algorist.record.run_folder import RunFolder
from algorist.report.gather import gather
from algorist.report.words import percent


@pytest.fixture
def own_copy(demo_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo_run, tmp_path / "copy"))


def text_of(run: Path) -> str:
    return report.build(run).read_text(encoding="utf-8")


def shown(run: Path) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(report.summary_table(run))
    console.file.close()
    return console.export_text()


def test_the_same_folder_gives_the_same_bytes(own_copy: Path) -> None:
    assert report.build(own_copy) == own_copy / "report.html"
    first = (own_copy / "report.html").read_bytes()
    report.build(own_copy)
    assert (own_copy / "report.html").read_bytes() == first


def test_headline_figures_are_those_of_the_files(own_copy: Path) -> None:
    data = gather(own_copy)
    page = text_of(own_copy)
    before, after = (r.greedy if r else None for r in (data.before, data.after))
    assert before
    assert after
    assert f"{percent(before.value)} → </span>{percent(after.value)}" in page
    counts = ledger.counts(ledger.read(own_copy / "ledger.jsonl"), stage="rl")
    for number, what in ((counts.rollout_batches, "rollout batches"), (counts.updates_applied, "RL updates applied")):
        assert re.search(rf"<dt>{what}[^<]*</dt><dd>{number}</dd>", page)
    assert "RL updates skipped (2 nonfinite gradient)</dt><dd>2</dd>" in page
    assert "<dt>SFT updates applied</dt><dd>120</dd>" in page
    assert data.chain.head in page


def test_page_needs_no_network_and_pins_its_script(own_copy: Path) -> None:
    page = text_of(own_copy)
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    assert "url(" not in page
    assert "default-src &#x27;none&#x27;" in page
    assert "unsafe-inline" not in page
    assert " style=" not in page


def test_hostile_text_stays_text(own_copy: Path) -> None:
    page = text_of(own_copy)
    assert page.count("<script>") == page.count("</script>") == 1
    assert "<img" not in page
    assert "&lt;/script&gt;&lt;/pre&gt;&lt;img src=x onerror=" in page
    assert "⟨U+202E⟩␇ {{7*7}}" in page


def test_hostile_names_in_every_file_stay_text(own_copy: Path) -> None:
    evil = "</td><script>alert(1)</script>"
    contract = json.loads((own_copy / "contract.json").read_text())
    contract["recipe"]["name"] = evil
    contract["recipe"][evil] = evil
    contract["formulas"] = {evil: {evil: evil}}
    contract["notes"] = [evil]
    (own_copy / "contract.json").write_text(json.dumps(contract))
    for name in ("after", "other"):
        raw = json.loads((own_copy / "evaluations" / "after.json").read_text())
        raw |= {"name": evil, "policy_digest": evil}
        (own_copy / "evaluations" / f"{name}.json").write_text(json.dumps(raw))
    with Ledger.open(own_copy / "ledger.jsonl", contract=ledger.read(own_copy / "ledger.jsonl")[0].contract) as book:
        book.append(EventKind.UPDATE_SKIPPED, policy_version=0, payload={"cause": evil, evil: [evil]})
    page = text_of(own_copy)
    assert page.count("<script>") == 1
    assert "alert(1)</script>" not in page
    assert evil in shown(own_copy).replace("\n", "") or "alert(1)" in shown(own_copy)


def test_every_section_is_there(own_copy: Path) -> None:
    page = text_of(own_copy)
    for key in ("learning", "k", "signal", "responses", "policy", "speed", "rollouts", "formulas", "recipe", "ledger"):
        assert f'<section id="{key}"' in page
    for title in ("Reward contrast", "Advantage mass", "Entropy", "pass@k", "maj@k", "Replay difference", "SFT loss"):
        assert f"<h3>{title}</h3>" in page
    assert "Not recorded in this run, so not drawn: kl/ref_nats." in page
    assert "A_i = r_i - mean of the other rewards of the group" in page


def test_samples_show_verdict_reward_and_advantage_of_stored_rollouts(own_copy: Path) -> None:
    last = sorted((own_copy / "rollouts").glob("*.parquet"))[-1]
    rows = rollouts.read_rows(last)
    page = text_of(own_copy)
    group = next(r["group"] for r in rows if r["verdict"] == "wrong" and f'id="g-{r["batch"]}-{r["group"]}"' in page)
    article = page.split(f'id="g-{rows[0]["batch"]}-{group}"')[1].split("</article>")[0]
    for row in (r for r in rows if r["group"] == group):
        assert f"sample {row['sample']}" in article
        if row["advantage"] is not None:
            assert f"{row['advantage']:+.3f}" in article


def test_an_almost_empty_folder_gives_a_page_that_says_what_is_missing(small_run: RunFolder) -> None:
    page = text_of(small_run.root)
    assert "No evaluation was completed" in page
    assert "contract.json could not be read" in page
    assert "metrics.jsonl: no curves are shown" in page
    assert "No rollouts were stored" in page
    assert "rollout batches" in shown(small_run.root)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("evaluations/after.json", "evaluations/after.json is not shown"),
        ("metrics.jsonl", "metrics.jsonl: no curves are shown"),
        ("rollouts/batch-000047.parquet", "rollouts/batch-000047.parquet is not shown"),
        ("contract.json", "contract.json could not be read"),
        ("ledger.jsonl", "The hash chain is broken"),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_shown(own_copy: Path, file: str, said: str) -> None:
    data = bytearray((own_copy / file).read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
    (own_copy / file).write_bytes(data)
    if file.endswith("parquet"):
        (own_copy / file).write_bytes(data[: len(data) // 2])
    assert said in text_of(own_copy)


def test_a_refused_run_says_why(small_run: RunFolder) -> None:
    with Ledger.open(small_run.ledger, contract="c" * 64) as book:
        book.append(
            EventKind.REFUSED, policy_version=0, payload={"reason": "64 GiB of driver memory needed, 31 GiB free"}
        )
    assert "Refused before training: 64 GiB of driver memory needed, 31 GiB free." in text_of(small_run.root)
    assert "refused" in shown(small_run.root)


def test_what_is_no_run_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no ledger\.jsonl"):
        report.build(tmp_path)
    with pytest.raises(InputError, match="there is no such folder"):
        report.summary_table(tmp_path / "none")


def test_closing_table_has_intervals_counts_and_causes(demo_run: Path) -> None:
    text = shown(demo_run)
    for words in ("greedy", "mean@16", "pass@16", "maj@16", "points", "48", "46", "2 nonfinite gradient", "finished"):
        assert words in text
