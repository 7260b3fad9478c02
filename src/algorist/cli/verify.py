"""`algorist verify`: check answers against golds, explain one verdict, audit a run, or fuzz the verifier."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorist.record.storage import failures_are_told

if TYPE_CHECKING:
    from algorist.flow import Verdict
    from algorist.verify.item import Item

_BATCH = 1024


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb; its function is in `func`."""
    parser = subparsers.add_parser(
        "verify",
        help="check answers against golds",
        description="Check answers against golds: FILE.jsonl with id, gold, response, optional kind, answer_format and "
        "truncated; or one pair with --gold and --response; or a run with --audit; or the word fuzz.",
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE.jsonl | fuzz", help="rows to check, or fuzz for the metamorphic test"
    )
    parser.add_argument(
        "--out", type=Path, metavar="OUT.jsonl", help="where the verdicts go, one a line (default: standard output)"
    )
    parser.add_argument("--gold", help="one gold")
    parser.add_argument("--response", help="one response; - reads standard input")
    parser.add_argument("--kind", default="auto", help="auto, number, expression, choice, blanks, list")
    parser.add_argument("--answer-format", default="auto", help="auto, boxed, hashes, first_line, last_number")
    parser.add_argument("--truncated", action="store_true", help="the response ended at its budget")
    parser.add_argument("--explain", action="store_true", help="say in words why")
    parser.add_argument(
        "--audit", type=Path, metavar="RUN", help="second opinion by math-verify on a sample of a run's rollouts"
    )
    parser.add_argument(
        "--sample", type=int, default=256, help="rollouts to audit, or samples a family to fuzz (default 256, 16)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--workers", type=int, default=1, help="proving processes (default 1)")
    parser.add_argument("--deadline", type=float, default=2.0, metavar="S", help="seconds for one proof (default 2)")
    parser.add_argument(
        "--memory", type=int, default=1024, metavar="MIB", help="address space of a worker (default 1024)"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on standard output, progress on standard error"
    )
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Do what the flags ask; the exit code is 0, or 4 where the fuzz found a failure. Raises InputError."""
    from algorist.errors import InputError

    _check(arguments)
    if arguments.audit is not None:
        return _audit(arguments)
    if arguments.file == "fuzz":
        return _fuzz(arguments)
    if arguments.gold is not None or arguments.response is not None:
        return _one(arguments)
    if arguments.file is None:
        raise InputError(
            "algorist verify needs FILE.jsonl, or --gold and --response, or --audit RUN, or fuzz: got none of them."
        )
    return _file(arguments)


def _check(arguments: argparse.Namespace) -> None:
    from algorist.errors import InputError
    from algorist.verify.gold import KINDS
    from algorist.verify.item import FORMATS

    for name, value, allowed in (
        ("--kind", arguments.kind, KINDS),
        ("--answer-format", arguments.answer_format, FORMATS),
    ):
        if value not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}: got {value!r}.")
    if arguments.workers < 1 or arguments.deadline <= 0 or arguments.memory < 256 or arguments.sample < 1:
        raise InputError(
            "--workers and --sample must be >= 1, --deadline > 0 and --memory >= 256: got "
            f"{arguments.workers}, {arguments.sample}, {arguments.deadline}, {arguments.memory}."
        )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _emit(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, sort_keys=True) + "\n")


def _one(arguments: argparse.Namespace) -> int:
    from algorist.errors import InputError
    from algorist.verify import check
    from algorist.verify.explain import explain

    if arguments.gold is None or arguments.response is None:
        raise InputError("--gold and --response go together: one is missing.")
    response = sys.stdin.read() if arguments.response == "-" else arguments.response
    verdict = check(
        arguments.gold,
        response,
        kind=arguments.kind,
        truncated=arguments.truncated,
        answer_format=arguments.answer_format,
    )
    words = explain(arguments.gold, verdict)
    if arguments.json:
        _emit({**_record("", verdict), "gold": arguments.gold, "explanation": words})
    elif arguments.explain:
        sys.stdout.write(words + "\n")
    else:
        sys.stdout.write(f"{verdict.verdict.value} ({verdict.reason})\n")
    return 0


def _record(name: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "id": name,
        "verdict": verdict.verdict.value,
        "reason": verdict.reason,
        "rule": verdict.rule,
        "method": verdict.method,
        "extracted": verdict.extracted,
        "raw_correct": verdict.raw_correct,
        "ms": round(verdict.ms, 3),
    }


def _rows(path: Path, unknown: Counter[str]) -> Iterator[tuple[str, Item]]:
    """(id, item) of every line. Raises InputError with file:line. Kinds that are not ours are read as auto, counted."""
    from algorist.errors import InputError
    from algorist.verify.gold import KINDS
    from algorist.verify.item import FORMATS, Item

    try:
        file = path.open(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). Give a JSON Lines file.") from error
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(f"{where}: a line must be one JSON object: {error}.") from error
            if not isinstance(row, dict):
                raise InputError(f"{where}: a line must be one JSON object: got {type(row).__name__}.")
            missing = [field for field in ("id", "gold", "response") if row.get(field) is None]
            if missing:
                got = ", ".join(map(str, row)) or "none"
                raise InputError(
                    f"{where}: a row needs id, gold and response: missing {', '.join(missing)}; fields here: {got}. Add them."
                )
            for field in ("id", "gold", "response"):
                if not isinstance(row.get(field), str | int):
                    raise InputError(f"{where}: field {field!r} must be text: got {row.get(field)!r}.")
            kind, shape = row.get("kind", "auto"), row.get("answer_format", "auto")
            if kind not in KINDS:
                unknown[str(kind)] += 1
            if shape not in FORMATS:
                raise InputError(f"{where}: answer_format must be one of {', '.join(FORMATS)}: got {shape!r}.")
            yield (
                str(row["id"]),
                Item(
                    gold=str(row["gold"]),
                    response=str(row["response"]),
                    kind=kind if kind in KINDS else "auto",
                    truncated=bool(row.get("truncated", False)),
                    answer_format=shape,
                ),
            )


def _file(arguments: argparse.Namespace) -> int:
    if arguments.out is None:
        return _check_file(arguments)
    with failures_are_told(arguments.out):
        return _check_file(arguments)


def _check_file(arguments: argparse.Namespace) -> int:
    from algorist.verify.pool import VerifierPool

    began = time.perf_counter()
    out: Path | None = arguments.out
    partial = out.with_name(out.name + ".partial") if out else None
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    records: list[dict[str, Any]] = []
    target = partial.open("w", encoding="utf-8") if partial else None
    try:
        with VerifierPool(arguments.workers, arguments.deadline, arguments.memory) as pool:
            for batch in _batches(_rows(Path(arguments.file), unknown)):
                verdicts = pool.check_many([item for _, item in batch])
                for (name, _), verdict in zip(batch, verdicts, strict=True):
                    record = _record(name, verdict)
                    counts[record["verdict"]] += 1
                    reasons[f"{record['verdict']}: {record['reason']}"] += 1
                    if target:
                        target.write(json.dumps(record, ensure_ascii=False) + "\n")
                    elif arguments.json:
                        records.append(record)
                    else:
                        _emit(record)
                _say(f"{sum(counts.values())} rows")
            proofs = pool.num_proofs
        if target and partial and out:
            target.flush()
            os.fsync(target.fileno())
            target.close()
            partial.replace(out)
    finally:
        if target and partial:
            with contextlib.suppress(OSError):  # a full disk, told already
                target.close()
            partial.unlink(missing_ok=True)
    summary = {
        "rows": sum(counts.values()),
        "verdicts": dict(counts),
        "reasons": dict(reasons),
        "kinds_read_as_auto": dict(unknown),
        "proofs": proofs,
        "seconds": round(time.perf_counter() - began, 3),
        "out": str(out) if out else None,
    }
    if unknown:
        names = ", ".join(sorted(unknown))
        _say(f"{sum(unknown.values())} rows name a kind that is not ours and were read as auto: {names}")
    if arguments.json:
        _emit({**summary, **({} if out else {"records": records})})
    else:
        _say("\n".join(f"{count:7d}  {reason}" for reason, count in reasons.most_common()))
    return 0


def _batches(rows: Iterator[tuple[str, Item]]) -> Iterator[list[tuple[str, Item]]]:
    batch: list[tuple[str, Item]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _audit(arguments: argparse.Namespace) -> int:
    from algorist.verify import audit

    rows = audit.load(arguments.audit)
    result = audit.run(rows, arguments.sample, arguments.seed)
    table = [
        {"verdict": verdict, "second": second, "rows": count}
        for (verdict, second), count in sorted(result.table.items())
    ]
    rows_out = [
        {"problem_id": d.row.problem_id, "sample": d.row.sample, "gold": d.row.gold, "extracted": d.row.extracted,
         "verdict": d.row.verdict, "reason": d.row.reason, "second": "correct" if d.second else "not correct"}
        for d in result.disagreements
    ]  # fmt: skip
    if arguments.json:
        _emit(
            {
                "rows": result.rows,
                "sampled": result.sampled,
                "agreement": result.agreement,
                "table": table,
                "disagreements": rows_out,
            }
        )
        return 0
    lines = [
        f"{result.sampled} of {result.rows} rollouts; both sides agree on {100 * result.agreement:.2f} %",
        "",
        "verdict      math-verify  rows",
    ]
    lines += [f"{row['verdict']:12s} {row['second']:11s} {row['rows']:5d}" for row in table]
    lines += ["", f"{len(rows_out)} disagreements"]
    lines += [
        f"  {r['problem_id']}/{r['sample']}  gold {r['gold']!r}  answer {r['extracted']!r}  "
        f"{r['verdict']} ({r['reason']}), math-verify: {r['second']}"
        for r in rows_out
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _fuzz(arguments: argparse.Namespace) -> int:
    from algorist.verify import fuzz
    from algorist.verify.pool import VerifierPool

    count = 16 if arguments.sample == 256 else arguments.sample
    with VerifierPool(arguments.workers, arguments.deadline, arguments.memory) as pool:
        counts, failures = fuzz.run(pool, fuzz.samples(arguments.seed, count))
    failed = Counter(failure.family for failure in failures)
    rows = [{"family": name, "pairs": pairs, "failures": failed[name]} for name, pairs in counts.items()]
    shown = [
        {
            "family": f.family,
            "claim": f.claim,
            "gold": f.gold,
            "answer": f.answer,
            "verdict": f.verdict,
            "reason": f.reason,
        }
        for f in failures
    ]
    if arguments.json:
        _emit({"pairs": sum(counts.values()), "failures": shown, "families": rows, "seed": arguments.seed})
    else:
        lines = ["family        pairs  failures"]
        lines += [f"{row['family']:12s} {row['pairs']:6d} {row['failures']:9d}" for row in rows]
        lines += [
            f"  {f['claim']}: gold {f['gold']!r}, answer {f['answer']!r} -> {f['verdict']} ({f['reason']})"
            for f in shown[:40]
        ]
        sys.stdout.write("\n".join(lines) + "\n")
    return 4 if failures else 0


def main(argv: list[str] | None = None) -> int:
    """`python -m algorist.cli.verify ...`: the verb on its own."""
    from algorist.cli.common import guarded

    parser = argparse.ArgumentParser(prog="algorist")
    add_parser(parser.add_subparsers(dest="verb"))
    return guarded(parser.parse_args(["verify", *(sys.argv[1:] if argv is None else argv)]))


if __name__ == "__main__":
    sys.exit(main())
