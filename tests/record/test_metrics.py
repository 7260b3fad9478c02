"""metrics.jsonl keeps every number, says which were not numbers, and rolls back exactly."""

import importlib.util
import math
from pathlib import Path

import pytest

from algorist.errors import InputError
from algorist.record import metrics as M
from algorist.record.metrics import Metrics


class Copies:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, M.Row]] = []
        self.closed = False

    def log(self, row: M.Row, *, step: int) -> None:
        self.rows.append((step, row))

    def close(self) -> None:
        self.closed = True


class Broken(Copies):
    def log(self, row: M.Row, *, step: int) -> None:
        raise ConnectionError("no route")


def test_non_finite_values_become_null_are_named_and_counted(tmp_path: Path) -> None:
    with Metrics(tmp_path / "m.jsonl") as metrics:
        metrics.append({"step": 0, "loss": math.nan, "grad_norm": -math.inf, "lr": 1e-5})
        assert metrics.num_nonfinite == 2
    assert M.read(tmp_path / "m.jsonl") == [
        {"step": 0, "loss": None, "grad_norm": None, "lr": 1e-5, "nonfinite": "grad_norm loss"}
    ]


def test_rolling_back_and_replaying_gives_the_same_bytes(tmp_path: Path) -> None:
    rows = [{"step": i, "stage": "rl", "loss": 1 / (i + 1), "text": "é"} for i in range(5)]
    with Metrics(tmp_path / "a.jsonl") as whole:
        for row in rows:
            whole.append(row)
    with Metrics(tmp_path / "b.jsonl") as first:
        for row in rows[:4]:
            first.append(row)
    with Metrics(tmp_path / "b.jsonl") as second:
        assert second.num_rows == 4
        assert second.roll_back(2) == 2
        for row in rows[2:]:
            second.append(row)
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


def test_a_torn_last_line_is_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step":0}\n{"step":1')
    assert M.read(path) == [{"step": 0}]
    with Metrics(path) as metrics:
        assert (metrics.torn_bytes, metrics.num_rows) == (9, 1)
        metrics.append({"step": 1})
    assert path.read_bytes() == b'{"step":0}\n{"step":1}\n'


def test_every_sink_gets_a_copy_and_is_closed(tmp_path: Path) -> None:
    sink = Copies()
    with Metrics(tmp_path / "m.jsonl", [sink]) as metrics:
        metrics.append({"step": 7, "loss": 0.5})
        metrics.append({"loss": 0.25})
    assert sink.rows == [(7, {"step": 7, "loss": 0.5}), (1, {"loss": 0.25})]
    assert sink.closed


def test_a_broken_dashboard_is_given_up_and_the_run_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = Copies()
    with Metrics(tmp_path / "m.jsonl", [Broken(), good]) as metrics:
        metrics.append({"step": 0})
        metrics.append({"step": 1})
        assert metrics.sink_errors == ["Broken: ConnectionError: no route"]
    assert len(good.rows) == len(M.read(tmp_path / "m.jsonl")) == 2
    assert "dashboard given up" in caplog.text


def test_wall_clock_values_do_not_change_the_logical_digest(tmp_path: Path) -> None:
    for name, seconds, loss in (("a", 1.0, 0.5), ("b", 2.0, 0.5), ("c", 1.0, 0.25)):
        with Metrics(tmp_path / name) as metrics:
            metrics.append({"step": 0, "loss": loss, "time/train_s": seconds})
    digests = [M.logical_digest(tmp_path / name) for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


def test_series_skips_rows_without_the_number_and_other_stages() -> None:
    rows = [
        {"step": 0, "stage": "sft", "lr": 1.0},
        {"step": 0, "stage": "rl", "lr": 2.0},
        {"step": 1, "stage": "rl", "lr": None},
    ]
    assert M.series(rows, "lr", stage="rl") == [(0.0, 2.0)]
    assert M.series(rows, "lr") == [(0.0, 1.0), (0.0, 2.0)]


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"step":0}\n[1]\n')
    with pytest.raises(InputError, match=r"m\.jsonl:2: must be one JSON object"):
        M.read(tmp_path / "m.jsonl")


@pytest.mark.parametrize("name", ["trackio", "wandb", "tensorboard"])
def test_a_missing_dashboard_package_is_one_clear_error(tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(InputError, match=rf"pip install -e '\.\[{name}\]'"):
        M.open_sink(name, project="p", run="r", folder=tmp_path)
