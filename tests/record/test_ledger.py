"""The ledger loses nothing that was appended, and tells where it was changed."""

import itertools
import json
import math
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.digest import sha256
from algorist.errors import InputError, ResumeMismatch
from algorist.record import ledger as L
from algorist.record.ledger import EventKind, Ledger
from algorist.record.storage import DiskFull

K = EventKind


def fill(path: Path, num: int = 6, contract: str = "c0") -> Path:
    with Ledger.open(path, contract=contract) as ledger:
        ledger.append(K.CONTRACT, policy_version=0, payload={"name": "demo"})
        for i in range(num - 1):
            ledger.append(
                K.UPDATE_APPLIED if i % 2 else K.ROLLOUT_BATCH,
                policy_version=i,
                payload={"batch": i, "text": "é\n\u2028"},
                wall={"train_s": 0.1 * i},
            )
    return path


def test_each_line_holds_the_sha256_of_the_bytes_of_the_line_before(tmp_path: Path) -> None:
    lines = fill(tmp_path / "l.jsonl").read_bytes().splitlines()
    assert json.loads(lines[0])["prev"] == "0" * 64
    for before, line in itertools.pairwise(lines):
        assert json.loads(line)["prev"] == sha256(before)


def test_wall_clock_values_stand_under_one_key_only(tmp_path: Path) -> None:
    line = json.loads(fill(tmp_path / "l.jsonl").read_bytes().splitlines()[2])
    assert set(line) == {"seq", "prev", "kind", "contract", "policy_version", "wall", "batch", "text"}
    assert line["wall"]["train_s"] == 0.1
    assert line["wall"]["time"].endswith("Z")


def test_reopening_continues_the_chain(tmp_path: Path) -> None:
    path = fill(tmp_path / "l.jsonl", 3)
    with Ledger.open(path, contract="c0") as ledger:
        ledger.append(K.CLOSED, policy_version=2)
    report = L.verify(path)
    assert (report.ok, report.num_events, report.head) == (True, 4, sha256(path.read_bytes().splitlines()[-1]))
    assert [e.seq for e in L.read(path)] == [0, 1, 2, 3]


def test_a_file_cut_at_any_byte_opens_with_every_whole_line_and_counts_the_torn_bytes(tmp_path: Path) -> None:
    data = fill(tmp_path / "whole.jsonl", 4).read_bytes()
    for size in range(len(data) + 1):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        torn = size - (data[:size].rfind(b"\n") + 1)
        assert L.verify(path).torn_bytes == torn
        with Ledger.open(path, contract="c0") as ledger:
            assert (len(ledger.events), ledger.torn_bytes) == (whole, torn)
            ledger.append(K.CLOSED, policy_version=0)
        assert L.verify(path).ok


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_changed_byte_is_found_at_or_right_after_its_line(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = fill(Path(folder) / "l.jsonl", 5)
        good = path.read_bytes()
        at = data.draw(st.integers(0, len(good) - 1))
        new = data.draw(st.integers(0, 255).filter(lambda b: b != good[at]))
        path.write_bytes(good[:at] + bytes([new]) + good[at + 1 :])
        report = L.verify(path)
        line = good[:at].count(b"\n") + 1
        last = good.count(b"\n")
        if line == last:  # no later line vouches for the last one: only its form, or the published head, can tell
            assert report.head != L.verify(fill_bytes(Path(folder) / "g.jsonl", good)).head
        else:
            assert report.bad_line in (line, line + 1)


def fill_bytes(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("attack", "bad_line"),
    [
        (lambda ls: ls[:2] + ls[3:], 3),
        (lambda ls: [ls[0], ls[2], ls[1], *ls[3:]], 2),
        (lambda ls: [*ls[:3], ls[2], *ls[3:]], 4),
        (lambda ls: [ls[0].replace(b'"name":"demo"', b'"name":"demo","name":"demo"'), *ls[1:]], 1),
        (lambda ls: [ls[0].replace(b'"seq":0', b'"seq":-0'), *ls[1:]], 1),
        (lambda ls: [ls[0].replace(b'"seq":0', b'"seq":NaN'), *ls[1:]], 1),
        (lambda ls: [ls[0].replace(b'"contract":"c0"', b'"contract" : "c0"'), *ls[1:]], 1),
        (lambda ls: [*ls[:2], b"[" * 100_000, *ls[2:]], 3),
        (lambda ls: [*ls[:2], b"\xff\xfe", *ls[2:]], 3),
        (lambda ls: [*ls[:2], b"7", *ls[2:]], 3),
    ],
    ids=["drop", "reorder", "double", "doubled-key", "minus-zero", "nan", "spaces", "deep", "not-utf8", "not-object"],
)
def test_tampering_is_named_by_line(tmp_path: Path, attack, bad_line: int) -> None:
    path = fill(tmp_path / "l.jsonl")
    lines = attack(path.read_bytes().splitlines())
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert L.verify(path).bad_line == bad_line
    with pytest.raises(InputError, match=rf"l\.jsonl:{bad_line}: "):
        L.read(path)
    before = path.read_bytes()
    with pytest.raises(ResumeMismatch, match=rf"l\.jsonl:{bad_line}: "):
        Ledger.open(path, contract="c0")
    assert path.read_bytes() == before


def test_another_contract_is_refused_unless_amended(tmp_path: Path) -> None:
    path = fill(tmp_path / "l.jsonl")
    with pytest.raises(ResumeMismatch, match="must continue contract c0, got c1"):
        Ledger.open(path, contract="c1")
    with Ledger.open(path, contract="c1", amend=True) as ledger:
        assert ledger.append(K.RESUMED, policy_version=0).contract == "c1"


def test_four_kinds_of_events_are_counted_apart(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.jsonl", contract="c") as ledger:
        for kind, num in (
            (K.ROLLOUT_BATCH, 5),
            (K.UPDATE_APPLIED, 3),
            (K.UPDATE_SKIPPED, 2),
            (K.EVALUATION_COMPLETED, 1),
        ):
            for _ in range(num):
                ledger.append(kind, policy_version=0)
        counts = L.counts(ledger.events)
    assert (counts.rollout_batches, counts.updates_applied, counts.updates_skipped) == (5, 3, 2)
    assert counts.evaluations_completed == 1


def test_updates_of_one_stage_are_counted_apart_from_those_of_another(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.jsonl", contract="c") as ledger:
        for stage in ("sft", "sft", "rl"):
            ledger.append(K.UPDATE_APPLIED, policy_version=0, payload={"stage": stage})
        ledger.append(K.ROLLOUT_BATCH, policy_version=0)
        assert [L.counts(ledger.events, stage=s).updates_applied for s in (None, "sft", "rl")] == [3, 2, 1]
        assert L.counts(ledger.events, stage="rl").rollout_batches == 1


def test_a_killed_and_resumed_run_has_the_logical_digest_of_the_whole_one(tmp_path: Path) -> None:
    def train(ledger: Ledger, start: int, stop: int) -> None:
        for i in range(start, stop):
            ledger.append(K.ROLLOUT_BATCH, policy_version=i, payload={"batch": i}, wall={"rollout_s": i / 7})

    with Ledger.open(tmp_path / "whole.jsonl", contract="c") as whole:
        train(whole, 0, 9)
    with Ledger.open(tmp_path / "killed.jsonl", contract="c") as first:
        train(first, 0, 4)
        position = first.position
        train(first, 4, 6)
    for stop in (7, 9):  # killed twice
        with Ledger.open(tmp_path / "killed.jsonl", contract="c") as later:
            cut = later.roll_back(position)
            assert [e.payload.get("batch") for e in cut if e.kind is K.ROLLOUT_BATCH] == list(
                range(4, 4 + len(cut) - (stop == 9))
            )
            later.append(K.RESUMED, policy_version=4, payload={"cut_events": len(cut)})
            assert later.position == position
            train(later, 4, stop)
    assert L.verify(tmp_path / "killed.jsonl").ok
    assert L.logical_digest(tmp_path / "killed.jsonl") == L.logical_digest(tmp_path / "whole.jsonl")


def test_logical_digest_sees_payload_version_and_order(tmp_path: Path) -> None:
    def digest(name: str, rows: list[tuple[int, float]]) -> str:
        with Ledger.open(tmp_path / name, contract="c") as ledger:
            for version, value in rows:
                ledger.append(K.GATE, policy_version=version, payload={"value": value})
        return L.logical_digest(tmp_path / name)

    base = digest("a", [(0, 0.5), (1, 0.25)])
    assert base == digest("b", [(0, 0.5), (1, 0.25)])
    assert (
        len({base, digest("c", [(1, 0.25), (0, 0.5)]), digest("d", [(0, 0.5), (2, 0.25)]), digest("e", [(0, 0.5)])})
        == 4
    )


def test_truncate_to_keeps_exactly_the_events_up_to_seq(tmp_path: Path) -> None:
    path = fill(tmp_path / "l.jsonl", 6)
    good = path.read_bytes()
    with Ledger.open(path, contract="c0") as ledger:
        assert [e.seq for e in ledger.truncate_to(2)] == [3, 4, 5]
        assert ledger.head == sha256(good.splitlines()[2])
    assert path.read_bytes() == b"".join(good.splitlines(keepends=True)[:3])
    with Ledger.open(path, contract="c0") as ledger:
        assert len(ledger.truncate_to(-1)) == 3
    assert path.read_bytes() == b""


def test_non_finite_values_become_words(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.jsonl", contract="c") as ledger:
        ledger.append(
            K.UPDATE_SKIPPED, policy_version=0, payload={"loss": math.nan, "parts": [math.inf, {"x": -math.inf}]}
        )
    payload = L.read(tmp_path / "l.jsonl")[0].payload
    assert payload == {"loss": "nan", "parts": ["inf", {"x": "-inf"}]}


def test_a_payload_cannot_pose_as_the_head_of_a_line(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.jsonl", contract="c") as ledger:
        with pytest.raises(ValueError, match=r"\['prev', 'wall'\]"):
            ledger.append(K.GATE, policy_version=0, payload={"prev": "0", "wall": {}})
        assert ledger.events == ()


def test_a_full_disk_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    path = fill(tmp_path / "l.jsonl", 3)
    good = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Ledger.open(path, contract="c0") as ledger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(good) + 10, hard))  # room for half a line
        try:
            with pytest.raises(DiskFull, match=r"l\.jsonl: could not be written, the disk or quota is full"):
                ledger.append(K.CLOSED, policy_version=0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == good
        ledger.append(K.CLOSED, policy_version=0)
    assert L.verify(path).num_events == 4


def test_there_is_a_clear_error_where_there_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a run's ledger"):
        L.read(tmp_path / "none.jsonl")
