"""Admission: two inequalities, the seed's case, and no update behind a refusal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.cli import main
from algorist.errors import AdmissionRefused, InputError
from algorist.launch.run import resume, run
from algorist.qualify.config import DeclaredMemory, MemoryConfig
from algorist.qualify.memory import CpuProbe, DeclaredProbe, Reading, Shape, admission, predict, predicted_peak
from algorist.recipe.load import load
from algorist.record.ledger import EventKind, counts, read
from algorist.stages.listener import Silent

GIB = st.floats(min_value=0.5, max_value=400, allow_nan=False)


@given(cap=GIB, needed=st.floats(min_value=0, max_value=200), free=GIB, peak=GIB)
def test_admitted_exactly_where_the_peak_fits_the_cap_and_the_rest_stays_free(cap, needed, free, peak) -> None:
    cfg = MemoryConfig(trainer_allocator_cap_gib=cap, driver_free_memory_gib=needed)
    gate = admission(cfg, Reading(total=free, free=free, own=0.0, source="cuda"), peak=peak, tensor="weights")
    assert gate.passed is (peak <= cap and free - cap >= needed)
    assert bool(gate.cause) is not gate.passed


def test_what_the_trainer_already_holds_is_its_own_to_use() -> None:
    cfg = MemoryConfig(trainer_allocator_cap_gib=10, driver_free_memory_gib=5)
    assert admission(cfg, Reading(total=20, free=7, own=8, source="cuda"), peak=9, tensor="w").passed


def test_the_seed_case_leaves_no_admissible_cap_and_says_so() -> None:
    declared = DeclaredMemory(total_gib=268, free_gib=256, peak_gib=194)
    for cap in (190, 198):
        cfg = MemoryConfig(trainer_allocator_cap_gib=cap, driver_free_memory_gib=64, declared=declared)
        gate = admission(cfg, DeclaredProbe(declared).read(), peak=declared.peak_gib, tensor="activations")
        assert not gate.passed
        assert "No cap is admitted: the trainer needs 194 GiB and at most 192 GiB may be taken" in gate.remedy


def test_a_prediction_names_its_largest_tensor_and_grows_with_the_batch(policy) -> None:
    shape = Shape(micro_batch_tokens=1024, rows=16, length_tokens=64, reference=False, offload=False)
    small, large = predict(policy, shape), predict(policy, Shape(**{**_fields(shape), "micro_batch_tokens": 512}))
    assert predicted_peak(small) > predicted_peak(large)
    offloaded = predict(policy, Shape(**{**_fields(shape), "offload": True}))
    assert predicted_peak(offloaded) < predicted_peak(small)
    assert max(small, key=small.get).startswith("activations")


def _fields(shape: Shape) -> dict:
    return {name: getattr(shape, name) for name in Shape.__dataclass_fields__}


def test_the_cpu_probe_reads_this_machine() -> None:
    reading = CpuProbe().read()
    assert 0 < reading.own < reading.total
    assert 0 < reading.free <= reading.total


def test_a_measured_step_reports_what_it_added() -> None:
    blocks = []
    added = CpuProbe().peak_of(lambda: blocks.append(bytearray(b"1") * (64 << 20)))
    assert added is None or added > 0.05


def test_a_refusal_is_sealed_and_a_retry_is_a_new_linked_event(start_recipe, tmp_path, faults, capsys) -> None:
    """190 GiB refused, 198 GiB refused, neither with an update; smaller figures then go through: one ledger tells all."""
    out = tmp_path / "run"
    memory = "{trainer_allocator_cap_gib: %d, driver_free_memory_gib: 64, declared: %s}"
    with pytest.raises(AdmissionRefused, match="its cap is 190"):
        run(load(start_recipe, [f"qualify.memory={memory % (190, faults.DECLARED)}"]), out, listener=Silent())
    with pytest.raises(InputError, match="with --amend only"):
        resume(out, listener=Silent(), overrides=["qualify.memory.trainer_allocator_cap_gib=198"])
    with pytest.raises(AdmissionRefused, match="64 GiB must stay free"):
        resume(out, listener=Silent(), amend=True, overrides=["qualify.memory.trainer_allocator_cap_gib=198"])
    events = read(out / "ledger.jsonl")
    assert [e.payload["exit_code"] for e in events if e.kind is EventKind.REFUSED] == [3, 3]
    assert counts(events).updates_applied == counts(events).rollout_batches == 0
    contracts = [e for e in events if e.kind is EventKind.CONTRACT]
    assert contracts[1].payload["amends"] == contracts[0].contract
    assert "recipe.qualify.memory.trainer_allocator_cap_gib: 190 -> 198" in contracts[1].payload["changes"]
    assert main(["why", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "unadmitted"
    finished = resume(out, listener=Silent(), amend=True, overrides=["qualify.memory={trainer_allocator_cap_gib: 8}"])
    events = read(out / "ledger.jsonl")
    assert finished.counts.updates_applied > 0
    assert [e.kind for e in events].count(EventKind.REFUSED) == 2, "refusals are never cut"
    assert main(["audit", str(out), "--json"]) == 0, capsys.readouterr().out
    assert main(["why", str(out), "--json"]) == 0
