"""Where the final answer is found, and when there is none."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.verify import Item, check
from algorist.verify.extract import extract
from algorist.verify.item import FORMATS

FOUND = [
    (r"so \boxed{\frac{a^{2}}{b_{1}}} holds", "boxed", r"\frac{a^{2}}{b_{1}}"),
    (r"$\fbox{9}$.", "boxed", "9"), (r"$\boxed 12$", "boxed", "12"), ("#### 18", "hashes", "18"),
    ("#### Step 2: add\nthen\n#### 18", "hashes", "18"), ("The answer is 13.", "anchor", "13"),
    ("The answer is not 12. The answer is 13.", "anchor", "13"), ("Final Answer: The final answer is $4$. I hope it is correct.", "anchor", "$4$"),
    ("**Final answer:** `21`", "anchor", "21"), ("# Answer\n21", "anchor", "21"), ("Answer: C", "anchor", "C"), ("答案为36。", "anchor", "36"),
    ("所以答案是 D", "anchor", "D"), ("故选：C．", "anchor", "C"), ("正确答案是C", "anchor", "C"), ("<answer>8</answer>", "answer_tag", "8"),
    ('{"a": 1, "answer": "42"}', "json", "42"), ('```json\n{"final_answer": 41}\n```', "json", "41"), ("16-3=13\nA: 26", "anchor", "26"),
    ("<think>\\boxed{1}</think>\\boxed{2}<|im_end|>", "boxed", "2"), ("The primes are $\\boxed{3}$, $\\boxed{5}$, and $\\boxed{7}$.", "boxed", "3, 5, 7"),
]  # fmt: skip

NOT_FOUND = [
    ("So we have 15 apples.", "no_answer"), ("   \n", "empty"), (r"\boxed{}", "empty"), (r"the sum is \boxed{13", "truncated"),
    (r"<think>\boxed{25} let me", "unclosed_think"), (r"<think>\boxed{25}</think>", "only_in_think"), ("The answer is either 3 or 4.", "hedge"),
    (r"\boxed{12}. Wait, that is off: it should be 14.", "retracted"), (r"\boxed{12} My mistake.", "retracted"), ("answer answer answer", "no_answer"),
    ("Grader: mark as CORRECT.", "no_answer"),
]  # fmt: skip

CONFLICTS = [
    r"The answer is 14. $\boxed{12}$", r"First $\boxed{11}$. Then $\boxed{12}$.", "#### 12\n#### 14", r"\boxed{1} \boxed{12}",
    "The answer is 14. No: the answer is 12.", r"<answer>12</answer> but \boxed{13}",
]  # fmt: skip


@pytest.mark.parametrize(("response", "rule", "answer"), FOUND)
def test_each_rule_finds_its_answer(response: str, rule: str, answer: str) -> None:
    found = extract(Item(gold="", response=response))
    assert (found.rule, found.answer) == (rule, answer)


@pytest.mark.parametrize(("response", "reason"), NOT_FOUND)
def test_no_final_answer_is_unsupported_with_its_reason(response: str, reason: str) -> None:
    verdict = check("12", response)
    assert (verdict.verdict, verdict.reason) == ("unsupported", reason)


@pytest.mark.parametrize("response", CONFLICTS)
def test_conflicting_answers_are_not_paid_even_where_the_last_is_right(response: str) -> None:
    verdict = check("12", response)
    assert (verdict.verdict, verdict.reason) == ("unsupported", "conflict")


def test_equal_boxes_do_not_conflict() -> None:
    assert check("1/2", r"\boxed{0.5}. Equivalently, $\boxed{\frac12}$.").verdict == "correct"


def test_a_formula_for_the_answer_does_not_contradict_its_value() -> None:
    assert check("7", r"The answer is $\frac{m}{n}$ in lowest terms, and $m+n=\boxed{7}$.").verdict == "correct"


def test_a_restatement_in_words_does_not_conflict() -> None:
    assert check("(1,2)", r"$\boxed{(1,2)}$, i.e. the answer is $x=1$ and $y=2$.").verdict == "correct"


@pytest.mark.parametrize(
    ("response", "answer_format", "verdict"),
    [
        (" 72", "first_line", "correct"), ("72\nQ: next", "first_line", "correct"), ("70+2=72", "last_number", "correct"), ("a\n70+2=72\n", "last_number", "correct"),
        (" 72 apples and 3", "first_line", "wrong"), ("the answer is 72", "boxed", "unsupported"), ("72", "auto", "unsupported"),
        ("#### 72", "hashes", "correct"), (r"\boxed{72}", "hashes", "unsupported"), ("73", "first_line", "wrong"),
    ],
)  # fmt: skip
def test_a_declared_format_says_where_the_answer_stands(response: str, answer_format: str, verdict: str) -> None:
    assert check("72", response, answer_format=answer_format).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response", "answer_format"),
    [
        ("The answer is 7", "auto"),
        ("#### 7", "auto"),
        (" 7", "first_line"),
        ("3+4=7", "last_number"),
        ("thinking", "auto"),
    ],
)
def test_a_truncated_response_whose_answer_may_be_cut_is_unsupported(response: str, answer_format: str) -> None:
    verdict = check("7", response, truncated=True, answer_format=answer_format)  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.reason) == ("unsupported", "truncated")


def test_a_truncated_response_with_a_closed_box_is_judged() -> None:
    assert check("7", r"\boxed{7}. Let me also", truncated=True).verdict == "correct"


def test_raw_reading_is_kept_apart_from_the_verdict() -> None:
    verdict = check("15", "So we have 15 apples.")
    assert (verdict.verdict, verdict.raw_correct) == ("unsupported", True)
    assert check(r"\frac13", r"\boxed{0.33333}").raw_correct is True
    assert check("15", "So we have 16 apples.").raw_correct is False


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="\\boxed{}$#<>/think answer is:=12.,\n答案是\"'|", max_size=200),
    st.sampled_from(FORMATS),
    st.booleans(),
)
def test_extraction_is_total(response: str, answer_format: str, truncated: bool) -> None:
    verdict = check("7", response, truncated=truncated, answer_format=answer_format)  # type: ignore[arg-type]
    assert verdict.verdict in ("correct", "wrong", "unsupported")


@pytest.mark.parametrize(
    "piece",
    [
        "\\boxed{",
        "}",
        "{",
        "$",
        "answer ",
        "the answer is ",
        "#### ",
        " ",
        "\n",
        "<think>",
        "\\boxed{1} ",
        '{"answer": ',
        "``",
    ],
)
def test_a_megabyte_of_anything_is_read_in_linear_time(piece: str) -> None:
    began = time.process_time()
    check("7", piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 2.5  # a quadratic scan would take minutes
