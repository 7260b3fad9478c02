"""A run that a machine ended, however, and that was resumed equals the one that nothing happened to: make bench-kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from algorist.record.moments import FAIL, KILL, MOMENTS, reach

ROOT = Path(__file__).resolve().parents[2]


def ended(tmp_path: Path, *options: str) -> dict:
    out = tmp_path / "kills.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "bench_kills.py"), "--out", str(out), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)},
    )
    assert out.is_file(), done.stdout + done.stderr
    return json.loads(out.read_bytes())


def test_a_kill_between_rename_and_announcement_and_one_inside_a_ledger_line_lose_nothing(tmp_path) -> None:
    found = ended(tmp_path, "--random", "0", "--kills", "commit.renamed#4", "append.torn#40")
    assert [row["reached"] for row in found["rows"]] == [True, True]
    assert [row["different"] for row in found["rows"]] == [[], []]


@pytest.mark.slow
def test_no_way_of_ending_a_run_changes_what_it_comes_to(tmp_path) -> None:
    found = ended(tmp_path, "--random", "6", "--signals", "2")
    assert found["named_moments"] == len(MOMENTS) >= 12
    assert {row["stage"] for row in found["rows"]} == {"", "start", "sft", "evaluation", "rl", "end"}
    assert min(found[f"{how}_cases"] for how in ("again", "amend", "fail", "term", "stop")) >= 1
    assert (found["not_equal"], found["faults"]) == (0, 0), [r for r in found["rows"] if r["different"] or r["faults"]]


def test_moments_do_nothing_unless_asked(monkeypatch) -> None:
    for name in (KILL, FAIL):
        monkeypatch.delenv(name, raising=False)
    reach("write.begin", before=lambda: pytest.fail("nothing is done before a kill that does not happen"))
