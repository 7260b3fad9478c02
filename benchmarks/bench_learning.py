"""What a recipe learns: the same recipe on several seeds, before and after RL, with intervals. Every seed tried is shown.

    python benchmarks/bench_learning.py recipes/quickstart.yaml --seeds 0,1,2 [--out benchmarks/results/NAME.json]

Each run is `algorist run RECIPE --set seed=S --json` in a process of its own. A file of results is written after each seed, so that
an interrupted bench loses one run only.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def one_seed(recipe: Path, seed: int, folder: Path, overrides: list[str]) -> dict:
    """Run the recipe under a seed and return what its closing object says, with the wall time of the whole command."""
    sets = [part for text in [f"seed={seed}", *overrides] for part in ("--set", text)]
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "algorist", "run", str(recipe), "--out", str(folder), "--json", *sets],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"seed {seed}: exit code {done.returncode}")
    told = json.loads(done.stdout)
    told["seconds"] = round(time.monotonic() - started, 1)
    told["seed"] = seed
    told["trained_s"] = trained_seconds(folder)
    return told


def trained_seconds(folder: Path) -> float:
    """Seconds of SFT and RL steps, from metrics.jsonl."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return round(
        sum(v for row in rows for k, v in row.items() if k.startswith("time/") and row["stage"] != "evaluate"), 1
    )


def gains(told: dict) -> list[tuple[str, dict, dict]]:
    """(name, before, after) of greedy accuracy and of each mean@k."""
    before, after = told["before"], told["after"]
    rows = [("greedy", before["greedy"], after["greedy"])]
    return rows + [(f"mean@{k}", before["mean_at"][k], after["mean_at"][k]) for k in after["mean_at"]]


def show(value: dict) -> str:
    """value [low, high]"""
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def main() -> int:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or RESULTS / f"learning_{'_'.join(options.recipe.with_suffix('').parts[1:])}.json"
    result = {
        "command": "python benchmarks/bench_learning.py " + " ".join(sys.argv[1:]),
        "machine": {"processor": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__},
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for seed in map(int, options.seeds.split(",")):
            told = one_seed(options.recipe, seed, Path(folder) / f"seed-{seed}", options.overrides)
            result["runs"].append({k: v for k, v in told.items() if k not in ("run", "export", "report")})
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print("seed  measure   before                 after                  gain    intervals apart  trained_s  total_s")
    for told in result["runs"]:
        for name, before, after in gains(told):
            apart = "yes" if before["high"] < after["low"] else "no"
            gain = after["value"] - before["value"]
            print(
                f"{told['seed']:<5} {name:<9} {show(before):<22} {show(after):<22} {gain:+.3f}  {apart:<15}  "
                f"{told['trained_s']:<9}  {told['seconds']}"
            )
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
