"""The standalone checker: the standard library and rfc8785 alone, on runs and on exports copied away, one exit code for each end."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rfc8785

from algorist.launch.audit import audit
from algorist.qualify import check, receipt
from algorist.record.run_folder import RunFolder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """check.py in a folder with rfc8785, run by an interpreter that finds nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copy(Path(check.__file__), folder / "check.py")
    shutil.copytree(Path(rfc8785.__file__).parent, folder / "rfc8785")

    def call(*arguments: object) -> tuple[int, str]:
        command = [sys.executable, "-S", "-E", "-s", str(folder / "check.py"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    return call


def test_a_run_that_holds_ends_with_0_and_a_changed_one_with_4(alone, finished, copy_of) -> None:
    assert alone(finished) == (0, "all receipts hold\n")
    run = copy_of(finished)
    (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes() + b" ")
    code, said = alone(run)
    assert code == 4
    assert said.count("\n") == 1
    assert "metrics.jsonl: is not the file the receipt was made from" in said


def test_an_export_copied_away_is_checked_with_and_without_its_receipt(alone, finished, tmp_path) -> None:
    export = Path(shutil.copytree(finished / "export", tmp_path / "export"))
    (path,) = (finished / "receipts").iterdir()
    assert alone(export)[0] == 0
    assert alone(export, "--receipt", path)[0] == 0
    (export / "tokenizer.json").write_text("{}")
    code, said = alone(export, "--receipt", path)
    assert code == 4
    assert f"{export / 'tokenizer.json'}: does not match" in said


def test_where_there_is_nothing_to_check_it_ends_with_2(alone, finished, copy_of, tmp_path) -> None:
    for arguments in ([tmp_path / "none"], [tmp_path], [finished, "--key", tmp_path / "none"]):
        assert alone(*arguments)[0] == 2
    run = copy_of(finished)
    shutil.rmtree(run / "receipts")
    assert alone(run)[0] == 4, "an ended run has a receipt"
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (run / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    assert alone(run) == (2, "none: the run has not ended\n")


def test_it_agrees_with_the_audit_on_every_part_that_both_look_at(finished, copy_of) -> None:
    run = copy_of(finished)
    for name in ("ledger.jsonl", "contract.json", "checkpoints/LATEST", "rollouts/batch-000001.parquet"):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[:-2])
        assert check.check(run) == list(audit(run).faults), "bytes first; what they say is looked at once they hold"
        assert check.check(run)
        (run / name).write_bytes(data)
    assert check.check(run) == []


def test_a_run_that_promised_signatures_is_not_believed_without_them(
    start_recipe, faults, forging, tmp_path, monkeypatch
) -> None:
    pytest.importorskip("cryptography", reason="signing needs cryptography")
    key, other = tmp_path / "key", tmp_path / "other"
    public, foreign = receipt.new_key(key), receipt.new_key(other)
    monkeypatch.setenv(receipt.KEY_VARIABLE, str(key))
    run = tmp_path / "run"
    assert faults.inject(faults.Fault("none", "", (), overrides=("rl.updates=1",)), start_recipe, run).code == 0
    assert check.check(run) == check.check(run, public) == []
    assert any("no valid signature" in fault for fault in check.check(run, foreign))
    for signer in ("", str(other)):  # stripped; signed anew by somebody else
        monkeypatch.setenv(receipt.KEY_VARIABLE, signer)
        forging.reissue(run)
        (fault,) = [x for x in check.check(run) if "report.html" not in x]
        assert "no valid signature by the key that" in fault or f"by the key {check.sha256(public)[:16]}" in fault
        assert "receipts/0001-" in fault
    assert forging.read(RunFolder(root=run).contract)["provenance"]["signing_key"] == public.hex()
