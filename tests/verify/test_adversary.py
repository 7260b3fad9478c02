"""Attacks on the verifier: hand-judged answers of every kind, and properties that no input may break."""

import json
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.flow import Outcome
from algorist.verify import Item, check, choices, judge
from algorist.verify.judge import compare_texts
from algorist.verify.normalise import tidy
from algorist.verify.pool import VerifierPool
from algorist.verify.read import strip

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "cases_adversary.jsonl").read_text(encoding="utf-8").splitlines()
]


def accepted(case: dict[str, Any]) -> set[str]:
    match = re.search(r"also_ok=(\S+)", case["note"])
    return {case["expected"], *(match[1].split(",") if match else ())}


def test_every_hand_judged_answer_gets_its_verdict() -> None:
    with VerifierPool(deadline_s=5.0) as pool:
        verdicts = pool.check_many([Item(gold=c["gold"], response=c["response"]) for c in CASES])
    off = [
        (c["id"], c["gold"], c["response"][-80:], str(v.verdict), v.reason)
        for c, v in zip(CASES, verdicts, strict=True)
        if v.verdict not in accepted(c)
    ]
    assert not off, off


GOLDS = sorted({c["gold"] for c in CASES})


def test_verdicts_are_symmetric_on_pairs_of_answers() -> None:
    rng = random.Random(5)
    texts = [gold for gold in GOLDS if choices.of_gold(gold) is None]
    for _ in range(1500):
        a, b = rng.choice(texts), rng.choice(texts)
        assert compare_texts(a, b).state == compare_texts(b, a).state, (a, b)


def test_normaliser_is_idempotent_on_real_answers() -> None:
    for gold in GOLDS:
        assert tidy(tidy(gold)) == tidy(gold)
        assert strip(strip(gold)) == strip(gold)


PIECES = (
    r"1 2 23 x e i \frac \sqrt { } ( ) [ ] ^ _ , ; \{ \} \text{ = < \le | \pm - + / \cdot . % \% ^\circ cm 米 小时 分 万 又 "
    r"和 or \infty \cup ! \! to base C_ P( \overline \ldots \begin{pmatrix} \end{pmatrix} & \\ ° $ \mathrm{m} \boxed{ T ' "
    r"到 € **"
)
GARBAGE = st.lists(st.sampled_from(PIECES.split()), max_size=9).map("".join)


@given(GARBAGE, GARBAGE)
@settings(max_examples=400, deadline=None)
def test_no_text_breaks_comparison_symmetry_or_the_normaliser(a: str, b: str) -> None:
    assert tidy(tidy(a)) == tidy(a)
    if choices.of_gold(a) is None and choices.of_gold(b) is None:
        assert compare_texts(a, b).state == compare_texts(b, a).state


@given(GARBAGE)
@settings(max_examples=200, deadline=None)
def test_garbage_is_never_paid_against_a_number_it_does_not_hold(text: str) -> None:
    assert judge.cheap(Item(gold="987654321", response=rf"\boxed{{{text}}}")) is not None
    row = judge.cheap(Item(gold="987654321", response=f"The answer is {text}"))
    assert not (isinstance(row, judge.Verdict) and row.verdict is Outcome.CORRECT)


@pytest.mark.parametrize(
    "response",
    [
        "word " * 200_000 + "The answer is 5.",
        "\\boxed{" * 150_000,
        "{" * 1_000_000,
        "}" * 1_000_000,
        "\\boxed{1}" * 110_000,
        '{"answer":' * 100_000,
        "the answer is " * 70_000,
        "The answer is 5, i.e. " * 45_000,
        "答案" * 300_000,
        "<|" * 300_000 + "|>",
        "</s>" * 250_000,
        "*" * 1_000_000,
        " " * 1_000_000 + "answer is" + " " * 1_000_000 + "5",
    ],
    ids=lambda text: f"{text[:12]!r}",
)
def test_a_megabyte_of_anything_ends_within_the_deadline(response: str) -> None:
    began = time.perf_counter()
    judge.cheap(Item(gold="5", response=response))
    assert time.perf_counter() - began < 2.5  # the deadline of a row and half a second


def test_threads_a_pool_and_single_calls_agree() -> None:
    sample = CASES[:: len(CASES) // 60]
    items = [Item(gold=c["gold"], response=c["response"]) for c in sample]
    alone = [check(c["gold"], c["response"]).verdict for c in sample]
    with VerifierPool(deadline_s=5.0) as pool, ThreadPoolExecutor(4) as threads:
        assert [v.verdict for v in pool.check_many(items)] == alone
        assert [v.verdict for v in threads.map(pool.check, items)] == alone


def test_import_of_the_room_loads_no_heavy_library() -> None:
    code = "import sys, algorist.verify; print([m for m in ('sympy', 'torch', 'transformers') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "template",
    [
        "__import__('pathlib').Path('{path}').touch() or 5",
        "open('{path}', 'w').write('5') * 0 + 5",
        "exec(\"open('{path}', 'w')\")",
        "(lambda: open('{path}','w') and 5)()",
        "[c for c in ().__class__.__base__.__subclasses__()][0]('{path}')",
        r"\immediate\write18{{touch {path}}} 5",
        r"\input{{|touch {path}}} 5",
        "5; import os; os.system('touch {path}')",
        "Symbol('x').subs(open('{path}','w'))",
    ],
)
def test_no_answer_runs_code(template: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    answer = template.format(path=marker)
    for response in (rf"\boxed{{{answer}}}", f"Answer: {answer}", f"#### {answer}", f"<answer>{answer}</answer>"):
        for gold in ("5", r"\sqrt{x^2+1}", answer):
            verdict = check(gold, response)
            assert gold == answer or verdict.verdict is not Outcome.CORRECT
    assert not marker.exists()


@pytest.mark.parametrize(
    ("gold", "answer", "state"),
    [
        (r"2-\frac{1}{e}", r"\frac{2e-1}{e}", "equal"),  # e-notation beside Euler's number
        ("2e-3", "0.002", "equal"),
        ("5", r"x\!=\!5", "equal"),  # spacing commands around the equals sign are no inequality
        ("1", r"\frac{\infty}{\infty}", "unsure"),
        (r"(3,\infty)", r"(3,\infty]", "different"),
        ("3", "3小时20分", "different"),
        (r"3\text{ hours }20\text{ minutes}", r"200\text{ minutes}", "equal"),
        ("48", "48到50", "unsure"),
        ("(7,5)", "y=7,x=5", "different"),
        ("(5,7)", "y=7,x=5", "equal"),
        ("1,1,2,3", "1,3,2,3", "different"),
        ("|x|+|y|", "|x+y|", "different"),
        (r"6\text{ square units}", r"6\text{ cubic units}", "different"),
        (r"-40^\circ\text{C}", "-40", "equal"),
        (r"25^\circ\text{C}", r"25^\circ\text{F}", "different"),
        ("7m^3n", "7nm^3", "equal"),
        ("MC=MR", "MR=MC", "equal"),
        (r"\{x\mid x>1\}", r"\{t\mid t>1\}", "equal"),
        ("x>1", "t>1", "different"),
        ("(-\\infty,-2)\\cup(4,\\infty)", "x<-2, x>4", "equal"),
        ("(-2,4)", "x>-2, x<4", "equal"),
        ("0", "0.(3)", "different"),
        (r"\frac{1}{3}", r"0.333\ldots", "unsure"),
        ("A", "a triangle", "different"),
    ],
)
def test_faults_found_by_attack_stay_mended(gold: str, answer: str, state: str) -> None:
    assert compare_texts(gold, answer, "expression").state == state
