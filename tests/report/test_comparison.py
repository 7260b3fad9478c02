"""The comparison page from data alone: intervals, failures, escaped text, one seed."""

from dataclasses import replace

import pytest

from algorist.evaluate.result import ProblemRecord, summarise
from algorist.report.comparison import render, sentence
from algorist.report.comparison_data import Coefficients, Comparison, GroupCoefficients, MethodRun, measures, table


def result(name: str, right: int):
    records = [
        ProblemRecord(
            problem_id=str(i), greedy_correct=i < right, answers=("1", "2"), correct=(i < right, i < right // 2)
        )
        for i in range(20)
    ]
    return summarise(name, policy_digest="d", records=records, ks=[1, 2], resamples=100)


def made(label: str, seed: int, right: int) -> MethodRun:
    rewards = [{"stage": "rl", "batch": b, "reward/mean": right / 20} for b in range(4)]
    return MethodRun(
        label=label, seed=seed, folder=f"seed-{seed}/{label}", before=result("before", 4), after=result("after", right),
        during=((2, result("step-2", right - 1)),), rows=rewards, rollouts=8, tokens=80, applied=4,
    )  # fmt: skip


RESPONSE = Coefficients(
    text="<script>alert(1)</script>",
    verdict="wrong",
    reward=0.0,
    by_label={"a": [("<script>", 0.5), ("alert", -1.25)], "b": [("<script>alert(1)</script>", 0.0)]},
)
COMPARISON = Comparison(
    name="nano",
    labels=("a", "b"),
    seeds=(0, 1, 2),
    budget={
        "batches": 4,
        "problems_per_batch": 1,
        "responses_per_problem": 2,
        "responses": 8,
        "response_tokens_at_most": 10,
    },
    formulas={"a": {"estimator": "A"}, "b": {"estimator": "B", "kl": "k3"}},
    settings={"a": ["method=grpo"], "b": ["method=rft"]},
    runs=tuple(made(label, seed, 8 + seed + 4 * (label == "b")) for seed in (0, 1, 2) for label in ("a", "b")),
    coefficients=(GroupCoefficients(question="1 < 2?", gold="yes", responses=(RESPONSE,)),),
)


def test_the_table_pairs_by_seed() -> None:
    found = table(COMPARISON)
    row = found["b"]["greedy"]
    assert row["by_seed"] == {"0": 0.6, "1": 0.65, "2": 0.7}
    assert row["after"]["value"] == pytest.approx(0.65)
    assert row["after"]["low"] < 0.6
    assert row["gain"]["value"] == pytest.approx(0.45)
    assert row["against_first"] == {"value": pytest.approx(0.2), "low": None, "high": None}  # the same in every seed
    assert "against_first" not in found["a"]["greedy"]


def test_measures_are_greedy_mean_and_every_k_above_one() -> None:
    assert list(measures(result("x", 8))) == ["greedy", "mean@2", "pass@2", "maj@2"]


def test_a_page_fetches_nothing_and_escapes_what_a_model_wrote() -> None:
    page = render(COMPARISON)
    assert "alert(1)</script>" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert render(COMPARISON) == page


def test_stretches_of_a_response_are_shown_with_their_own_coefficient() -> None:
    page = render(COMPARISON)
    assert "+0.500" in page
    assert "-1.250" in page


def test_a_run_that_failed_is_named_with_its_cause_and_left_out_of_the_table() -> None:
    lost = replace(COMPARISON.runs[-1], after=None, failed="no signal in 20 batches")
    page = render(replace(COMPARISON, runs=(*COMPARISON.runs[:-1], lost)))
    assert "b, seed 2: no signal in 20 batches" in page
    assert list(table(replace(COMPARISON, runs=(*COMPARISON.runs[:-1], lost)))["b"]["greedy"]["by_seed"]) == ["0", "1"]


def test_a_method_without_a_finished_run_does_not_break_the_page() -> None:
    runs = tuple(replace(r, after=None, failed="x") if r.label == "b" else r for r in COMPARISON.runs)
    assert "Did not finish" in render(replace(COMPARISON, runs=runs))


def test_one_seed_claims_nothing_about_seeds() -> None:
    one = replace(COMPARISON, seeds=(0,), runs=tuple(r for r in COMPARISON.runs if r.seed == 0))
    assert "nothing here speaks about seeds" in render(one)
    e = table(one)["a"]["greedy"]["after"]
    assert e["low"] < e["value"] < e["high"]  # over problems


def test_the_sentence_states_the_terms() -> None:
    assert sentence(COMPARISON) == (
        "2 methods from the same start, 3 seeds each: the same problems in the same order, 8 sampled responses in 4 batches of "
        "1 × 2, at most 10 tokens each."
    )
