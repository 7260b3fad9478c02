"""An audit of a whole run holds; any changed byte and any rewritten history is found and named."""

import base64
import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from algorist.cli import main
from algorist.digest import canonical, digest, file_digest, sha256
from algorist.errors import InputError
from algorist.launch.audit import audit, run_of
from algorist.qualify import check as checker
from algorist.qualify import receipt
from algorist.qualify.audit import audit_files
from algorist.record import ledger
from algorist.record.run_folder import RunFolder


def faults_of(run: Path) -> list[str]:
    return [fault for check in audit_files(run)[1] for fault in check.faults]


def files_of(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file())


def rewrite_ledger(run: Path, change) -> None:
    """Change events and chain them again, as somebody with a text editor and the source code can."""
    prev, lines = ledger.GENESIS, []
    for seq, event in enumerate(change([json.loads(x) for x in (run / "ledger.jsonl").read_bytes().splitlines()])):
        line = canonical({**event, "seq": seq, "prev": prev})
        lines.append(line + b"\n")
        prev = sha256(line)
    (run / "ledger.jsonl").write_bytes(b"".join(lines))


def issue_again(run: Path) -> None:
    """Forge the receipts too."""
    shutil.rmtree(run / "receipts")
    receipt.issue(RunFolder.open(run), ledger.read(run / "ledger.jsonl"))


def test_a_finished_run_holds_and_everything_is_looked_at(finished) -> None:
    found = audit(finished)
    assert found.ok, found.faults
    assert not found.skipped
    assert {
        "files", "receipts", "chain", "evidence", "contract", "manifests", "contract terms", "order of events", "counts",
        "thresholds", "receipt claims", "other files", "rollout files", "metrics", "evaluations", "checkpoints",
        "page and lock", "what it began with", "gates judged again", "problem order and rules", "verdicts", "rewards",
        "advantages", "losses", "log-probabilities", "training again", "answers", "last weights", "export",
    } == {check.name for check in found.checks}  # fmt: skip


def test_an_audit_changes_nothing(finished) -> None:
    before = {p: file_digest(p) for p in files_of(finished)}
    audit(finished)
    assert before == {p: file_digest(p) for p in files_of(finished)}


def test_the_export_inside_a_run_stands_for_the_run(finished) -> None:
    assert run_of(finished / "export") == finished


def test_one_flipped_byte_in_any_file_is_found_and_named(finished, copy_of) -> None:
    run, dice = copy_of(finished), random.Random(0)
    missed = []
    for path in files_of(run):
        if path.name == ".lease":
            continue  # a process number: any other number is as good
        data = path.read_bytes()
        place = dice.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << dice.randrange(8))]) + data[place + 1 :])
        if not any(path.name in fault for fault in faults_of(run)):
            missed.append((path.relative_to(run), place))
        path.write_bytes(data)
    assert not missed
    assert not faults_of(run)


def test_a_missing_file_is_found_and_named(finished, copy_of) -> None:
    run = copy_of(finished)
    for path in [p for p in files_of(run) if p.name not in (".lease", "report.html")]:
        data = path.read_bytes()
        path.unlink()
        try:
            found = faults_of(run)
        except InputError as error:  # without a ledger there is no run
            found = [str(error)]
        assert any(path.name in fault or path.parent.name in fault for fault in found), path
        path.write_bytes(data)


@pytest.mark.parametrize(
    "attack",
    ["drop a line", "double a line", "swap two lines", "cut the tail", "edit a figure", "edit a skip into an update"],
)
def test_a_ledger_edited_in_place_breaks_its_chain(finished, copy_of, attack) -> None:
    run = copy_of(finished)
    path = run / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "drop a line": lambda: lines[:4] + lines[5:],
        "double a line": lambda: lines[:5] + lines[4:],
        "swap two lines": lambda: [*lines[:4], lines[5], lines[4], *lines[6:]],
        "cut the tail": lambda: lines[:-1],
        "edit a figure": lambda: [x.replace(b'"mixed":', b'"mixed":1', 1) for x in lines],
        "edit a skip into an update": lambda: [x.replace(b"rollout_batch", b"update_applied", 1) for x in lines],
    }[attack]()
    path.write_bytes(b"".join(changed))
    assert any("ledger.jsonl" in fault for fault in faults_of(run))


def test_a_ledger_forged_with_its_receipts_is_caught_by_what_it_counts(finished, copy_of) -> None:
    """A batch less, chained and receipted again: the closing event and the files still tell."""
    run = copy_of(finished)
    rewrite_ledger(run, lambda events: [e for e in events if not (e["kind"] == "rollout_batch" and e["batch"] == 3)])
    issue_again(run)
    found = faults_of(run)
    assert any("batch-000003" in fault for fault in found)
    assert any("ledger.jsonl" in fault for fault in found)


def test_a_forged_advantage_is_computed_again_and_caught(finished, copy_of) -> None:
    run = copy_of(finished)
    path = run / "rollouts" / "batch-000002.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    for r in rows:
        r["reward_parts"] = dict(r["reward_parts"])
        if r["advantage"] is not None:
            r["advantage"] += 0.5
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)

    def fit(events):
        for event in events:
            if event["kind"] == "rollout_batch" and event["batch"] == 2:
                event["digest"] = file_digest(path)
        return events

    rewrite_ledger(run, fit)
    issue_again(run)
    assert any("advantage" in fault and "batch-000002" in fault for fault in audit(run).faults)


def test_a_receipt_of_another_run_is_refused_by_its_name_alone(finished, copy_of) -> None:
    run = copy_of(finished)
    (path,) = (run / "receipts").iterdir()
    statement = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
    statement["predicate"]["contract"] = "2" * 64
    statement["predicate"]["ledger"]["head"] = "1" * 64
    data = receipt.envelope(canonical(statement), None)
    path.unlink()
    (run / "receipts" / f"0001-{sha256(data)[:16]}.json").write_bytes(data)
    (fault,) = checker.check(run)
    assert "0001-" in fault
    assert "another run" in fault


def test_a_link_in_place_of_a_file_is_refused(finished, copy_of, tmp_path) -> None:
    run = copy_of(finished)
    target = shutil.move(run / "metrics.jsonl", tmp_path / "metrics.jsonl")
    (run / "metrics.jsonl").symlink_to(target)
    assert any("is a link" in fault for fault in faults_of(run))


def test_the_verbs_answer_with_one_json_object(finished, capsys) -> None:
    assert main(["audit", str(finished), "--files-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert main(["why", str(finished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "qualified"
    assert main(["receipt", "check", str(finished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert main(["receipt", "show", str(finished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predicate"]["status"] == "qualified"


def test_an_export_alone_is_whole_and_says_what_cannot_be_checked(finished, tmp_path, capsys) -> None:
    export = Path(shutil.copytree(finished / "export", tmp_path / "export"))
    (path,) = (finished / "receipts").iterdir()
    found = audit(export, receipt=path)
    assert found.ok, found.faults
    assert [check.name for check in found.skipped] == ["how it was trained"]
    assert main(["audit", str(export)]) == 0
    assert "its receipt shows (--receipt FILE)" in capsys.readouterr().out
    (export / "README.md").write_text("another card")
    assert main(["audit", str(export)]) == 4
    assert "README.md" in capsys.readouterr().out


def test_an_export_of_other_weights_is_found_by_its_receipt_and_by_its_own_facts(finished, tmp_path, forging) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))
    forging.weights(run / "export/model.safetensors", 0.01)
    forging.remanifest(run, "export")
    export = Path(shutil.move(run / "export", tmp_path / "export"))
    (path,) = (finished / "receipts").iterdir()
    assert any("names the weights" in fault for fault in audit(export).faults)
    assert any("does not speak of the export" in fault for fault in audit(export, receipt=path).faults)


def test_code_that_a_run_folder_names_is_imported_only_where_the_auditor_names_it(
    finished, copy_of, forging, monkeypatch
) -> None:
    run = copy_of(finished)
    (run / "evil.py").write_text("raise SystemExit('imported')")
    forging.events(run, "contract", lambda e: e["wall"].pop("origin"))
    (run / "logs/origin.json").write_bytes(canonical({"base": str(run), "plugin": "evil"}))
    forging.reissue(run)
    monkeypatch.syspath_prepend(str(run))
    found = audit(run)
    assert ["evil.py" in fault for fault in found.faults] == [True], "the stranger is named"
    assert any("--plugin evil" in check.looked_at for check in found.skipped)


def test_a_run_whose_recipe_cannot_be_loaded_says_what_it_left_out(finished, copy_of, tmp_path) -> None:
    found = audit(copy_of(finished), base=tmp_path / "elsewhere")
    assert found.ok
    assert [check.name for check in found.skipped] == ["computed again"]
    assert "try --base" in found.skipped[0].looked_at


def test_an_unfinished_run_holds_and_nothing_vouches_for_it(finished, copy_of, forging) -> None:
    run = copy_of(finished)
    kept = [e for e in ledger.read(run / "ledger.jsonl") if e.kind not in ("closed",)]
    (run / "ledger.jsonl").write_bytes(b"".join(e.to_line() + b"\n" for e in kept))
    shutil.rmtree(run / "receipts")
    found = audit_files(run)[1]
    assert not [fault for check in found for fault in check.faults]
    assert next(c for c in found if c.name == "receipts").looked_at == "none: the run has not ended"


def test_a_run_that_is_being_written_is_not_judged(finished, copy_of) -> None:
    run = copy_of(finished)
    with RunFolder(root=run).lease(), pytest.raises(InputError, match="a process is writing to this run"):
        audit(run)


def test_a_small_file_that_claims_a_billion_tokens_is_refused_before_it_is_read(finished, copy_of, forging) -> None:
    run = copy_of(finished)
    path = run / "rollouts/batch-000002.parquet"
    table = pq.read_table(path)
    bomb = pa.concat_tables([table] * 400)
    pq.write_table(bomb, path, compression="zstd")
    forging.events(run, "rollout_batch", lambda e: e.update(digest=file_digest(path)), batch=2)
    forging.reissue(run)
    assert {
        "batch-000002.parquet: must hold at most 72 rows, claims 28800" in fault for fault in audit(run).faults
    } == {True}


def test_elsewhere_training_again_is_held_to_a_tolerance(finished, copy_of, forging) -> None:
    """Other libraries: the same bits are not asked for, other weights are found all the same."""
    run = copy_of(finished)
    forging.contract(run, lambda d: d["software"].update(numpy="0.0"))
    forging.reissue(run)
    found = {check.name: check for check in audit(run).checks}
    assert found["training again"].ok
    assert found["export"].skipped
    assert "audited with other software" in found["what it began with"].looked_at
    forging.weights(run / "checkpoints/step-4/weights.safetensors", 0.5)
    forging.remanifest(run, "checkpoints/step-4")
    forging.reissue(run)
    assert any("ends elsewhere" in fault for fault in audit(run).faults)


def test_a_run_of_other_sources_is_not_accused_of_what_they_write_otherwise(finished, copy_of, forging) -> None:
    run = copy_of(finished)

    def older(document) -> None:
        document["code"]["source"] = "0" * 64
        del document["promises"]["tolerances"], document["parents"], document["problems"]["golds"]

    forging.contract(run, older)
    forging.reissue(run)
    found = audit(run)
    assert found.ok, found.faults
    assert "report.html not" in next(c for c in found.checks if c.name == "page and lock").looked_at
    forging.contract(run, lambda d: d["promises"].update(gates=d["promises"]["gates"][:3]))
    forging.reissue(run)
    assert any("does not promise the gate" in fault for fault in audit(run).faults)


def test_contract_holds_its_own_recipe_digest(finished) -> None:
    contract = json.loads((finished / "contract.json").read_bytes())
    assert digest(contract["recipe"]) == contract["recipe_digest"]
    assert contract["promises"]["budget"]["responses"] == 4 * 12 * 6
