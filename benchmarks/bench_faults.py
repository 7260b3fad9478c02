"""Inject every deliberate fault and print who caught it: fault x gate x exit code x updates applied x message.

    python benchmarks/bench_faults.py [--out benchmarks/results/faults.json] [--only TEXT]

Exit code 1 where a fault got through: not caught by a gate that may catch it, with another exit code or another cause, or after
more updates than had been applied before it happened.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

import faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name or kind holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    recipe = faults.start_policy(folder)
    faults.write_data(folder)
    clean = faults.inject(faults.Fault("none", "", ()), recipe, folder / "clean")
    assert clean.code == 0, f"a run without a fault must pass: {clean}"
    rows, kind = [], ""
    for i, fault in enumerate(f for f in faults.FAULTS if options.only in f.name or options.only in f.kind):
        if fault.kind != kind:
            kind = fault.kind
            print(f"\n{kind}\n{'fault':<66} {'gate':<16} exit  updates  message")
        row = judged(fault, faults.inject(fault, recipe, folder / f"run-{i}"), folder)
        rows.append(row)
        print(
            f"{fault.name:<66} {row['caught_by']:<16} {row['exit_code']:>4}  {row['updates_applied']:>7}  "
            f"{row['message'][:100] if row['ok'] else 'NOT CAUGHT AS IT SHOULD: ' + row['message']}",
            flush=True,
        )
    bad = [row for row in rows if not row["ok"]]
    by_gate = Counter(row["caught_by"] for row in rows)
    print(
        f"\n{len(rows)} faults, {len(rows) - len(bad)} caught and named, {len(bad)} not; {time.monotonic() - began:.0f} s"
    )
    print("caught by: " + ", ".join(f"{gate} {count}" for gate, count in by_gate.most_common()))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        found = {"faults": len(rows), "not_caught": len(bad), "caught_by": dict(by_gate.most_common()), "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if bad else 0


def judged(fault: faults.Fault, caught: faults.Caught, folder: Path) -> dict[str, object]:
    """A line of the table."""
    ok = (
        caught.code == fault.code
        and caught.gate in fault.gates
        and fault.words in caught.message
        and caught.applied <= fault.updates
    )
    return {
        "kind": fault.kind,
        "fault": fault.name,
        "source": fault.source,
        "caught_by": caught.gate,
        "exit_code": caught.code,
        "updates_applied": caught.applied,
        "message": caught.message.replace(str(folder), ""),
        "ok": ok,
    }


if __name__ == "__main__":
    sys.exit(main())
