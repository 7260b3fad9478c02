"""`import algorist`: the public names, and a reward of one's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import algorist
from algorist.errors import InputError

SRC = Path(__file__).parents[2] / "src"


def test_every_public_name_resolves_and_the_list_is_sorted() -> None:
    assert list(algorist.__all__) == sorted(algorist.__all__)
    for name in algorist.__all__:
        assert callable(getattr(algorist, name)), name
    assert set(algorist.__all__) <= set(dir(algorist))
    assert algorist.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'evaluat'; public names: "):
        _ = algorist.evaluat  # type: ignore[attr-defined]


def test_importing_algorist_imports_nothing_heavy() -> None:
    code = "import sys, algorist; print({'torch', 'transformers', 'sympy', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SRC)}
    )
    assert done.stdout.strip() == "set()"


def test_the_verbs_call_the_public_functions() -> None:
    from algorist.api import ask, measure, runs
    from algorist.report.page import build

    assert algorist.run is runs.run
    assert algorist.evaluate_model is measure.evaluate_model
    assert algorist.sample is ask.sample
    assert algorist.build_report is build


REWARD = '''\
"""Pays right answers, and half of it for an answer that is off by one."""


def near(problem, rollout, verdict):
    if verdict.verdict == "correct":
        return 1.0
    return 0.5 if verdict.extracted.isdigit() and abs(int(verdict.extracted) - int(problem.gold)) == 1 else 0.0
'''


@pytest.fixture
def reward_module(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (place / "near_reward.py").write_text(REWARD)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "near_reward", raising=False)
    return place


def test_a_reward_of_ones_own_as_a_function_equals_the_same_as_a_plugin(reward_module: Path) -> None:
    import near_reward  # type: ignore[import-not-found]

    first = algorist.run("tiny.yaml", "a", reward=near_reward.near)
    second = algorist.run("tiny.yaml", "b", overrides=["reward.name=near"], plugin="near_reward")
    contracts = [json.loads((f.folder / "contract.json").read_text()) for f in (first, second)]
    assert contracts[0] == contracts[1]
    assert contracts[0]["recipe"]["reward"]["name"] == "near"
    assert first.after == second.after


def test_a_reward_without_a_name_is_refused(place: Path) -> None:
    with pytest.raises(InputError, match="must be a function at the top of a module"):
        algorist.run("tiny.yaml", "a", reward=lambda problem, rollout, verdict: 1.0)
    assert not (place / "a").exists()


def test_a_finished_run_is_opened_measured_and_asked(finished: Path) -> None:
    model = algorist.open_model(finished)
    problems = [algorist.Problem(id=f"q{i}", question=f"{i} + 2", gold=str(i + 2), source="here") for i in range(3)]
    measured = algorist.evaluate_model(model, problems, name="three")
    assert measured.result.problems == 3
    assert measured.num_dropped == 0
    [answer] = algorist.sample(model, "1 + 2", temperature=0.0, gold="3")
    assert answer.verdict is not None


def test_preflight_calibrate_audit_and_why_are_functions_too(finished: Path, place: Path) -> None:
    seen: list[str] = []
    found = algorist.preflight("tiny.yaml", on_gate=lambda gate: seen.append(gate.name))
    assert found.exit_code == 0
    assert seen == [gate.name for gate in found.gates]
    assert "memory" in seen
    advice = algorist.calibrate("tiny.yaml", problems=4, samples=4)
    assert advice.samples == 4
    assert 2 <= advice.group_size <= 4
    assert algorist.audit(finished).ok
    assert algorist.why(finished).status in ("qualified", "unqualified")


def test_compare_is_a_function_and_refuses_what_the_verb_refuses(place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a method must be one of"):
        algorist.compare("tiny.yaml", ["grop"], tmp_path / "c")
    done = algorist.compare("tiny.yaml", ["rloo"], tmp_path / "c", seeds=[0])
    assert done.page.is_file()
    assert [run.label for run in done.comparison.runs] == ["rloo"]


def test_resume_of_a_finished_run_changes_nothing_but_the_page(finished: Path, tmp_path: Path) -> None:
    import shutil

    import torch

    shutil.copytree(finished, tmp_path / "run")
    torch.set_num_threads(1)
    again = algorist.resume(tmp_path / "run")
    assert again.counts.rollout_batches == 2
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == (finished / "ledger.jsonl").read_bytes()
