"""preflight and calibrate on the command line: exit codes, one JSON object, nothing written; the launch recipes' sizes."""

import json
from pathlib import Path

import pytest

from algorist.cli import main
from algorist.recipe.load import load

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "recipes" / "deepseek_v41"


def test_preflight_of_a_good_recipe_passes_and_writes_nothing(start_recipe, capsys) -> None:
    before = sorted(start_recipe.parent.rglob("*"))
    assert main(["preflight", str(start_recipe), "--threads", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [gate["name"] for gate in found["gates"]]
    assert names == [
        "data", "verifier_canary", "prompt_lengths", "template", "parameters", "parents", "memory", "cache", "signal",
    ]  # fmt: skip
    assert all(gate["verdict"] in ("passed", "reported") for gate in found["gates"])
    assert sorted(start_recipe.parent.rglob("*")) == before


def test_preflight_tells_people_what_each_gate_looked_at(start_recipe, capsys) -> None:
    assert main(["preflight", str(start_recipe), "--threads", "1"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    for words in (
        "held-out questions in training", "known answers, 0 misjudged", "prompts shown", "policy = sampler: weights",
        "parameters trainable", "predicted peak", "GiB free (cpu); no cap promised", "one plain pass:", "mixed (",
    ):  # fmt: skip
        assert words in told
    assert (
        main(
            [
                "preflight",
                str(start_recipe),
                "--threads",
                "1",
                "--set",
                "qualify.memory.trainer_allocator_cap_gib=0.001",
            ]
        )
        == 3
    )
    told = " ".join(capsys.readouterr().err.split())
    assert "FAILED memory" in told
    assert "its cap is 0.001 GiB" in told


def test_preflight_shows_every_failed_gate_at_once_and_answers_with_its_code(start_recipe, capsys) -> None:
    memory = "qualify.memory={trainer_allocator_cap_gib: 4000, driver_free_memory_gib: 64}"
    assert main(["preflight", str(start_recipe), "--threads", "1", "--json", "--set", memory]) == 3
    capsys.readouterr()
    bad = ["--set", "problems.source={kind: jsonl, path: bad.jsonl}"]
    assert main(["preflight", str(start_recipe), "--threads", "1", "--json", "--set", memory, *bad]) == 4
    gates = json.loads(capsys.readouterr().out)["gates"]
    assert [g["name"] for g in gates if not g["passed"]] == ["data", "memory"]
    assert {g["name"]: g["verdict"] for g in gates}["cache"] == "deferred", (
        "what is refused is not allocated all the same"
    )


def test_calibrate_recommends_a_budget_within_the_context(start_recipe, capsys) -> None:
    arguments = ["calibrate", str(start_recipe), "--threads", "1", "--problems", "6", "--samples", "8", "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert 1 <= found["response_tokens"] <= 32
    assert found["group_size"] in (2, 4, 8)
    finished = [b["finished_share"] for b in found["budgets"]]
    assert finished == sorted(finished), "a larger budget finishes no fewer responses"


@pytest.mark.parametrize("name", ["nemotron_rloo", "nemotron_rloo_shared_gpu", "stand_in", "rehearsal"])
def test_a_launch_recipe_resolves(name, capsys) -> None:
    assert main(["recipe", "check", str(LAUNCH / f"{name}.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


def test_the_launch_has_the_contract_of_its_source() -> None:
    original, restart = (load(LAUNCH / f"nemotron_rloo{x}.yaml").recipe for x in ("", "_shared_gpu"))
    for recipe in (original, restart):
        assert recipe.rl.group_size == 4
        assert (recipe.rl.sampling.temperature, recipe.rl.sampling.top_p) == (1.0, 1.0)
        assert recipe.rl.objective.name == "rloo"
        assert (recipe.rl.replay.statistic, recipe.rl.replay.nats) == ("mean", 0.02)
        assert recipe.qualify.parents.step == 4537
        assert recipe.problems.heldout.count == 512
        assert recipe.rl.updates * recipe.rl.prompts_per_batch == 8192
    assert (restart.rl.sampling.response_tokens, restart.policy.context) == (1489, 2048)
    assert restart.rl.objective.reduction_kind == "group_token_mean"
    assert restart.qualify.parameters.frozen == ("*.mlp.gate.*",)
    assert restart.qualify.cache.prompts == 8
    assert (original.rl.updates, original.rl.optimizer.lr, original.rl.max_flat_batches) == (128, 1e-6, 20)
    assert original.reward.name == restart.reward.name == "exact"
    memory = restart.qualify.memory
    assert (memory.trainer_allocator_cap_gib, memory.driver_free_memory_gib) == (190, 64)
    assert memory.activation_offload
    (shaping,) = restart.rl.shaping
    assert (shaping.minimum_pass_rate, shaping.reference_quantile, shaping.tolerated_excess) == (0.25, 0.5, 0.1)
    assert (shaping.saturation_excess, shaping.exponent, shaping.maximum_deduction) == (1.0, 1.0, 0.1)


def test_the_rehearsal_differs_from_the_candidate_in_policy_rate_parents_and_memory_only() -> None:
    restart, rehearsal = (load(LAUNCH / f"{x}.yaml").recipe for x in ("nemotron_rloo_shared_gpu", "rehearsal"))
    parts = {"name", "description", "policy", "rl", "qualify"}
    assert {k for k, v in restart if v != getattr(rehearsal, k)} == parts
    assert {k for k, v in restart.rl if v != getattr(rehearsal.rl, k)} == {"optimizer"}
    assert {k for k, v in restart.qualify if v != getattr(rehearsal.qualify, k)} == {"parents", "memory"}
    assert rehearsal.qualify.memory.activation_offload
    assert rehearsal.policy.dtype == restart.policy.dtype == "bfloat16"


def test_the_launch_has_8192_training_and_512_held_out_problems_after_exclusions() -> None:
    from algorist.problems.load import load_problems
    from algorist.qualify.exclusions import exclude

    recipe = load(LAUNCH / "nemotron_rloo.yaml").recipe
    problems = load_problems(recipe.problems, seed=recipe.seed, base_dir=LAUNCH)
    left = exclude(problems, recipe.qualify.data.exclusions, LAUNCH)
    assert (len(left.train), len(left.heldout)) == (8192, 512)
    assert left.report.dropped_by_reason["prior_exposure"] == 16
