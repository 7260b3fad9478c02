"""`algorist recipe check | show | diff`."""

import argparse
import json
from pathlib import Path

import pytest

from algorist.cli.recipe import add_parser
from algorist.errors import RecipeError

ROOT = Path(__file__).parents[2]
NANO = str(ROOT / "recipes" / "nano" / "arithmetic.yaml")
PAPER = str(ROOT / "recipes" / "deepseekmath" / "grpo_7b.yaml")


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    options = parser.parse_args(["recipe", *arguments])
    return int(options.func(options))


def test_check_prints_what_follows_from_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", NANO) == 0
    out = capsys.readouterr().out
    assert "fine. Recipe nano-arithmetic, sha256 " in out
    assert "RL responses per batch" in out


def test_check_in_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", PAPER, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert answer["derived"]["rl_responses_per_batch"] == 1024
    assert "policy.path is no folder here" in answer["notes"][0]


def test_check_refuses_a_wrong_override_and_names_it() -> None:
    with pytest.raises(RecipeError, match=r"--set rl.updats=3: unknown key rl\.updats\. Did you mean updates\?"):
        run("check", NANO, "--set", "rl.updats=3")


def test_show_names_the_place_of_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", NANO, "--set", "rl.updates=3") == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines() if not line.startswith("#"))
    assert lines["rl.updates"].split() == ["3", "#", "--set", "rl.updates=3"]
    assert lines["rl.group_size"].split("arithmetic.yaml:")[0].startswith("8")
    assert lines["rl.optimizer.clip_norm"].split() == ["1", "#", "default"]


def test_show_in_json_holds_recipe_origins_and_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", NANO, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["recipe"]["rl"]["group_size"] == 8
    assert answer["origins"]["rl.group_size"].startswith(NANO)
    assert len(answer["digest"]) == 64


def test_diff_groups_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("diff", NANO, PAPER, "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert "rl.optimizer.lr" in [change["key"] for change in changes["mathematics"]]
    assert run("diff", NANO, NANO) == 0
    assert capsys.readouterr().out.startswith("the same: sha256 ")
