"""Why a run that starts low can fall under RL, and what keeps it from falling.

    python benchmarks/low_start.py [--updates 60] [--only NAME,...]

One short SFT leaves the nano model at a few per cent. From that one start, RL is run under settings that differ in one
thing each. Printed per setting: greedy and mean@4 before and after, how many groups of a batch were mixed, and the mean
gradient norm. Adam divides the gradient's size away, so a batch with two useful groups moves the weights about as far as
one with sixty.
Results go to benchmarks/results/low_start.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes/nano/arithmetic.yaml"
OUT = ROOT / "benchmarks/results/low_start.json"
START = ["problems.sft_count=600", "sft.steps=200", "evaluate.problems=256"]
SETTINGS = {
    "as reported: lr 3e-4": ["rl.optimizer.lr=3e-4"],
    "lr 1e-4": ["rl.optimizer.lr=1e-4"],
    "lr 3e-5": ["rl.optimizer.lr=3e-5"],
    "lr 3e-4, 20 warm-up updates": ["rl.optimizer.lr=3e-4", "rl.optimizer.warmup_updates=20"],
    "lr 3e-4, eps 1e-3": ["rl.optimizer.lr=3e-4", "rl.optimizer.eps=1e-3"],
    "lr 1e-4, group size 32": ["rl.optimizer.lr=1e-4", "rl.group_size=32", "rl.prompts_per_batch=16"],
}


def algorist(*arguments: str) -> dict:
    """One verb in a process of its own; its JSON object."""
    done = subprocess.run(
        [sys.executable, "-m", "algorist", *arguments, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode not in (0, 4):
        raise SystemExit(f"algorist {' '.join(arguments)}: exit code {done.returncode}")
    return {**json.loads(done.stdout.splitlines()[-1]), "exit_code": done.returncode}


def sets(texts: list[str]) -> list[str]:
    """--set for each override."""
    return [part for text in texts for part in ("--set", text)]


def main() -> int:
    """Run the start once and every setting from it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", default="1")
    options = parser.parse_args()
    chosen = [n for n in SETTINGS if not options.only or any(o in n for o in options.only.split(","))]
    result: dict = {"command": "python benchmarks/low_start.py " + " ".join(sys.argv[1:]), "start": START, "runs": {}}
    with tempfile.TemporaryDirectory() as folder:
        start = algorist("sft", str(RECIPE), "--out", f"{folder}/sft", "--threads", options.threads, *sets(START))
        for number, name in enumerate(chosen):
            run = f"{folder}/rl-{number}"
            overrides = [*START[:1], START[2], f"policy={{path: {start['export']}}}", f"rl.updates={options.updates}"]
            overrides += ["rl.max_flat_batches=null", *SETTINGS[name]]
            told = algorist("rl", str(RECIPE), "--out", run, "--threads", options.threads, *sets(overrides))
            rows = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
            rl = [r for r in rows if r["stage"] == "rl"]
            result["runs"][name] = {
                "before": {"greedy": told["before"]["greedy"], "mean_at": told["before"]["mean_at"]},
                "after": {"greedy": told["after"]["greedy"], "mean_at": told["after"]["mean_at"]},
                "mixed_groups_mean": sum(r["groups/mixed"] for r in rl) / len(rl),
                "grad_norm_mean": sum(r["grad_norm"] or 0 for r in rl if r.get("grad_norm")) / max(1, len(rl)),
                "updates_skipped": told["counts"]["updates_skipped"],
            }
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
            one = result["runs"][name]
            print(
                f"{name:<30} greedy {one['before']['greedy']['value']:.3f} -> {one['after']['greedy']['value']:.3f}  "
                f"mean@4 {one['before']['mean_at']['4']['value']:.3f} -> {one['after']['mean_at']['4']['value']:.3f}  "
                f"mixed groups {one['mixed_groups_mean']:.1f}  gradient norm {one['grad_norm_mean']:.3f}",
                flush=True,
            )
    print(f"written to {OUT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
