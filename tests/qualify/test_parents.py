"""Matched parents: policy, reference and serving copy hold the same weights of the declared step, or nothing begins."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from algorist.cli import main


@pytest.fixture
def parent(start_recipe, tmp_path) -> Path:
    """A checkpoint that another trainer saved at step 4537."""
    folder = Path(shutil.copytree(start_recipe.parent / "start", tmp_path / "parent"))
    for ours in ("algorist.json", "manifest.json"):
        (folder / ours).unlink()
    (folder / "trainer_state.json").write_text('{"global_step": 4537, "epoch": 3.0}')
    return folder


@pytest.fixture
def judged(start_recipe, parent, capsys):
    """The parents gate of a preflight with these promises, and the exit code."""

    def judge(*overrides: str) -> tuple[dict, int]:
        sets = [f"policy.path={parent}", "rl.sampling.response_tokens=4", *overrides]
        call = ["preflight", str(start_recipe), "--threads", "1", "--json"]
        code = main([*call, *(part for text in sets for part in ("--set", text))])
        gates = {gate["name"]: gate for gate in json.loads(capsys.readouterr().out)["gates"]}
        return gates["parents"], code

    return judge


def test_a_parent_of_the_declared_step_passes_and_the_step_is_recorded(judged) -> None:
    gate, code = judged("qualify.parents.step=4537")
    assert (gate["verdict"], code) == ("passed", 0)
    assert gate["figures"]["steps"] == {"policy": 4537}


def test_a_parent_of_another_step_is_refused(judged) -> None:
    gate, code = judged("qualify.parents.step=4500")
    assert (gate["verdict"], code) == ("failed", 4)
    assert "policy was saved at step 4537, not 4500" in gate["cause"]


def test_a_parent_that_does_not_say_its_step_is_refused_and_its_weights_may_be_declared_instead(judged, parent) -> None:
    (parent / "trainer_state.json").unlink()
    gate, code = judged("qualify.parents.step=4537")
    assert (gate["verdict"], code) == ("failed", 4)
    assert "policy does not say at which step it was saved, and 4537 is declared" in gate["cause"]
    (own,) = {*gate["figures"]["digests"].values()}
    assert own in gate["remedy"]
    gate, code = judged("qualify.parents.step=4537", f"qualify.parents.weights={own}")
    assert (gate["verdict"], code) == ("passed", 0)


def test_a_policy_that_comes_from_no_checkpoint_has_no_step(judged) -> None:
    gate, _ = judged(
        "policy={new: {hidden_size: 16, intermediate_size: 16, num_layers: 1, num_heads: 2, context: 32}}",
        "qualify.parents.step=4537",
    )
    assert gate["verdict"] == "failed"


@pytest.mark.parametrize("role", ["reference", "serving"])
def test_a_copy_with_one_other_weight_is_refused_by_name(role, judged, parent, tmp_path) -> None:
    other = Path(shutil.copytree(parent, tmp_path / "other"))
    gate, code = judged("qualify.parents.step=4537", f"qualify.parents.{role}={other}")
    assert (gate["verdict"], code) == ("passed", 0)
    file = other / "model.safetensors"
    tensors = load_file(file)
    next(iter(tensors.values())).view(-1)[0] += 1e-3
    save_file(tensors, file, metadata={"format": "pt"})
    gate, code = judged("qualify.parents.step=4537", f"qualify.parents.{role}={other}")
    assert (gate["verdict"], code) == ("failed", 4)
    assert f"{role} carries weights" in gate["cause"]


def test_a_copy_of_another_step_is_refused_although_its_weights_are_the_same(judged, parent, tmp_path) -> None:
    other = Path(shutil.copytree(parent, tmp_path / "other"))
    (other / "trainer_state.json").write_text('{"global_step": 4536}')
    gate, _ = judged("qualify.parents.step=4537", f"qualify.parents.serving={other}")
    assert "serving was saved at step 4536, not 4537" in gate["cause"]


def test_an_export_says_the_step_it_was_saved_at(start_recipe) -> None:
    facts = json.loads((start_recipe.parent / "start" / "algorist.json").read_bytes())
    assert facts["step"] == 60
