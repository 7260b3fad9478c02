"""Files and directories that are either wholly there or not there at all.

A directory is written next to its final place, every file is fsynced, `manifest.json` lists size and sha256 of each,
and one rename makes it visible; a reader verifies the manifest and falls back to the newest one that holds.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

from algorist.digest import JSON, canonical, file_digest, sha256
from algorist.errors import InputError
from algorist.record.moments import reach
from algorist.record.storage import failures_are_told, require_free_space, require_in_place

MANIFEST: Final = "manifest.json"
LATEST: Final = "LATEST"
CHECKPOINT_SCHEMA: Final = "algorist/checkpoint/1"
_TEMPORARY: Final = re.compile(r"^\.(?P<final>.+)\.(tmp|old)-\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a manifest.

    >>> FileEntry(sha256="e3b0", size_bytes=0).size_bytes
    0
    """

    sha256: str
    """Lower-case hexadecimal digest of the file's bytes."""
    size_bytes: int
    """Length of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a committed directory holds; its digest stands for the whole directory.

    >>> Manifest(schema="x/1", files={}).digest == sha256(b'{"files":{},"schema":"x/1"}')
    True
    """

    schema: str
    """Name and version of the layout."""
    files: Mapping[str, FileEntry]
    """Path inside the directory (with '/') to its entry; `manifest.json` itself is not listed."""

    def to_bytes(self) -> bytes:
        """RFC 8785 bytes, exactly what `manifest.json` holds."""
        files: dict[str, JSON] = {name: {"sha256": e.sha256, "size": e.size_bytes} for name, e in self.files.items()}
        return canonical({"schema": self.schema, "files": files})

    @property
    def digest(self) -> str:
        """sha256 of `manifest.json`: the digest of the directory's whole content."""
        return sha256(self.to_bytes())

    @property
    def size_bytes(self) -> int:
        """Sum over all files."""
        return sum(entry.size_bytes for entry in self.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A directory that cannot be used, with the reason in words.

    >>> Skipped(path=Path("step-4"), reason="has no manifest.json").reason
    'has no manifest.json'
    """

    path: Path
    """Where it lies."""
    reason: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest directory whose manifest holds, and what was passed over on the way to it.

    >>> Latest(path=None, manifest=None, skipped=()).path is None
    True
    """

    path: Path | None
    """The directory; None where none is valid."""
    manifest: Manifest | None
    """Its verified manifest."""
    skipped: tuple[Skipped, ...]
    """Newer directories that are corrupt or half written; a caller shows each."""


def atomic_write(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: temporary file beside it, fsync, rename, fsync of the folder.

    After a kill the old bytes or the new bytes are there, never a mixture. Raises WriteFailed, DiskFull where there is no
    room, with the old file untouched.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a" / "b.json"
    >>> atomic_write(file, b"{}"); file.read_bytes()
    b'{}'
    """
    with failures_are_told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        reach("write.begin")
        temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            reach("write.written")
            temporary.rename(path)
            reach("write.renamed")
        finally:
            temporary.unlink(missing_ok=True)
        fsync_directory(path.parent)


def commit_directory(
    final: Path, write: Callable[[Path], None], *, schema: str = CHECKPOINT_SCHEMA, need_bytes: int = 0
) -> Manifest:
    """Make the directory `final` appear with everything that `write(folder)` puts into the folder it is given.

    Order: free-space check (`need_bytes`), write beside, fsync every file, manifest.json, fsync folders, rename, fsync
    the parent. A directory already at `final` is replaced; where it verifies and is equal it is left as it is, so a
    replay after a crash may commit the same step again. Raises WriteFailed, with nothing half written left behind;
    whatever else `write` raises passes through after the temporary folder is gone. Links are refused (InputError): a
    manifest must cover the bytes it lists.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> m = commit_directory(root / "step-1", lambda d: (d / "a.bin").write_bytes(b"abc") and None)
    >>> sorted(m.files), m.size_bytes, verify_directory(root / "step-1").digest == m.digest
    (['a.bin'], 3, True)
    """
    parent = final.parent
    temporary = parent / f".{final.name}.tmp-{os.getpid()}"
    try:
        with failures_are_told(final):
            parent.mkdir(parents=True, exist_ok=True)
            require_free_space(parent, need_bytes, what=final.name)
            for stale in _temporaries(parent, final.name):
                shutil.rmtree(stale)
            temporary.mkdir()
            reach("commit.begin")
            write(temporary)
            reach("commit.written")
            manifest = _describe(temporary, schema)
            (temporary / MANIFEST).write_bytes(manifest.to_bytes())
            reach("commit.manifest")
            _fsync_tree(temporary)
            reach("commit.synced")
            _put_in_place(temporary, final, manifest)
            reach("commit.renamed")
            fsync_directory(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def verify_directory(path: Path, *, schema: str | None = None) -> Manifest:
    """The manifest of `path` after every listed file was read and compared, and nothing else was found.

    Raises InputError naming the first file that is missing, changed, not listed, or a link.
    """
    manifest = read_manifest(path)
    if schema is not None and manifest.schema != schema:
        raise InputError(f"{path}: must have schema {schema}, got {manifest.schema}")
    found = {str(p.relative_to(path).as_posix()) for p in _files(path)} - {MANIFEST}
    _check_sizes(path, manifest)
    for name, entry in manifest.files.items():
        file = path / name
        if file_digest(file) != entry.sha256:
            raise InputError(f"{file}: its bytes do not match the sha256 in {MANIFEST}")
    if strangers := sorted(found - set(manifest.files)):
        raise InputError(f"{path / strangers[0]}: is not listed in {MANIFEST}")
    return manifest


def read_manifest(path: Path) -> Manifest:
    """`manifest.json` of a directory, its shape and canonical bytes checked, its files not yet read.

    Raises InputError where it is missing, cut off, or not what `commit_directory` writes.
    """
    file = path / MANIFEST
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: has no readable {MANIFEST}, so it was never committed ({error.strerror})") from error
    try:
        raw = json.loads(data)
        files = {
            name: FileEntry(sha256=str(entry["sha256"]), size_bytes=int(entry["size"]))
            for name, entry in raw["files"].items()
        }
        manifest = Manifest(schema=str(raw["schema"]), files=files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: is damaged: it is not a manifest ({error})") from error
    if manifest.to_bytes() != data:
        raise InputError(f"{file}: is damaged: its bytes are not canonical")
    if escaping := [name for name in files if name.startswith("/") or ".." in name.split("/")]:
        raise InputError(f"{file}: lists a path outside the directory: {escaping[0]}")
    return manifest


def point_latest(directory: Path, name: str) -> None:
    """Write `LATEST`, the name of the newest committed directory, through a rename."""
    assert (directory / name / MANIFEST).is_file(), f"LATEST must name a committed directory, got {name}"
    atomic_write(directory / LATEST, f"{name}\n".encode())


def latest_valid(directory: Path, *, schema: str | None = CHECKPOINT_SCHEMA) -> Latest:
    """The newest `<name>-N` directory whose manifest and files hold; newer ones that do not are listed with reasons.

    `LATEST` is a hint for people: a committed directory that it does not name yet (a kill between the two) counts,
    and a missing or wrong `LATEST` is no reason to lose a checkpoint.

    >>> latest_valid(Path("/nonexistent/checkpoints")).path is None
    True
    """
    skipped = [
        Skipped(path=p, reason="was never committed: its writer stopped half-way") for p in _temporaries(directory)
    ]
    for path in reversed(numbered(directory)):
        try:
            return Latest(path=path, manifest=verify_directory(path, schema=schema), skipped=tuple(skipped))
        except InputError as error:
            skipped.append(Skipped(path=path, reason=str(error)))
    return Latest(path=None, manifest=None, skipped=tuple(skipped))


def numbered(directory: Path) -> list[Path]:
    """Directories named `<name>-<number>`, oldest first; not verified."""
    if not directory.is_dir():
        return []
    found = [
        (int(match[1]), p)
        for p in directory.iterdir()
        if (match := re.fullmatch(r"[a-z][a-z_]*-(\d+)", p.name)) and p.is_dir() and not p.is_symlink()
    ]
    return [path for _, path in sorted(found)]


def prune(directory: Path, *, keep: int, schema: str | None = CHECKPOINT_SCHEMA) -> list[Path]:
    """Remove the oldest directories beyond the `keep` newest, but never the newest that verifies.

    The newest is verified byte by byte, and older ones until one holds; the others count as kept where their manifest
    and file sizes hold. Returns what was removed; nothing is removed while none verifies or fewer than `keep` count.
    A directory without a manifest is left for a person to see.
    """
    assert keep >= 1, f"at least one checkpoint must be kept, got keep={keep}"
    paths = numbered(directory)
    kept, verified = 0, False
    while paths and not (verified and kept >= keep):
        path = paths.pop()
        try:
            if verified:
                _check_sizes(path, read_manifest(path))
            else:
                verify_directory(path, schema=schema)
        except InputError:
            continue
        verified, kept = True, kept + 1
    removed = [path for path in paths if (path / MANIFEST).is_file()] if verified and kept >= keep else []
    remove(removed)
    return removed


def remove(directories: Iterable[Path]) -> None:
    """Delete committed directories; after a kill each is there whole, or is none any more."""
    for path in directories:
        grave = path.with_name(f".{path.name}.old-{os.getpid()}")
        path.rename(grave)  # a kill during rmtree must not leave a directory that looks like a checkpoint
        reach("prune.renamed")
        shutil.rmtree(grave)


def remove_half_written(directory: Path) -> list[Path]:
    """Delete temporary folders and files that a killed writer left behind, and return their paths."""
    stale = _temporaries(directory)
    for path in stale:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return stale


def append_durably(file: FileIO, data: bytes, path: Path) -> None:
    """Add `data` to the end of an unbuffered file and fsync it; where that fails the file is cut back to what it was.

    Raises WriteFailed: DiskFull where there is no room, FolderGone where the file was moved or deleted meanwhile.
    """
    require_in_place(path, file.fileno())
    size = file.seek(0, os.SEEK_END)
    with failures_are_told(path):
        try:
            written = 0
            reach("append.begin")
            reach("append.torn", before=lambda: file.write(data[: len(data) // 2]))
            while written < len(data):
                written += file.write(data[written:])
            reach("append.written")
            os.fsync(file.fileno())
            reach("append.done")
        except OSError:
            with contextlib.suppress(
                OSError
            ):  # a disk that fails altogether: a torn end is cut when the file is opened
                file.truncate(size)
            raise


def fsync_directory(path: Path) -> None:
    """Make renames and new names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_sizes(path: Path, manifest: Manifest) -> None:
    for name, entry in manifest.files.items():
        file = path / name
        if not file.is_file():
            raise InputError(f"{file}: listed in {MANIFEST} but missing")
        if (size := file.stat().st_size) != entry.size_bytes:
            raise InputError(f"{file}: must have {entry.size_bytes} bytes by {MANIFEST}, got {size}")


def _files(path: Path) -> list[Path]:
    found = sorted(path.rglob("*"))
    if links := [p for p in found if p.is_symlink()]:
        raise InputError(f"{links[0]}: must be a file, is a link; a manifest covers bytes, not where they point")
    return [p for p in found if p.is_file()]


def _describe(path: Path, schema: str) -> Manifest:
    files = {
        p.relative_to(path).as_posix(): FileEntry(sha256=file_digest(p), size_bytes=p.stat().st_size)
        for p in _files(path)
    }
    return Manifest(schema=schema, files=files)


def _fsync_tree(path: Path) -> None:
    for p in _files(path):
        with p.open("rb") as file:
            os.fsync(file.fileno())
    for folder in [*(p for p in path.rglob("*") if p.is_dir()), path]:
        fsync_directory(folder)


def _put_in_place(temporary: Path, final: Path, manifest: Manifest) -> None:
    if final.exists():
        try:
            if verify_directory(final).digest == manifest.digest:
                return
        except InputError:
            pass  # corrupt: replaced below, which is what the caller is committing it for
        grave = final.with_name(f".{final.name}.old-{os.getpid()}")
        final.rename(grave)
        temporary.rename(final)
        shutil.rmtree(grave)
    else:
        temporary.rename(final)


def _temporaries(directory: Path, final: str | None = None) -> list[Path]:
    if not directory.is_dir():
        return []
    named = ((p, _TEMPORARY.match(p.name)) for p in sorted(directory.iterdir()))
    return [p for p, match in named if match and final in (None, match["final"])]
