"""Problem sets: distinct, gold-checked, split without overlap, with everything dropped counted."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.config import (
    ArithmeticConfig,
    FamilyConfig,
    HeldoutConfig,
    JsonlConfig,
    ProblemsConfig,
)
from algorist.problems.load import ProblemSet, load_problems
from algorist.problems.split import distinct, question_key, shuffled, split_off
from algorist.verify import check_gold

SHARED = Path(os.environ.get("ALGORIST_SHARED", Path(__file__).parents[3] / "shared"))


def jsonl(folder: Path, rows: Sequence[dict[str, object]], name: str = "p.jsonl") -> JsonlConfig:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return JsonlConfig(path=name, family="f" if "f" in rows[0] else None, solution="s" if "s" in rows[0] else None)


def numbered(num: int, start: int = 0, **fields: object) -> list[dict[str, object]]:
    return [{"question": f"What is {i} + 1?", "answer": i + 1, **fields} for i in range(start, start + num)]


def load(folder: Path, *sources: JsonlConfig, seed: int = 0, sft_count: int = 0, **heldout: object) -> ProblemSet:
    held = HeldoutConfig(**({"count": 2} | heldout if "share" not in heldout else heldout))  # type: ignore[arg-type]
    cfg = ProblemsConfig(source=sources, heldout=held, sft_count=sft_count)
    return load_problems(cfg, seed=seed, base_dir=folder, gold_check=check_gold)


def accounted(found: ProblemSet) -> bool:
    report = found.report
    parts = (report.train, report.sft, report.heldout)
    assert parts == (len(found.train), len(found.sft), len(found.heldout))
    return report.read == sum(parts) + report.unused + len(report.dropped)


def keys(problems: Sequence[Problem]) -> set[str]:
    return {question_key(problem.question) for problem in problems}


def test_efforts_ask_every_problem_once_under_each_level_and_keep_the_split(tmp_path: Path) -> None:
    source, held = jsonl(tmp_path, numbered(20, s="x")), HeldoutConfig(count=2)
    plain, asked = (
        load_problems(
            ProblemsConfig(source=(source,), heldout=held, sft_count=5, efforts=efforts), seed=0, base_dir=tmp_path
        )
        for efforts in ((), (20, 80))
    )
    for bare, multiplied in zip(
        (plain.train, plain.sft, plain.heldout), (asked.train, asked.sft, asked.heldout), strict=True
    ):
        assert [(p.question, dict(p.metadata)["effort"]) for p in multiplied] == [
            (p.question, effort) for p in bare for effort in ("20", "80")
        ]
        assert len({p.id for p in multiplied}) == 2 * len(bare)
    assert asked.report.lines()[1] == "each is asked under 2 levels of effort, so there are 2 times as many prompts"
    assert accounted(plain)


def test_parts_share_no_question_and_add_up(tmp_path: Path) -> None:
    found = load(tmp_path, jsonl(tmp_path, numbered(20, s="x")), sft_count=5)
    assert (len(found.train), len(found.sft), len(found.heldout)) == (13, 5, 2)
    assert not keys(found.train) & keys(found.sft)
    assert not keys(found.train) & keys(found.heldout)
    assert not keys(found.sft) & keys(found.heldout)
    assert accounted(found)


def test_repeats_and_conflicts_are_dropped_with_their_places(tmp_path: Path) -> None:
    rows = [*numbered(6), {"question": " what IS 0 + 1?", "answer": 1}, {"question": "What is 1 + 1?", "answer": 3}]
    found = load(tmp_path, jsonl(tmp_path, rows))
    assert found.report.dropped_by_reason == {"conflicting_gold": 2, "duplicate": 1}
    places = {row.where.rsplit(":", 1)[1] for row in found.report.dropped}
    assert places == {"2", "7", "8"}
    assert accounted(found)
    assert any("dropped, duplicate: 1 (first: " in line for line in found.report.lines())


def test_golds_that_do_not_verify_are_kept_out_and_counted(tmp_path: Path) -> None:
    rows = [*numbered(6), {"question": "odd", "answer": "no idea, ask 3 or 4 others"}]
    cfg = ProblemsConfig(source=(jsonl(tmp_path, rows),), heldout=HeldoutConfig(count=2))
    refuse = lambda gold, kind: "is no number" if "idea" in gold else None
    found = load_problems(cfg, seed=0, base_dir=tmp_path, gold_check=refuse)
    (row,) = found.report.dropped
    assert (row.reason, row.detail) == ("gold_refused", "gold 'no idea, ask 3 or 4 others': is no number")
    assert accounted(found)


def test_generated_golds_all_verify() -> None:
    families = tuple(FamilyConfig(name=name) for name in ("add", "fraction_add", "mixed_parentheses", "compare"))
    cfg = ProblemsConfig(source=(ArithmeticConfig(families=families, count=200),), heldout=HeldoutConfig(share=0.1))
    found = load_problems(cfg, seed=0, base_dir=Path(), gold_check=check_gold)
    assert found.report.dropped_by_reason.get("gold_refused", 0) == 0


def test_the_same_question_from_two_sources_counts_once_and_keeps_the_solution(tmp_path: Path) -> None:
    plain = jsonl(tmp_path, numbered(6), "a.jsonl")
    solved = jsonl(tmp_path, numbered(3, s="worked"), "b.jsonl")
    found = load(tmp_path, plain, solved, sft_count=0)
    assert found.report.dropped_by_reason == {"duplicate": 3}
    everything = [*found.train, *found.heldout]
    assert sum(problem.solution == "worked" for problem in everything) == 3


def test_a_split_by_family_keeps_whole_families_apart(tmp_path: Path) -> None:
    rows = [row for name in "abcd" for row in numbered(5, start=10 * ord(name), f=name)]
    found = load(tmp_path, jsonl(tmp_path, rows), count=7, by="family")
    assert len(found.heldout) == 7
    assert not {p.family for p in found.heldout} & {p.family for p in found.train}
    assert found.report.dropped_by_reason == {"family_is_held_out": 3}
    assert accounted(found)


def test_a_split_that_takes_every_family_is_refused(tmp_path: Path) -> None:
    rows = [row for name in "ab" for row in numbered(5, start=10 * ord(name), f=name)]
    with pytest.raises(InputError, match=r"would take every family, none left to train on \(families: a 5, b 5\)"):
        load(tmp_path, jsonl(tmp_path, rows), count=6, by="family")


def test_a_heldout_source_of_its_own_cleans_the_training_source(tmp_path: Path) -> None:
    train, test = jsonl(tmp_path, numbered(10), "a.jsonl"), jsonl(tmp_path, numbered(5, start=7), "b.jsonl")
    found = load(tmp_path, train, count=4, source=(test,))
    assert found.report.dropped_by_reason == {"is_held_out": 3}
    assert (len(found.train), len(found.heldout), found.report.unused) == (7, 4, 1)
    assert accounted(found)


def test_too_few_problems_are_told_with_what_there_is(tmp_path: Path) -> None:
    source = jsonl(tmp_path, numbered(4))
    with pytest.raises(InputError, match=r"4 held-out problems leave nothing to train on, since the sources gave 4\."):
        load(tmp_path, source, count=4)
    with pytest.raises(
        InputError, match=r"problems\.sft_count: 3 were asked for, and the training part has 2 problems"
    ):
        load(tmp_path, source, count=2, sft_count=3)
    cfg = ProblemsConfig(source=(source,), heldout=HeldoutConfig(count=1), sft_count=1)
    with pytest.raises(InputError, match="has 0 problems with a worked solution"):
        load_problems(cfg, seed=0, base_dir=tmp_path, solutions=True)


def test_the_split_depends_on_seed_and_content_not_on_the_order_of_rows(tmp_path: Path) -> None:
    rows = numbered(30)
    first = load(tmp_path, jsonl(tmp_path, rows), count=10)
    turned = load(tmp_path, jsonl(tmp_path, rows[::-1]), count=10)
    assert [p.id for p in first.heldout] == [p.id for p in turned.heldout]
    assert first.digest == load(tmp_path, jsonl(tmp_path, rows), count=10).digest
    assert first.digest != load(tmp_path, jsonl(tmp_path, rows), count=10, seed=1).digest


def problem_of(question: str, gold: str = "1", family: str = "") -> Problem:
    return Problem(id=f"{question}|{gold}", question=question, gold=gold, source="s", family=family)


@given(st.lists(st.tuples(st.sampled_from(["a", "A ", "b", "c"]), st.sampled_from("12")), max_size=12))
def test_distinct_keeps_one_row_per_question_or_accounts_for_it(rows: list[tuple[str, str]]) -> None:
    placed = [(problem_of(q, g), str(i)) for i, (q, g) in enumerate(rows)]
    kept, dropped = distinct(placed)
    assert len(kept) + len(dropped) == len(rows)
    assert len({question_key(p.question) for p, _ in kept}) == len(kept)


@given(st.integers(2, 40), st.integers(1, 39), st.integers(0, 3))
def test_a_new_row_moves_no_other_across_the_split_order(num: int, cut: int, seed: int) -> None:
    placed = [(problem_of(str(i)), "") for i in range(num)]
    fewer = placed[: min(cut, num)]
    order = [p.id for p, _ in shuffled(placed, seed, "heldout")]
    assert [p.id for p, _ in shuffled(fewer, seed, "heldout")] == [i for i in order if i in {p.id for p, _ in fewer}]


@given(st.integers(2, 40), st.data())
def test_a_share_is_rounded_and_never_empty(num: int, data: st.DataObject) -> None:
    share = data.draw(st.floats(0.01, 0.9))
    placed = [(problem_of(str(i)), "") for i in range(num)]
    if max(1, round(num * share)) >= num:
        return
    parts = split_off(placed, HeldoutConfig(share=share), 0)
    assert len(parts.heldout) == max(1, round(num * share))
    assert len(parts.train) + len(parts.heldout) == num


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here (set ALGORIST_SHARED)")
def test_gsm8k_loads_with_every_gold_verified_and_no_test_question_in_training() -> None:
    folder = SHARED / "data" / "gsm8k"
    train = JsonlConfig(path="train.jsonl.gz", gold="after_hashes")
    test = JsonlConfig(path="test.jsonl.gz", gold="after_hashes")
    cfg = ProblemsConfig(source=(train,), heldout=HeldoutConfig(count=1319, source=(test,)), sft_count=100)
    found = load_problems(cfg, seed=0, base_dir=folder, gold_check=check_gold, solutions=True)
    assert (len(found.train) + len(found.sft), len(found.heldout)) == (7473, 1319)
    assert found.report.dropped == ()
