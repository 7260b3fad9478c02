"""What each verb does when all is well."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from algorist.cli import VERBS, build_parser

from .conftest import cli, need_smollm2

SRC = Path(__file__).parents[2] / "src"


def run_python(code: str, *arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=cwd,
        env=env,
    )


def test_help_imports_no_torch_transformers_or_sympy() -> None:
    code = (
        "import sys\nfrom algorist.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'sympy', 'numpy', 'pyarrow', 'pydantic', 'rich'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    for arguments in (["--help"], ["--version"], ["run", "--help"], []):
        done = run_python(code, *arguments)
        assert done.stdout.splitlines()[-1] == "HEAVY []", done.stdout + done.stderr


def test_help_lists_every_verb_and_the_exit_codes() -> None:
    said = cli("--help")
    assert said.code == 0
    for verb in VERBS:
        assert re.search(rf"^    {verb}\s", said.out, re.MULTILINE), verb
    for code in ("2 recipe or input", "3 admission refused", "4\ngate failed", "75 stopped on request"):
        assert code in said.out or code.replace("\n", " ") in said.out


def test_every_verb_takes_json() -> None:
    def parsers(parser: object) -> "list[object]":
        inner = [a for a in vars(parser)["_actions"] if isinstance(getattr(a, "choices", None), dict)]
        return [p for a in inner for q in a.choices.values() for p in parsers(q)] or [parser]

    for parser in parsers(build_parser()):
        assert "--json" in vars(parser)["_option_string_actions"], vars(parser)["prog"]


def test_run_says_what_came_out_in_one_json_object(place: Path) -> None:
    said = cli("run", "tiny.yaml", "--out", "out", "--threads", 1, "--json")
    assert said.code == 0, said.err
    answer = said.json
    assert answer["counts"]["rollout_batches"] == 2
    assert answer["before"]["problems"] == 4
    assert "<html" in Path(answer["report"]).read_text()
    assert (Path(answer["export"]) / "model.safetensors").exists()


def test_dry_run_writes_nothing(place: Path) -> None:
    before = sorted(place.iterdir())
    said = cli("run", "tiny.yaml", "--dry-run", "--threads", 1, "--json")
    assert said.code == 0, said.err
    assert said.json["figures"]["rl_responses_per_batch"] == 32
    assert sorted(place.iterdir()) == before


def test_eval_of_a_run_finds_what_the_run_itself_measured(finished: Path, tmp_path: Path) -> None:
    said = cli("eval", finished, "--out", tmp_path, "--threads", 1, "--json")
    assert said.code == 0, said.err
    own = json.loads((finished / "evaluations" / "after.json").read_text())
    here = json.loads((tmp_path / "heldout.json").read_text())
    for figure in ("policy_digest", "greedy", "mean_at", "pass_at", "maj_at", "truncated", "problems", "per_problem"):
        assert here[figure] == own[figure], figure
    assert said.json["evaluations"][0]["greedy"] == own["greedy"]


def test_eval_of_an_export_alone_asks_as_the_run_did(finished: Path, tmp_path: Path, place: Path) -> None:
    said = cli("eval", finished / "export", "--problems", "problems.jsonl", "--limit", 6, "--samples", 2, "--out", "e")
    assert said.code == 0, said.err
    assert "as in its" in said.err
    result = json.loads(Path("e/problems.json").read_text())
    assert result["problems"] == 6
    assert set(result["mean_at"]) == {"2"}
    assert "greedy" in said.out


def test_eval_of_several_suites_writes_one_file_each(finished: Path, place: Path) -> None:
    call = [
        "eval",
        finished,
        "--suite",
        "a=problems.jsonl",
        "--suite",
        "b=problems.jsonl",
        "--limit",
        3,
        "--out",
        "e",
        "--json",
    ]
    said = cli(*call)
    assert said.code == 0, said.err
    assert [e["name"] for e in said.json["evaluations"]] == ["a", "b"]
    assert sorted(p.name for p in Path("e").iterdir()) == ["a.json", "b.json"]
    assert cli(*call).code == 2


def test_eval_counts_what_it_leaves_out(finished: Path, place: Path) -> None:
    with Path("problems.jsonl").open("a") as file:
        file.write(json.dumps({"id": "twice", "question": "0 + 0", "answer": "0"}) + "\n")
        file.write(json.dumps({"id": "long", "question": "1 + " * 60 + "1", "answer": "61"}) + "\n")
    said = cli("eval", finished, "--problems", "problems.jsonl", "--samples", 1, "--out", "e", "--json")
    assert said.code == 0, said.err
    [evaluation] = said.json["evaluations"]
    assert evaluation["problems"] == 24
    assert len(evaluation["dropped"]) == 2
    assert any("duplicate" in line for line in evaluation["dropped"])
    assert any("too_long" in line for line in evaluation["dropped"])


def test_eval_with_a_recipe_uses_its_held_out_problems(finished: Path, place: Path) -> None:
    said = cli("eval", finished / "export", "--recipe", "tiny.yaml", "--out", "e", "--json")
    assert said.code == 0, said.err
    assert said.json["evaluations"][0]["problems"] == 4


def test_sample_answers_with_verdicts_and_repeats_itself(finished: Path) -> None:
    call = ("sample", finished, "3 + 4", "-n", 3, "--gold", "7", "--json")
    first, second = cli(*call), cli(*call)
    assert first.code == 0, first.err
    [asked] = first.json["questions"]
    assert len(asked["answers"]) == 3
    assert {a["verdict"] for a in asked["answers"]} <= {"correct", "wrong", "unsupported"}
    assert first.json == second.json


def test_greedy_sample_equals_what_transformers_generates_from_the_export(finished: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    [asked] = cli("sample", finished, "3 + 4", "--greedy", "--json").json["questions"]
    folder = finished / "export"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("3 + 4=", return_tensors="pt", add_special_tokens=True)
    out = model.generate(**prompt, max_new_tokens=4, do_sample=False)[0, prompt.input_ids.shape[1] :]
    assert asked["answers"][0]["text"] == tokenizer.decode(out, skip_special_tokens=True)


def test_sample_reads_questions_from_standard_input(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("1 + 1\n\n2 + 2\n"))
    said = cli("sample", finished, "-n", 1)
    assert said.code == 0
    assert "1 + 1\n" in said.out
    assert "2 + 2\n" in said.out


def test_sample_refuses_a_question_the_model_cannot_be_asked(finished: Path) -> None:
    said = cli("sample", finished, "ž?")
    assert said.code == 2
    assert "cannot be asked that" in said.err


def test_report_builds_the_page_again(finished: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink()
    said = cli("report", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    assert Path(said.json["report"]).stat().st_size == said.json["bytes"]


def test_model_show_counts_without_loading(finished: Path) -> None:
    said = cli("model", "show", finished, "--json")
    assert said.code == 0, said.err
    contract = json.loads((finished / "contract.json").read_text())
    assert said.json["parameters"] == contract["policy"]["parameters"]
    assert said.json["stop_tokens"] == ["<eos>"]
    assert list(said.json["files"]) == ["model.safetensors"]


def test_model_import_brings_a_model_that_opens(tmp_path: Path) -> None:
    need_smollm2()
    said = cli("model", "import", "smollm2", tmp_path / "m", "--json")
    assert said.code == 0, said.err
    assert said.json["parameters"] == 134_515_008
    shown = cli("model", "show", tmp_path / "m")
    assert "<|im_end|>" in shown.out
    assert cli("model", "import", "smollm2", tmp_path / "m").code == 2


def test_doctor_finds_this_machine_able(tmp_path: Path) -> None:
    said = cli("doctor", "--json")
    assert said.code == 0, said.out
    findings = {f["name"]: f for f in said.json["findings"]}
    assert findings["verifier worker"]["state"] == "ok"
    assert all(f["do"] for f in findings.values() if f["name"].startswith("extra") and f["state"] == "note")


def test_a_memory_limit_of_the_control_group_is_found(tmp_path: Path) -> None:
    from algorist.cli.doctor import cgroup_memory_bytes

    assert cgroup_memory_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    assert cgroup_memory_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("8589934592\n")
    assert cgroup_memory_bytes(tmp_path) == 8 << 30
