"""What to tell of a disk that is full, read-only or failing: what could not be written, the figures, and what to do."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from safetensors import SafetensorError

from algorist.errors import InputError

_FULL: Final[Mapping[int, str]] = {
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Free some space there, or have the quota raised",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f)",
}
_FAILED: Final[Mapping[int, str]] = {
    errno.EIO: "Look after the disk (its errors are in the system's log)",
    errno.EROFS: "Have it mounted for writing",
    errno.EACCES: "Give this user the right to write there",
    errno.EPERM: "Give this user the right to write there",
    errno.ESTALE: "Have the network file system mounted again",
    errno.ENOTCONN: "Have the file system mounted again",
    errno.ENODEV: "Have the device brought back",
    errno.ENXIO: "Have the device brought back",
}
"""What storage fails with -> what to do about it."""
_HEADROOM_BYTES: Final = 1 << 20  # what a file system needs for its own bookkeeping


class WriteFailed(InputError):
    """What must be written could not be. Nothing half written is left behind.

    >>> print(WriteFailed("a.json: could not be written (Read-only file system)", remedy="Have it mounted for writing"))
    a.json: could not be written (Read-only file system); nothing half written was left. Have it mounted for writing.
    """

    def __init__(self, fact: str, *, remedy: str) -> None:
        self.fact, self.remedy = fact, remedy
        super().__init__(f"{fact}; nothing half written was left. {remedy}.")


class DiskFull(WriteFailed):
    """The disk, a quota or a limit has no room for it."""


class FolderGone(WriteFailed):
    """What is written to is not where it was: somebody moved or deleted it."""


def require_free_space(path: Path, need_bytes: int, *, what: str) -> None:
    """Raise DiskFull unless the file system of `path` has room for `need_bytes` and a little for itself.

    >>> require_free_space(Path("."), 0, what="nothing")
    """
    if not need_bytes:
        return
    free = free_bytes(path)
    if free < need_bytes + _HEADROOM_BYTES:
        raise DiskFull(
            f"{path}: {what} needs {mib(need_bytes + _HEADROOM_BYTES)} on disk, {mib(free)} are free",
            remedy="Free some space there, or keep fewer checkpoints",
        )


def free_bytes(path: Path) -> int:
    """What this user may still write to the file system of `path`, or of the nearest folder above that is there."""
    folder = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(folder).free


def mib(size_bytes: int) -> str:
    """A size for people.

    >>> mib(3 << 19)
    '1.5 MiB'
    """
    return f"{size_bytes / 2**20:,.1f} MiB"


@contextlib.contextmanager
def failures_are_told(path: Path) -> Iterator[None]:
    """Turn what the system says of a failing disk into one WriteFailed, DiskFull where there is no room."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        told = write_failure(error, path)
        if told is None:
            raise
        raise told from error


def write_failure(error: OSError | SafetensorError, path: Path) -> WriteFailed | None:
    """What an error of the system means for `path`; None where it does not come from storage.

    >>> print(write_failure(OSError(errno.EROFS, "Read-only file system"), Path("a.json")))
    a.json: could not be written (Read-only file system); nothing half written was left. Have it mounted for writing.
    """
    if isinstance(error, SafetensorError):  # its writer reports the system's error as text
        found = re.search(r"os error (\d+)", str(error))
        code = int(found[1]) if found else 0
    else:
        code = error.errno or 0
    if code in _FULL:
        fact = f"{path}: could not be written, the disk or quota is full ({os.strerror(code)})"
        return DiskFull(f"{fact}{_left(path)}", remedy=_FULL[code])
    if code in _FAILED:
        return WriteFailed(f"{path}: could not be written ({os.strerror(code)})", remedy=_FAILED[code])
    return None


def require_in_place(path: Path, descriptor: int) -> None:
    """Raise FolderGone unless `path` still is the file that was opened: writing on would fill a folder nobody sees."""
    try:
        there = os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        there = False
    if not there:
        raise FolderGone(
            f"{path}: is not there any more, its folder was moved or deleted while it was written to",
            remedy="Go on with the folder where it is now (algorist resume), or start a new run",
        )


def _left(path: Path) -> str:
    """How much room the file system has, in words; '' where it does not say."""
    folder = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    try:
        found = os.statvfs(folder)
    except OSError:
        return ""
    files = (
        "; no further file can be made there, however small (inodes)" if found.f_files and not found.f_favail else ""
    )
    return f", {mib(found.f_bavail * found.f_frsize)} are free{files}"
