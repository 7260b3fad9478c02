"""Committed directories are whole, damage is named and passed over, and a kill never loses the last good one."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from algorist.errors import InputError
from algorist.record import commit as C
from algorist.record.storage import DiskFull


def files(**named: bytes):
    def write(folder: Path) -> None:
        for name, data in named.items():
            path = folder / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    return write


def step(folder: Path, number: int, data: bytes = b"weights") -> C.Manifest:
    manifest = C.commit_directory(folder / f"step-{number}", files(weights=data * number, rng__state=b"s"))
    C.point_latest(folder, f"step-{number}")
    return manifest


def test_a_committed_directory_verifies_and_its_digest_is_that_of_the_manifest_file(tmp_path: Path) -> None:
    manifest = step(tmp_path, 3)
    assert set(manifest.files) == {"weights", "rng/state"}
    assert C.verify_directory(tmp_path / "step-3") == manifest
    assert C.file_digest(tmp_path / "step-3" / "manifest.json") == manifest.digest
    assert sorted(p.name for p in tmp_path.iterdir()) == ["LATEST", "step-3"]
    assert (tmp_path / "LATEST").read_text() == "step-3\n"


def damage_flip(d: Path) -> None:
    (d / "weights").write_bytes(b"Weights" * 10)


def damage_short(d: Path) -> None:
    (d / "weights").write_bytes(b"w")


def damage_missing(d: Path) -> None:
    (d / "rng" / "state").unlink()


def damage_stranger(d: Path) -> None:
    (d / "extra.bin").write_bytes(b"")


def damage_no_manifest(d: Path) -> None:
    (d / "manifest.json").unlink()


def damage_cut_manifest(d: Path) -> None:
    file = d / "manifest.json"
    file.write_bytes(file.read_bytes()[:-4])


def damage_spaced_manifest(d: Path) -> None:
    file = d / "manifest.json"
    file.write_bytes(file.read_bytes() + b"\n")


def damage_link(d: Path) -> None:
    (d / "weights").rename(d.parent / "elsewhere")
    (d / "weights").symlink_to(d.parent / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_flip, "weights: its bytes do not match"),
        (damage_short, "weights: must have 70 bytes by manifest.json, got 1"),
        (damage_missing, "state: listed in manifest.json but missing"),
        (damage_stranger, "extra.bin: is not listed"),
        (damage_no_manifest, "never committed"),
        (damage_cut_manifest, "is damaged"),
        (damage_spaced_manifest, "not canonical"),
        (damage_link, "is a link"),
    ],
)
def test_damage_is_named_and_the_newest_whole_one_is_used(tmp_path: Path, damage, said: str) -> None:
    for number in (2, 9, 10):
        step(tmp_path, number)
    damage(tmp_path / "step-10")
    latest = C.latest_valid(tmp_path)
    assert latest.path == tmp_path / "step-9"
    assert [s.path.name for s in latest.skipped] == ["step-10"]
    assert said in latest.skipped[0].reason


def test_a_manifest_cannot_point_out_of_its_directory(tmp_path: Path) -> None:
    step(tmp_path, 1)
    bad = C.Manifest(schema="x", files={"../secret": C.FileEntry(sha256="0", size_bytes=0)})
    (tmp_path / "step-1" / "manifest.json").write_bytes(bad.to_bytes())
    with pytest.raises(InputError, match=r"outside the directory: \.\./secret"):
        C.verify_directory(tmp_path / "step-1")


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        C.commit_directory(tmp_path / "step-1", write)
    assert list(tmp_path.iterdir()) == []


def test_committing_the_same_step_again_keeps_it_and_replaces_a_damaged_one(tmp_path: Path) -> None:
    first = step(tmp_path, 1)
    inode = (tmp_path / "step-1").stat().st_ino
    assert step(tmp_path, 1) == first
    assert (tmp_path / "step-1").stat().st_ino == inode
    damage_flip(tmp_path / "step-1")
    assert step(tmp_path, 1) == first
    assert C.verify_directory(tmp_path / "step-1") == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["LATEST", "step-1"]


def test_free_space_is_looked_at_first(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=r"step-1 needs .* MiB on disk, .* MiB are free"):
        C.commit_directory(tmp_path / "step-1", files(a=b""), need_bytes=1 << 60)
    assert list(tmp_path.iterdir()) == []
    assert DiskFull.exit_code == 2


def test_a_file_over_the_limit_is_one_clear_error_with_the_old_bytes_kept(tmp_path: Path) -> None:
    C.atomic_write(tmp_path / "f", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(DiskFull, match="disk or quota is full"):
            C.atomic_write(tmp_path / "f", b"x" * (1 << 20))
        with pytest.raises(DiskFull, match="step-1: could not be written"):
            C.commit_directory(tmp_path / "step-1", files(a=b"x" * (1 << 20)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "f").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_retention_never_deletes_the_last_that_verifies(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        step(tmp_path, number)
    damage_flip(tmp_path / "step-4")
    assert C.prune(tmp_path, keep=1) == [tmp_path / "step-1", tmp_path / "step-2"]
    assert C.latest_valid(tmp_path).path == tmp_path / "step-3"
    damage_flip(tmp_path / "step-3")
    assert C.prune(tmp_path, keep=1) == []
    assert C.prune(tmp_path, keep=5) == []


def test_retention_keeps_as_many_as_asked_not_counting_damaged_ones(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4, 5):
        step(tmp_path, number)
    damage_short(tmp_path / "step-4")
    assert C.prune(tmp_path, keep=2) == [tmp_path / "step-1", tmp_path / "step-2"]
    assert [p.name for p in C.numbered(tmp_path)] == ["step-3", "step-4", "step-5"]


def test_bytes_are_on_disk_before_a_name_is_and_the_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill cannot show a lost page cache, so the order of the calls is looked at."""
    seen: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(descriptor: int) -> None:
        seen.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def note_rename(self: Path, target: Path) -> Path:
        seen.append(f"rename {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    C.commit_directory(tmp_path / "step-1", files(weights=b"w", rng__state=b"s"))
    temporary = f".step-1.tmp-{os.getpid()}"
    assert sorted(seen[:3]) == ["fsync manifest.json", "fsync state", "fsync weights"]
    assert seen[3:] == ["fsync rng", f"fsync {temporary}", "rename step-1", f"fsync {tmp_path.name}"]
    seen.clear()
    C.atomic_write(tmp_path / "LATEST", b"step-1\n")
    assert seen == [f"fsync .LATEST.tmp-{os.getpid()}", "rename LATEST", f"fsync {tmp_path.name}"]


def test_latest_is_only_a_hint(tmp_path: Path) -> None:
    step(tmp_path, 1)
    C.commit_directory(tmp_path / "step-2", files(a=b"2"))  # killed before LATEST
    assert C.latest_valid(tmp_path).path == tmp_path / "step-2"
    (tmp_path / "LATEST").unlink()
    assert C.latest_valid(tmp_path).path == tmp_path / "step-2"


def test_another_schema_is_passed_over(tmp_path: Path) -> None:
    C.commit_directory(tmp_path / "step-1", files(a=b"1"), schema="algorist/checkpoint/0")
    latest = C.latest_valid(tmp_path)
    assert latest.path is None
    assert "must have schema algorist/checkpoint/1" in latest.skipped[0].reason


_WRITER = """
import sys
from pathlib import Path
from algorist.record import commit as C
from algorist.record.storage import DiskFull
folder = Path(sys.argv[1])
n = 0
while True:
    n += 1
    def write(d, n=n):
        for i in range(4):
            (d / f"{i}.bin").write_bytes(bytes([n % 256]) * 200_000)
    C.commit_directory(folder / f"step-{n}", write)
    C.point_latest(folder, f"step-{n}")
    C.prune(folder, keep=2)
    print(n, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_its_last_commit_whole(tmp_path: Path) -> None:
    seen = 0
    for round_ in range(6):
        folder = tmp_path / str(round_)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.013 * (round_ + 1))
        os.kill(process.pid, signal.SIGKILL)
        told = process.stdout.read().split()
        process.stdout.close()
        process.wait()
        latest = C.latest_valid(folder)
        assert latest.path is not None
        assert int(latest.path.name.split("-")[1]) >= int(told[-1] if told else 1)
        assert all("never committed" in s.reason for s in latest.skipped), "a visible directory is never damaged"
        seen += len(latest.skipped)
        assert len(C.remove_half_written(folder)) == len(latest.skipped)
        assert C.latest_valid(folder).skipped == ()
