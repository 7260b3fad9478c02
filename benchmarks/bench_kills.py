"""Kill a run with SIGKILL at named moments and at random ones, resume it, and compare it with a run that was never killed.

    python benchmarks/bench_kills.py [--moments 2] [--random 100] [--out benchmarks/results/kills.json]

Everything two equal runs share must be equal byte for byte: weights, optimizer, rollouts, evaluations, export, and ledger
and metrics without their wall-clock values.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

RECIPE = """
name: kills
policy: {new: {hidden_size: 32, intermediate_size: 64, num_layers: 2, num_heads: 4, context: 32}}
problems:
  source: {kind: arithmetic, families: [{name: add, digits: [1, 1]}]}
  heldout: {count: 8}
  sft_count: 40
prompt: {format: "{question}=", target: "{answer}", answer_format: first_line}
sft: {steps: 12, batch_size: 16, target: gold, optimizer: {lr: 1.0e-2}}
rl:
  updates: 6
  prompts_per_batch: 4
  group_size: 4
  sampling: {response_tokens: 4}
  objective: {name: rloo}
  optimizer: {lr: 2.0e-3}
  evaluate_every: 3
  replay: {every: 2}
evaluate: {samples: 2, ks: [1, 2], bootstrap: 100}
record: {checkpoint_every: 2}
qualify: {signal: {action: report}}
"""


def forked(work: Callable[[], None], kill_after_s: float | None = None) -> int:
    """Run `work` in a fork and return its exit status (negative: the signal that ended it).

    A fork of a process that has imported everything starts in milliseconds; no thread runs in it.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:  # noqa: BLE001 - the boundary of the child process
            traceback.print_exc()
        finally:
            os._exit(code)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def start(recipe: Path, out: Path, moment: str | None = None) -> None:
    from algorist.launch.run import run
    from algorist.recipe.load import load
    from algorist.stages.listener import Silent

    if moment is not None:
        os.environ["ALGORIST_KILL_AT"] = moment
    run(load(recipe), out, listener=Silent())


def go_on(out: Path) -> None:
    from algorist.launch.run import resume
    from algorist.stages.listener import Silent

    resume(out, listener=Silent())


def different(a: Path, b: Path) -> list[str]:
    """What two runs do not share; fail closed on files only one of them has."""
    from algorist.record import ledger, metrics

    found = []
    if ledger.logical_digest(a / "ledger.jsonl") != ledger.logical_digest(b / "ledger.jsonl"):
        found.append("ledger.jsonl")
    if metrics.logical_digest(a / "metrics.jsonl") != metrics.logical_digest(b / "metrics.jsonl"):
        found.append("metrics.jsonl")
    names = [
        {
            p.relative_to(root).as_posix()
            for p in root.rglob("*")
            if p.is_file()
            and p.name
            not in ("ledger.jsonl", "metrics.jsonl", "report.html", ".lease")  # hold times, or a process number
            and p.parent.name != "receipts"
        }
        for root in (a, b)
    ]
    found += sorted(names[0] ^ names[1])
    found += [n for n in sorted(names[0] & names[1]) if (a / n).read_bytes() != (b / n).read_bytes()]
    return found


def finish(recipe: Path, out: Path) -> int:
    """Resume until the run is closed; a run killed before its first event is started again. Returns the resumes needed."""
    import shutil

    for attempt in range(1, 20):
        if not (out / "ledger.jsonl").is_file() or not (out / "logs" / "origin.json").is_file():
            shutil.rmtree(out, ignore_errors=True)  # killed before it was a run
            status = forked(lambda: start(recipe, out))
        else:
            status = forked(lambda: go_on(out))
        if status == 0:
            return attempt
    raise SystemExit(f"{out}: could not be finished")


def kill_and_compare(recipe: Path, reference: Path, out: Path, moment: str) -> dict[str, object]:
    """One kill at a named moment."""
    status = forked(lambda: start(recipe, out, moment))
    if status == 0:
        return {"kill": moment, "reached": False, "different": different(reference, out)}
    assert status == -signal.SIGKILL, f"{moment}: the run must be killed, it ended with {status}"
    resumes = finish(recipe, out)
    return {"kill": moment, "reached": True, "resumes": resumes, "different": different(reference, out)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=3, help="occurrences of each named moment to kill at")
    parser.add_argument("--random", type=int, default=100, help="kills at random times")
    parser.add_argument("--kills", nargs="*", metavar="MOMENT#N", help="these named moments instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import torch
    import transformers  # noqa: F401

    import algorist.launch.run  # noqa: F401
    from algorist.qualify import contract
    from algorist.qualify.receipt import existing
    from algorist.record.moments import MOMENTS
    from algorist.record.run_folder import RunFolder
    from algorist.verify.identity import version

    contract.source_digest(), contract.provenance(), version()  # read once: an edit meanwhile must not look like one
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    recipe, reference = folder / "recipe.yaml", folder / "reference"
    recipe.write_text(RECIPE)
    began = time.monotonic()
    assert forked(lambda: start(recipe, reference)) == 0, "the reference run must finish"
    whole_s = time.monotonic() - began
    dice, rows = random.Random(options.seed), []
    several = [[1, *(dice.randint(2, 24) for _ in range(options.moments - 1))] for _ in MOMENTS]
    every = [f"{moment}#{n}" for moment, numbers in zip(MOMENTS, several, strict=True) for n in dict.fromkeys(numbers)]
    for kill in every if options.kills is None else options.kills:
        rows.append(kill_and_compare(recipe, reference, folder / kill.replace("#", "-"), kill))
        print(json.dumps(rows[-1]), flush=True)
    for i in range(options.random):
        out, after_s = folder / f"random-{i}", dice.uniform(0, whole_s)
        status = forked(lambda out=out: start(recipe, out), kill_after_s=after_s)
        if status == -signal.SIGKILL and dice.random() < 0.3 and (out / "logs" / "origin.json").is_file():
            forked(
                lambda out=out: go_on(out), kill_after_s=dice.uniform(0, whole_s / 2)
            )  # killed again while recovering
        resumes = 0 if status == 0 else finish(recipe, out)
        rows.append(
            {
                "kill": f"{after_s:.2f} s",
                "reached": status != 0,
                "resumes": resumes,
                "different": different(reference, out),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    bad = [row for row in rows if row["different"]]
    named = [row for row in rows if "#" in str(row["kill"])]
    result = {
        "named_moments": len({str(r["kill"]).split("#")[0] for r in named if r["reached"]}),
        "named_kills": sum(bool(r["reached"]) for r in named),
        "random_kills": sum(bool(r["reached"]) for r in rows) - sum(bool(r["reached"]) for r in named),
        "not_equal": len(bad),
        "receipts_of_the_reference": len(existing(RunFolder.open(reference))),
        "seed": options.seed,
        "rows": rows,
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print({k: v for k, v in result.items() if k != "rows"})
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
