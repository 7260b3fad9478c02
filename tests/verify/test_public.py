"""Against the public case file and data sets; skipped where they are not beside the repository."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from algorist.flow import Outcome
from algorist.verify import Item, judge
from algorist.verify.pool import VerifierPool

SHARED = Path(os.environ.get("ALGORIST_SHARED", Path(__file__).resolve().parents[3] / "shared"))
CASES, DATA = SHARED / "cases" / "verify_public.jsonl", SHARED / "data"

needs_cases = pytest.mark.skipif(not CASES.exists(), reason="the public cases are not beside the repository")
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the public data sets are not beside the repository")


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def accepted(case: dict[str, Any]) -> set[str]:
    match = re.search(r"also_ok=(\S+)", case.get("note", ""))
    return {case["expected"], *(re.split(r"[,|/]", match[1].strip(".;)")) if match else ())}


@needs_cases
def test_public_cases_meet_the_bars() -> None:
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    with VerifierPool(deadline_s=2.0) as pool:
        verdicts = pool.check_many([Item(gold=c["gold"], response=c["response"]) for c in cases])
    right = [v.verdict in accepted(c) for c, v in zip(cases, verdicts, strict=True)]
    paid = [
        c["id"]
        for c, v in zip(cases, verdicts, strict=True)
        if v.verdict is Outcome.CORRECT and "correct" not in accepted(c)
    ]
    refused = [
        c["id"]
        for c, v, ok in zip(cases, verdicts, right, strict=True)
        if not ok and v.verdict is not Outcome.CORRECT and "correct" in accepted(c)
    ]
    assert sum(right) / len(right) >= 0.98
    assert len(paid) <= 2, paid
    assert len(refused) <= 5, refused
    assert max(v.ms for v in verdicts) < 2500


@needs_data
def test_verdicts_on_model_solutions_agree_with_their_labels() -> None:
    disagreements = []
    for row in rows(DATA / "gsm8k" / "example_model_solutions.jsonl.gz")[:400]:
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for name, found in row.items():
            if isinstance(found, dict):
                verdict = judge.cheap(Item(gold=gold, response=found["solution"], kind="number"))
                assert not isinstance(verdict, judge.Pending)
                if (verdict.verdict is Outcome.CORRECT) != found["is_correct"]:
                    disagreements.append((name, gold, verdict.extracted))
    assert disagreements == []


@needs_data
@pytest.mark.parametrize(
    ("file", "field", "least"),
    [
        ("math/math500.jsonl.gz", "answer", 1.0),
        ("deepseek_math_eval/cmath_test.jsonl.gz", "golden", 1.0),
        ("deepseek_math_eval/agieval_gaokao-mathcloze.jsonl.gz", "answer", 1.0),
        ("deepseek_math_eval/ocw_test.jsonl.gz", "answer", 0.99),
        ("deepmath_sample/train_4994.jsonl.gz", "ground_truth", 0.995),
        ("college_math/carp_en.jsonl.gz", "answer", 1.0),
    ],
)
def test_golds_are_read_and_verify_against_themselves(file: str, field: str, least: float) -> None:
    golds = [str(row[field]) for row in rows(DATA / file)]
    unsupported = [gold for gold in golds if judge.gold_against_itself(gold, "auto").state != "equal"]
    assert len(unsupported) <= (1 - least) * len(golds) + 1e-9, unsupported
