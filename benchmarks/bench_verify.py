"""What the verifier is worth, in tables: `python benchmarks/bench_verify.py COMMAND`.

    cases       accuracy per kind on the public case file, next to math-verify
    golds       every gold of the data sets against itself; what is unsupported, with the reason
    solutions   GSM8K model solutions with labels: every disagreement
    hostile     rows made to hang: slowest row, and a batch of 512 with and without 16 that reach the deadline
    speed       one process each, same rows: ratio to math-verify on GSM8K-like and MATH-like rows
    pool        proofs per second against workers; cheap rows per second
    group       a group of 64 with 6 distinct answers against 6 rows
    all         everything

Results go to benchmarks/results/verify_COMMAND.json. The data folder is ALGORIST_SHARED, or `shared` beside the
repository.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from algorist.flow import Outcome
from algorist.verify import Item, canary, judge, version
from algorist.verify.extract import boxes
from algorist.verify.gold import olympiadbench
from algorist.verify.pool import VerifierPool
from algorist.verify.second import SecondOpinion

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("ALGORIST_SHARED", ROOT.parent / "shared"))
RESULTS = ROOT / "benchmarks" / "results"


def save(name: str, result: dict[str, Any]) -> None:
    """Write one result file with what it was measured on."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    where = {"python": platform.python_version(), "cores": os.cpu_count(), "verifier": version()[:16]}
    path = RESULTS / f"verify_{name}.json"
    path.write_text(
        json.dumps({**result, "measured_with": where}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(f"-> {path.relative_to(ROOT)}")


def load(name: str) -> list[Any]:
    """Rows of a compressed data file: JSON lines, one JSON array, or tab-separated text."""
    with gzip.open(SHARED / "data" / name, "rt", encoding="utf-8") as file:
        text = file.read()
    if name.endswith(".tsv.gz"):
        return [line.split("\t") for line in text.splitlines()]
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    return [json.loads(line) for line in text.splitlines()]


# cases


def accepted(case: dict[str, Any]) -> set[str]:
    """The verdicts a case allows."""
    match = re.search(r"also_ok=(\S+)", case.get("note", ""))
    return {case["expected"], *(re.split(r"[,|/]", match[1].strip(".;)")) if match else ())}


def bench_cases() -> None:
    """Accuracy, wrongly paid and wrongly refused rows per kind; math-verify says paid or not paid only."""
    path = SHARED / "cases" / "verify_public.jsonl"
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with VerifierPool() as pool:
        ours = [v.verdict.value for v in pool.check_many([Item(gold=c["gold"], response=c["response"]) for c in cases])]
    with SecondOpinion() as second:
        theirs = list(second.ask((c["gold"], c["response"]) for c in cases))
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for case, mine, other in zip(cases, ours, theirs, strict=True):
        row, allowed = table[case["kind"]], accepted(case)
        row["rows"] += 1
        row["ours"] += mine in allowed
        row["ours_paid_wrongly"] += mine == "correct" and "correct" not in allowed
        row["ours_refused_wrongly"] += mine not in allowed and mine != "correct" and "correct" in allowed
        can_pay, can_refuse = "correct" in allowed, bool(allowed - {"correct"})
        row["math_verify"] += can_pay if other else can_refuse
        row["math_verify_paid_wrongly"] += bool(other) and not can_pay
        row["math_verify_refused_wrongly"] += not other and not can_refuse
    total: Counter[str] = Counter()
    for row in table.values():
        total.update(row)
    print(f"{'kind':22s} rows   ours  paid!  refused!   math-verify  paid!  refused!")
    for kind, row in [*sorted(table.items()), ("all", total)]:
        print(
            f"{kind:22s} {row['rows']:4d}  {row['ours'] / row['rows']:.3f}  {row['ours_paid_wrongly']:5d}  "
            f"{row['ours_refused_wrongly']:8d}   {row['math_verify'] / row['rows']:11.3f}  "
            f"{row['math_verify_paid_wrongly']:5d}  {row['math_verify_refused_wrongly']:8d}"
        )
    save("cases", {"kinds": {k: dict(v) for k, v in sorted(table.items())}, "all": dict(total)})


# golds

Adapter = Callable[[Any], tuple[str, str]]


def _field(name: str, kind: str = "auto") -> Adapter:
    return lambda row: (str(row[name]), kind)


def _gsm8k(row: Any) -> tuple[str, str]:
    return row["answer"].rpartition("####")[2].strip(), "number"


def _olympiad(row: Any) -> tuple[str, str]:
    answers = row["final_answer"] if isinstance(row["final_answer"], list) else ast.literal_eval(row["final_answer"])
    gold = olympiadbench(answers, unit=row["unit"], error=row["error"], multiple=len(answers) > 1)
    return gold.text, gold.kind


def _math(row: Any) -> tuple[str, str]:
    return boxes(row["solution"])[0][-1].text, "auto"


_DEEPSEEK = "deepseek_math_eval/"
SETS: dict[str, tuple[str, Adapter]] = {
    "GSM8K test": ("gsm8k/test.jsonl.gz", _gsm8k),
    "GSM8K train": ("gsm8k/train.jsonl.gz", _gsm8k),
    "MATH test": ("math/test.jsonl.gz", _math),
    "MATH-500": ("math/math500.jsonl.gz", _field("answer")),
    "MATH train answers": ("math/train_answers.json.gz", _field("answer")),
    "CMATH": (_DEEPSEEK + "cmath_test.jsonl.gz", _field("golden")),
    **{
        f"MGSM {code}": (f"mgsm/mgsm_{code}.tsv.gz", lambda row: (row[1], "number"))
        for code in ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")
    },
    "OCW": (_DEEPSEEK + "ocw_test.jsonl.gz", _field("answer")),
    "SAT": (_DEEPSEEK + "sat_test.jsonl.gz", _field("Answer", "choice")),
    "Gaokao cloze": (_DEEPSEEK + "agieval_gaokao-mathcloze.jsonl.gz", _field("answer")),
    "Gaokao QA": (_DEEPSEEK + "agieval_gaokao-mathqa.jsonl.gz", _field("label", "choice")),
    "MMLU-STEM": (_DEEPSEEK + "mmlu_stem_test.jsonl.gz", _field("answer", "choice")),
    "AGIEval SAT": ("agieval_math/sat-math.jsonl.gz", _field("label", "choice")),
    "AQuA test": ("aqua/test.json.gz", _field("correct", "choice")),
    "AQuA dev": ("aqua/dev.json.gz", _field("correct", "choice")),
    "TAL-SCQ5K en": ("tal_scq5k/en_test_2K.jsonl.gz", _field("answer_value", "choice")),
    "OlympiadBench": ("olympiadbench/test.jsonl.gz", _olympiad),
    "AIME 1983-2023": ("aime/aime_train.json.gz", _field("answer")),
    "AIME 2024": ("aime/aime24.jsonl.gz", _field("answer")),
    "DeepMath sample": ("deepmath_sample/train_4994.jsonl.gz", _field("ground_truth")),
    "CollegeMath": ("college_math/college_math.jsonl.gz", _field("answer")),
    "CARP": ("college_math/carp_en.jsonl.gz", _field("answer")),
    "Gaokao 2023 en": ("college_math/gaokao2023en.jsonl.gz", _field("answer")),
    "CN middle school": ("college_math/cn_middle_school.jsonl.gz", _field("answer")),
    "GSM-Hard": ("gsm_hard/test.jsonl.gz", _field("target")),
    "MAWPS": ("mawps/test.jsonl.gz", _field("target")),
}


def bench_golds() -> None:
    """supported: the gold is read as mathematics, a choice or words, and a response that boxes it is paid."""
    totals: Counter[str] = Counter()
    result = {}
    listed: list[dict[str, str]] = []
    print(f"{'set':20s}  rows  supported      %   unsupported by reason")
    for name, (file, adapter) in SETS.items():
        reasons: Counter[str] = Counter()
        rows = load(file)
        for number, row in enumerate(rows):
            gold, kind = adapter(row)
            finding = judge.gold_against_itself(gold, kind)
            reason = "" if finding.state == "equal" else finding.reason
            if not reason:
                verdict = judge.cheap(Item(gold=gold, response=f"\\boxed{{{gold}}}", kind=kind))
                if isinstance(verdict, judge.Pending) or verdict.verdict is not Outcome.CORRECT:
                    reason = f"not paid: {'proof' if isinstance(verdict, judge.Pending) else verdict.reason}"
            if reason:
                reasons[reason] += 1
                listed.append({"set": name, "row": str(number), "reason": reason, "gold": gold})
        supported = len(rows) - sum(reasons.values())
        totals["rows"] += len(rows)
        totals["supported"] += supported
        result[name] = {"rows": len(rows), "supported": supported, "unsupported": dict(reasons)}
        print(f"{name:20s} {len(rows):5d}  {supported:9d}  {100 * supported / len(rows):6.2f}  {dict(reasons) or ''}")
    share = totals["supported"] / totals["rows"]
    print(f"{'all':20s} {totals['rows']:5d}  {totals['supported']:9d}  {100 * share:6.2f}")
    save(
        "golds", {"sets": result, "rows": totals["rows"], "supported": totals["supported"], "unsupported_rows": listed}
    )


# solutions


def bench_solutions() -> None:
    """5,276 labelled model solutions."""
    table: Counter[str] = Counter()
    disagreements = []
    for row in load("gsm8k/example_model_solutions.jsonl.gz"):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model, found in row.items():
            if not isinstance(found, dict):
                continue
            verdict = judge.cheap(Item(gold=gold, response=found["solution"], kind="number"))
            assert not isinstance(verdict, judge.Pending), "numbers need no proof"
            label = "right" if found["is_correct"] else "wrong"
            table[f"label {label}: {verdict.verdict.value} ({verdict.reason})"] += 1
            if (verdict.verdict is Outcome.CORRECT) != found["is_correct"]:
                disagreements.append({"model": model, "gold": gold, "answer": verdict.extracted, "label": label,
                                      "verdict": verdict.verdict.value, "end": found["solution"][-200:]})  # fmt: skip
    for line, count in sorted(table.items()):
        print(f"{count:6d}  {line}")
    print(f"{sum(table.values())} solutions, {len(disagreements)} disagreements")
    for row in disagreements:
        print("  ", row)
    save("solutions", {"table": dict(table), "solutions": sum(table.values()), "disagreements": disagreements})


# hostile


def bench_hostile(workers: int = 2, deadline_s: float = 2.0) -> None:
    """The slowest hostile row, then the batch of 512."""
    public = SHARED / "cases" / "verify_public.jsonl"
    rows = canary.hostile()
    if public.exists():
        cases = map(json.loads, public.read_text(encoding="utf-8").splitlines())
        rows += [
            Item(gold=c["gold"], response=c["response"]) for c in cases if c["kind"] in ("dos_bounds", "injection_code")
        ]
    slowest, verdicts = 0.0, Counter[str]()
    with VerifierPool(workers=1, deadline_s=deadline_s) as pool:
        pool.warm()
        for item in rows:
            began = time.perf_counter()
            verdict = pool.check(item)
            slowest = max(slowest, time.perf_counter() - began)
            verdicts[verdict.verdict.value] += 1
    print(
        f"{len(rows)} hostile rows: slowest {slowest * 1e3:.0f} ms (bound {1e3 * (deadline_s + 0.5):.0f} ms), {dict(verdicts)}"
    )
    golds = [str(row["answer"]) for row in load("math/math500.jsonl.gz")][:496]
    plain = [
        Item(gold=a, response=f"We get \\boxed{{{b}}}.") for a, b in zip(golds, golds[::2] + golds[1::2], strict=True)
    ]
    plain += [proof_row(k) for k in range(16)]
    mixed = plain[:496] + canary.hard(20)[4:]
    seconds = {}
    for name, batch in (("without", plain), ("with", mixed)):
        with VerifierPool(workers=workers, deadline_s=deadline_s) as pool:
            pool.warm()
            began = time.perf_counter()
            found = pool.check_many(batch)
            seconds[name] = time.perf_counter() - began
            errors = Counter(v.reason for v in found if v.verdict is Outcome.ERROR)
    bound = 1.5 * seconds["without"] + -(-16 // workers) * deadline_s
    print(
        f"batch of 512, {workers} workers: {seconds['without']:.2f} s without, {seconds['with']:.2f} s with 16 hostile rows "
        f"(bound {bound:.2f} s; {dict(errors)})"
    )
    save("hostile", {"rows": len(rows), "slowest_s": slowest, "verdicts": dict(verdicts), "batch_seconds": seconds,
    "bound_s": bound,
                     "errors": dict(errors), "workers": workers, "deadline_s": deadline_s})  # fmt: skip


def proof_row(k: int) -> Item:
    """A right row that needs a worker for some milliseconds, a difference of arctangents; each k another one."""
    n = k + 2
    gold = rf"\arctan\frac{{1}}{{{n}}}-\arctan\frac{{1}}{{{n + 1}}}"
    return Item(gold=gold, response=rf"\boxed{{\arctan\frac{{1}}{{{n * n + n + 1}}}}}")


# speed


def pairs(name: str) -> list[tuple[str, str]]:
    """Half right, half wrong rows with a worked text around the answer."""
    if name == "gsm8k-like":
        golds = [_gsm8k(row)[0] for row in load("gsm8k/test.jsonl.gz")]
    else:
        golds = [str(row["answer"]) for row in load("math/math500.jsonl.gz")]
    text = "We set up the relation from the statement and solve it step by step.\nTherefore the final answer is $\\boxed{%s}$."
    answers = [gold if k % 2 else golds[k - 1] for k, gold in enumerate(golds)]
    return [(gold, text % answer) for gold, answer in zip(golds, answers, strict=True)]


def one_process(side: str, file: Path) -> None:
    """Child: judge the rows of a file and print seconds; imports and one warm row are not counted."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    if side == "ours":
        with VerifierPool() as pool:
            pool.warm()
            began, cpu = time.perf_counter(), time.process_time()
            found = [v.verdict.value == "correct" for v in pool.check_many([Item(gold=g, response=r) for g, r in rows])]
    else:
        from algorist.verify.second import opinion, warm

        warm()
        began, cpu = time.perf_counter(), time.process_time()
        found = [opinion({"gold": g, "response": r})["correct"] for g, r in rows]
    print(json.dumps({"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu, "paid": sum(found)}))


def bench_speed() -> None:
    """Wall time of one fresh process for each side on the same rows."""
    result = {}
    print(f"{'rows':12s} count    ours rows/s   math-verify rows/s   ratio   paid ours / math-verify")
    for name in ("gsm8k-like", "math-like"):
        rows = pairs(name)
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.json"
            file.write_text(json.dumps(rows), encoding="utf-8")
            for side in ("ours", "math_verify"):
                done = subprocess.run(
                    [sys.executable, __file__, "_child", side, str(file)], capture_output=True, text=True, check=True
                )
                found[side] = json.loads(done.stdout)
        ratio = found["math_verify"]["wall_s"] / found["ours"]["wall_s"]
        print(
            f"{name:12s} {len(rows):5d}  {len(rows) / found['ours']['wall_s']:13.0f}   {len(rows) / found['math_verify']['wall_s']:18.0f}"
            f"   {ratio:5.1f}   {found['ours']['paid']} / {found['math_verify']['paid']}"
        )
        result[name] = {"rows": len(rows), **found, "ratio": ratio}
    save("speed", result)


# pool and group


def bench_pool() -> None:
    """Proofs per second for one and for all cores; cheap rows per second in the caller."""
    result: dict[str, Any] = {}
    count = 48
    for workers in sorted({1, 2, os.cpu_count() or 1}):
        with VerifierPool(workers=workers) as pool:
            pool.warm()
            began = time.perf_counter()
            verdicts = pool.check_many([proof_row(k) for k in range(count)])
            rate = count / (time.perf_counter() - began)
        right = sum(v.verdict is Outcome.CORRECT for v in verdicts)
        result[f"proofs_per_s_{workers}_workers"] = rate
        print(f"{workers} workers: {rate:.1f} proofs/s ({right}/{count} proved)")
    rows = [Item(gold=g, response=r) for g, r in pairs("gsm8k-like")]
    with VerifierPool() as pool:
        began = time.perf_counter()
        pool.check_many(rows)
        result["cheap_rows_per_s"] = len(rows) / (time.perf_counter() - began)
    print(f"caller alone: {result['cheap_rows_per_s']:.0f} GSM8K-like rows/s")
    save("pool", result)


def bench_group() -> None:
    """64 responses to one problem with 6 distinct answers."""
    gold = r"\arctan\frac12+\arctan\frac13"
    forms = [
        r"\arctan\frac17+\arctan\frac34",
        r"2\arctan\frac12-\arctan\frac17+0",
        r"2\arctan\frac13+\arctan\frac17",
        r"\arctan 3-\arctan\frac12",
        r"\arctan 2-\arctan\frac13",
        r"\arctan 2-\arctan\frac14",
    ]
    items = [Item(gold=gold, response=f"It is \\boxed{{{forms[k % 6]}}}.") for k in range(64)]
    seconds: dict[int, list[float]] = {6: [], 64: []}
    proofs: dict[int, int] = {}
    for _ in range(5):
        for size in (6, 64):
            with VerifierPool() as pool:
                pool.warm()
                judge.clear_caches()
                began = time.perf_counter()
                pool.check_many(items[:size])
                seconds[size].append(time.perf_counter() - began)
                proofs[size] = pool.num_proofs
    few, many = (sorted(seconds[size])[2] for size in (6, 64))
    print(
        f"6 rows {few * 1e3:.0f} ms ({proofs[6]} proofs), 64 rows {many * 1e3:.0f} ms ({proofs[64]} proofs), medians of 5"
    )
    print(f"a group of 64 with 6 distinct answers costs {6 * many / few:.1f} rows")
    save("group", {"seconds_6": seconds[6], "seconds_64": seconds[64], "proofs_6": proofs[6], "proofs_64": proofs[64]})


COMMANDS: dict[str, Callable[[], None]] = {
    "cases": bench_cases, "golds": bench_golds, "solutions": bench_solutions, "hostile": bench_hostile,
    "speed": bench_speed,
    "pool": bench_pool, "group": bench_group,
}  # fmt: skip


def chosen(command: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The commands to run."""
    for name, function in COMMANDS.items():
        if command in (name, "all"):
            yield name, function


def main(argv: list[str]) -> int:
    """Run one command or all of them."""
    if argv[:1] == ["_child"]:
        one_process(argv[1], Path(argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=[*COMMANDS, "all"])
    if not SHARED.exists():
        print(f"{SHARED}: the data folder is not there. Set ALGORIST_SHARED.", file=sys.stderr)
        return 2
    for name, function in chosen(parser.parse_args(argv).command):
        print(f"\n## {name}\n")
        function()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
