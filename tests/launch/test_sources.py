"""Where responses come from and how often they are used: offline sources, several epochs, a reset reference, step rewards."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from algorist.digest import canonical, sha256
from algorist.errors import Stopped
from algorist.launch.audit import audit
from algorist.launch.prepare import prepare
from algorist.launch.run import resume, run
from algorist.objective.registry import METHODS
from algorist.qualify import receipt
from algorist.recipe.load import load
from algorist.record import ledger
from algorist.record import metrics as metrics_file
from algorist.record.ledger import EventKind, logical_digest, read
from algorist.record.rollouts import read as read_rollouts
from algorist.record.rollouts import read_rows
from algorist.record.run_folder import RunFolder
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.stages.config import OFFLINE
from algorist.stages.listener import Silent

HERE = Path(__file__).parent
SHORT = ["rl.updates=4", "rl.evaluate_every=null", "sft.steps=30", "record.checkpoint_every=2", "record.keep=9"]

CASES = {
    "rft": ("nano.yaml", ["rl.objective={name: rft}"]),
    "dpo": ("nano.yaml", ["rl.objective={name: dpo}"]),
    "sft": ("nano.yaml", ["rl.objective={name: sft}", "rl.group_size=1"]),
    "epochs": ("nano.yaml", ["rl.objective={name: grpo}", "rl.epochs_per_batch=2"]),
    "iterative": ("nano.yaml", ["rl.objective={name: grpo}", "rl.epochs_per_batch=2", "rl.reference.reset_every=3"]),
    "ppo": ("nano.yaml", ["rl.objective={name: ppo}", "rl.epochs_per_batch=2"]),
    "process": ("steps.yaml", ["sft.batch_size=64", "rl.group_size=8"]),
    "efforts": (
        "nano.yaml",
        [
            "problems.efforts=[20, 80]",
            'prompt.format="{effort} {question}="',
            "rl.shaping=[{name: effort_length, levels: [20, 80], k0: 0.1, norm_tokens: 4, maximum: 0.1, lam: 1.0}]",
        ],
    ),
    "shaped": (
        "nano.yaml",
        [
            "rl.objective={name: grpo, beta: 0, redistribution: {}}",
            "rl.quality=brevity",
            "rl.shaping=[{name: length_deduction}, {name: overlong, max_tokens: 4, buffer_tokens: 2}]",
        ],
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """(case, overrides, finished run) of each way to train."""
    file, overrides = CASES[request.param]
    resolved = load(HERE / file, [*SHORT, *overrides])
    return request.param, resolved, run(resolved, tmp_path_factory.mktemp("runs") / request.param, listener=Silent())


def stored(folder: Path) -> list[dict]:
    return [row for file in sorted((folder / "rollouts").glob("*.parquet")) for row in read_rows(file)]


def test_a_stop_and_a_resume_give_the_same_files(case, tmp_path) -> None:
    name, resolved, finished = case
    calls = iter(range(1000))
    out = tmp_path / name
    with pytest.raises(Stopped):
        run(resolved, out, listener=Silent(), stop_requested=lambda: next(calls) >= 32)  # after three of four batches
    resume(out, listener=Silent())
    assert logical_digest(out / "ledger.jsonl") == logical_digest(finished.folder / "ledger.jsonl")
    assert metrics_file.logical_digest(out / "metrics.jsonl") == metrics_file.logical_digest(
        finished.folder / "metrics.jsonl"
    )
    for file in [*(finished.folder / "rollouts").iterdir(), finished.export / "model.safetensors"]:
        assert file.read_bytes() == (out / file.relative_to(finished.folder)).read_bytes(), file.name
    last = "checkpoints/step-34"
    for file in (finished.folder / last).iterdir():
        assert file.read_bytes() == (out / last / file.name).read_bytes(), file.name


def test_every_run_is_qualified_and_moves_its_weights(case) -> None:
    name, _, finished = case
    events = read(finished.folder / "ledger.jsonl")
    assert events[-1].kind is EventKind.CLOSED
    assert sum(e.kind is EventKind.ROLLOUT_BATCH for e in events) == 4
    first = load_file(finished.folder / "checkpoints" / "step-30" / "weights.safetensors")
    last = load_file(finished.folder / "checkpoints" / "step-34" / "weights.safetensors")
    assert any(not torch.equal(first[key], last[key]) for key in first), name


def test_offline_rollouts_are_those_of_the_weights_that_rl_began_with(case) -> None:
    _, resolved, finished = case
    if resolved.recipe.rl.source != "sft_samples":
        pytest.skip("samples while it trains")
    folder = finished.folder
    rows = stored(folder)
    assert {version for row in rows for version in row["policy_version"]} == {0}
    prepared = prepare(resolved.recipe, base=resolved.base_dir, listener=Silent())
    prepared.close()
    from algorist.policy.weights import load_state

    load_state(prepared.policy, folder / "checkpoints" / "step-30" / "weights.safetensors")
    sampling = resolved.recipe.rl.sampling
    plan = SamplingPlan(temperature=1.0, response_tokens=sampling.response_tokens, stop_ids=prepared.task.stop_ids)
    batch = read_rollouts(folder / "rollouts" / "batch-000003.parquet").batch  # sampled after three updates
    prompts = [prepared.task.prompts[group.problem_id] for group in batch.groups]
    again = LocalEngine(prepared.policy).generate(
        prompts, num_samples=4, plan=plan, policy_version=0, seed=resolved.recipe.seed, salt="batch-3"
    )
    assert [r.token_ids for g in again for r in g] == [r.token_ids for g in batch.groups for r in g.rollouts]


def test_offline_runs_say_how_far_the_policy_has_gone_and_online_ones_how_well_it_replays(case) -> None:
    _, resolved, finished = case
    rows = [r for r in metrics_file.read(finished.folder / "metrics.jsonl") if r["stage"] == "rl"]
    trained = [r for r in rows if not r["update/skipped"]]
    source = resolved.recipe.rl.source
    assert all(("drift/mean_nats" in r) == (source == "sft_samples") for r in trained)
    assert all(("replay/mean_nats" in r) == (source == "online") for r in trained)
    if source == "online":
        assert max(r["replay/max_nats"] for r in trained) < 1e-3
    if source == "sft_samples":
        assert trained[-1]["drift/mean_nats"] > 1e-3


def test_a_data_set_objective_trains_on_the_worked_solutions(case) -> None:
    name, _, finished = case
    if name != "sft":
        pytest.skip("learns from samples")
    rows = stored(finished.folder)
    assert {row["verdict"] for row in rows} == {"correct"}
    assert {row["finish"] for row in rows} == {"stop"}
    assert {row["advantage"] for row in rows} == {1.0}
    figures = [r for r in metrics_file.read(finished.folder / "metrics.jsonl") if r["stage"] == "rl"]
    assert [r["tokens/with_gradient"] for r in figures] == [r["tokens/sampled"] for r in figures]


def test_several_epochs_are_as_many_updates_and_the_reference_follows_across_multiples(case) -> None:
    name, _, finished = case
    if name not in ("epochs", "iterative"):
        pytest.skip("one epoch")
    events = read(finished.folder / "ledger.jsonl")
    epochs = [e.payload["epoch"] for e in events if e.kind is EventKind.UPDATE_APPLIED and e.payload["stage"] == "rl"]
    assert epochs == [0, 1] * (len(epochs) // 2)
    steps = {n: finished.folder / "checkpoints" / f"step-{n}" for n in (32, 34)}
    reference = {n: load_file(path / "reference.safetensors") for n, path in steps.items()}
    start = load_file(finished.folder / "checkpoints" / "step-30" / "weights.safetensors")
    if name == "epochs":
        assert all(torch.equal(reference[34][key], start[key]) for key in start)
    else:  # updates 2, 4, 6, 8: multiples of 3 are passed in the second and the third batch
        weights = load_file(steps[32] / "weights.safetensors")
        assert all(torch.equal(reference[32][key], weights[key]) for key in weights)
        assert any(not torch.equal(reference[34][key], reference[32][key]) for key in weights)


def test_process_supervision_stores_an_advantage_for_every_token(case) -> None:
    name, _, finished = case
    if name != "process":
        pytest.skip("outcome supervision")
    rows = [row for row in stored(finished.folder) if row["advantage_tokens"] is not None]
    assert rows
    assert all(len(row["advantage_tokens"]) == len(row["token_ids"]) for row in rows)
    varied = [row for row in rows if len(set(row["advantage_tokens"])) > 1]
    assert varied
    plain = [  # one character a token, then the stop id
        row for row in varied if row["finish"] == "stop" and len(row["text"]) == len(row["token_ids"]) - 1
    ]
    assert plain
    for row in plain:  # a step ends at its last character, the separator behind it belongs to the next one
        values = row["advantage_tokens"]
        changes = [t for t in range(1, len(values)) if values[t] != values[t - 1]]
        assert all(row["text"][t] in ",:" for t in changes), (row["text"], changes)
    figures = [r for r in metrics_file.read(finished.folder / "metrics.jsonl") if r["stage"] == "rl"]
    assert all(r["steps/mean"] >= 1 and 0 <= r["steps/reward_mean"] <= 1 for r in figures)


def test_shaped_rewards_are_the_sum_of_their_stored_parts(case) -> None:
    name, _, finished = case
    if name != "shaped":
        pytest.skip("unshaped")
    rows = stored(finished.folder)
    assert all(set(row["reward_parts"]) == {"correct", "length_deduction", "overlong"} for row in rows)
    assert all(row["reward"] == pytest.approx(sum(row["reward_parts"].values())) for row in rows)
    assert any(row["reward_parts"]["overlong"] < 0 for row in rows)
    by_group: dict[tuple, list] = {}
    for row in rows:
        by_group.setdefault((row["batch"], row["group"]), []).append(row)
    failed = [group for group in by_group.values() if not any(row["verdict"] == "correct" for row in group)]
    assert failed
    assert all(row["reward"] == 0.0 and row["advantage"] == 0.0 for group in failed for row in group)
    figures = [r for r in metrics_file.read(finished.folder / "metrics.jsonl") if r["stage"] == "rl"]
    for r in figures:
        parts = r["reward/unshaped_mean"] + r["reward/length_deduction_mean"] + r["reward/overlong_mean"]
        assert r["reward/mean"] == pytest.approx(parts)
    assert sum(r["groups/all_failed"] for r in figures) == len(failed)


def test_the_table_of_offline_objectives_is_that_of_the_methods() -> None:
    assert {name: m.source for name, m in METHODS.items() if m.source != "online"} == dict(OFFLINE)


def test_the_contract_of_a_run_names_where_its_responses_come_from(case) -> None:
    _, resolved, finished = case
    contract = json.loads((finished.folder / "contract.json").read_bytes())
    assert contract["recipe"]["rl"]["objective"]["name"] == resolved.recipe.rl.objective.name


def test_an_audit_finds_the_same_again(case) -> None:
    name, _, finished = case
    checks = {check.name: check for check in audit(finished.folder).checks}
    assert not {key: check.faults for key, check in checks.items() if check.faults}
    replayed = checks["log-probabilities"].looked_at
    assert replayed.startswith("skipped" if name == "sft" else "batch 0 by step-30, batch 2 by step-32")
    assert checks["advantages"].looked_at == "4 batches"
    unscored = name in ("rft", "sft")  # one epoch and no reference: what was trained was not scored before
    assert ("not stored" in checks["losses"].looked_at) == unscored
    assert checks["training again"].looked_at.startswith("steps 32 to 33, from step-32 to step-34; steps 30 to 31")


def test_a_loss_that_was_not_computed_is_found_whatever_the_objective(case, tmp_path) -> None:
    _, _, finished = case
    run = Path(shutil.copytree(finished.folder, tmp_path / "run"))
    prev, out, forged = ledger.GENESIS, [], 0
    for line in (run / "ledger.jsonl").read_bytes().splitlines():
        event = json.loads(line)
        if event["kind"] == "update_applied" and event.get("stage") == "rl" and not forged:
            forged, event["loss"] = event["seq"], event["loss"] + 0.3
        out.append(canonical({**event, "prev": prev}))
        prev = sha256(out[-1])
    (run / "ledger.jsonl").write_bytes(b"".join(line + b"\n" for line in out))
    shutil.rmtree(run / "receipts")
    receipt.issue(RunFolder(root=run), read(run / "ledger.jsonl"))
    assert any(f"ledger.jsonl: event {forged} " in fault for fault in audit(run).faults)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    ["{name: rft}\n  epochs_per_batch: 2", "{name: grpo}\n  epochs_per_batch: 2\n  reference: {reset_every: 3}"],
    ids=["offline", "iterative"],
)
def test_killed_at_random_moments_the_run_is_the_uninterrupted_one(settings, tmp_path) -> None:
    recipe = HERE / f"killed-{os.getpid()}.yaml"  # beside nano.yaml, which it extends
    recipe.write_text(f"extends: nano.yaml\nname: killed\nrl:\n  objective: {settings}\n")
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "kill_driver.py"), str(recipe), str(tmp_path), "6", "2"],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        recipe.unlink()
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["kills"] == 6
    twin = Path(told["twin"])
    for run_folder in map(Path, told["runs"]):
        assert logical_digest(run_folder / "ledger.jsonl") == logical_digest(twin / "ledger.jsonl")
        for file in [*(twin / "rollouts").iterdir(), twin / "export" / "model.safetensors"]:
            assert file.read_bytes() == (run_folder / file.relative_to(twin)).read_bytes(), file.name
