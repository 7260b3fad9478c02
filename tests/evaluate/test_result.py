"""An evaluation's figures follow from its records, and its file has the documented shape."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.evaluate import result as E
from algorist.evaluate.statistics import wilson
from algorist.flow import Outcome, Verdict


def verdict(kind: Outcome, extracted: str = "") -> Verdict:
    return Verdict(verdict=kind, reason="r", extracted=extracted)


RIGHT, WRONG = verdict(Outcome.CORRECT, "5"), verdict(Outcome.WRONG, "7")
LOST, FAILED = verdict(Outcome.UNSUPPORTED, "5"), verdict(Outcome.ERROR)


def two() -> E.EvaluationResult:
    records = [
        E.record_of("p", greedy=RIGHT, samples=[RIGHT, RIGHT, WRONG, LOST], truncated=1),
        E.record_of("q", greedy=WRONG, samples=[WRONG, FAILED, WRONG, RIGHT]),
    ]
    return E.summarise("before", policy_digest="d0", records=records, ks=[1, 4])


def test_figures_of_two_problems_by_hand() -> None:
    r = two()
    assert r.greedy == wilson(1, 2)
    assert r.mean_at[4].value == (2 / 4 + 1 / 4) / 2
    assert r.pass_at[1].value == pytest.approx(r.mean_at[4].value)
    assert r.pass_at[4].value == 1.0
    assert r.maj_at[4].value == 0.5  # p: 5 wins 2 to 1; q: 7 wins 2 to 1
    assert (r.truncated, r.unsupported, r.errors, r.responses, r.samples) == (1, 1, 1, 10, 4)


def test_the_file_has_the_documented_shape(tmp_path: Path) -> None:
    path = tmp_path / "evaluations" / "before.json"
    two().write(path)
    raw = json.loads(path.read_text())
    documented = [
        "name",
        "policy_digest",
        "problems",
        "greedy",
        "mean_at",
        "pass_at",
        "maj_at",
        "truncated",
        "unsupported",
    ]
    assert list(raw)[:9] == documented
    assert raw["problems"] == 2
    assert set(raw["greedy"]) == {"value", "low", "high"}
    assert set(raw["mean_at"]) == {"4"}
    assert set(raw["pass_at"]) == set(raw["maj_at"]) == {"1", "4"}
    assert raw["per_problem"][0]["num_correct"] == 2
    assert raw["per_problem"][0]["answers"] == ["5", "5", "7", None]
    assert E.EvaluationResult.read(path) == two()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_from_json_undoes_to_json(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 3))
    kinds = st.sampled_from(Outcome)
    records = []
    for p in range(data.draw(st.integers(1, 3))):
        samples = [verdict(data.draw(kinds), data.draw(st.text(max_size=3))) for _ in range(n)]
        records.append(E.record_of(f"p{p}", greedy=verdict(data.draw(kinds), "1"), samples=samples))
    result = E.summarise("x", policy_digest="d", records=records, ks=range(1, n + 1), resamples=100)
    assert E.EvaluationResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_response_without_a_readable_answer_does_not_vote() -> None:
    assert E.record_of("p", greedy=None, samples=[LOST, FAILED, WRONG]).answers == (None, None, "7")


def test_one_spelling_judged_both_ways_does_not_merge_right_and_wrong() -> None:
    record = E.record_of(
        "p",
        greedy=None,
        samples=[verdict(Outcome.CORRECT, "5"), verdict(Outcome.WRONG, "5.")],
        canonical=lambda a: a.strip("."),
    )
    assert record.answers == ("5 (right)", "5 (wrong)")
    assert E.summarise("x", policy_digest="d", records=[record], ks=[2]).maj_at[2].value == 0.5


@pytest.mark.parametrize(
    ("records", "ks", "said"),
    [
        ([], [1], "at least one problem"),
        (
            [E.record_of("p", greedy=None, samples=[RIGHT]), E.record_of("q", greedy=None, samples=[])],
            [1],
            "same number",
        ),
        ([E.record_of("p", greedy=None, samples=[RIGHT])] * 2, [1], "measured twice"),
        ([E.record_of("p", greedy=None, samples=[RIGHT])], [2], r"k must lie in \[1, 1\]"),
        (
            [E.record_of("p", greedy=RIGHT, samples=[]), E.record_of("q", greedy=None, samples=[])],
            [],
            "all problems or none",
        ),
    ],
)
def test_records_that_do_not_fit_are_one_clear_error(records, ks, said: str) -> None:
    with pytest.raises(InputError, match=said):
        E.summarise("x", policy_digest="d", records=records, ks=ks)


def test_a_file_that_is_no_evaluation_is_named(tmp_path: Path) -> None:
    for text, said in (("{", "could not be read"), ("[]", "JSON list"), ('{"name": "x"}', "KeyError")):
        (tmp_path / "e.json").write_text(text)
        with pytest.raises(InputError, match=rf"e\.json: .*{said}"):
            E.EvaluationResult.read(tmp_path / "e.json")


def test_comparison_pairs_by_problem_and_counts_the_rest() -> None:
    def result(**greedy: bool) -> E.EvaluationResult:
        right = {True: RIGHT, False: WRONG}
        return E.summarise(
            "x",
            policy_digest="d",
            records=[E.record_of(p, greedy=right[g], samples=[right[g]] * 2) for p, g in greedy.items()],
            ks=[1],
        )

    c = E.compare(result(a=False, b=False, c=True, d=True), result(d=True, c=False, b=True, a=True, e=True))
    assert (c.common, c.only_before, c.only_after) == (4, 0, 1)
    assert c.greedy is not None
    assert (c.greedy.better, c.greedy.worse, c.greedy.same) == (2, 1, 1)
    assert c.mean is not None
    assert c.mean.difference.value == 0.25
