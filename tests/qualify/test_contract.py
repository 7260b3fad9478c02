"""The contract holds everything a run starts from, each under its own key, and a change of any of them is another contract."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from algorist.digest import file_digest, sha256
from algorist.errors import GateFailed, ResumeMismatch, Stopped
from algorist.launch.run import resume, run
from algorist.qualify.contract import UNMATCHED, differences, provenance
from algorist.recipe.load import load
from algorist.stages.listener import Silent

ROOT = Path(__file__).resolve().parents[2]
PINS = dict(
    line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")
)


@pytest.fixture(scope="module")
def contract(finished) -> dict:
    return json.loads((finished / "contract.json").read_bytes())


def test_every_key_that_the_documentation_names_is_there(contract) -> None:
    page = (ROOT / "docs" / "qualification.md").read_text()
    table = page[page.index("## Contract") : page.index("## Gates")]
    keys = [
        key
        for row in re.findall(r"^\| [^|]+ \| ([^|]+) \|", table, re.MULTILINE)
        for key in re.findall(r"`([\w.]+)`", row)
    ]
    assert len(keys) > 20
    for key in keys:
        at = contract
        for part in key.split("."):
            assert part in at, f"{key} is not in the contract"
            at = at[part]


def test_the_lock_file_is_part_of_it(contract) -> None:
    assert contract["provenance"]["lock"] == file_digest(ROOT / "requirements.lock")
    assert set(UNMATCHED) == {"provenance", "amends"}


def test_the_lock_names_every_requirement_and_neither_torch_nor_places() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [
        Requirement(r)
        for r in (*project["dependencies"], *(r for n in ("dev", "smollm2", "problems") for r in extras[n]))
    ]
    pins = {name.lower().replace("_", "-"): pin for name, pin in PINS.items()}
    for requirement in asked:
        if requirement.name != "torch":
            assert requirement.specifier.contains(pins[requirement.name.lower()]), requirement
    assert not [name for name in pins if name in ("torch", "algorist", "triton", "pip") or name.startswith("nvidia")]
    assert not re.search(r"[@/\\]|--", (ROOT / "requirements.lock").read_text())


def test_a_checkout_has_its_commit_and_an_installed_package_says_why_it_has_none(tmp_path) -> None:
    here = provenance()
    if here["commit"] is not None:
        assert re.fullmatch("[0-9a-f]{40}", str(here["commit"]))
        assert str(here["origin"]).startswith("source checkout;")
    shutil.copytree(
        ROOT / "src" / "algorist", tmp_path / "lib" / "site" / "algorist", ignore=shutil.ignore_patterns("__pycache__")
    )
    code = "import json; from algorist.qualify.contract import provenance; print(json.dumps(provenance()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "lib" / "site", capture_output=True, text=True, check=True
    )
    installed = json.loads(done.stdout)
    assert installed["commit"] is installed["uncommitted"] is installed["lock"] is None
    assert installed["origin"] == "installed package; code.source is the digest of its files"


def test_parents_are_named_with_weights_and_step(contract, finished, start_recipe, tmp_path) -> None:
    own = contract["parents"]["policy"]
    assert own["weights"] == contract["policy"]["weights"]
    exported = json.loads((finished / "export" / "algorist.json").read_bytes())
    assert exported["step"] > 0
    copy = Path(shutil.copytree(finished / "export", tmp_path / "copy"))
    sets = [f"policy.path={finished / 'export'}", f"qualify.parents.reference={copy}", "rl.updates=1"]
    out = run(load(start_recipe, sets), tmp_path / "run", listener=Silent()).folder
    parents = json.loads((out / "contract.json").read_bytes())["parents"]
    same = {"weights": exported["weights"], "step": exported["step"], "config": parents["policy"]["config"]}
    assert parents == {"policy": same, "reference": same}


@pytest.mark.parametrize("role", ["reference", "serving"])
def test_a_parent_with_other_weights_refuses_the_run(finished, start_recipe, tmp_path, role) -> None:
    sets = [f"qualify.parents.{role}={finished / 'export'}"]  # trained further than the policy
    with pytest.raises(GateFailed, match=f"parents: .*{role} carries weights"):
        run(load(start_recipe, sets), tmp_path / "run", listener=Silent())


def test_a_worked_solution_or_a_list_of_exclusions_that_changed_stops_a_resume(tmp_path) -> None:
    rows = [{"question": f"{a} + 2 =", "answer": str(a + 2), "solution": f"{a} + 2 = {a + 2}"} for a in range(40)]
    problems, seen, recipe = (tmp_path / name for name in ("problems.jsonl", "seen.txt", "recipe.yaml"))
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen.write_text("39 + 2 =\n")
    recipe.write_text(SOLUTIONS)
    out, calls = tmp_path / "run", iter(range(99))
    with pytest.raises(Stopped):
        run(load(recipe), out, listener=Silent(), stop_requested=lambda: next(calls) >= 1)
    contract = json.loads((out / "contract.json").read_bytes())
    assert contract["problems"]["exclusions"] == {"seen.txt": sha256(b"39 + 2 =\n")}
    before = problems.read_text()
    problems.write_text(before.replace('"7 + 2 = 9"', '"2 + 7 = 9"'))
    with pytest.raises(ResumeMismatch, match=r"problems\.content"):
        resume(out, listener=Silent())
    problems.write_text(before)
    seen.write_text("39 + 2 =\nnone of them\n")
    with pytest.raises(ResumeMismatch, match=r"problems\.exclusions\.seen\.txt"):
        resume(out, listener=Silent())
    seen.write_text("39 + 2 =\n")
    resume(out, listener=Silent())


SOLUTIONS = """
name: solutions
policy: {new: {hidden_size: 32, intermediate_size: 64, num_layers: 2, num_heads: 4, context: 64}}
problems:
  source: {kind: jsonl, path: problems.jsonl, solution: solution}
  heldout: {count: 4}
  sft_count: 30
prompt: {format: "{question} ", answer_format: last_number}
sft: {steps: 3, batch_size: 4, optimizer: {lr: 1.0e-3}}
evaluate: {samples: 2, ks: [1, 2], bootstrap: 100, response_tokens: 8}
qualify: {data: {exclusions: [seen.txt]}}
"""


def test_differences_are_named_by_key() -> None:
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ["a.c: 2 -> 3"]
    assert differences({"provenance": 1}, {"provenance": 2}) == []
