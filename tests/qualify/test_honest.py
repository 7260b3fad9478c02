"""No false alarm: honest runs of every method pass every gate as it is by default."""

import pytest

from algorist.errors import GateFailed, Stopped
from algorist.launch.run import resume, run
from algorist.recipe.load import load
from algorist.record.ledger import EventKind, read
from algorist.stages.listener import Silent

METHODS = {
    "sft": ("{name: sft}", "rl.group_size=1", "problems.sft_count=20", "sft={target: gold, steps: 2, batch_size: 4, optimizer: {lr: 1e-5}}"),
    "rft": ("{name: rft}",),
    "online_rft": ("{name: online_rft}",),
    "dpo": ("{name: dpo, beta: 0.1}",),
    "ppo": ("{name: ppo, beta: 0.04}",),
    "grpo": ("{name: grpo, beta: 0.04}",),
    "grpo_process": ("{name: grpo_process, beta: 0}",),
    "rloo": ("{name: rloo}",),
    "reinforce": ("{name: reinforce, baseline: batch_mean, whiten: population}",),
    "dr_grpo": ("{name: dr_grpo, reduction_constant: 4}",),
    "dapo": ("{name: dapo}",),
    "gspo": ("{name: gspo}",),
    "cispo": ("{name: cispo}",),
}  # fmt: skip
SMALL = ("rl.updates=2", "rl.replay.every=10", "rl.prompts_per_batch=6")


def honest(start_recipe, out, *overrides: str):
    return run(load(start_recipe, [*SMALL, *overrides]), out, listener=Silent())


@pytest.mark.parametrize(
    "temperature", [0.6, pytest.param(1.0, marks=pytest.mark.slow), pytest.param(1.4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_an_honest_run_of_every_method_is_not_refused(method, dtype, temperature, start_recipe, tmp_path) -> None:
    objective, *more = METHODS[method]
    settings = [f"rl.objective={objective}", f"policy.dtype={dtype}", f"rl.sampling.temperature={temperature}", *more]
    finished = honest(start_recipe, tmp_path / "run", *settings)
    assert finished.counts.rollout_batches == 2
    assert finished.counts.updates_applied >= 1


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(("rl.objective={name: ppo}", "policy.dtype=bfloat16"), id="a value head in bfloat16"),
        pytest.param(("rl.objective={name: grpo}", "rl.epochs_per_batch=3", "rl.micro_batch_tokens=24"), id="epochs, small micro-batches"),
        pytest.param(("rl.objective={name: grpo}", "rl.reference.reset_every=1", "rl.updates=3"), id="the reference is reset"),
        pytest.param(('qualify.parameters.frozen=["*norm*"]', "rl.evaluate_every=1", "rl.updates=3"), id="frozen norms, evaluations between"),
        pytest.param(("qualify.memory.activation_offload=true",), id="layers computed again", marks=pytest.mark.slow),
        pytest.param(("rl.optimizer={lr: 1e-3, clip_norm: null, weight_decay: 0.1, betas: [0.0, 0.9]}",), id="no clipping, decay, no momentum", marks=pytest.mark.slow),
        pytest.param(("rl.optimizer={lr: 1e-5, schedule: cosine}", "rl.updates=9"), id="a rate that falls to nothing", marks=pytest.mark.slow),
        pytest.param(("rl.optimizer.lr=0.03",), id="a rate that is much too high"),
        pytest.param(("rl.sampling.rows=4", "rl.updates=12"), id="few rows at a time, several epochs of problems", marks=pytest.mark.slow),
        pytest.param(("rl.objective={name: grpo, redistribution: {cap: 2}}", "rl.quality=brevity"), id="redistribution", marks=pytest.mark.slow),
        pytest.param(("rl.shaping=[{name: overlong, max_tokens: 4, buffer_tokens: 2}]",), id="a shaped reward", marks=pytest.mark.slow),
        pytest.param(("rl.objective={name: rloo, beta: 0.02}",), id="a KL fee in the reward", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_an_honest_run_under_other_settings_is_not_refused(settings, start_recipe, tmp_path) -> None:
    assert honest(start_recipe, tmp_path / "run", *settings).counts.updates_applied >= 1


def test_a_resumed_run_is_not_refused(start_recipe, tmp_path) -> None:
    asked = iter(range(99))
    with pytest.raises(Stopped):
        run(load(start_recipe, []), tmp_path / "run", listener=Silent(), stop_requested=lambda: next(asked) == 1)
    assert resume(tmp_path / "run", listener=Silent()).counts.rollout_batches == 4


def test_the_replay_of_honest_runs_stays_far_below_its_bounds(finished) -> None:
    checks = [e.payload for e in read(finished / "ledger.jsonl") if e.kind is EventKind.REPLAY_CHECK]
    assert checks
    for check in checks:
        assert check["mean_nats"] < 2e-5
        assert check["max_nats"] < 1e-3
        assert check["draws"]["off"] == 0


def test_a_batch_without_a_gradient_changes_nothing_and_is_replayed_all_the_same(start_recipe, tmp_path) -> None:
    hard = ("qualify.signal.action=report", "problems.source={kind: jsonl, path: hard.jsonl}", "rl.replay.every=10")
    out = tmp_path / "run"
    with pytest.raises(GateFailed, match="no update was applied"):
        run(load(start_recipe, ["rl.updates=3", *hard]), out, listener=Silent())
    events = read(out / "ledger.jsonl")
    assert sum(e.kind is EventKind.UPDATE_SKIPPED for e in events) == 3
    assert [e.payload["batch"] for e in events if e.kind is EventKind.REPLAY_CHECK] == [0, 1, 2]
