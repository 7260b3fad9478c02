"""A run's folder: one place for everything it writes, one process at a time.

contract.json  ledger.jsonl  metrics.jsonl  rollouts/*.parquet  evaluations/<name>.json
checkpoints/step-N/ + LATEST  export/  receipts/*.json  report.html  logs/
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from algorist.errors import InputError

_LEASE: Final = ".lease"


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
        """A new run folder. Raises InputError where `path` is a file or a folder that already holds something."""
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: must be a new or an empty folder, got a file. Choose another --out")
        if path.is_dir():
            inside = sorted(p.name for p in path.iterdir() if p.name != _LEASE)
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
            raise InputError(
                f"{path}: the run folder could not be made ({error.strerror}). Choose another --out"
            ) from error
        return cls(root=path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run folder. Raises InputError where there is none, or where it holds no ledger."""
        if not path.is_dir():
            raise InputError(
                f"{path}: must be a run folder, there is no such folder. Start one: algorist run RECIPE --out {path}"
            )
        if not (path / "ledger.jsonl").is_file():
            raise InputError(
                f"{path}: must be a run folder, it holds no ledger.jsonl. Start one: algorist run RECIPE --out DIR"
            )
        return cls(root=path)

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the folder for this process until the block ends or the process dies, however it dies.

        Raises InputError naming the process that holds it. A lease whose process is gone is simply taken over.
        """
        descriptor = os.open(self.root / _LEASE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
                raise InputError(
                    f"{self.root}: is in use by another run (process {holder}); two runs never share a folder. "
                    "Wait for it, stop it, or choose another --out"
                ) from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)  # closing gives the lock back; the file stays, so that nobody locks a deleted one

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
