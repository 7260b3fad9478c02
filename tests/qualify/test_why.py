"""`algorist why` says what happened, why, and what to type, whatever the state of a run. Paused and killed: tests/launch."""

import json
import shutil

import pytest

from algorist.cli import main
from algorist.errors import InputError
from algorist.qualify.why import why


def told(path, capsys) -> str:
    assert main(["why", str(path)]) == 0
    return capsys.readouterr().out


def test_a_qualified_run_and_its_export_get_the_same_answer(finished, capsys) -> None:
    answer = told(finished, capsys)
    assert answer.startswith(f"{finished}: qualified\nwhat happened:\n")
    assert answer.endswith(
        f"next: Nothing to do. Files and figures are not checked here: that is what an audit does.\n  $ algorist audit {finished}\n"
    )
    assert "  passed: data, verifier_canary, prompt_lengths, template, parents" in answer
    assert told(finished / "export", capsys) == answer
    assert told(next((finished / "checkpoints").glob("step-*")), capsys) == answer


def test_json_has_names_for_keys_and_gates_as_objects(finished, capsys) -> None:
    assert main(["why", str(finished), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"run", "status", "reasons", "gates", "events", "remedy", "commands"}
    assert {"name", "verdict", "value", "threshold", "unit", "cause", "seq"} == set(answer["gates"][0])
    assert answer["gates"][0]["verdict"] == "passed"


def test_a_changed_ledger_is_damaged_and_the_line_is_named(finished, copy_of, capsys) -> None:
    out = copy_of(finished)
    lines = (out / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"passed":true', b'"passed":false')
    (out / "ledger.jsonl").write_bytes(b"".join(lines))
    answer = told(out, capsys)
    assert answer.startswith(f"{out}: damaged\n  because {out / 'ledger.jsonl'}:5: prev must be")
    assert "Put the original file back" in answer
    assert f"$ algorist audit {out}" in answer


@pytest.mark.parametrize("change", [lambda f: f.unlink(), lambda f: f.write_bytes(f.read_bytes() + b" ")])
def test_a_contract_that_the_ledger_does_not_name_is_damage(finished, copy_of, change) -> None:
    out = copy_of(finished)
    change(out / "contract.json")
    found = why(out)
    assert found.status == "damaged"
    assert "contract.json: is missing, or is not the contract" in found.reasons[0]


def test_a_missing_receipt_is_said_and_a_resume_would_write_it(finished, copy_of) -> None:
    out = copy_of(finished)
    shutil.rmtree(out / "receipts")
    assert any("no receipt was written" in line for line in why(out).events)


def test_what_is_no_run_is_said(tmp_path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        why(tmp_path / "none")
    with pytest.raises(InputError, match=r"it holds no ledger\.jsonl"):
        why(tmp_path)
