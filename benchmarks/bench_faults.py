"""Inject every deliberate fault and print who caught it: fault x gate x exit code x updates applied x message.

    python benchmarks/bench_faults.py [--out benchmarks/results/faults.json]

Exit code 1 where a fault got through: not caught by a gate that may catch it, with another exit code, or after more
updates than had been applied before it happened.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

import faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    recipe = faults.start_policy(folder)
    faults.write_data(folder)
    clean = faults.inject(faults.Fault("none", "", ()), recipe, folder / "clean")
    assert clean.code == 0, f"a run without a fault must pass: {clean}"
    rows = []
    for i, fault in enumerate(f for f in faults.FAULTS if options.only in f.name):
        began = time.monotonic()
        caught = faults.inject(fault, recipe, folder / f"run-{i}")
        ok = (
            caught.code == fault.code
            and caught.gate in fault.gates
            and fault.words in caught.message
            and caught.applied <= fault.updates
        )
        rows.append(
            {
                "fault": fault.name,
                "source": fault.source,
                "caught_by": caught.gate,
                "exit_code": caught.code,
                "updates_applied": caught.applied,
                "message": caught.message.replace(str(folder), ""),
                "ok": ok,
            }
        )
        mark = "ok" if ok else "NO"
        print(
            f"{mark}  {fault.name:<62} {caught.gate:<16} {caught.code}  {caught.applied}  {caught.message[:90]}",
            flush=True,
        )
        print(f"    {time.monotonic() - began:.1f} s", file=sys.stderr)
    bad = [row for row in rows if not row["ok"]]
    print(f"{len(rows)} faults, {len(rows) - len(bad)} caught and named, {len(bad)} not")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"faults": len(rows), "not_caught": len(bad), "rows": rows}, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
