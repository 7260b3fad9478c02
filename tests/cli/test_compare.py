"""`algorist compare` from the command line."""

import json
from pathlib import Path

import pytest

from algorist.cli import main
from algorist.cli.compare import seeds_of
from algorist.errors import InputError

RECIPE = Path(__file__).parents[1] / "launch" / "nano.yaml"


def test_the_verb_answers_with_one_object_and_writes_page_and_data(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    arguments = ["compare", str(RECIPE), "--methods", "online_rft,rloo", "--seeds", "0", "--out", str(out), "--json"]
    sets = ["rl.updates=1", "rl.evaluate_every=null", "sft.steps=30", "evaluate.bootstrap=100"]
    code = main([*arguments, "--threads", "1", *(part for text in sets for part in ("--set", text))])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    told = json.loads(captured.out)
    assert told["report"] == str(out / "compare.html")
    assert (out / "compare.html").is_file()
    assert set(told["table"]) == {"online_rft", "rloo"}
    assert {run["rollouts"] for run in told["runs"]} == {24}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "quicksort"], "a method must be one of"),
        (["--methods", "grpo", "--seeds", "a"], "--seeds must be whole numbers"),
        (["--methods", "grpo", "--seeds", "-1"], "--seeds must not be negative"),
        ([], "at least one of --methods"),
    ],
)
def test_wrong_arguments_are_one_message_and_exit_code_2(arguments, message, tmp_path, capsys) -> None:
    code = main(["compare", str(RECIPE), "--out", str(tmp_path / "out"), *arguments])
    assert code == 2
    assert message in capsys.readouterr().err


def test_seeds_are_read_as_written() -> None:
    assert seeds_of("2, 0,1") == [2, 0, 1]
    with pytest.raises(InputError):
        seeds_of("1.5")
