"""Gold adapters, the gold check, the command line, the record, the audit."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from algorist.cli.verify import main
from algorist.verify import canary, check, check_gold, version
from algorist.verify.audit import COLUMNS
from algorist.verify.explain import WHY, explain
from algorist.verify.gold import gsm8k, of_row, olympiadbench, plain
from algorist.verify.item import Item
from algorist.verify.pool import VerifierPool


def test_a_good_gold_passes_and_a_bad_one_says_why() -> None:
    assert check_gold("42") is None
    assert check_gold("B", "choice") is None
    assert check_gold("0;3", "blanks") is None
    assert check_gold("", "auto") == "the gold is empty"
    assert "size bound" in str(check_gold("10^{10^{10}}"))
    assert "only an identical text" in str(check_gold("the set of all $x$ with $f(x) @ 2$"))
    assert "kind must be one of" in str(check_gold("1", "nonsense"))


def test_adapters_read_what_the_data_sets_write() -> None:
    assert gsm8k("a\n#### 1,234").text == "1,234"
    gold = olympiadbench(["$\\frac{1}{2}$"], unit="m", error="1e-1")
    assert (gold.tolerance, gold.kind) == (0.1, "auto")
    assert olympiadbench(["2", "3"], multiple=True).text == "2, 3"
    assert plain('["3", "5"]', "list") == "3, 5"
    assert of_row({"solution": "so \\boxed{7}"}).text == "7"  # type: ignore[union-attr]
    assert check("['3', '5']", r"\boxed{5, 3}", kind="list").verdict == "correct"


def test_tolerance_is_an_option_of_evaluation_and_off_by_default() -> None:
    with VerifierPool() as pool:
        strict = Item(gold="1.23", response=r"\boxed{1.234}")
        loose = Item(gold="1.23", response=r"\boxed{1.234}", tolerance=0.01)
        assert [v.verdict.value for v in pool.check_many([strict, loose])] == ["wrong", "correct"]


def test_the_version_is_a_digest_and_stable() -> None:
    assert version() == version()
    assert len(version()) == 64


def test_every_reason_the_canary_meets_has_words() -> None:
    with VerifierPool() as pool:
        items = [*canary.RIGHT, *canary.WRONG, *canary.UNPAID]
        for item, verdict in zip(items, pool.check_many(items), strict=True):
            assert verdict.reason in WHY, verdict
            assert explain(item.gold, verdict).startswith(verdict.verdict.value)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_file_gives_one_record_a_row_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"r{k}", "gold": str(k), "response": f"#### {k % 3}", "kind": "number"} for k in range(5)]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in rows))
    code, text, _ = run(capsys, str(source), "--out", str(out), "--json")
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert code == 0
    assert [record["id"] for record in records] == [row["id"] for row in rows]
    assert [record["verdict"] for record in records] == ["correct", "correct", "correct", "wrong", "wrong"]
    assert set(records[0]) == {"id", "verdict", "reason", "rule", "method", "extracted", "raw_correct", "ms"}
    assert json.loads(text)["verdicts"] == {"correct": 3, "wrong": 2}
    assert list(tmp_path.glob("*.partial")) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "in.jsonl:2: a line must be one JSON object"),
        ("[1]", "must be one JSON object: got list"),
        ('{"id": "a", "gold": "1"}', "missing response; fields here: id, gold"),
        ('{"id": "a", "gold": "1", "response": "1", "answer_format": "x"}', "answer_format must be one of"),
    ],
)
def test_a_bad_line_is_one_clear_error_with_its_place_and_no_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": "a", "gold": "1", "response": "1"}\n' + line)
    code, text, err = run(capsys, str(source), "--out", str(out))
    assert (code, text) == (2, "")
    assert words in err
    assert list(tmp_path.iterdir()) == [source]


def test_one_pair_is_explained_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "--gold", "1/2", "--response", r"\boxed{0.51}", "--explain")
    assert code == 0
    assert "wrong: the answer differs from the gold." in text
    assert "found by rule boxed, compared by method rational" in text


def test_nothing_to_do_and_unknown_kinds_are_input_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys)[0] == 2
    assert run(capsys, "--gold", "1")[0] == 2
    assert run(capsys, "--gold", "1", "--response", "1", "--kind", "nope")[0] == 2


def test_the_fuzz_verb_reports_families(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "fuzz", "--sample", "1", "--json")
    assert code == 0
    assert json.loads(text)["failures"] == []


def test_an_audit_lists_where_the_second_opinion_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ("p1", "1/2", r"\boxed{0.5}", "correct", "0.5"),
        ("p2", "1/2", r"\boxed{0.6}", "wrong", "0.6"),
        ("p3", "5", r"\boxed{5}", "wrong", "5"),  # planted: a verdict that is not right
    ]
    table = [
        dict(zip(COLUMNS, (p, 0, gold, text, verdict, "planted", "boxed", extracted, None), strict=True))
        for p, gold, text, verdict, extracted in rows
    ]
    (tmp_path / "rollouts").mkdir()
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "rollouts" / "batch-000000.parquet")
    code, text, _ = run(capsys, "--audit", str(tmp_path), "--json")
    report = json.loads(text)
    assert code == 0
    assert (report["rows"], report["sampled"]) == (3, 3)
    assert [d["problem_id"] for d in report["disagreements"]] == ["p3"]


def test_an_audit_of_a_folder_without_rollouts_says_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "--audit", str(tmp_path))
    assert code == 2
    assert "Give the run folder" in err
