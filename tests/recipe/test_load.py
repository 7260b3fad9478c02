"""A resolved recipe: complete, digested, with origins; what follows from it; how two differ; the shipped ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from algorist.digest import sha256
from algorist.errors import RecipeError
from algorist.recipe.checks import check_files
from algorist.recipe.derived import derived
from algorist.recipe.diff import diff
from algorist.recipe.load import from_json, load
from algorist.recipe.model import Recipe
from algorist.recipe.reference import main, render
from algorist.recipe.tree import walk

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "recipes").rglob("*.yaml"))
NANO = ROOT / "recipes" / "nano" / "arithmetic.yaml"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_shipped_recipe_is_right_and_survives_its_canonical_form(path: Path) -> None:
    resolved = load(path)
    assert not check_files(resolved.recipe, resolved.written, resolved.base_dir)
    assert from_json(resolved.canonical_json) == resolved.recipe
    assert resolved.digest == sha256(resolved.canonical_json)
    assert resolved.recipe.description


def test_the_canonical_form_holds_every_default() -> None:
    document = json.loads(load(NANO).canonical_json)
    assert set(document) == set(Recipe.model_fields)
    assert document["rl"]["optimizer"]["betas"] == [0.9, 0.95]


def test_the_digest_ignores_how_a_recipe_is_written_and_sees_every_value(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(NANO.read_text())
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n# comment\nseed: 0x0\n")
    (tmp_path / "c.yaml").write_text("extends: a.yaml\nrl: {optimizer: {lr: 0.00015}}\n")
    digests = {load(tmp_path / f"{name}.yaml").digest for name in "abc"}
    assert digests == {load(NANO).digest}
    assert load(NANO, ["rl.optimizer.lr=1.6e-4"]).digest not in digests


def test_origins_tell_file_lines_from_overrides_from_defaults(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"extends: {ROOT / 'recipes' / 'nano' / 'arithmetic.yaml'}\n\nname: mine\n")
    resolved = load(mine, ["rl.updates=7", "problems.source.count=2000"])
    assert resolved.origins["rl.updates"] == "--set rl.updates=7"
    assert resolved.origins["problems.source[0].count"] == "--set problems.source.count=2000"
    assert resolved.origins["name"].endswith("mine.yaml:3")
    assert "nano/arithmetic.yaml:" in resolved.origins["rl.group_size"]
    assert "rl.optimizer.betas" not in resolved.origins
    assert [path.name for path in resolved.sources] == ["mine.yaml", "arithmetic.yaml"]


def test_the_paper_recipe_states_the_papers_settings() -> None:
    recipe = load(ROOT / "recipes" / "deepseekmath" / "grpo_7b.yaml").recipe
    rl = recipe.rl
    assert rl is not None
    assert rl.objective.name == "grpo"
    assert (rl.optimizer.lr, rl.objective.beta) == (1e-6, 0.04)
    assert (rl.group_size, rl.prompts_per_batch * rl.group_size) == (64, 1024)
    assert (rl.sampling.response_tokens, rl.epochs_per_batch) == (1024, 1)


def test_one_stage_of_a_recipe_keeps_the_split_and_the_evaluation_of_the_whole() -> None:
    sft, rl = load(NANO, only="sft").recipe, load(NANO, only="rl").recipe
    whole = load(NANO).recipe
    assert (sft.rl, rl.sft) == (None, None)
    assert whole.problems == sft.problems == rl.problems
    assert sft.evaluate.response_tokens == rl.evaluate.response_tokens == 24
    assert len({load(NANO, only=stage).digest for stage in ("sft", "rl", None)}) == 3  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="the recipe has no sft stage"):
        load(ROOT / "recipes" / "smollm2" / "arithmetic.yaml", only="sft")


def test_derived_quantities_say_what_a_batch_is() -> None:
    figures = derived(load(ROOT / "recipes" / "deepseekmath" / "grpo_7b.yaml").recipe)
    assert figures["rl_responses_per_batch"] == 1024
    assert figures["rl_response_tokens_per_batch_max"] == 1024 * 1024
    nano = derived(load(NANO).recipe)
    assert nano["problems"] == 7200
    assert nano["rl_problems"] == 7200 - 512 - 700
    assert nano["rl_responses"] == 140 * 64 * 8
    assert nano["evaluation_responses"] == 512 * 5


def test_a_recipe_of_epochs_counts_its_updates() -> None:
    figures = derived(load(NANO, ["sft.epochs=1.5", "problems.sft_count=100"]).recipe)
    assert figures["sft_updates"] == 3  # ceil(150 / 64)


def test_differences_are_grouped_by_what_they_change() -> None:
    a = load(NANO).recipe
    b = load(
        NANO, ["rl.optimizer.lr=1e-3", "policy.device=cpu", "description=other", "rl.micro_batch_tokens=999"]
    ).recipe
    groups = [(change.key, change.group) for change in diff(a, b)]
    assert groups == [
        ("rl.optimizer.lr", "mathematics"),
        ("policy.device", "placement"),
        ("rl.micro_batch_tokens", "placement"),
        ("description", "cosmetic"),
    ]
    assert diff(a, a) == ()


def test_a_missing_problem_file_is_told_with_its_line(tmp_path: Path) -> None:
    text = NANO.read_text().replace("kind: arithmetic\n", "kind: jsonl\n    path: none.jsonl\n    solution: steps\n")
    lines = [line for line in text.splitlines() if "families:" not in line]
    (tmp_path / "r.yaml").write_text("\n".join(lines))
    resolved = load(tmp_path / "r.yaml")
    (error,) = check_files(resolved.recipe, resolved.written, resolved.base_dir)
    assert "problems.source.path does not exist" in str(error)
    assert error.line == next(i for i, line in enumerate(lines, 1) if "none.jsonl" in line)


def test_checking_a_recipe_loads_no_heavy_library() -> None:
    code = (
        "import sys; from algorist.recipe.load import load; import algorist.cli.recipe; "
        f"load({str(NANO)!r}); heavy = {{'torch', 'transformers', 'sympy'}} & set(sys.modules); print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_reference_page_is_current_and_describes_every_key() -> None:
    assert (ROOT / "docs" / "recipe.md").read_text() == render(), (
        "run: python -m algorist.recipe.reference docs/recipe.md"
    )
    page = render()
    for _, model in walk(Recipe):
        for name in model.model_fields:
            assert f"| `{name}` |" in page
    empty = [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert not empty


def test_the_reference_check_fails_for_an_old_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "recipe.md"
    assert main([str(page), "--check"]) == 1
    assert "is not current" in capsys.readouterr().err
    assert main([str(page)]) == 0
    assert main([str(page), "--check"]) == 0


def test_every_settings_model_is_frozen_and_refuses_unknown_keys() -> None:
    for at, model in walk(Recipe):
        assert issubclass(model, BaseModel)
        assert model.model_config.get("frozen"), at
        assert model.model_config.get("extra") == "forbid", at
