"""`algorist init`: what it finds in a file and in a model, and the recipe it writes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from algorist.cli.look_problems import kind_of, look_at_problems

from .conftest import cli, need_smollm2


def write(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SUMS = [(a, b) for a in range(10, 30) for b in range(2, 7)]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"question": "q", "answer": "1"}, ("question", "answer", None, "as_is")),
        ({"Problem": "q", "solution": "so \\boxed{1}", "level": "3"}, ("Problem", "solution", None, "last_boxed")),
        ({"problem": "q", "solution": "long", "answer": "1"}, ("problem", "answer", "solution", "as_is")),
        ({"prompt": "q", "ground_truth": 4}, ("prompt", "ground_truth", None, "as_is")),
        ({"question": "q", "answer": "2+2=4\n#### 4"}, ("question", "answer", None, "after_hashes")),
        ({"aufgabe": "a long text", "titel": "t", "answer": "4"}, ("aufgabe", "answer", None, "as_is")),
    ],
)
def test_fields_are_guessed_from_names_and_content(
    row: dict[str, object], expected: tuple[object, ...], tmp_path: Path
) -> None:
    fields = look_at_problems(write(tmp_path / "p.jsonl", [row, row]))
    assert (fields.question, fields.answer, fields.solution, fields.gold) == expected


def test_a_recipe_for_a_new_model_passes_its_check_and_a_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question": f"{a}*{b}", "answer": str(a * b), "solution": f"{a // 10 * 10 * b}+{a % 10 * b}={a * b}"}
        for a, b in SUMS
    ]
    write(tmp_path / "p.jsonl", [*rows, rows[0], {"question": "1*1", "answer": ""}])
    said = cli("init", "-", "p.jsonl", "--out", "mine.yaml", "--json")
    assert said.code == 0, said.err
    found = said.json["problems"]
    assert (found["rows"], found["usable"], found["dropped"]) == (102, 100, {"no_gold": 1, "duplicate": 1})
    assert found["answers"] == {"whole number": 100}
    assert said.json["solution_tokens"] == [8, 10, 10]
    text = Path("mine.yaml").read_text()
    assert "answer_format: last_number" in text
    assert "on_bad_row: drop" in text
    assert cli("recipe", "check", "mine.yaml").code == 0
    rehearsal = cli("run", "mine.yaml", "--dry-run", "--threads", 1)
    assert rehearsal.code == 0, rehearsal.err


def test_a_model_folder_is_looked_at_and_what_cannot_fit_is_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "p.jsonl", [{"problem": f"{a} + {b}", "gold": a + b} for a, b in SUMS])
    said = cli("init", finished / "export", "data/p.jsonl", "--out", "mine.yaml")
    assert said.code == 0, said.err
    assert "context: 48 tokens" in said.err
    assert "answer_format: first_line" in Path("mine.yaml").read_text()
    assert cli("recipe", "check", "mine.yaml").code == 0
    # reasoning through a chat template needs more room than this model has: that is said, and nothing is written
    worked = [{"problem": f"{a} + {b}", "answer": f"add {a}, then {b}\n#### {a + b}"} for a, b in SUMS]
    write(tmp_path / "data" / "worked.jsonl", worked)
    said = cli("init", finished / "export", "data/worked.jsonl", "--out", "worked.yaml")
    assert said.code == 2
    assert "was made for 48" in said.err
    assert not Path("worked.yaml").exists()


def test_a_recipe_for_a_real_model_passes_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_smollm2()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "p.jsonl", [{"problem": f"{a} + {b}", "gold": a + b} for a, b in SUMS])
    assert cli("model", "import", "smollm2", "m").code == 0
    said = cli("init", "m", "data/p.jsonl", "--out", "data/mine.yaml")
    assert said.code == 0, said.err
    assert "134.5 M parameters" in said.err
    text = Path("data/mine.yaml").read_text()
    assert 'path: "../m"' in text
    assert 'path: "p.jsonl"' in text
    assert "answer_format: first_line" in text  # short sums: the answer alone
    assert cli("recipe", "check", "data/mine.yaml").code == 0
    worked = [{"problem": f"{a} + {b}", "answer": f"first {a}, then {b} more\n#### {a + b}"} for a, b in SUMS]
    write(tmp_path / "data" / "worked.jsonl", worked)
    assert cli("init", "m", "data/worked.jsonl", "--out", "data/worked.yaml").code == 0
    text = Path("data/worked.yaml").read_text()
    assert "template: chat" in text
    assert "gold: after_hashes" in text
    assert cli("recipe", "check", "data/worked.yaml").code == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    question=st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12),
    answer=st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=8),
    names=st.sampled_from([("question", "answer"), ("prompt: x", "gold # y"), ('pro"blem', "answer")]),
)
def test_whatever_a_file_holds_gives_a_recipe_that_passes_or_one_message(
    question: str, answer: str, names: tuple[str, str], tmp_path: Path
) -> None:
    rows = [{names[0]: f"{question}{i}", names[1]: answer} for i in range(12)]
    out = tmp_path / "r.yaml"
    out.unlink(missing_ok=True)
    said = cli(
        "init", "-", write(tmp_path / "p.jsonl", rows), "--out", out, "--question", names[0], "--answer", names[1]
    )
    assert said.code in (0, 2), said.err
    assert out.exists() == (said.code == 0)


def test_kinds_of_golds() -> None:
    golds = ["-12", "$3$", "1,000,000", ".5", "\\frac{1}{2}", "40\\%", "C", "\\sqrt{2}", "(1, 2)", "blue"]
    assert [kind_of(gold) for gold in golds] == [
        "whole number", "whole number", "whole number", "decimal", "fraction", "percent", "choice letter", "expression",
        "expression", "text",
    ]  # fmt: skip
