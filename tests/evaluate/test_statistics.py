"""Each estimator against brute force, scipy, and values computed by hand."""

import itertools
import math
from statistics import mean

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.evaluate import statistics as S


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    flags = [1] * c + [0] * (n - c)
    brute = mean(any(subset) for subset in itertools.combinations(flags, k))
    assert S.pass_at_k(n, c, k) == pytest.approx(brute, abs=1e-12)
    assert S.pass_at_k(n, c, k) == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k), abs=1e-12)


def test_pass_at_k_stays_exact_where_binomials_overflow() -> None:
    assert S.pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5, rel=1e-9)
    assert S.pass_at_k(4000, 3, 1) == pytest.approx(3 / 4000, rel=1e-9)


def vote(answers: tuple[str | None, ...], right: set[str], ties: str) -> float:
    cast = [a for a in answers if a is not None]
    if not cast:
        return 0.0
    most = max(cast.count(a) for a in cast)
    tied = [a in right for a in dict.fromkeys(cast) if cast.count(a) == most]
    return {"shared": mean(tied), "first": float(tied[0]), "lost": float(all(tied))}[ties]


votes = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=8)


@settings(max_examples=250, deadline=None)
@given(votes, st.sets(st.sampled_from("abcd")), st.sampled_from(["shared", "lost"]))
def test_maj_at_k_is_the_mean_vote_over_all_subsets(answers: list[str | None], right: set[str], ties: S.Ties) -> None:
    correct = [a in right for a in answers]
    ks = range(1, len(answers) + 1)
    got = S.maj_at(answers, correct, list(ks), ties=ties)
    for k in ks:
        brute = mean(vote(subset, right, ties) for subset in itertools.combinations(answers, k))
        assert got[k] == pytest.approx(brute, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5), st.sets(st.sampled_from("abc")))
def test_first_over_random_orders_is_shared(answers: list[str | None], right: set[str]) -> None:
    correct = [a in right for a in answers]
    for k in range(1, len(answers) + 1):
        brute = mean(vote(order[:k], right, "first") for order in itertools.permutations(answers))
        assert S.maj_at(answers, correct, [k], ties="first")[k] == pytest.approx(brute, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(votes, st.sets(st.sampled_from("abcd")), st.sampled_from(["shared", "first", "lost"]), st.data())
def test_maj_of_first_is_the_vote_of_the_first_k(answers, right, ties: S.Ties, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    assert S.maj_of_first(answers, [a in right for a in answers], k, ties=ties) == vote(tuple(answers[:k]), right, ties)


def test_maj_at_64_of_64_with_many_answers_is_finite_and_right() -> None:
    answers = ["x"] * 20 + ["y"] * 19 + [str(i) for i in range(25)]
    got = S.maj_at(answers, [a == "x" for a in answers], [1, 8, 64])
    assert got[64] == 1.0
    assert got[1] == pytest.approx(20 / 64, abs=1e-12)
    assert 20 / 64 < got[8] < 1


def test_one_answer_cannot_be_right_and_wrong() -> None:
    with pytest.raises(AssertionError, match="must agree"):
        S.maj_at(["a", "a"], [True, False], [1])


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(n: int, share: float, confidence: float) -> None:
    c = round(n * share)
    ours = S.wilson(c, n, confidence=confidence)
    theirs = scipy.stats.binomtest(c, n).proportion_ci(confidence, method="wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert 0 <= ours.low <= ours.value <= ours.high <= 1


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40))
def test_sign_test_agrees_with_scipy(better: int, worse: int) -> None:
    expected = 1.0 if better + worse == 0 else scipy.stats.binomtest(better, better + worse).pvalue
    assert S.sign_test(better, worse) == pytest.approx(expected, abs=1e-12)


def test_bootstrap_is_a_function_of_its_seed() -> None:
    values = [0.0, 0.21, 1.0, 0.47, 0.73, 0.111, 0.92]
    assert S.bootstrap(values, seed=3) == S.bootstrap(values, seed=3) != S.bootstrap(values, seed=4)


def test_bootstrap_agrees_with_the_normal_interval_on_many_problems() -> None:
    values = np.random.Generator(np.random.Philox(1)).random(800).tolist()
    ours = S.bootstrap(values, resamples=4000)
    half = 1.96 * np.std(values) / math.sqrt(len(values))
    assert ours.low == pytest.approx(np.mean(values) - half, abs=0.1 * half)
    assert ours.high == pytest.approx(np.mean(values) + half, abs=0.1 * half)


def test_bootstrap_of_a_clear_record_does_not_claim_certainty() -> None:
    assert S.bootstrap([1.0] * 20) == S.wilson(20, 20)
    assert S.bootstrap([0.0] * 20) == S.wilson(0, 20)


def test_blocks_do_not_change_the_resampling(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [0.0, 0.25, 1.0, 0.5, 0.75]
    whole = S.bootstrap(values, resamples=100)
    monkeypatch.setattr(S, "_blocks", lambda resamples, size: [7] * 14 + [2])
    assert S.bootstrap(values, resamples=100) == whole


def test_paired_difference_by_hand() -> None:
    d = S.paired_difference([0, 0, 0, 1, 1, 0.5], [1, 1, 0, 0, 1, 1], resamples=500)
    assert (d.better, d.worse, d.same) == (3, 1, 2)
    assert d.difference.value == pytest.approx(1.5 / 6)
    assert d.p_value == pytest.approx(2 * (1 + 4) / 16)
    assert d.difference.low < d.difference.value < d.difference.high


def test_pairing_makes_the_interval_narrower_than_two_separate_ones() -> None:
    before = [0.0] * 50 + [1.0] * 50
    after = [0.0] * 40 + [1.0] * 60
    paired = S.paired_difference(before, after)
    width = paired.difference.high - paired.difference.low
    apart = S.bootstrap(before), S.bootstrap(after)
    assert width < sum(e.high - e.low for e in apart) / 2
