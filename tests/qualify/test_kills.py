"""A run killed at a named moment and resumed equals the one that was never killed. The whole matrix: make bench-kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from algorist.record.moments import MOMENTS, reach

ROOT = Path(__file__).resolve().parents[2]


def killed_at(tmp_path: Path, *kills: str) -> dict:
    out = tmp_path / "kills.json"
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "bench_kills.py"),
        "--random",
        "0",
        "--out",
        str(out),
        "--kills",
    ]
    done = subprocess.run(
        [*command, *kills],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)},
    )
    assert out.is_file(), done.stdout + done.stderr
    return json.loads(out.read_bytes())


def test_a_kill_between_rename_and_announcement_and_one_inside_a_ledger_line_lose_nothing(tmp_path) -> None:
    found = killed_at(tmp_path, "commit.renamed#4", "append.torn#40")
    assert [row["reached"] for row in found["rows"]] == [True, True]
    assert [row["different"] for row in found["rows"]] == [[], []]


@pytest.mark.slow
def test_a_kill_at_any_named_moment_loses_nothing(tmp_path) -> None:
    found = killed_at(tmp_path, *(f"{moment}#{n}" for moment in MOMENTS for n in (1, 3)))
    assert found["named_moments"] == len(MOMENTS) >= 12
    assert found["not_equal"] == 0, [row for row in found["rows"] if row["different"]]


def test_moments_do_nothing_unless_asked(monkeypatch) -> None:
    monkeypatch.delenv("ALGORIST_KILL_AT", raising=False)
    reach("write.begin", before=lambda: pytest.fail("nothing is done before a kill that does not happen"))
