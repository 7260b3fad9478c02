"""`metrics.jsonl`: one flat JSON object a row, names with units. The truth for numbers; every dashboard is a copy."""

import importlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, final

from algorist.digest import sha256
from algorist.errors import InputError
from algorist.record.commit import append_durably

_log = logging.getLogger(__name__)

Value = float | int | str | bool | None
Row = Mapping[str, Value]
SinkName = Literal["trackio", "wandb", "tensorboard"]
NONFINITE: Final = "nonfinite"
"""Key that a row has only where values were nan or infinite: their names, separated by spaces."""
WALL_PREFIX: Final = "time/"
"""Names of wall-clock values start with this; `logical_digest` leaves them out."""


class Sink(Protocol):
    """A place that gets a copy of every row: a dashboard."""

    def log(self, row: Row, *, step: int) -> None:
        """Take one row."""

    def close(self) -> None:
        """Say that no more rows follow."""


@final
class Metrics:
    """Appends rows to metrics.jsonl and hands a copy to each sink.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "metrics.jsonl"
    >>> with Metrics(file) as metrics:
    ...     metrics.append({"stage": "rl", "step": 0, "reward/mean": 0.25, "loss": float("nan")})
    >>> read(file)
    [{'loss': None, 'nonfinite': 'loss', 'reward/mean': 0.25, 'stage': 'rl', 'step': 0}]
    """

    def __init__(self, path: Path, sinks: Sequence[Sink] = ()) -> None:
        """Open for appending; a torn last line is cut (`torn_bytes`). Raises InputError where a line is not a row."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._sinks = list(sinks)
        self.sink_errors: list[str] = []
        """Why a dashboard was given up, in words; a run does not die of a dashboard."""
        self.num_nonfinite = 0
        """Values that were nan or infinite and became null, since this was opened."""
        data = path.read_bytes() if path.exists() else b""
        *lines, tail = data.split(b"\n")
        self.torn_bytes = len(tail)
        self.num_rows = len(lines)
        """Rows in the file; what a checkpoint stores and `roll_back` takes."""
        self._file = FileIO(path, "ab")
        if tail:
            self._cut(len(data) - len(tail))

    def append(self, row: Row) -> None:
        """Write one row and fsync it. nan and infinities become null and are named under `nonfinite`.

        A `step` in the row is what dashboards plot against; without one the row number is used.
        """
        bad = sorted(name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value))
        self.num_nonfinite += len(bad)
        clean: dict[str, Value] = {name: None if name in bad else value for name, value in row.items()}
        if bad:
            clean[NONFINITE] = " ".join(bad)
        line = json.dumps(clean, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        append_durably(self._file, line.encode() + b"\n", self.path)
        step = row.get("step")
        self._copy(clean, step=int(step) if isinstance(step, int | float) else self.num_rows)
        self.num_rows += 1

    def roll_back(self, num_rows: int) -> int:
        """Keep the first `num_rows` rows and return how many were cut; a resume replays them identically.

        Dashboards keep what they were told: they may show the replayed rows twice.
        """
        assert 0 <= num_rows <= self.num_rows, f"num_rows must lie in [0, {self.num_rows}], got {num_rows}"
        lines = self.path.read_bytes().split(b"\n")[:num_rows]
        self._cut(sum(len(line) + 1 for line in lines))
        cut, self.num_rows = self.num_rows - num_rows, num_rows
        return cut

    def close(self) -> None:
        """Close the file and every sink."""
        self._file.close()
        for sink in list(self._sinks):
            self._guarded(sink, sink.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        os.fsync(self._file.fileno())

    def _copy(self, row: Row, *, step: int) -> None:
        for sink in list(self._sinks):
            self._guarded(sink, partial(sink.log, row, step=step))

    def _guarded(self, sink: Sink, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:  # noqa: BLE001  boundary: third-party dashboards fail in every way there is
            self._sinks.remove(sink)
            self.sink_errors.append(f"{type(sink).__name__.strip('_')}: {type(error).__name__}: {error}")
            _log.warning("dashboard given up, metrics.jsonl goes on: %s", self.sink_errors[-1], exc_info=True)


def read(path: Path) -> list[dict[str, Value]]:
    """All rows; an unfinished last line is left out. Raises InputError naming file and line for one that is no row."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: must be a run's metrics, could not be read ({error.strerror})") from error
    rows: list[dict[str, Value]] = []
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: must be one JSON object, got {line[:40]!r}") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number}: must be one JSON object, got {line[:40]!r}")
        rows.append(row)
    return rows


def series(rows: Iterable[Row], name: str, *, stage: str | None = None) -> list[tuple[float, float]]:
    """(step, value) of every row that has a number under `name`, in file order.

    >>> series([{"step": 1, "loss": 0.5}, {"step": 2}, {"step": 3, "loss": None}], "loss")
    [(1.0, 0.5)]
    """
    points: list[tuple[float, float]] = []
    for index, row in enumerate(rows):
        value, step = row.get(name), row.get("step", index)
        right_stage = stage is None or row.get("stage", stage) == stage
        if right_stage and isinstance(value, int | float) and isinstance(step, int | float):
            points.append((float(step), float(value)))
    return points


def logical_digest(path: Path) -> str:
    """sha256 over all rows without their wall-clock values (`time/...`): equal in equal runs."""
    rows = ({name: value for name, value in row.items() if not name.startswith(WALL_PREFIX)} for row in read(path))
    return sha256("\n".join(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows).encode())


def open_sink(name: SinkName, *, project: str, run: str, folder: Path) -> Sink:
    """A dashboard by name, its package imported only now. Raises InputError naming the extra where it is missing."""
    try:
        match name:
            case "trackio":
                return _Trackio(importlib.import_module("trackio"), project, run)
            case "wandb":
                return _Wandb(importlib.import_module("wandb"), project, run, folder)
            case "tensorboard":
                return _TensorBoard(importlib.import_module("torch.utils.tensorboard"), folder)
    except ModuleNotFoundError as error:
        raise InputError(
            f"sink {name!r} needs a package that is not installed ({error.name}). "
            f"Install it with: pip install -e '.[{name}]' in the checkout, or take {name!r} out of the recipe"
        ) from error
    raise InputError(f"sink must be trackio, wandb or tensorboard, got {name!r}")


@final
class _Trackio:
    def __init__(self, module: Any, project: str, run: str) -> None:
        self._module = module
        module.init(project=project, name=run)

    def log(self, row: Row, *, step: int) -> None:
        self._module.log(_numbers(row), step=step)

    def close(self) -> None:
        self._module.finish()


@final
class _Wandb:
    def __init__(self, module: Any, project: str, run: str, folder: Path) -> None:
        self._run = module.init(project=project, name=run, dir=str(folder))

    def log(self, row: Row, *, step: int) -> None:
        # no step=: wandb drops rows whose step goes back, as it does where a new stage starts at 0
        self._run.log({**_numbers(row), "step": step})

    def close(self) -> None:
        self._run.finish()


@final
class _TensorBoard:
    def __init__(self, module: Any, folder: Path) -> None:
        self._writer = module.SummaryWriter(log_dir=str(folder))

    def log(self, row: Row, *, step: int) -> None:
        stage = row.get("stage")
        prefix = f"{stage}/" if isinstance(stage, str) else ""
        for name, value in _numbers(row).items():
            self._writer.add_scalar(prefix + name, value, step)

    def close(self) -> None:
        self._writer.close()


def _numbers(row: Row) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
