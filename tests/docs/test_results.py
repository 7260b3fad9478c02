"""No figure of the README differs from the file it was measured into."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_results_table_of_the_readme_is_that_of_the_result_files() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/readme_results.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
