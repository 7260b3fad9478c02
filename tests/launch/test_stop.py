"""A run stopped at any step, by a person, a rule or a second kill, comes to the bytes of the run that never stopped."""

import json
import platform
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from algorist.errors import InputError, ResumeMismatch, Stopped
from algorist.launch.run import resume, run
from algorist.qualify.why import why
from algorist.recipe.load import load
from algorist.record import commit, moments
from algorist.record.ledger import EventKind, read
from algorist.record.run_folder import Holder
from algorist.record.twins import different
from algorist.stages.listener import Silent

RECIPE = Path(__file__).with_name("nano.yaml")
SETTINGS = ["sft.steps=12", "rl.updates=5", "rl.evaluate_every=2", "record.checkpoint_every=3"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return run(load(RECIPE, SETTINGS), tmp_path_factory.mktemp("whole") / "run", listener=Silent()).folder


def asked(after: int):
    calls = iter(range(1000))
    return lambda: next(calls) >= after


@pytest.mark.parametrize("step", [4, 12, 16])  # between saves, at the last of SFT, just before the last of all
def test_a_stop_leaves_no_checkpoint_behind_that_the_run_would_not_have(whole, tmp_path, step) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped, match=f"after step {step}"):
        run(load(RECIPE, SETTINGS), out, listener=Silent(), stop_requested=asked(step - 1))
    assert read(out / "ledger.jsonl")[-1].kind is EventKind.PAUSED
    found = why(out)
    assert (found.status, found.commands) == ("paused", (f"algorist resume {out}",))
    resume(out, listener=Silent())
    assert different(whole, out) == []
    said = [e.payload["paused_before"] for e in read(out / "ledger.jsonl") if e.kind is EventKind.RESUMED]
    assert len(said) == 1
    assert f"after step {step}" in said[0][0]


def test_a_rule_that_pauses_does_not_skip_the_evaluation_of_its_batch(tmp_path) -> None:
    rule = "qualify.watch=[{figure: response/tokens_mean, above: 0.5, batches: 2, action: pause}]"
    out = tmp_path / "run"
    with pytest.raises(Stopped, match="response/tokens_mean"):
        run(load(RECIPE, [*SETTINGS, rule]), out, listener=Silent())
    assert (out / "evaluations" / "step-2.json").is_file()
    while why(out).status == "paused":
        try:
            resume(out, listener=Silent())
        except Stopped:
            continue
    assert sorted(p.stem for p in (out / "evaluations").iterdir()) == ["after", "before", "step-2", "step-4"]


@pytest.mark.parametrize("moment", ["commit.renamed#6", "write.begin#16"])
def test_a_disk_that_fails_right_after_the_last_checkpoint_leaves_its_name_and_its_elders_in_order(
    whole, tmp_path, monkeypatch, moment
) -> None:
    """The last save: nothing later would put LATEST and the number of kept checkpoints right."""
    out = tmp_path / "run"
    monkeypatch.setenv(moments.FAIL, f"{moment}=ENOSPC")
    monkeypatch.setattr(moments, "_seen", Counter())
    with pytest.raises(Stopped):
        run(load(RECIPE, SETTINGS), out, listener=Silent())
    monkeypatch.delenv(moments.FAIL)
    resume(out, listener=Silent())
    assert different(whole, out) == []


@pytest.mark.parametrize(("moment", "begun"), [("write.written#2", False), ("append.begin#1", True)])
def test_a_run_that_ended_before_its_first_event_goes_on_by_run_or_by_resume(
    whole, tmp_path, monkeypatch, moment, begun
) -> None:
    """Before contract.json is there nothing was begun and `run` begins it; from then on `resume` does."""
    out = tmp_path / "run"
    monkeypatch.setenv(moments.FAIL, f"{moment}=ENOSPC")
    monkeypatch.setattr(moments, "_seen", Counter())
    with pytest.raises(Stopped, match="nothing had been trained yet" if begun else "Nothing was begun"):
        run(load(RECIPE, SETTINGS), out, listener=Silent())
    monkeypatch.delenv(moments.FAIL)
    if begun:
        assert why(out).status == "unfinished"
        with pytest.raises(InputError, match="already holds a run"):
            run(load(RECIPE, SETTINGS), out, listener=Silent())
        resume(out, listener=Silent())
    else:
        with pytest.raises(InputError, match="it holds no ledger"):
            why(out)
        run(load(RECIPE, SETTINGS), out, listener=Silent())
    assert different(whole, out) == []


def test_another_number_of_threads_is_another_contract(tmp_path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        run(load(RECIPE, SETTINGS), out, listener=Silent(), stop_requested=asked(3))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.raises(ResumeMismatch, match=rf"numerics\.threads: {threads} -> {threads + 1}"):
            resume(out, listener=Silent())
    finally:
        torch.set_num_threads(threads)


class Ear:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def begin(self, stage, total): ...
    def advance(self, stage, done, numbers): ...
    def say(self, message):
        self.heard.append(message)


@pytest.mark.parametrize("boot", ["", "an-earlier-start"])
def test_the_lease_of_a_dead_process_is_taken_over_and_told(whole, tmp_path, boot) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        run(load(RECIPE, SETTINGS), out, listener=Silent(), stop_requested=asked(3))
    assert (out / ".lease").read_bytes() == b"", "given back by a process that ends in good order"
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    own = Holder.own()
    holder = Holder(pid=int(dead.stdout), host=own.host, boot=boot or own.boot)
    (out / ".lease").write_bytes(holder.to_bytes())
    assert holder.gone
    ear = Ear()
    resume(out, listener=ear)
    assert any(f"process {holder.pid} on {platform.node()} had this run and ended" in line for line in ear.heard)
    assert different(whole, out) == []


def test_two_resumes_at_once_are_told_apart_and_the_second_changes_nothing(tmp_path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        run(load(RECIPE, SETTINGS), out, listener=Silent(), stop_requested=asked(3))
    before = (out / "ledger.jsonl").read_bytes()
    code = (
        "import sys, pathlib; from algorist.record.run_folder import RunFolder\n"
        "with RunFolder(root=pathlib.Path(sys.argv[1])).lease(): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=rf"process {other.pid} on {platform.node()}.*kill -TERM {other.pid}"):
            resume(out, listener=Silent())
        found = why(out)
        assert (found.status, found.commands) == ("running", (f"kill -TERM {other.pid}",))
    finally:
        other.communicate("")
    assert (out / "ledger.jsonl").read_bytes() == before
    assert why(out).status == "paused"


def test_a_damaged_newest_checkpoint_is_not_what_retention_keeps(tmp_path) -> None:
    out = tmp_path / "run"
    one = [*SETTINGS, "record.keep=1"]
    with pytest.raises(Stopped):
        run(load(RECIPE, one), out, listener=Silent(), stop_requested=asked(6))
    newest = commit.numbered(out / "checkpoints")[-1]
    data = bytearray((newest / "weights.safetensors").read_bytes())
    data[-3] ^= 1
    (newest / "weights.safetensors").write_bytes(data)
    assert any("cannot be used" in reason for reason in why(_killed(out)).reasons)
    ear = Ear()
    resume(out, listener=ear)
    assert any(newest.name in line and "skipped" in line for line in ear.heard)
    whole = run(load(RECIPE, one), tmp_path / "whole", listener=Silent()).folder
    assert different(whole, out) == []


def _killed(out: Path) -> Path:
    """The same folder as a kill would have left it: the last event is not `paused`."""
    lines = (out / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == "paused"
    (out / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    return out
