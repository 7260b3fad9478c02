"""Watched figures trip after their number of batches, and a resumed watch is the uninterrupted one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.config import Config
from algorist.errors import GateFailed, Stopped
from algorist.launch.run import resume, run
from algorist.qualify.config import DEFAULT_WATCH, QualifyConfig, WatchRule
from algorist.qualify.watch import CAUSES, Watch
from algorist.recipe.load import load
from algorist.record.ledger import EventKind, read
from algorist.stages.listener import Silent

ROWS = st.lists(st.floats(min_value=0, max_value=10), max_size=40)


@given(values=ROWS, cut=st.integers(0, 40))
def test_a_watch_that_catches_up_goes_on_as_if_it_had_seen_all(values, cut) -> None:
    rules = [WatchRule(figure="x", above=5.0, batches=2), WatchRule(figure="x", above=1.5, relative=True, batches=3)]
    rows = [{"stage": "rl", "batch": i, "x": v} for i, v in enumerate(values)]
    whole, later = Watch(rules), Watch(rules)
    everything = [whole.see(row) for row in rows]
    later.catch_up(rows[:cut])
    assert [later.see(row) for row in rows[cut:]] == everything[cut:]


def test_a_figure_that_is_not_a_number_trips_and_a_missing_one_does_not() -> None:
    watch = Watch([WatchRule(figure="x", above=1.0, batches=1)])
    assert len(watch.see({"x": None, "nonfinite": "x"})) == 1
    assert watch.see({"y": 1.0}) == []


def test_every_default_rule_has_a_cause_and_a_remedy() -> None:
    for rule in DEFAULT_WATCH:
        cause, remedy = CAUSES[rule.figure]
        assert cause, rule
        assert remedy, rule


def test_a_rule_needs_one_side_and_a_figure_one_rule() -> None:
    assert issubclass(WatchRule, Config)
    with pytest.raises(ValueError, match="exactly one of above, below"):
        WatchRule(figure="x")
    with pytest.raises(ValueError, match="once for each side"):
        QualifyConfig(watch=(WatchRule(figure="loss", above=1.0), WatchRule(figure="loss", above=2.0)))


def test_a_pause_saves_and_a_resume_goes_on_and_a_stop_ends_with_a_failed_gate(start_recipe, tmp_path) -> None:
    rule = "qualify.watch=[{figure: response/tokens_mean, above: 0.5, batches: 2, action: %s}]"
    out = tmp_path / "paused"
    with pytest.raises(Stopped, match="response/tokens_mean"):
        run(load(start_recipe, [rule % "pause"]), out, listener=Silent())
    with pytest.raises(Stopped):  # two more batches, and the rule trips again
        resume(out, listener=Silent())
    finished = resume(out, listener=Silent())
    assert finished.counts.rollout_batches == 4
    trips = [e for e in read(out / "ledger.jsonl") if e.payload.get("name") == "watch"]
    assert [e.payload["batch"] for e in trips] == [1, 3]
    assert all(e.kind is EventKind.GATE for e in trips)
    with pytest.raises(GateFailed, match="response/tokens_mean"):
        run(load(start_recipe, [rule % "stop"]), tmp_path / "stopped", listener=Silent())
