"""Steps, their last tokens, and the exact arithmetic that they state."""

import gzip
import json
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.objective.steps import pad
from algorist.reward.steps import ArithmeticScorer, check_step, split, token_ends, value

SHARED = Path(os.environ.get("ALGORIST_SHARED", Path(__file__).resolve().parents[3] / "shared"))


@pytest.mark.parametrize(
    ("text", "judgements"),
    [
        ("16 - 3 - 4 = 9 eggs", ["true"]),
        ("9 * 2 = $18", ["true"]),
        ("She makes 9 * 2 = $<<9*2=18>>18 a day", ["true"]),
        ("48/2 = 24 = 6 * 4", ["true", "true"]),
        ("3 × 4 ÷ 2 − 1 = 5", ["true"]),
        (r"\frac{3}{4} + \frac{1}{4} = 1", ["true"]),
        (r"2 \times 3 = 6 \cdot 1", ["true"]),
        ("1,200 + 34 = 1,234", ["true"]),
        ("10 / 3 = 3.33", ["rounded"]),
        ("10 / 3 = 3.34", ["false"]),
        ("10 / 3 = 3", ["false"]),
        ("20% * 50 = 10", ["true"]),
        ("1/4 = 25%", ["true"]),
        ("5 * 3 = 16", ["false"]),
        ("- 3 + 4 = 7", ["true"]),
        ("-3 + 4 = 1", ["true"]),
        ("1. 3 + 4 = 7.", ["true"]),
        ("(so 3 + 4 = 7)", ["true"]),
        ("2(3 + 4) = 14", ["true"]),
        ("2^10 = 1024", ["true"]),
        ("5 x 4 = 20", ["true"]),
    ],
)
def test_stated_equations_are_judged_exactly(text: str, judgements: list[str]) -> None:
    assert [claim.judgement for claim in check_step(text)] == judgements


@pytest.mark.parametrize(
    "text",
    [
        "x + 3 = 7",
        "2x + 3 = 11",
        "f(3) = 12",
        "log 8 = 3",
        "half of 10 + 2 = 7",
        "3 + 4 = 7 + x",
        "200 = (5/4)x",
        "12 cm * 3 = 36",
        "12 * 1 and 1/4 = 15",
        "4 / 3 = 1 and 1/3",
        "the sun sets at 6:00 + 48 = 6:48",
        "1 / 2 = 50 cents",
        "5 + 20% = 6",
        "2 3/4 = 5",
        "the total is 7",
        "17 = 17",
        "5! = 120",
        "3 + = 4",
        "1 / 0 = 5",
        "9**9**9**9 = 1",
        "2^99999 = 1",
    ],
)
def test_what_cannot_be_read_exactly_is_not_judged(text: str) -> None:
    assert check_step(text) == ()


@given(a=st.integers(-999, 999), b=st.integers(1, 999), op=st.sampled_from("+-*/"))
@settings(max_examples=100, deadline=None)
def test_a_true_equation_holds_and_a_changed_one_does_not(a: int, b: int, op: str) -> None:
    exact = {"+": Fraction(a + b), "-": Fraction(a - b), "*": Fraction(a * b), "/": Fraction(a, b)}[op]
    right = f"{exact.numerator}/{exact.denominator}" if exact.denominator > 1 else str(exact)
    wrong = f"{exact.numerator + exact.denominator}/{exact.denominator}"
    assert [c.judgement for c in check_step(f"so {a} {op} {b} = {right}")] == ["true"]
    assert [c.judgement for c in check_step(f"so {a} {op} {b} = {wrong}")] == ["false"]


@given(text=st.text(alphabet="0123456789+-*/^()=%$., xyz\n\\{}frac", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_without_an_error(text: str) -> None:
    check_step(text)
    value(text)
    steps = split(text)
    assert [text[step.start : step.end] for step in steps] == [step.text for step in steps]
    assert "".join(text.split()) == "".join("".join(step.text.split()) for step in steps)


@pytest.mark.parametrize(
    "text",
    ["(" * 50_000 + "=1", "1+" * 50_000 + "1=2", "=" * 100_000, "9" * 100_000 + "+1=2", ". " * 50_000, "1 " * 50_000],
)
def test_long_hostile_text_is_read_in_linear_work(text: str) -> None:
    split(text)  # a quadratic path would take minutes here
    assert check_step(text) == ()


@given(pieces=st.lists(st.sampled_from(["a", " b", "c.", "\n", "\n\n", " 1", "= 2", ""]), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_each_step_ends_in_the_token_that_holds_its_last_character(pieces: list[str]) -> None:
    text = "".join(pieces)
    steps = split(text)
    ends = token_ends(steps, pieces)
    assert len(ends) == len(steps)
    assert list(ends) == sorted(ends)
    for step, end in list(zip(steps, ends, strict=True))[:-1]:
        before = len("".join(pieces[:end]))
        assert before < step.end <= before + len(pieces[end])
    if steps:
        assert ends[-1] == len(pieces) - 1


def test_steps_without_an_equation_take_no_part_and_the_last_carries_the_answer() -> None:
    steps = ["Let us see.", "3 + 4 = 7", "7 * 2 = 15", "So 14."]
    assert ArithmeticScorer().score("", steps, True) == (None, 1.0, 0.0, 1.0)
    assert ArithmeticScorer().score("", steps, False) == (None, 1.0, 0.0, 0.0)
    assert ArithmeticScorer(unchecked=0.5).score("", steps, None) == (0.5, 1.0, 0.0, 0.5)
    assert ArithmeticScorer().score("", ["3 + 4 = 8"], True) == (0.0,)
    assert ArithmeticScorer().score("", [], True) == ()


def test_step_scores_reach_the_objective_as_tensors() -> None:
    ends, rewards = pad([(1, 4), ()], [(1.0, None), ()])
    assert ends.tolist() == [[1, 4], [-1, -1]]
    assert rewards[0, 0].item() == 1.0
    assert rewards.isnan().tolist() == [[False, True], [True, True]]


def test_fewer_than_three_in_a_thousand_equations_of_people_are_called_false() -> None:
    path = SHARED / "data" / "gsm8k" / "train.jsonl.gz"
    if not path.exists():
        pytest.skip(f"needs {path.name} of GSM8K under ALGORIST_SHARED")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        answers = [json.loads(line)["answer"] for line in file]
    found = Counter(claim.judgement for text in answers for step in split(text) for claim in check_step(step.text))
    assert found["true"] > 20_000
    assert found["false"] / sum(found.values()) < 0.003  # most of these are slips of the authors
