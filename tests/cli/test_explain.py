"""`algorist explain` as a person runs it."""

import json
import subprocess
import sys

import pytest

from algorist.cli import main
from algorist.objective.describe import KEYS
from algorist.objective.registry import METHODS


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_is_explained_in_words_and_as_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert main(["explain", name, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    divergence = " + beta (pi_ref / pi - 1)" if content["formula"]["kl"] == "none" else ""
    assert METHODS[name].coefficient_text.replace(divergence, "") == content["coefficient"]
    assert f"coefficient  {content['coefficient']}\n" in text
    assert set(content["formula"]) == set(KEYS)
    assert content["name"] == name


def test_a_changed_setting_changes_the_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "grpo", "--json", "--set", "beta=0", "--set", "correction.kind=mask"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["formula"]["kl"] == "none"
    assert "beta" not in content["coefficient"] + content["loss"]
    assert content["formula"]["importance"].startswith("w = pi_old / mu per token, masked")
    assert content["needs"] == []


def test_without_a_method_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(METHODS)


@pytest.mark.parametrize(
    ("arguments", "needle"),
    [
        (["gropo"], "Did you mean grpo?"),
        (["quicksort"], "Use one of sft, rft"),
        (["grpo", "--set", "betta=1"], "unknown key grpo.betta. Did you mean beta?"),
        (["grpo", "--set", "correction.knd=mask"], "unknown key grpo.correction.knd. Did you mean kind?"),
        (["grpo", "--set", "zzz=1"], "unknown key grpo.zzz. Known here: "),
        (["grpo", "--set", "beta=-1"], "grpo.beta must be greater than or equal to 0: got -1"),
        (["grpo", "--set", "beta"], "key=value"),
        (["dr_grpo", "--set", "reduction=token_mean"], "constant only"),
    ],
)
def test_a_wrong_name_or_setting_is_one_message_and_exit_code_2(
    arguments: list[str], needle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments]) == 2
    message = capsys.readouterr().err
    assert needle in message
    assert message.count("\n") == 1


def test_settings_and_formulas_are_read_without_torch() -> None:
    code = (
        "import sys, algorist.objective.config, algorist.objective.shaping_config, algorist.objective.describe, "
        "algorist.cli.explain; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
