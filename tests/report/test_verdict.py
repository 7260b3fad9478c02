"""The page and the table say what the newest receipt says, and which contracts were replaced."""

import base64
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from algorist import report
from algorist.record import ledger
from algorist.record.ledger import EventKind, Ledger
from algorist.record.run_folder import RunFolder
from algorist.report.gather import gather
from algorist.report.page import render


@pytest.fixture
def own_copy(demo_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo_run, tmp_path / "copy"))


def seal(run: Path, name: str, status: str, reasons: list[str], gates: Sequence[Mapping[str, object]] = ()) -> None:
    """A receipt of the ledger as it stands."""
    _, chain = ledger.scan(run / "ledger.jsonl")
    predicate = {
        "gates": gates,
        "status": status,
        "reasons": reasons,
        "ledger": {"events": chain.num_events, "head": chain.head},
    }
    payload = base64.b64encode(json.dumps({"predicate": predicate}).encode()).decode()
    (run / "receipts").mkdir(exist_ok=True)
    (run / "receipts" / name).write_text(json.dumps({"payload": payload, "signatures": []}))


def shown(run: Path) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(report.summary_table(run))
    console.file.close()
    return console.export_text()


@pytest.mark.parametrize(
    ("status", "tone"), [("qualified", "good"), ("unqualified", "bad"), ("unadmitted", "bad"), ("failed", "bad")]
)
def test_the_newest_receipt_is_the_badge(own_copy: Path, status: str, tone: str) -> None:
    seal(own_copy, "0001-aa.json", "failed", ["an older one"])
    seal(own_copy, "0002-bb.json", status, [] if status == "qualified" else ["<b>the gate signal</b> failed"])
    page = render(gather(own_copy))
    assert f'<strong class="badge {tone}">{status}</strong>' in page
    assert "an older one" not in page
    assert ("&lt;b&gt;the gate signal" in page) is (status != "qualified")
    assert f"receipt: {status}" in shown(own_copy)


def test_every_gate_of_the_receipt_is_a_row_and_reported_ones_are_pointed_at(own_copy: Path) -> None:
    fell = {
        "name": "outcome",
        "verdict": "reported",
        "value": -0.5,
        "unit": "gained",
        "threshold": None,
        "cause": "it <fell>",
    }
    empty = {"name": "memory", "verdict": "passed", "value": None, "unit": "GiB cap", "threshold": None, "cause": ""}
    seal(own_copy, "0001-aa.json", "qualified", [], [fell, empty])
    page = render(gather(own_copy))
    assert "Worth reading: outcome." in page
    row = '<td class="name">outcome</td><td class="name"><strong class="badge bad">reported</strong></td>'
    assert f'{row}<td class="name">-0.5 gained</td><td class="name"></td><td class="name">it &lt;fell&gt;</td>' in page
    assert "GiB cap" not in page


def test_a_run_without_a_receipt_is_not_judged(own_copy: Path) -> None:
    assert '<strong class="badge quiet">not judged</strong> the run has no receipt.' in render(gather(own_copy))
    assert "receipt: not judged" in shown(own_copy)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"payload": 7}', b'{"payload": "e30="}', b'{"payload": "x"}'])
def test_a_receipt_that_cannot_be_read_is_no_verdict(own_copy: Path, content: bytes) -> None:
    seal(own_copy, "0001-aa.json", "qualified", [])
    (own_copy / "receipts" / "0002-bb.json").write_bytes(content)
    assert gather(own_copy).judgement.status == "not judged"


def test_a_receipt_of_another_ledger_is_no_verdict(own_copy: Path) -> None:
    seal(own_copy, "0001-aa.json", "qualified", [])
    contract = ledger.read(own_copy / "ledger.jsonl")[0].contract
    with Ledger.open(own_copy / "ledger.jsonl", contract=contract) as book:
        book.append(EventKind.RESUMED, policy_version=0)
    found = gather(own_copy).judgement
    assert found.status == "not judged"
    assert found.reasons == ("the newest receipt (qualified) is of another state of the ledger",)


def test_amendments_are_listed_and_the_footer_names_the_contract_in_force(small_run: RunFolder) -> None:
    with Ledger.open(small_run.ledger, contract="d" * 64, amend=True) as book:
        payload = {"amends": "c" * 64, "changes": ["recipe.rl.updates: 10 -> 8", "recipe_digest: ab -> cd"]}
        book.append(EventKind.CONTRACT, policy_version=0, payload=payload)
    page = render(gather(small_run.root))
    assert "contract cccccccccccc replaced by dddddddddddd (recipe.rl.updates: 10 -&gt; 8)" in page
    assert f"Contract <code>{'d' * 64}</code></footer>" in page
    assert "recipe.rl.updates: 10 -> 8" in " ".join(shown(small_run.root).split())


def test_a_refusal_that_was_overcome_is_no_longer_the_headline(small_run: RunFolder) -> None:
    with Ledger.open(small_run.ledger, contract="c" * 64) as book:
        book.append(EventKind.REFUSED, policy_version=0, payload={"message": "memory: too much.", "exit_code": 3})
        assert "Refused before training: memory: too much." in render(gather(small_run.root))
        book.append(EventKind.CLOSED, policy_version=0)
    assert "Refused before training" not in render(gather(small_run.root))


def test_before_is_defined_where_sft_came_first(own_copy: Path) -> None:
    page = render(gather(own_copy))
    assert re.search(r"greedy accuracy rose from [\d.]+% before RL \(after SFT\) to", page)
    assert '<td class="name">before RL (after SFT)</td>' in page
    assert "before RL" in shown(own_copy)
    assert "Loss on the SFT targets." in page
    assert "updates in this stage" in page


def test_the_ledger_table_shows_whole_entries_and_no_empty_ones(small_run: RunFolder) -> None:
    figures = {f"figure_{i}": i for i in range(40)}
    with Ledger.open(small_run.ledger, contract="c" * 64) as book:
        payload = {"name": "signal", "cause": "", "remedy": "", "threshold": None, "figures": figures, "batch": 0}
        book.append(EventKind.GATE, policy_version=0, payload=payload)
    page = render(gather(small_run.root))
    cell = next(text for text in re.findall(r"<td>([^<]*)</td>", page) if "signal" in text)
    assert "cause" not in cell
    assert "threshold" not in cell
    assert "batch: 0" in cell
    left_out = int(re.search(r"and (\d+) more", cell).group(1))
    assert cell.count("figure_") + left_out == 40
    assert "…" not in cell


def test_a_paused_run_says_so_and_why_instead_of_a_verdict(tmp_path) -> None:
    run = tmp_path / "run"
    with Ledger.open(run / "ledger.jsonl", contract="c0") as book:
        book.append(EventKind.CONTRACT, policy_version=0, payload={"name": "demo"})
        book.append(EventKind.PAUSED, policy_version=0, payload={"message": "the disk is full; <b>free</b> some space"})
    page = render(gather(run))
    assert '<strong class="badge quiet">paused</strong> the disk is full; &lt;b&gt;free&lt;/b&gt; some space' in page
    assert "The run is paused. Figures are as far as it got." in page
    assert "has no receipt" not in page
