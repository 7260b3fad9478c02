"""A run folder is never shared and never overwritten."""

import errno
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from algorist.errors import InputError
from algorist.record.run_folder import Holder, RunFolder


def test_paths_are_those_of_the_stable_surface(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a" / "b")
    assert list(run.root.iterdir()) == []
    paths = [run.contract, run.ledger, run.metrics, run.rollouts, run.evaluation("before"), run.checkpoint(7)]
    assert [p.relative_to(run.root).as_posix() for p in paths] == [
        "contract.json",
        "ledger.jsonl",
        "metrics.jsonl",
        "rollouts",
        "evaluations/before.json",
        "checkpoints/step-7",
    ]
    rest = [run.export, run.receipts, run.report, run.logs, run.checkpoints]
    assert [p.name for p in rest] == ["export", "receipts", "report.html", "logs", "checkpoints"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ledger.jsonl", "already holds a run, and a run is never overwritten"),
        ("notes.txt", "must be a new or an empty folder, got one that holds 'notes.txt'"),
    ],
)
def test_a_folder_that_holds_something_is_refused_and_untouched(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=said):
        RunFolder.create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(InputError, match="got a file"):
        RunFolder.create(tmp_path / "x")
    with pytest.raises(InputError, match="could not be made"):
        RunFolder.create(tmp_path / "x" / "y")


def test_opening_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(InputError, match=r"it holds no ledger\.jsonl"):
        RunFolder.open(tmp_path)
    (tmp_path / "ledger.jsonl").write_text("")
    assert RunFolder.open(tmp_path).root == tmp_path


def test_two_processes_never_hold_one_folder(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    code = (
        "import sys, pathlib; from algorist.errors import InputError\n"
        "from algorist.record.run_folder import RunFolder\n"
        "try:\n"
        "    with RunFolder(root=pathlib.Path(sys.argv[1])).lease(): print('held')\n"
        "except InputError as e: print(e.exit_code, e)"
    )
    again = [sys.executable, "-c", code, str(run.root)]
    with run.lease():
        out = subprocess.run(again, capture_output=True, text=True, check=True).stdout
        assert out.startswith("2 ")
        assert f"is in use by another run (process {os.getpid()} on {platform.node()})" in out
        assert f"kill -TERM {os.getpid()}" in out
        with pytest.raises(InputError, match="is in use"), run.lease():
            pass
    assert subprocess.run(again, capture_output=True, text=True, check=True).stdout == "held\n"
    RunFolder.create(run.root)  # a lease file alone is no content


def test_the_lease_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    code = (
        "import sys, os, pathlib; from algorist.record.run_folder import RunFolder\n"
        "with RunFolder(root=pathlib.Path(sys.argv[1])).lease(): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(run.root)], check=False).returncode == -9
    with run.lease():
        pass


def test_without_locks_the_name_in_the_lease_decides(tmp_path: Path, monkeypatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    run, own = RunFolder.create(tmp_path / "run"), Holder.own()
    lease = run.root / ".lease"
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    gone = replace(own, pid=int(dead.stdout))
    for holder in (gone, replace(own, boot="an earlier start")):
        lease.write_bytes(holder.to_bytes())
        assert run.in_use() == (False, holder)
        with run.lease() as before:
            assert before == holder
            assert run.in_use() == (True, own)
        assert lease.read_bytes() == b""
    for holder in (replace(own, pid=os.getppid()), replace(gone, host="elsewhere")):  # alive, or nobody can tell
        lease.write_bytes(holder.to_bytes())
        assert run.in_use() == (True, holder)
        with pytest.raises(InputError, match=rf"if that process is gone, delete {lease}"), run.lease():
            pass
        assert lease.read_bytes() == holder.to_bytes()


def test_the_run_around_a_path_is_found_from_its_parts_only(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run").root
    (run / "ledger.jsonl").write_text("")
    (run / "checkpoints" / "step-2").mkdir(parents=True)
    for part in (run, run / "checkpoints" / "step-2", run / "ledger.jsonl"):
        assert RunFolder.around(part).root == run
    for other in (tmp_path, run / "none", tmp_path / "none"):
        with pytest.raises(InputError):
            RunFolder.around(other)
