"""What gates, replay checks and ledger cost a run: the figures of its report, and per gate; exit code 1 above 3 % or 10 %.

python benchmarks/bench_gates.py RUN [--out FILE]
"""

import argparse
import json
import sys
from pathlib import Path

from algorist.record.ledger import EventKind, read
from algorist.report.cost import cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    events = read(options.run / "ledger.jsonl")
    found = cost(events)
    if found is None:
        sys.exit(
            f"{options.run}: its ledger holds no figures of cost: it was not finished, or written by an older version"
        )
    judged = [e for e in events if e.kind in (EventKind.GATE, EventKind.ADMISSION) and e.wall.get("gate_s")]
    result = {**found.to_json(), "by_gate_s": {str(e.payload["name"]): e.wall["gate_s"] for e in judged}}
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    shares = found.shares
    return 0 if shares["gates"] + shares["ledger"] < 0.03 and shares["replay"] < 0.10 else 1


if __name__ == "__main__":
    sys.exit(main())
