"""A run's folder: one place for everything it writes, one process at a time.

contract.json  ledger.jsonl  metrics.jsonl  rollouts/*.parquet  evaluations/<name>.json
checkpoints/step-N/ + LATEST  export/  receipts/*.json  report.html  logs/
"""

import contextlib
import errno
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from algorist.digest import canonical
from algorist.errors import InputError
from algorist.record.storage import DiskFull, failures_are_told, write_failure

_LEASE: Final = ".lease"
_BEGUN: Final = ("ledger.jsonl", "contract.json")
_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
"""What a file system without locks answers."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has, or had, the lease of a run folder.

    >>> Holder.read(Holder(pid=7, host="a", boot="b0").to_bytes())
    Holder(pid=7, host='a', boot='b0')
    >>> Holder.read(b""), Holder.read(b"7\\n")
    (None, None)
    """

    pid: int
    host: str
    boot: str
    """Of the machine's present start; a process of an earlier one cannot be alive. '' where the system has no such name."""

    @classmethod
    def own(cls) -> "Holder":
        """This process."""
        boot = _BOOT_ID.read_text().strip() if _BOOT_ID.is_file() else ""
        return cls(pid=os.getpid(), host=platform.node(), boot=boot)

    @classmethod
    def read(cls, data: bytes) -> "Holder | None":
        """What `to_bytes` wrote; None for anything else."""
        try:
            raw = json.loads(data)
            holder = cls(pid=int(raw["pid"]), host=str(raw["host"]), boot=str(raw["boot"]))
        except (ValueError, KeyError, TypeError):
            return None
        return holder if holder.to_bytes() == data else None

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical(asdict(self))

    @property
    def gone(self) -> bool:
        """True where the process is known to have ended: of this machine, and of an earlier start or not there any more."""
        own = Holder.own()
        if self.host != own.host:
            return False
        if self.boot != own.boot:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Paths of a run. Subfolders come into being when something is first written to them.

    >>> RunFolder(root=Path("runs/demo")).checkpoint(40).as_posix()
    'runs/demo/checkpoints/step-40'
    """

    root: Path
    """The folder itself."""

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """A new run folder. Raises InputError where `path` is a file or a folder that already holds something, DiskFull."""
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: must be a new or an empty folder, got a file. Choose another --out")
        if path.is_dir():
            inside = sorted(p.name for p in path.iterdir() if not _left_before_a_run(p))
            if "ledger.jsonl" in inside or "contract.json" in inside:
                raise InputError(
                    f"{path}: already holds a run, and a run is never overwritten. Go on with it (algorist resume "
                    f"{path}), look at it (algorist report {path}), or choose another --out"
                )
            if inside:
                raise InputError(
                    f"{path}: must be a new or an empty folder, got one that holds {inside[0]!r}"
                    f"{f' and {len(inside) - 1} more' if len(inside) > 1 else ''}. Choose another --out"
                )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            full = write_failure(error, path)
            if isinstance(full, DiskFull):
                raise full from error
            raise InputError(
                f"{path}: the run folder could not be made ({error.strerror}). Choose another --out"
            ) from error
        return cls(root=path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run folder. Raises InputError where there is none, or where it holds neither ledger nor contract."""
        if not path.is_dir():
            raise InputError(
                f"{path}: must be a run folder, there is no such folder. Start one: algorist run RECIPE --out {path}"
            )
        if not any((path / name).is_file() for name in _BEGUN):
            raise InputError(
                f"{path}: must be a run folder, it holds no ledger.jsonl. Start one: algorist run RECIPE --out DIR"
            )
        return cls(root=path)

    @classmethod
    def around(cls, path: Path) -> "RunFolder":
        """The run that a path lies in: its folder, its export, a checkpoint of it. Raises InputError where there is none."""
        for folder in (path, *path.resolve().parents[:2]) if path.exists() else ():
            if any((folder / name).is_file() for name in _BEGUN):
                return cls(root=folder)
        return cls.open(path)

    def in_use(self) -> tuple[bool, Holder | None]:
        """(a process holds it now, who holds it or was the last to hold it without giving it back)."""
        try:
            descriptor = os.open(self.root / _LEASE, os.O_RDONLY)
        except OSError:
            return False, None
        try:
            holder = Holder.read(os.read(descriptor, 4096))
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False, holder
        except BlockingIOError:
            return True, holder
        except OSError:  # no locks here: what it says is all there is
            return holder is not None and not holder.gone, holder
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def lease(self) -> Iterator[Holder | None]:
        """Hold the folder for this process until the block ends or the process dies, however it dies.

        Gives the process that ended without giving the lease back, None where there is none. Raises InputError naming the
        process that holds it, or where the folder cannot be written; DiskFull.
        """
        descriptor = self._open_lease()
        try:
            before = Holder.read(os.read(descriptor, 4096))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_LOCKS and not isinstance(error, BlockingIOError):
                    raise
                locks = isinstance(error, BlockingIOError)
                if locks or (before is not None and not before.gone):
                    raise InputError(self._in_use(before, locks=locks)) from error
            try:
                with failures_are_told(self.root / _LEASE):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, Holder.own().to_bytes(), 0)
                yield before
            finally:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)  # given back; a kill leaves the name, for the next one to tell
        finally:
            os.close(descriptor)  # closing gives the lock back; the file stays, so that nobody locks a deleted one

    def _open_lease(self) -> int:
        try:
            return os.open(self.root / _LEASE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            told = write_failure(error, self.root)
            if told is None or isinstance(told, DiskFull):
                raise (error if told is None else told) from error
            raise InputError(
                f"{self.root}: must be a folder this process can write to ({error.strerror}). {told.remedy}, or copy the run "
                "to where you can write."
            ) from error

    def _in_use(self, holder: Holder | None, *, locks: bool) -> str:
        who = f"process {holder.pid} on {holder.host}" if holder else "process unknown"
        how = (
            f"kill -TERM {holder.pid} on {holder.host}: it saves first"
            if holder
            else f"find it: fuser {self.root / _LEASE}"
        )
        told = "" if locks else f" This file system has no locks: if that process is gone, delete {self.root / _LEASE}."
        return (
            f"{self.root}: is in use by another run ({who}), and two never share a folder. Wait until it ends, or stop it "
            f"({how}); then try again.{told} A new run needs another --out."
        )

    @property
    def contract(self) -> Path:
        """Resolved recipe and digests."""
        return self.root / "contract.json"

    @property
    def ledger(self) -> Path:
        """Every event, hash-chained."""
        return self.root / "ledger.jsonl"

    @property
    def metrics(self) -> Path:
        """Every number, one row a step."""
        return self.root / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        """Folder of Parquet files, one a batch."""
        return self.root / "rollouts"

    @property
    def evaluations(self) -> Path:
        """Folder of finished evaluations."""
        return self.root / "evaluations"

    @property
    def checkpoints(self) -> Path:
        """Folder of committed checkpoints and LATEST."""
        return self.root / "checkpoints"

    @property
    def export(self) -> Path:
        """The trained model as a Hugging Face folder."""
        return self.root / "export"

    @property
    def receipts(self) -> Path:
        """Folder of receipts."""
        return self.root / "receipts"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.root / "report.html"

    @property
    def logs(self) -> Path:
        """Folder of logs and dashboards."""
        return self.root / "logs"

    def evaluation(self, name: str) -> Path:
        """File of one evaluation; the ones around RL are `before` and `after`."""
        return self.evaluations / f"{name}.json"

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint after `step`."""
        return self.checkpoints / f"step-{step}"


def _left_before_a_run(path: Path) -> bool:
    """A run begins with its contract: what a kill leaves behind before that is no run."""
    if path.name == "logs" and path.is_dir() and not (path.parent / "contract.json").exists():
        return all(p.name == "origin.json" or _half_written(p) for p in path.iterdir())
    return path.name == _LEASE or _half_written(path)


def _half_written(path: Path) -> bool:
    return path.name.startswith(".") and ".tmp-" in path.name
