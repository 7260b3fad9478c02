"""Wrong recipes, data, folders and calls: one clear message, the right exit code, nothing half written, no traceback."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .conftest import RECIPE, cli


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One situation: how to bring it about, the call, and what must be said."""

    prepare: Callable[[Path], object]
    """Changes the folder that holds tiny.yaml and problems.jsonl."""
    says: str
    """Pattern of the message."""
    call: tuple[str, ...] = ("run", "tiny.yaml", "--out", "out")
    code: int = 2


def recipe(old: str, new: str) -> Callable[[Path], object]:
    """The recipe with one text replaced."""
    assert old in RECIPE
    return lambda at: (at / "tiny.yaml").write_text(RECIPE.replace(old, new))


def rows(*lines: str | bytes) -> Callable[[Path], object]:
    """A problem file of these lines after ten good ones."""
    good = [json.dumps({"id": f"g{i}", "question": f"{i} + 1", "answer": str(i + 1)}).encode() for i in range(10)]
    data = b"\n".join([*good, *(line.encode() if isinstance(line, str) else line for line in lines)]) + b"\n"
    return lambda at: (at / "problems.jsonl").write_bytes(data)


def file(name: str, text: str) -> Callable[[Path], object]:
    """One more file."""
    return lambda at: (at / name).write_text(text)


def nothing(_: Path) -> None:
    """As it is."""


def used_folder(at: Path) -> None:
    (at / "out").mkdir()
    (at / "out" / "thesis.txt").write_text("do not lose me")


def older_run(at: Path) -> None:
    (at / "out").mkdir()
    (at / "out" / "ledger.jsonl").write_text("")


INIT = ("init", "-", "problems.jsonl", "--out", "new.yaml")
PLUGIN = ("run", "tiny.yaml", "--out", "out", "--plugin", "my_reward_plugin", "--set", "reward.name=mine")

WRONG = {
    "unknown key": Wrong(
        prepare=recipe("group_size: 4", "group_sise: 4"),
        says=r"tiny\.yaml:13: unknown key rl\.group_sise\. Did you mean group_size\?",
    ),
    "tab": Wrong(prepare=recipe("  updates: 2", "\tupdates: 2"), says=r"tiny\.yaml:11: .*tab"),
    "recipe missing": Wrong(
        prepare=nothing, call=("run", "none.yaml", "--out", "out"), says=r"none\.yaml.*(no such|exist)"
    ),
    "recipe is a folder": Wrong(prepare=lambda at: (at / "d").mkdir(), call=("run", "d", "--out", "out"), says=r"d\b"),
    "problem file missing": Wrong(
        prepare=lambda at: (at / "problems.jsonl").unlink(),
        says=r"tiny\.yaml:5: problems\.source\.path does not exist: .*problems\.jsonl",
    ),
    "gold empty": Wrong(
        prepare=rows('{"id": "x", "question": "1 + 1", "answer": " "}'),
        says=r"problems\.jsonl:11: field 'answer' \(gold\) is empty",
    ),
    "gold missing": Wrong(
        prepare=rows('{"id": "x", "question": "1 + 1"}'), says=r":11: field 'answer' \(gold\) is missing"
    ),
    "id given twice": Wrong(
        prepare=rows('{"id": "g3", "question": "7 + 1", "answer": "8"}'),
        says=r":11: id 'g3' was already used at .*:4\. Ids must be unique",
    ),
    "field given twice": Wrong(prepare=rows('{"id": "x", "id": "y"}'), says=r":11: field 'id' is given twice"),
    "not UTF-8": Wrong(prepare=rows(b'{"id": "x", "question": "\xff", "answer": "1"}'), says=r":11: must be UTF-8"),
    "line is no object": Wrong(prepare=rows("[1, 2]"), says=r":11: each line must be a JSON object: got list"),
    "line is no JSON": Wrong(prepare=rows("{question: 1}"), says=r":11: is not JSON"),
    "problem file empty": Wrong(prepare=file("problems.jsonl", ""), says=r"problems\.jsonl: holds no rows"),
    "problem file cut off": Wrong(
        prepare=lambda at: (
            recipe("path: problems.jsonl", "path: p.jsonl.gz")(at),
            (at / "p.jsonl.gz").write_bytes(gzip.compress((at / "problems.jsonl").read_bytes())[:-20]),
        ),
        says=r"p\.jsonl\.gz: cannot be read",
    ),
    "too few problems": Wrong(
        prepare=recipe("heldout: {count: 4}", "heldout: {count: 40}"), says=r"40 held-out problems"
    ),
    "prompt longer than the context": Wrong(
        prepare=file(
            "problems.jsonl",
            "".join(
                json.dumps({"id": i, "question": f"{i} + 1" + " + 0" * 20, "answer": str(i + 1)}) + "\n"
                for i in range(20)
            ),
        ),
        says=r"no training problem can be shown to this policy: .* exceed the context of 48",
    ),
    "response longer than the context": Wrong(
        prepare=recipe("response_tokens: 4", "response_tokens: 400"),
        says=r"tiny\.yaml:14: .*must fit the context of 48",
    ),
    "stop is no token": Wrong(
        prepare=recipe("answer_format: first_line", 'answer_format: first_line, stop: ["END"]'),
        says=r"prompt\.stop: 'END' must be one token",
    ),
    "group of one": Wrong(
        prepare=recipe("group_size: 4", "group_size: 1"), says=r"tiny\.yaml:13: rl\.group_size must be >= 2 for rloo"
    ),
    "top_p in RL": Wrong(
        prepare=recipe("temperature: 1.0,", "temperature: 1.0, top_p: 0.9,"),
        says=r"tiny\.yaml:14: rl\.sampling\.top_p must be 1 in RL",
    ),
    "override of an unknown key": Wrong(
        prepare=nothing,
        call=("run", "tiny.yaml", "--out", "out", "--set", "rl.updats=3"),
        says=r"--set rl\.updats=3: unknown key rl\.updats\. Did you mean updates\?",
    ),
    "override without a value": Wrong(
        prepare=nothing, call=("run", "tiny.yaml", "--out", "out", "--set", "rl.updates"), says=r"--set .*rl\.updates"
    ),
    "reward unknown": Wrong(
        prepare=nothing,
        call=("run", "tiny.yaml", "--out", "out", "--set", "reward.name=mine"),
        says=r"reward\.name must be a known reward: 'mine'.*--plugin MODULE",
    ),
    "plugin missing": Wrong(
        prepare=nothing, call=PLUGIN, says=r"--plugin my_reward_plugin: the module could not be imported"
    ),
    "plugin without the reward": Wrong(
        prepare=file("my_reward_plugin.py", "x = 1\n"),
        call=PLUGIN,
        says=r"module my_reward_plugin has no function of that name",
    ),
    "plugin with another signature": Wrong(
        prepare=file("my_reward_plugin.py", "def mine(text):\n    return 1.0\n"),
        call=PLUGIN,
        says=r"a reward is called with \(problem, rollout, verdict\)",
    ),
    "plugin that fails": Wrong(
        prepare=file("my_reward_plugin.py", "1 / 0\n"), call=PLUGIN, says=r"could not be imported \(ZeroDivisionError: "
    ),
    "plugin that is no Python": Wrong(
        prepare=file("my_reward_plugin.py", "def mine(:\n"), call=PLUGIN, says=r"could not be imported \(SyntaxError: "
    ),
    "folder of another run": Wrong(prepare=older_run, says=r"out: already holds a run, and a run is never overwritten"),
    "folder with other files": Wrong(
        prepare=used_folder, says=r"must be a new or an empty folder, got one that holds 'thesis"
    ),
    "out is a file": Wrong(prepare=file("out", ""), says=r"out: must be a new or an empty folder, got a file"),
    "model folder missing": Wrong(
        prepare=nothing,
        call=("run", "tiny.yaml", "--out", "out", "--set", "policy={path: nowhere}"),
        says=r"nowhere: must be a Hugging Face model folder: no such folder",
    ),
    "model folder without a model": Wrong(
        prepare=lambda at: (at / "m").mkdir(),
        call=("run", "tiny.yaml", "--out", "out", "--set", "policy={path: m}"),
        says=r"m: must be a Hugging Face model folder: no config\.json in it",
    ),
    "unknown package": Wrong(
        prepare=nothing,
        call=("run", "tiny.yaml", "--out", "out", "--set", "policy={package: smollm3}"),
        says=r"policy\.package must be 'smollm2': got 'smollm3'",
    ),
    "unknown verb": Wrong(prepare=nothing, call=("rum", "tiny.yaml"), says=r"got 'rum'\. Did you mean run\?"),
    "unknown option": Wrong(
        prepare=nothing, call=("run", "tiny.yaml", "--output", "out"), says=r"unrecognized arguments"
    ),
    "resume of no run": Wrong(prepare=nothing, call=("resume", "nowhere"), says=r"nowhere: must be a run folder"),
    "resume of any folder": Wrong(prepare=used_folder, call=("resume", "out"), says=r"it holds no ledger\.jsonl"),
    "report of no run": Wrong(prepare=nothing, call=("report", "nowhere"), says=r"nowhere: must be a run folder"),
    "init over a recipe": Wrong(
        prepare=nothing,
        call=("init", "-", "problems.jsonl", "--out", "tiny.yaml"),
        says=r"tiny\.yaml: exists, and is never",
    ),
    "init without problems": Wrong(
        prepare=lambda at: (at / "problems.jsonl").unlink(), call=INIT, says=r"no such file"
    ),
    "init with unknown fields": Wrong(
        prepare=file("problems.jsonl", '{"alpha": 1, "beta": 2}\n'),
        call=INIT,
        says=r"which field holds the .*alpha, beta",
    ),
    "init with a wrong field": Wrong(
        prepare=nothing, call=(*INIT, "--answer", "gold"), says=r"no field 'gold'; fields: id, question"
    ),
    "init with too few problems": Wrong(
        prepare=file("problems.jsonl", '{"question": "1+1", "answer": "2"}\n'),
        call=INIT,
        says=r"1 usable problems are too few",
    ),
    "init with golds that mean nothing": Wrong(
        prepare=file("problems.jsonl", '{"question": "1+1", "answer": "\\\\frac{"}\n'),
        call=INIT,
        says=r"no row can be used",
    ),
    "init of a missing folder": Wrong(
        prepare=nothing, call=("init", "-", "problems.jsonl", "--out", "no/new.yaml"), says=r"no: no such folder"
    ),
    "init of no model": Wrong(
        prepare=nothing, call=("init", "nowhere", "problems.jsonl", "--out", "new.yaml"), says=r"nowhere: must be"
    ),
    "eval of nothing": Wrong(
        prepare=nothing, call=("eval", "nowhere", "--out", "out"), says=r"nowhere: no such folder"
    ),
    "eval with a wrong suite": Wrong(
        prepare=nothing,
        call=("eval", "x", "--suite", "problems.jsonl", "--out", "out"),
        says=r"--suite must be NAME=FILE",
    ),
    "eval with two kinds of problems": Wrong(
        prepare=nothing,
        call=("eval", "x", "--problems", "problems.jsonl", "--recipe", "tiny.yaml", "--out", "out"),
        says=r"give one of --problems, --recipe and --suite",
    ),
    "sample of any folder": Wrong(
        prepare=used_folder, call=("sample", "out", "1 + 1"), says=r"out: must be a run folder, its export, or"
    ),
    "import over a folder": Wrong(
        prepare=used_folder, call=("model", "import", "smollm2", "out"), says=r"never overwritten"
    ),
    "import of an unknown model": Wrong(
        prepare=nothing, call=("model", "import", "gpt", "m"), says=r"must be one of .*smollm2.*, got 'gpt'"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_situation_gets_one_message_and_leaves_nothing(name: str, place: Path) -> None:
    sys.modules.pop("my_reward_plugin", None)
    wrong = WRONG[name]
    wrong.prepare(place)
    before = _files(place)
    said = cli(*wrong.call, "--json")
    assert said.code == wrong.code, said.err
    assert said.json["exit_code"] == wrong.code
    message = str(said.json["error"])
    assert re.search(wrong.says, message), message
    assert said.err.count("algorist: ") == 1, said.err
    assert message in said.err
    assert "Traceback" not in said.err
    assert max(map(len, message.splitlines())) < 600, "one clear message, no dump"
    assert _files(place) == before, "nothing half written"


def _files(root: Path) -> dict[str, int]:
    return {
        str(p.relative_to(root)): p.stat().st_size
        for p in root.rglob("*")
        if p.is_file() and "__pycache__" not in str(p)
    }


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    """A model folder to spoil: an export without the manifest that seals it."""
    folder = tmp_path / "model"
    shutil.copytree(finished / "export", folder, ignore=shutil.ignore_patterns("manifest.json"))
    return folder


def _train(model: Path) -> tuple[int, str]:
    said = cli("run", "tiny.yaml", "--out", "out", "--set", f"policy={{path: {model}}}")
    assert not (Path("out") / "ledger.jsonl").exists()
    return said.code, said.err


def test_a_policy_whose_sealed_tokenizer_was_swapped_is_refused(place: Path, model: Path, finished: Path) -> None:
    shutil.copy(finished / "export" / "manifest.json", model)
    tokenizer = model / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("0", "1"))
    code, said = _train(model)
    assert code == 2
    assert "tokenizer.json" in said
    assert "delete its manifest.json" in said


def test_a_policy_that_is_used_to_another_prompt_is_told(place: Path, finished: Path) -> None:
    policy = f"policy={{path: {finished / 'export'}}}"
    said = cli("preflight", "tiny.yaml", "--set", policy, "--set", 'prompt.format="{question}"')
    assert "note: export was trained with another prompt: format" in said.err
    assert "another prompt" not in cli("preflight", "tiny.yaml", "--set", policy).err


def test_pickled_weights_are_refused_and_never_opened(place: Path, model: Path) -> None:
    torch.save(load_file(model / "model.safetensors"), model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    code, said = _train(model)
    assert code == 2
    assert "*.safetensors" in said
    assert "pickle file can run code" in cli("init", model, "problems.jsonl", "--out", "n.yaml").err
    assert not Path("n.yaml").exists()


def _cut_off(model: Path) -> None:
    whole = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(whole[:-100])


def test_weights_that_are_cut_off_are_named_by_model_show_and_init(place: Path, model: Path) -> None:
    _cut_off(model)
    assert "is not a whole safetensors file" in cli("model", "show", model).err
    assert "is not a whole safetensors file" in cli("init", model, "problems.jsonl", "--out", "n.yaml").err


def test_weights_that_are_cut_off_are_refused_by_a_run(place: Path, model: Path) -> None:
    _cut_off(model)
    code, said = _train(model)
    assert code == 2
    assert "does not load as a causal language model" in said


def test_a_tokenizer_without_an_end_is_refused(place: Path, model: Path) -> None:
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["eos_token"] = None
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    code, said = _train(model)
    assert code == 2
    assert "must name an end-of-sequence token" in said
    assert "must name an end-of-sequence token" in cli("init", model, "problems.jsonl", "--out", "n.yaml").err


def test_a_tokenizer_that_is_missing_is_refused(place: Path, model: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    assert _train(model)[0] == 2
    assert "has no tokenizer files" in cli("model", "show", model).err


def test_a_checkpoint_is_no_model(finished: Path) -> None:
    checkpoint = next((finished / "checkpoints").glob("step-*"))
    said = cli("sample", checkpoint, "1 + 1")
    assert said.code == 2
    assert f"Give the run folder, {finished}" in said.err


def test_an_unfinished_run_has_no_model_yet(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "export")
    said = cli("sample", tmp_path / "run", "1 + 1")
    assert said.code == 2
    assert "algorist resume" in said.err


def test_an_evaluation_is_never_overwritten(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "heldout.json").write_text("{}")
    said = cli("eval", finished, "--out", tmp_path)
    assert said.code == 2
    assert "never overwritten" in said.err
    assert (tmp_path / "heldout.json").read_text() == "{}"


def test_two_runs_never_share_a_folder(place: Path) -> None:
    from algorist.record.run_folder import RunFolder

    folder = RunFolder.create(place / "out")
    with folder.lease():
        said = cli("run", "tiny.yaml", "--out", "out")
    assert said.code == 2
    assert "is in use by another run" in said.err
    assert not folder.ledger.exists()


def test_a_run_that_gave_only_truncated_responses_ends_with_a_failed_gate_and_the_cause(place: Path) -> None:
    said = cli(
        "run", "tiny.yaml", "--out", "out", "--set", "rl.sampling.response_tokens=1", "--set", "rl.max_flat_batches=2",
        "--set", "sft=null", "--set", "problems.sft_count=0", "--set", "qualify.signal.action=refuse",
    )  # fmt: skip
    assert said.code == 4, said.err
    assert re.search(r"(cut off|truncated).*response", said.err)
    assert "response_tokens" in said.err
    assert (place / "out" / "report.html").exists()
    assert "Traceback" not in said.err


def test_a_damaged_contract_stops_a_resume_with_exit_code_5(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "contract.json").write_text("{}")
    said = cli("resume", tmp_path / "run")
    assert said.code == 5, said.err
    assert "contract.json" in said.err


def test_changed_problems_stop_a_resume_with_exit_code_5(place: Path) -> None:
    assert cli("run", "tiny.yaml", "--out", "out", "--threads", 1).code == 0
    with Path("problems.jsonl").open("a") as problems:
        problems.write('{"id": "new", "question": "50 + 50", "answer": "100"}\n')
    said = cli("resume", "out")
    assert said.code == 5, said.err
    assert "problems.digest" in said.err


def test_a_reward_that_fails_on_every_answer_is_told_with_its_cause(place: Path) -> None:
    Path("my_failing_plugin.py").write_text("def mine(problem, rollout, verdict):\n    return 1 / 0\n")
    said = cli(
        "run", "tiny.yaml", "--out", "out", "--plugin", "my_failing_plugin", "--set", "reward.name=mine",
        "--set", "rl.max_flat_batches=1",
    )  # fmt: skip
    assert said.code == 4, said.err
    assert "ZeroDivisionError" in said.err


_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
import torch
torch.set_num_threads(1)
from algorist.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(100, id="before anything is written"),
        pytest.param(12_000, id="at a checkpoint"),
    ],
)
def test_a_full_disk_pauses_the_run_and_leaves_no_half_written_file(limit: int, place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(limit), "run", "tiny.yaml", "--out", "out", "--json"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 75, done.stderr
    assert "the disk or quota is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 75
    assert not [path for path in (place / "out").rglob("*") if ".tmp-" in path.name]
    for line in (
        (place / "out" / "ledger.jsonl").read_text().splitlines() if (place / "out" / "ledger.jsonl").exists() else []
    ):
        json.loads(line)
