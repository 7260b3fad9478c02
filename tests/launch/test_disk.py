"""A disk that is full, read-only or failing pauses a run: exit code 75, figures, nothing half written, the same bytes after a resume."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from algorist.cli import main
from algorist.errors import InputError, Paused
from algorist.launch.execute import Finished
from algorist.launch.run import resume, run
from algorist.qualify.why import why
from algorist.recipe.load import load
from algorist.record import commit, moments
from algorist.record.ledger import EventKind, read
from algorist.record.twins import different
from algorist.stages.listener import Silent

RECIPE = Path(__file__).with_name("nano.yaml")
SETTINGS = ["sft.steps=12", "rl.updates=4", "rl.evaluate_every=2", "record.checkpoint_every=2"]


def start(out, listener=None) -> Finished:
    return run(load(RECIPE, SETTINGS), out, listener=listener or Silent())


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The run that never met a full disk."""
    return start(tmp_path_factory.mktemp("whole") / "run").folder


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of 16 MiB of its own; skips where this process may not make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("needs the right to mount a file system (root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(disk: Path, left: int) -> None:
    """Leave `left` bytes free."""
    with (disk / "other").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - left)


class Filler:
    """A listener that fills the disk once a stage has come to a step."""

    def __init__(self, disk: Path, stage: str, step: int, left: int) -> None:
        self.disk, self.at, self.left = disk, (stage, step), left

    def begin(self, stage, total): ...
    def say(self, message): ...
    def advance(self, stage, done, numbers):
        if (stage, done) == self.at:
            fill(self.disk, self.left)


def half_written(folder: Path) -> list[Path]:
    return [p for p in folder.rglob(".*") if ".tmp-" in p.name or ".old-" in p.name]


@pytest.mark.parametrize(
    ("stage", "step", "left", "where"),
    [
        ("sft", 3, 4096, "checkpoints: step-4 needs"),
        ("rl", 1, 0, "rollouts/"),
        ("rl", 2, 0, "evaluations/"),
        ("rl", 4, 300_000, "checkpoints: step-16 needs"),
    ],
)
def test_a_disk_that_fills_up_pauses_the_run_and_a_resume_gives_the_same_bytes(
    whole, disk, stage, step, left, where
) -> None:
    out = disk / "run"
    with pytest.raises(Paused, match=rf"run/{where}.* are free.*algorist resume {out}") as told:
        start(out, Filler(disk, stage, step, left))
    assert told.value.exit_code == 75
    assert not half_written(out)
    newest = commit.latest_valid(out / "checkpoints")
    assert newest.path is not None
    assert not newest.skipped
    with pytest.raises(Paused):  # still full: nothing changes
        resume(out, listener=Silent())
    (disk / "other").unlink()
    resume(out, listener=Silent())
    assert different(whole, out) == []


def test_a_run_that_would_not_find_room_pauses_before_it_trains(whole, disk) -> None:
    out = disk / "run"
    fill(disk, 8 << 20)
    figures = (
        r"keeps 8\.\d MiB free, twice its next checkpoint of 0\.\d MiB and 8\.0 MiB for the rest; \d\.\d MiB are free"
    )
    with pytest.raises(Paused, match=figures):
        start(out)
    assert [e.kind for e in read(out / "ledger.jsonl")] == [EventKind.CONTRACT, EventKind.PAUSED]
    found = why(out)
    assert found.status == "paused"
    assert re.search(figures, found.reasons[0])
    assert found.commands == (f"algorist resume {out}",)
    (disk / "other").unlink()
    resume(out, listener=Silent())
    assert different(whole, out) == []


def test_a_save_that_still_fits_is_made_before_the_pause(disk) -> None:
    out = disk / "run"
    with pytest.raises(Paused, match=r"everything up to checkpoint step-4 is kept"):
        start(out, Filler(disk, "sft", 3, 4 << 20))


def test_nothing_is_begun_where_not_even_the_contract_fits_and_the_same_command_starts_it(disk, whole) -> None:
    out = disk / "run"
    fill(disk, 0)
    with pytest.raises(Paused, match="Nothing was begun"):
        start(out)
    (disk / "other").unlink()
    start(out)
    assert different(whole, out) == []


def test_a_read_only_folder_is_refused_before_anything_is_loaded(disk, whole, tmp_path) -> None:
    shutil.copytree(whole, disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(InputError, match=r"run: must be a folder this process can write to \(Read-only file system\)"):
        resume(disk / "run", listener=Silent())
    with pytest.raises(InputError, match=r"could not be made \(Read-only file system\)"):
        start(disk / "new")
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)


@pytest.mark.parametrize(
    ("moment", "cause", "said"),
    [
        ("append.torn#9", "EIO", r"ledger\.jsonl: could not be written \(Input/output error\).*Look after the disk"),
        (
            "commit.synced#2",
            "EDQUOT",
            r"step-4: could not be written, the disk or quota is full .*have the quota raised",
        ),
        ("write.written#9", "EROFS", r"could not be written \(Read-only file system\).*mounted for writing"),
    ],
)
def test_a_failing_disk_pauses_too(whole, tmp_path, monkeypatch, capsys, moment, cause, said) -> None:
    """From the moment on every write fails, as on a disk that is gone."""
    out = tmp_path / "run"
    monkeypatch.setenv(moments.FAIL, f"{moment}={cause}")
    monkeypatch.setattr(moments, "_seen", Counter())
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    assert main(["run", str(RECIPE), "--out", str(out), "--threads", "1", "--json", *sets]) == 75
    monkeypatch.delenv(moments.FAIL)
    told = capsys.readouterr()
    assert re.search(said, told.err), told.err
    assert json.loads(told.out)["kind"] == "Paused"
    assert not half_written(out)
    assert why(out).status == "unfinished", "nothing could be written, not even that it is paused"
    resume(out, listener=Silent())
    assert different(whole, out) == []


def test_a_disk_without_inodes_is_told_apart_from_one_without_bytes(disk) -> None:
    used = os.statvfs(disk)
    subprocess.run(["mount", "-o", f"remount,nr_inodes={used.f_files - used.f_favail + 6}", disk], check=True)
    with pytest.raises(Paused, match=r"1\d\.\d MiB are free; no further file can be made there"):
        start(disk / "run")


@pytest.mark.parametrize("move", [shutil.rmtree, lambda out: out.rename(out.with_name("elsewhere"))])
def test_a_folder_moved_or_deleted_while_it_is_written_to_ends_the_run_in_words(tmp_path, move) -> None:
    class Mover(Filler):
        def advance(self, stage, done, numbers):
            if (stage, done) == self.at:
                move(self.disk)

    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"(ledger|metrics)\.jsonl: is not there any more") as told:
        start(out, Mover(out, "sft", 4, 0))
    assert told.value.exit_code == 2
    if (tmp_path / "elsewhere").is_dir():
        assert why(tmp_path / "elsewhere").status == "unfinished"


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (["verify", "{rows}", "--out", "{disk}/checked.jsonl"], []),
        (["verify", "{rows}", "--json"], []),
        (["receipt", "new-key", "{disk}/key"], []),
        (["eval", "{run}", "--out", "{disk}/measured", "--threads", "1"], ["measured"]),
        (["report", "{copy}"], []),
    ],
)
def test_a_verb_that_is_no_run_says_so_with_exit_code_2_and_leaves_nothing_half_written(
    whole, disk, tmp_path, command, left
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "gold": "3", "response": "\\\\boxed{3}"}\n')
    copy = Path(shutil.copytree(whole, disk / "run"))
    (copy / "report.html").unlink()
    fill(disk, 0)
    before = set(disk.rglob("*"))
    words = [word.format(rows=tmp_path / "rows.jsonl", disk=disk, run=whole, copy=copy) for word in command]
    with (disk / "said").open("w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "algorist", *words], stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert {p.name for p in set(disk.rglob("*")) - before} == {"said", *left}


def test_what_is_said_may_be_lost_on_a_full_disk_but_not_the_exit_code(disk, tmp_path) -> None:
    fill(disk, 0)
    with (disk / "log").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-m", "algorist", "run", "none.yaml", "--json"],
            stderr=log,
            stdout=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert b'"exit_code": 2' in done.stdout
