"""Writes the results table of README.md from benchmarks/results/*.json, so that no figure there can differ from its file.

python benchmarks/readme_results.py [--check]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "benchmarks" / "results"
START, END = "<!-- results -->", "<!-- /results -->"


def stored(name: str) -> dict | None:
    """A result file, or None where nothing was measured."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def learning(name: str) -> str:
    """Greedy and mean@k before and after, seed by seed, with the gain."""
    result = stored(f"learning_{name}")
    if result is None:
        return "not measured yet"
    cells = []
    for run in result["runs"]:
        before, after = run["before"], run["after"]
        k = max(after["mean_at"], key=int)
        pairs = [
            ("greedy", before["greedy"], after["greedy"]),
            (f"mean@{k}", before["mean_at"][k], after["mean_at"][k]),
        ]
        text = ", ".join(f"{n} {b['value']:.1%} → **{a['value']:.1%}**" for n, b, a in pairs)
        cells.append(f"seed {run['seed']}: {text}")
    return "<br>".join(cells) + f"<br>([{name}](benchmarks/results/learning_{name}.json))"


def verifier() -> tuple[str, str, str]:
    """Cells of the verifier's rows: cases, golds, speed."""
    cases, golds, speed = stored("verify_cases"), stored("verify_golds"), stored("verify_speed")
    first = second = third = "not measured yet"
    if cases is not None:
        a = cases["all"]
        first = (
            f"**{a['ours'] / a['rows']:.1%}** of {a['rows']}, {a['ours_paid_wrongly']} paid wrongly; math-verify "
            f"{a['math_verify'] / a['rows']:.1%}, {a['math_verify_paid_wrongly']} ([cases](benchmarks/results/verify_cases.json))"
        )
    if golds is not None:
        share = golds["supported"] / golds["rows"]
        second = f"{share:.2%} of {golds['rows']:,} ([golds](benchmarks/results/verify_golds.json))"
    if speed is not None:
        third = (
            f"{speed['gsm8k-like']['ratio']:.1f}x on GSM8K-like rows, {speed['math-like']['ratio']:.1f}x on MATH-like rows "
            "([speed](benchmarks/results/verify_speed.json))"
        )
    return first, second, third


def qualification() -> tuple[str, str, str, str]:
    """Cells of faults caught, kills survived, what gates cost, and predicted memory."""
    faults, kills, gates, memory = (stored(name) for name in ("faults", "kills", "gates_quickstart", "memory"))
    first = second = third = fourth = "not measured yet"
    if faults is not None:
        first = f"**{faults['faults'] - faults['not_caught']} of {faults['faults']}** ([faults](benchmarks/results/faults.json))"
    if kills is not None:
        done = kills["named_kills"] + kills["random_kills"]
        second = f"**{done - kills['not_equal']} of {done}** ([kills](benchmarks/results/kills.json))"
    if gates is not None:
        third = (
            f"gates and ledger {gates['shares']['gates'] + gates['shares']['ledger']:.1%} ({_bar(gates)}), replay checks "
            f"{gates['shares']['replay']:.1%} of its time (bar: 10%) "
            "([gates](benchmarks/results/gates_quickstart.json))"
        )
    if memory is not None:
        ratios = [row["ratio"] for row in memory["rows"]]
        fourth = f"{min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} cases ([memory](benchmarks/results/memory.json))"
    return first, second, third, fourth


def _bar(gates: dict) -> str:
    """The bar of gates and ledger, and whether it is met."""
    return "bar: 3%" if gates["shares"]["gates"] + gates["shares"]["ledger"] < 0.03 else "bar: 3%, missed"


def peer() -> str:
    """One update of the main job, theirs and ours."""
    result = stored("peer_trl")
    if result is None:
        return "not measured yet"
    ours, theirs = result["algorist"]["median_s"], result["trl"]["median_s"]
    return (
        f"{ours:.2f} s against {theirs:.2f} s with TRL {result['trl_version']}: **{result['ratio']:.1f}x** "
        "([peer](benchmarks/results/peer_trl.json))"
    )


def table() -> str:
    """The rows between the two marks."""
    cases, golds, speed = verifier()
    faults, kills, gates, memory = qualification()
    rows = [
        ("main job, before → after RL, 128 held-out problems", "make bench-learning", learning("quickstart")),
        ("same model, few-shot prompt, no SFT", "make bench-smollm2", learning("smollm2_arithmetic")),
        ("small model from random weights", "make bench-nano", learning("nano_arithmetic")),
        ("verifier on hand-labelled cases", "make bench-verify", cases),
        ("golds of public data sets that verify against themselves", "make bench-verify", golds),
        ("verifier's speed next to math-verify, one process each", "make bench-verify", speed),
        ("deliberate faults caught and named before they train anything", "make bench-faults", faults),
        (
            "kills at named and random moments after which the resumed run is the same bit for bit",
            "make bench-kills",
            kills,
        ),
        ("what checking costs the main job", "make bench-gates", gates),
        ("predicted next to measured peak of memory", "make bench-memory", memory),
        (
            "one update of the main job next to TRL's GRPOTrainer, same start, problems and batch",
            "make bench-peer",
            peer(),
        ),
    ]
    lines = ["| what | measured by | result |", "|---|---|---|"]
    return "\n".join([START, *lines, *(f"| {a} | `{b}` | {c} |" for a, b, c in rows), END])


def main() -> int:
    """Write the table, or with --check exit 1 where README.md holds another one."""
    text = README.read_text(encoding="utf-8")
    first, last = text.index(START), text.index(END) + len(END)
    fresh = text[:first] + table() + text[last:]
    if "--check" in sys.argv:
        if fresh != text:
            print(
                "README.md: the results table differs from benchmarks/results. Run: python benchmarks/readme_results.py"
            )
            return 1
        return 0
    README.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
