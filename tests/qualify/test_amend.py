"""A run that is amended can be qualified: the new contract is judged on what is sampled under it."""

import re
import shutil
from pathlib import Path

import pytest

from algorist.cli import main
from algorist.launch.run import resume, run
from algorist.qualify.receipt import gates, judge
from algorist.qualify.why import why
from algorist.recipe.load import load
from algorist.record.ledger import Event, EventKind, read
from algorist.stages.listener import Silent

NANO = Path(__file__).resolve().parents[1] / "launch" / "nano.yaml"
JUDGED = ("signal", "rollouts")
BOOM = """
def boom(problem, rollout, verdict):
    raise ValueError("boom")
"""


class StopAfter:
    """Asks the run to stop once it was asked `count` times whether it should."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self) -> bool:
        self.count -= 1
        return self.count < 0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """The tiny recipe, stopped during RL."""
    from algorist.errors import Stopped

    out = tmp_path_factory.mktemp("amend") / "run"
    with pytest.raises(Stopped):
        run(
            load(NANO, ["evaluate.samples=2", "evaluate.ks=[1,2]"]),
            out,
            listener=Silent(),
            stop_requested=StopAfter(44),
        )
    batches = sum(e.kind is EventKind.ROLLOUT_BATCH for e in read(out / "ledger.jsonl"))
    assert 0 < batches < 8
    return out


def test_an_amended_run_is_judged_under_its_new_contract_and_qualified(stopped, tmp_path, capsys) -> None:
    out = Path(shutil.copytree(stopped, tmp_path / "run"))
    resume(out, listener=Silent(), amend=True, overrides=["rl.updates=8"])
    events = read(out / "ledger.jsonl")
    amendment = next(i for i, e in enumerate(events) if e.kind is EventKind.CONTRACT and e.payload.get("amends"))
    after = events[amendment:]
    for name in JUDGED:
        assert [e.payload["verdict"] for e in after if e.payload.get("name") == name] == ["passed"]
    first = next(e.payload["batch"] for e in after if e.kind is EventKind.ROLLOUT_BATCH)
    assert first in [e.payload["batch"] for e in after if e.kind is EventKind.REPLAY_CHECK]
    assert judge(events) == ("qualified", ())
    assert main(["audit", str(out), "--json"]) == 0, capsys.readouterr().out


def _changed(event: Event, **payload: object) -> Event:
    from dataclasses import replace

    return replace(event, payload={**event.payload, **payload})


def test_verdicts_on_batches_outlive_an_amendment_without_batches_that_left_their_settings_alone(finished) -> None:
    events = read(finished / "ledger.jsonl")
    contract = next(e for e in events if e.kind is EventKind.CONTRACT)
    last = max(i for i, e in enumerate(events) if e.kind is EventKind.ROLLOUT_BATCH)

    def verdicts(change: str, *, at: int) -> dict[str, object]:
        amended = [*events[:at], _changed(contract, amends="0" * 64, changes=[change]), *events[at:]]
        return {g["name"]: g["verdict"] for g in gates(amended)}  # type: ignore[index, call-overload, misc]

    kept = verdicts("recipe.evaluate.samples: 4 -> 8", at=len(events) - 1)
    assert [kept[n] for n in (*JUDGED, "replay")] == ["passed"] * 3
    assert kept["data"] == "missing", "what is judged at the start is judged again"
    assert verdicts("recipe.rl.replay.nats: 0.02 -> 0.001", at=len(events) - 1)["replay"] == "missing"
    assert verdicts("recipe.rl.updates: 9 -> 8", at=last)["rollouts"] == "missing"


def test_why_does_not_advise_to_go_on_with_a_finished_run(finished, copy_of) -> None:
    out = copy_of(finished)
    found = why(out)
    assert "--amend" not in found.remedy
    events = [e for e in read(out / "ledger.jsonl") if e.kind is not EventKind.UPDATE_APPLIED]
    from algorist.qualify.why import _remedy
    from algorist.record.run_folder import RunFolder

    assert "start a new run" in _remedy("unqualified", events, RunFolder.open(out))


def test_a_reward_that_raises_is_refused_once_and_with_the_figure_that_failed(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "boom_reward.py").write_text(BOOM)
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(NANO.read_text().replace("rl:\n", "reward: {name: boom}\nrl:\n", 1))
    code = main(["run", str(recipe), "--plugin", "boom_reward", "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert code == 4, said
    assert said.count("gave no value for") == 1
    assert re.search(r"verifier_canary: (\d+) known answers without a reward \(threshold 0\): failed", said)
    assert "0 known answers misjudged" not in said
