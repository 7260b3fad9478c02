"""A whole run: what it leaves behind, that it is reproducible, and that a kill changes nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from algorist.cli.run import as_json
from algorist.errors import InputError, ResumeMismatch, Stopped
from algorist.launch.run import resume, run
from algorist.recipe.load import load
from algorist.record import metrics as metrics_file
from algorist.record.ledger import EventKind, counts, logical_digest, read, verify
from algorist.record.rollouts import read as read_rollouts
from algorist.report import summary_table
from algorist.report.cost import cost
from algorist.stages.listener import Silent

RECIPE = Path(__file__).with_name("nano.yaml")


class Ear:
    """A listener that remembers what was said."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def begin(self, stage, total): ...
    def advance(self, stage, done, numbers): ...
    def say(self, message):
        self.heard.append(message)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return run(load(RECIPE), out, listener=Silent())


def same_files(a: Path, b: Path) -> None:
    """Everything two equal runs must share, byte for byte; fail closed on files only one of them has."""
    assert logical_digest(a / "ledger.jsonl") == logical_digest(b / "ledger.jsonl")
    assert metrics_file.logical_digest(a / "metrics.jsonl") == metrics_file.logical_digest(b / "metrics.jsonl")
    names = []
    for root in (a, b):
        names.append(
            {
                p.relative_to(root).as_posix()
                for folder in ("rollouts", "evaluations", "checkpoints", "export")
                for p in (root / folder).rglob("*")
                if p.is_file()
            }
            | {"contract.json"}
        )
    assert names[0] == names[1]
    for name in sorted(names[0]):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


def test_a_run_leaves_what_the_design_promises(finished) -> None:
    folder = finished.folder
    events = read(folder / "ledger.jsonl")
    assert verify(folder / "ledger.jsonl").ok
    kinds = [e.kind for e in events]
    assert kinds[0] is EventKind.CONTRACT
    assert kinds[-1] is EventKind.CLOSED
    rl = [
        e
        for e in events
        if e.kind in (EventKind.UPDATE_APPLIED, EventKind.UPDATE_SKIPPED) and e.payload["stage"] == "rl"
    ]
    assert len(rl) == kinds.count(EventKind.ROLLOUT_BATCH) == 10
    assert counts(events).evaluations_completed == 4  # before, step-4, step-8, after
    assert {p.name for p in (folder / "evaluations").iterdir()} == {
        "before.json",
        "after.json",
        "step-4.json",
        "step-8.json",
    }
    assert len(list((folder / "rollouts").glob("*.parquet"))) == 10
    rows = metrics_file.read(folder / "metrics.jsonl")
    assert sum(r["stage"] == "sft" for r in rows) == 40
    assert sum(r["stage"] == "rl" for r in rows) == 10
    assert (folder / "checkpoints" / "LATEST").read_text().strip() == "step-50"


def test_the_first_replay_check_is_within_float32_noise(finished) -> None:
    checks = [e for e in read(finished.folder / "ledger.jsonl") if e.kind is EventKind.REPLAY_CHECK]
    assert checks[0].payload["batch"] == 0
    assert checks[0].payload["tokens"] > 0
    assert checks[0].payload["max_nats"] < 1e-4


def test_what_being_checked_costs_is_recorded_and_shown_everywhere_from_one_computation(finished) -> None:
    found = cost(read(finished.folder / "ledger.jsonl"))
    assert found == finished.cost
    assert found.gates_s > 0
    assert found.ledger_s > 0
    assert found.replay_s > 0
    assert sum(found.shares.values()) < 1
    assert as_json(finished)["cost"] == found.to_json()
    share = f"{found.shares['ledger']:.1%}"
    assert f"ledger {share} of the time" in finished.report.read_text()
    assert f"ledger {share} of the time" in str(summary_table(finished.folder).caption)
    script = Path(__file__).parents[2] / "benchmarks" / "bench_gates.py"
    done = subprocess.run([sys.executable, script, finished.folder], capture_output=True, text=True, check=False)
    assert found.to_json().items() <= json.loads(done.stdout).items()


def test_a_rehearsal_says_what_it_does_and_writes_nothing(tmp_path, monkeypatch) -> None:
    from algorist.launch.dry_run import MEASURED, rehearse
    from algorist.launch.prepare import prepare

    monkeypatch.chdir(tmp_path)
    ear = Ear()
    prepared = prepare(load(RECIPE).recipe, base=RECIPE.parent, listener=ear)
    try:
        measured = rehearse(prepared, ear)
    finally:
        prepared.close()
    told = [line for line in ear.heard if line.startswith("dry run")]
    assert [line[:14] for line in told] == ["dry run 1 of 3", "dry run 2 of 3", "dry run 3 of 3"]
    assert set(MEASURED) == set(type(measured).__slots__)
    assert measured.total_s > 0
    assert list(tmp_path.iterdir()) == []


def test_rollouts_hold_their_groups_and_advantages_that_sum_to_zero(finished) -> None:
    stored = read_rollouts(finished.folder / "rollouts" / "batch-000000.parquet")
    assert [len(g.rollouts) for g in stored.batch.groups] == [4] * 6
    for group, advantages in zip(stored.batch.groups, stored.advantages, strict=True):
        assert sum(advantages) == pytest.approx(0.0, abs=1e-6)
        assert group.flat == (set(advantages) == {0.0})


def test_heldout_problems_are_never_trained_on(finished) -> None:
    heldout = {
        r["problem_id"] for r in json.loads((finished.folder / "evaluations/after.json").read_text())["per_problem"]
    }
    trained = {
        g.problem_id
        for file in (finished.folder / "rollouts").glob("*.parquet")
        for g in read_rollouts(file).batch.groups
    }
    assert len(heldout) == 12
    assert not heldout & trained


def test_the_same_recipe_and_seed_give_the_same_run_byte_for_byte(finished, tmp_path) -> None:
    again = run(load(RECIPE), tmp_path / "again", listener=Silent())
    same_files(finished.folder, again.folder)


def test_another_seed_gives_another_run(finished, tmp_path) -> None:
    other = run(load(RECIPE, ["seed=1", "rl.updates=1"]), tmp_path / "other", listener=Silent())
    assert other.before != finished.before


def test_a_used_folder_is_refused_and_left_alone(finished) -> None:
    before = (finished.folder / "ledger.jsonl").read_bytes()
    with pytest.raises(InputError, match="already holds a run"):
        run(load(RECIPE), finished.folder, listener=Silent())
    assert (finished.folder / "ledger.jsonl").read_bytes() == before


def test_stopping_on_request_commits_and_the_resumed_run_is_the_uninterrupted_one(finished, tmp_path) -> None:
    out = tmp_path / "stopped"
    calls = iter(range(1000))
    with pytest.raises(Stopped, match="algorist resume"):
        run(load(RECIPE), out, listener=Silent(), stop_requested=lambda: next(calls) >= 44)
    events = read(out / "ledger.jsonl")
    assert 0 < sum(e.kind is EventKind.ROLLOUT_BATCH for e in events) < 10
    resume(out, listener=Silent())
    same_files(finished.folder, out)


def test_resuming_a_finished_run_changes_nothing(finished) -> None:
    before = (finished.folder / "ledger.jsonl").read_bytes()
    resume(finished.folder, listener=Silent())
    assert (finished.folder / "ledger.jsonl").read_bytes() == before


def test_resume_under_another_contract_is_refused(tmp_path) -> None:
    out = tmp_path / "run"
    calls = iter(range(1000))
    with pytest.raises(Stopped):
        run(load(RECIPE), out, listener=Silent(), stop_requested=lambda: next(calls) >= 2)
    contract = json.loads((out / "contract.json").read_bytes())
    contract["problems"]["digest"] = "0" * 64
    (out / "contract.json").write_text(json.dumps(contract))
    with pytest.raises(ResumeMismatch, match=r"problems\.digest"):
        resume(out, listener=Silent())


def test_a_corrupt_checkpoint_is_named_and_the_one_before_is_used(finished, tmp_path) -> None:
    out = tmp_path / "run"
    calls = iter(range(1000))
    with pytest.raises(Stopped):
        run(load(RECIPE), out, listener=Silent(), stop_requested=lambda: next(calls) >= 47)
    newest = max((out / "checkpoints").glob("step-*"), key=lambda p: int(p.name.split("-")[1]))
    file = newest / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-7] ^= 1
    file.write_bytes(data)
    ear = Ear()
    resume(out, listener=ear)
    assert any(newest.name in line and "weights.safetensors" in line for line in ear.heard)
    assert logical_digest(out / "ledger.jsonl") == logical_digest(finished.folder / "ledger.jsonl")


def test_the_export_opens_with_transformers_and_says_what_the_last_policy_says(finished) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(finished.export)
    tokenizer = AutoTokenizer.from_pretrained(finished.export)
    after = json.loads((finished.folder / "evaluations" / "after.json").read_text())
    answers = {r["problem_id"]: r["greedy_answer"] for r in after["per_problem"]}
    stored = {}
    from algorist.launch.prepare import prepare

    prepared = prepare(load(RECIPE).recipe, base=RECIPE.parent, listener=Silent())
    prepared.close()
    for problem in prepared.task.heldout:
        ids = torch.tensor([prepared.task.prompts[problem.id].token_ids])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4)
        stored[problem.id] = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True).strip()
    assert {k: v for k, v in stored.items() if answers[k] is not None} == {
        k: v for k, v in answers.items() if v is not None
    }


def test_the_last_checkpoint_is_the_exported_model(finished) -> None:
    from safetensors.torch import load_file

    last = load_file(finished.folder / "checkpoints" / "step-50" / "weights.safetensors")
    exported = load_file(finished.export / "model.safetensors")
    for name, tensor in exported.items():
        assert torch.equal(tensor, last[name])


def test_killed_twenty_times_at_random_moments_the_run_is_the_uninterrupted_one(tmp_path) -> None:
    driver = Path(__file__).with_name("kill_driver.py")
    done = subprocess.run(
        [sys.executable, str(driver), str(RECIPE), str(tmp_path), "20", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["kills"] == 20
    assert len(set(told["places"])) >= 5, f"kills must hit different moments, got ledger lengths {told['places']}"
    for path in told["runs"]:
        same_files(Path(told["twin"]), Path(path))
