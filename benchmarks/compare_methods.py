"""The comparisons of DeepSeekMath's Figures 5, 6 and 7 in small, on recipes/nano/steps.yaml: three seeds, equal budgets.

    python benchmarks/compare_methods.py [--only figure5] [--seeds 0,1,2] [--work FOLDER] [--out benchmarks/results]

figure5: rft, online_rft, grpo (outcome), grpo_process, and beside them dpo (log ratios averaged, and summed), ppo, rloo. longer: the
first four with four times the updates. figure6: grpo with its reference reset every
10 updates, and never. figure7: pass@k and maj@k for k = 1 to 64 of the start and of what grpo made of it. Each is the command line
that is stored with its result; all go on where they were stopped. One thread; two to four minutes of CPU a figure.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPE = "recipes/nano/steps.yaml"
KS = [1, 2, 4, 8, 16, 32, 64]
JOBS = ("figure5", "longer", "figure6", "figure7")
PAPER = ["rft", "online_rft", "grpo"]
SUMMED = "dpo_sum=dpo rl.objective.length=sum"
PROCESS = """grpo_process=grpo_process rl.process='{separators: [",", ":"]}'"""


def algorist(*arguments: str, threads: bool = True) -> dict:
    """One verb in a process of its own; its JSON object."""
    command = [sys.executable, "-m", "algorist", *arguments, "--json", *(("--threads", "1") if threads else ())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT, env=environment)
    if done.returncode not in (0, 4):  # 4: a run did not finish, which the comparison shows
        raise SystemExit(f"{' '.join(arguments)}: exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[0])


def compare(name: str, methods: list[str], variants: list[str], seeds: str, work: Path, *sets: str) -> dict:
    """One comparison and the command that made it, without the long lists."""
    chosen = [part for text in variants for part in ("--variant", text)] + [
        part for text in sets for part in ("--set", text)
    ]
    command = ["compare", RECIPE, "--seeds", seeds, "--out", str(work), *chosen]
    command += ["--methods", ",".join(methods)] if methods else []
    told = algorist(*command)
    shown = shlex.join(["algorist", *command]).replace(str(work), "OUT")
    runs = [{k: v for k, v in run.items() if k not in ("before", "after")} for run in told["runs"]]
    kept = (
        "schema",
        "recipe",
        "methods",
        "seeds",
        "budget",
        "interval",
        "confidence",
        "table",
        "formulas",
        "coefficients",
    )
    told["coefficients"] = told["coefficients"][:2]  # all are in OUT/compare.json
    return {"name": name, "command": shown, **{key: told[key] for key in kept}, "runs": runs}


def figure7(seeds: str, work: Path) -> dict:
    """pass@k and maj@k of start and end, by `algorist eval` on the models that figure5 left."""
    curves: dict[str, dict[str, dict]] = {"start": {}, "grpo": {}}
    ks = ",".join(map(str, KS))
    command = ["eval", "MODEL", "--recipe", "SEED.yaml", "--samples", "64", "--k", ks, "--out", "OUT"]
    for seed in seeds.split(","):
        recipe = work / f"seed-{seed}.yaml"  # the split follows the seed, so that held-out problems are held out
        recipe.write_text(f"extends: {os.path.relpath(ROOT / RECIPE, work)}\nname: steps-seed-{seed}\nseed: {seed}\n")
        for label, found in curves.items():
            model = work / f"seed-{seed}" / label
            out = work / "figure7" / f"seed-{seed}-{label}"
            kept = sorted(out.glob("*.json"))
            if not kept:
                given = {"MODEL": str(model), "OUT": str(out), "SEED.yaml": str(recipe)}
                algorist(*(given.get(part, part) for part in command))
                kept = sorted(out.glob("*.json"))
            told = json.loads(kept[0].read_text())
            found[seed] = {key: {k: e["value"] for k, e in told[key].items()} for key in ("pass_at", "maj_at")}
    sys.path.insert(0, str(ROOT / "src"))
    from algorist.evaluate.seeds import over_seeds

    table = {}
    for measure in ("pass_at", "maj_at"):
        table[measure] = {}
        for k in map(str, KS):
            by_label = {label: [found[s][measure][k] for s in seeds.split(",")] for label, found in curves.items()}
            gaps = [b - a for a, b in zip(by_label["start"], by_label["grpo"], strict=True)]
            row = {label: spread(over_seeds, values) for label, values in by_label.items()}
            table[measure][k] = {**row, "gain": spread(over_seeds, gaps, share=False)}
    return {
        "name": "figure7",
        "command": " ".join(["algorist", *command]),
        "seeds": seeds,
        "table": table,
        "by_seed": curves,
    }


def spread(over_seeds, values: list[float], *, share: bool = True) -> dict:
    """Mean and interval over seeds; of one seed, its value."""
    if len(set(values)) == 1:
        return {"value": values[0], "low": None, "high": None}
    e = over_seeds(values, share=share)
    return {"value": e.value, "low": e.low, "high": e.high}


def markdown(path: Path) -> list[str]:
    """The tables of docs/comparisons.md from a stored result."""
    if not path.is_file():
        return [f"{path.stem}: not measured", ""]
    told = json.loads(path.read_text())
    lines = [f"`{told['command']}`", ""]
    if told["name"] == "figure7":
        lines += [
            "| k | pass@k start | pass@k after | gain | maj@k start | maj@k after | gain |",
            "|---|---|---|---|---|---|---|",
        ]
        for k, row in sorted(told["table"]["pass_at"].items(), key=lambda item: int(item[0])):
            votes = told["table"]["maj_at"][k]
            cells = [cell(r[key], signed=key == "gain") for r in (row, votes) for key in ("start", "grpo", "gain")]
            lines.append(f"| {k} | {' | '.join(cells)} |")
        return [*lines, ""]
    lines += [
        "| method | measure | start | after | gain | against the first | by seed |",
        "|---|---|---|---|---|---|---|",
    ]
    for label, measures in told["table"].items():
        for name, row in measures.items():
            if name == "greedy" or name.startswith("mean@"):
                seeds = ", ".join(f"{100 * v:.1f}" for v in row["by_seed"].values())
                cells = [cell(row.get("before")), cell(row["after"]), cell(row.get("gain"), signed=True)]
                cells.append(cell(row.get("against_first"), signed=True))
                lines.append(f"| {label} | {name} | {' | '.join(cells)} | {seeds} |")
    lost = [f"{run['label']} (seed {run['seed']}): {run['failed']}" for run in told["runs"] if run["failed"]]
    return [*lines, "", *(f"Did not finish: {text}" for text in lost), ""]


def cell(e: dict | None, *, signed: bool = False) -> str:
    """value (low to high), in percent or points."""
    if e is None:
        return "—"
    form = "{:+.1f}" if signed else "{:.1f}"
    value = form.format(100 * e["value"])
    return value if e["low"] is None else f"{value} ({form.format(100 * e['low'])} to {form.format(100 * e['high'])})"


def main() -> int:
    """Run what is asked for and write one file each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--print", action="store_true", dest="show", help="only print the stored results as Markdown")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "compare")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    asked = options.only or list(JOBS)
    if options.show:
        print("\n".join(line for name in asked for line in markdown(options.out / f"compare_{name}.json")))
        return 0
    jobs = {
        "figure5": lambda: compare(
            "figure5", [*PAPER, "dpo", "ppo", "rloo"], [PROCESS, SUMMED], options.seeds, options.work
        ),
        "longer": lambda: compare(
            "longer", PAPER, [PROCESS], options.seeds, options.work.with_name("compare-long"), "rl.updates=160"
        ),
        "figure6": lambda: compare(
            "figure6", ["grpo"], ["iterative=grpo rl.reference.reset_every=10"], options.seeds, options.work
        ),
        "figure7": lambda: figure7(options.seeds, options.work),
    }
    for name in asked:
        result = jobs[name]()
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"compare_{name}.json").write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
        print(f"{name}: written to {options.out / f'compare_{name}.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
