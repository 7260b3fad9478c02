"""Whether the main job did what the README says: it learned, left what it promised, and its export answers like its last policy.

python benchmarks/check_main_job.py RUN
"""

import json
import sys
from pathlib import Path

from algorist.record.ledger import EventKind, read, verify

REQUIRED = (
    "contract.json",
    "ledger.jsonl",
    "metrics.jsonl",
    "evaluations/before.json",
    "evaluations/after.json",
    "report.html",
)


def main() -> int:
    """Check one run folder; any broken promise is a non-zero exit."""
    run = Path(sys.argv[1])
    missing = [name for name in REQUIRED if not (run / name).is_file()]
    assert not missing, f"the run folder lacks {missing}"
    assert verify(run / "ledger.jsonl").ok, "the ledger's chain is broken"
    events = read(run / "ledger.jsonl")
    assert events[-1].kind is EventKind.CLOSED, "the run did not close"
    before, after = (json.loads((run / "evaluations" / f"{n}.json").read_text()) for n in ("before", "after"))
    gain = after["greedy"]["value"] - before["greedy"]["value"]
    mean = after["mean_at"]["4"]["value"] - before["mean_at"]["4"]["value"]
    print(f"greedy {before['greedy']['value']:.3f} -> {after['greedy']['value']:.3f}, mean@4 gain {mean:+.3f}")
    assert min(gain, mean) >= 0.2, "greedy and mean@4 must each rise by 20 points"
    assert before["greedy"]["high"] < after["greedy"]["low"], "the 95 % intervals must not touch"
    print("the main job did what the README says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
