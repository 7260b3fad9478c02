"""What being checked costs is what the run recorded, once, and time in which no process ran is no time of the run."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from algorist.record.ledger import GENESIS, Event, EventKind
from algorist.report.cost import Cost, cost

START = datetime(2030, 1, 1, tzinfo=UTC)


def event(kind: EventKind, at_s: float, **wall: float) -> Event:
    time = (START + timedelta(seconds=at_s)).isoformat()
    return Event(seq=0, prev=GENESIS, kind=kind, contract="c", policy_version=0, wall={"time": time, **wall})


def test_seconds_are_summed_from_where_they_were_told() -> None:
    found = cost(
        [
            event(EventKind.CONTRACT, 0),
            event(EventKind.GATE, 1, gate_s=0.5),  # part of what the next checkpoint tells
            event(EventKind.REPLAY_CHECK, 20, replay_s=2.0),
            event(EventKind.CHECKPOINT, 50, gates_s=3.0, ledger_s=0.25, write_s=9.0),
            event(EventKind.CLOSED, 100, gates_s=1.0, ledger_s=0.25),
        ]
    )
    assert found == Cost(run_s=100.0, gates_s=2.0, replay_s=2.0, ledger_s=0.5, replay_checks=1)
    assert found.shares == {"gates": 0.02, "replay": 0.02, "ledger": 0.005}


def test_the_time_between_two_processes_is_not_the_runs() -> None:
    found = cost(
        [
            event(EventKind.CONTRACT, 0),
            event(EventKind.CHECKPOINT, 10, gates_s=1.0, ledger_s=0.1),
            event(EventKind.RESUMED, 100_010, gates_s=0.5),
            event(EventKind.CLOSED, 100_020, gates_s=0.5, ledger_s=0.1),
        ]
    )
    assert found is not None
    assert (found.run_s, found.gates_s, found.ledger_s) == (20.0, 2.0, pytest.approx(0.2))


def test_a_ledger_without_figures_or_times_has_no_cost() -> None:
    assert cost([]) is None
    assert cost([event(EventKind.CONTRACT, 0), event(EventKind.CLOSED, 9)]) is None
    broken = event(EventKind.CLOSED, 9, gates_s=1.0)
    assert cost([Event(**{n: getattr(broken, n) for n in Event.__slots__} | {"wall": {"gates_s": 1.0}})]) is None


def test_page_table_and_json_show_the_same_shares(demo_run: Path) -> None:
    from algorist.report.gather import gather
    from algorist.report.headline import price
    from algorist.report.page import render
    from algorist.report.table import summary_table

    data = gather(demo_run)
    assert data.cost is None, "the demo was made by hand; a real run is in tests/launch"
    assert price(data) == ""
    assert "Being checked took" not in render(data)
    assert "checks:" not in str(summary_table(demo_run).caption)
