"""What gates, replay checks and ledger cost: seconds of each, and their share of a finished run.

python benchmarks/bench_gates.py RUN
"""

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path

from algorist.record.ledger import EventKind, read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    events = read(options.run / "ledger.jsonl")
    moments = [datetime.fromisoformat(str(e.wall["time"])) for e in events]
    whole = (moments[-1] - moments[0]).total_seconds()
    gates = {
        str(e.payload.get("name")): float(e.wall.get("gate_s", 0.0))
        for e in events
        if e.kind in (EventKind.GATE, EventKind.ADMISSION)
    }
    replay = [float(e.wall.get("replay_s", 0.0)) for e in events if e.kind is EventKind.REPLAY_CHECK]
    result = {
        "run_s": round(whole, 2),
        "gates_s": {name: round(s, 3) for name, s in gates.items() if s},
        "gates_share": round(sum(gates.values()) / whole, 5),
        "replay_checks": len(replay),
        "replay_share": round(sum(replay) / whole, 5),
        "ledger_events": len(events),
    }
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result["gates_share"] < 0.03 and result["replay_share"] < 0.10 else 1


if __name__ == "__main__":
    sys.exit(main())
