"""Problems that the policy has seen are taken out however they are listed, with place and reason."""

from dataclasses import replace
from pathlib import Path

import pytest

from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.load import ProblemReport, ProblemSet
from algorist.qualify.exclusions import exclude


def problems(*questions: str, efforts: tuple[int, ...] = ()) -> ProblemSet:
    made = [
        Problem(id=f"{i:016x}", question=q, gold="1", source="s", metadata=(("id", f"own-{i}"),))
        for i, q in enumerate(questions)
    ]
    if efforts:
        made = [
            replace(p, id=f"{p.id}-e{e}", metadata=(("effort", str(e)), *p.metadata)) for p in made for e in efforts
        ]
    report = ProblemReport(read=len(made), train=len(made), sft=0, heldout=0, unused=0, dropped=())
    return ProblemSet(train=tuple(made), sft=(), heldout=(), report=report)


def write(folder: Path, text: str) -> list[str]:
    (folder / "seen.txt").write_bytes(text.encode())
    return ["seen.txt"]


@pytest.mark.parametrize(
    "line",
    [
        "What is 3 + 4?",
        "  what IS  3 + 4? ",
        "0000000000000001",
        '{"id": "own-1"}',
        '{"id": "0000000000000001", "source": "before"}',
        '{"question": "What is 3 + 4?"}',
        '{"id": 7, "question": "What is 3 + 4?"}',
    ],
)
@pytest.mark.parametrize("around", ["{}", "\ufeff{}", "{}\r\n", "\n\n{}\n\n", "other\n{}"])
def test_a_seen_problem_is_taken_out_however_it_is_listed(line, around, tmp_path) -> None:
    left = exclude(problems("What is 1 + 1?", "What is 3 + 4?"), write(tmp_path, around.format(line)), tmp_path)
    assert [p.question for p in left.train] == ["What is 1 + 1?"]
    (dropped,) = left.report.dropped
    assert dropped.reason == "prior_exposure"
    assert "listed at seen.txt:" in dropped.detail


def test_the_digest_of_the_problems_tells_which_were_taken_out(tmp_path) -> None:
    """Two lists of one length: a resume must not take one for the other."""
    all_problems = problems("1 + 1", "2 + 2", "3 + 3")
    first = exclude(all_problems, write(tmp_path, "1 + 1"), tmp_path)
    second = exclude(all_problems, write(tmp_path, "2 + 2"), tmp_path)
    assert first.digest != second.digest != all_problems.digest


def test_a_problem_asked_under_several_efforts_is_taken_out_under_all_of_them(tmp_path) -> None:
    asked = problems("1 + 1", "2 + 2", efforts=(25, 75))
    for line in ("0000000000000001", "2 + 2", '{"id": "own-1"}'):
        left = exclude(asked, write(tmp_path, line), tmp_path)
        assert {p.question for p in left.train} == {"1 + 1"}
        assert left.report.dropped_by_reason == {"prior_exposure": 2}


@pytest.mark.parametrize("row", ['{"id": null}', '{"question": ["x"]}', '{"id": ""}', '{"id": true, "x": 1}', "{}"])
def test_a_row_without_a_usable_id_or_question_is_refused_with_its_place(row, tmp_path) -> None:
    with pytest.raises(InputError, match=r"seen\.txt:1: must hold id or question"):
        exclude(problems("1 + 1"), write(tmp_path, row), tmp_path)


def test_a_list_of_everything_leaves_nothing_and_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="leave nothing to train on"):
        exclude(problems("1 + 1"), write(tmp_path, "1 + 1"), tmp_path)
