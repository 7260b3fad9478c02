"""Admission: two inequalities, the launch's case, what machine and cgroup offer, and no update behind a refusal."""

import json
import mmap
import re
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorist.cli import main
from algorist.errors import AdmissionRefused, InputError
from algorist.launch.prepare import prepare, subject_of
from algorist.launch.run import resume, run
from algorist.qualify.admit import measure_admission, shapes_of
from algorist.qualify.config import DeclaredMemory, MemoryConfig
from algorist.qualify.memory import CpuProbe, DeclaredProbe, Reading, admission, cgroup_memory
from algorist.recipe.load import load
from algorist.record.ledger import EventKind, counts, read
from algorist.stages.listener import Silent

GIB = st.floats(min_value=0.5, max_value=400, allow_nan=False)


@given(cap=GIB, needed=st.floats(min_value=0, max_value=200), free=GIB, peak=GIB)
def test_admitted_exactly_where_the_peak_fits_the_cap_and_the_rest_stays_free(cap, needed, free, peak) -> None:
    cfg = MemoryConfig(trainer_allocator_cap_gib=cap, driver_free_memory_gib=needed)
    gate = admission(
        cfg, Reading(total=free, free=free, own=0.0, high=0.0, source="cuda"), peak=peak, largest="weights"
    )
    assert gate.passed is (peak <= cap and free - cap >= needed)
    assert bool(gate.cause) is not gate.passed


def test_what_the_trainer_already_holds_is_its_own_to_use() -> None:
    cfg = MemoryConfig(trainer_allocator_cap_gib=10, driver_free_memory_gib=5)
    assert admission(cfg, Reading(total=20, free=7, own=8, high=8, source="cuda"), peak=9, largest="w").passed


def test_the_seed_case_leaves_no_admissible_cap_and_says_so() -> None:
    declared = DeclaredMemory(total_gib=268, free_gib=256, peak_gib=194)
    for cap in (190, 198):
        cfg = MemoryConfig(trainer_allocator_cap_gib=cap, driver_free_memory_gib=64, declared=declared)
        gate = admission(cfg, DeclaredProbe(declared).read(), peak=declared.peak_gib, largest="activations")
        assert not gate.passed
        assert "No cap is admitted: the trainer needs 194 GiB and at most 192 GiB may be taken" in gate.remedy


def test_the_cpu_probe_reads_this_machine() -> None:
    reading = CpuProbe().read()
    assert 0 < reading.own <= reading.high < reading.total
    assert 0 < reading.free <= reading.total


def _written(size: int) -> mmap.mmap:
    """Memory of its own, in use, that the system gets back when it is closed, whatever the allocator keeps."""
    block = mmap.mmap(-1, size)
    for _ in range(size >> 20):
        block.write(b"1" * (1 << 20))
    return block


def test_what_was_held_between_two_readings_is_seen_although_it_is_freed_again() -> None:
    probe = CpuProbe()
    before = probe.read()
    _written(64 << 20).close()
    after, later = probe.read(), probe.read()
    assert after.high > before.own + 0.05
    assert later.high < after.high, "the mark starts anew with every reading"


def _group(folder: Path, version: int, limit: str, used: int, cached: int) -> None:
    """The files of one cgroup."""
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(limit + "\n")
    (folder / names[1]).write_text(f"{used}\n")
    key = "inactive_file" if version == 2 else "total_inactive_file"
    (folder / "memory.stat").write_text(f"anon 1\nactive_file 7\n{key} {cached}\n")


def _machine(root: Path, lines: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    return root / "sys/fs/cgroup"


def test_a_version_2_cgroup_limits_what_is_free_and_file_pages_count_as_free(tmp_path) -> None:
    mounted = _machine(tmp_path, "0::/job/worker\n")
    _group(mounted / "job/worker", 2, str(4 << 30), used=3 << 30, cached=1 << 30)
    _group(mounted / "job", 2, "max", used=9 << 30, cached=0)
    assert list(cgroup_memory(tmp_path)) == [(4 << 30, 2 << 30)]
    reading = CpuProbe(root=tmp_path).read()
    assert (reading.total, reading.free) == (4.0, 2.0)


def test_the_group_above_may_be_the_one_that_has_less_left(tmp_path) -> None:
    mounted = _machine(tmp_path, "0::/job/worker\n")
    _group(mounted / "job/worker", 2, str(4 << 30), used=1 << 30, cached=0)
    _group(mounted / "job", 2, str(8 << 30), used=7 << 30, cached=0)
    reading = CpuProbe(root=tmp_path).read()
    assert (reading.total, reading.free) == (4.0, 1.0)


def test_a_version_1_cgroup_limits_what_is_free(tmp_path) -> None:
    mounted = _machine(tmp_path, "12:cpu,cpuacct:/x\n9:memory:/docker/abc\n0::/\n")
    _group(mounted / "memory/docker/abc", 1, str(2 << 30), used=1 << 30, cached=512 << 20)
    _group(mounted / "memory", 1, str((1 << 63) - 4096), used=5 << 30, cached=0)
    reading = CpuProbe(root=tmp_path).read()
    assert (reading.total, reading.free) == (2.0, 1.5)


def test_in_a_container_the_path_of_the_host_leads_to_the_mount_itself(tmp_path) -> None:
    mounted = _machine(tmp_path, "0::/system.slice/docker-abc.scope\n")
    _group(mounted, 2, str(2 << 30), used=1 << 30, cached=0)
    assert list(cgroup_memory(tmp_path)) == [(2 << 30, 1 << 30)]


@pytest.mark.parametrize("lines", [None, "", "0::/\n", "rubbish\n"])
def test_without_a_cgroup_the_machine_itself_is_the_limit(lines, tmp_path) -> None:
    if lines is not None:
        _machine(tmp_path, lines)
    assert list(cgroup_memory(tmp_path)) == []
    reading = CpuProbe(root=tmp_path).read()
    assert reading.total == pytest.approx(psutil.virtual_memory().total / 2**30)


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path) -> None:
    mounted = _machine(tmp_path, "0::/\n")
    _group(mounted, 2, str(1 << 30), used=2 << 30, cached=0)
    assert CpuProbe(root=tmp_path).read().free == 0.0


def test_a_measured_step_reports_what_it_added() -> None:
    blocks = []
    added = CpuProbe().peak_of(lambda: blocks.append(_written(64 << 20)))
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
    finished = resume(out, listener=Silent(), amend=True, overrides=["qualify.memory={trainer_allocator_cap_gib: 3}"])
    events = read(out / "ledger.jsonl")
    assert finished.counts.updates_applied > 0
    assert [e.kind for e in events].count(EventKind.REFUSED) == 2, "refusals are never cut"
    assert main(["audit", str(out), "--json"]) == 0, capsys.readouterr().out
    assert main(["why", str(out), "--json"]) == 0


def _subject(recipe: Path, *overrides: str):
    resolved = load(recipe, list(overrides))
    prepared = prepare(resolved.recipe, base=resolved.base_dir, listener=Silent())
    return prepared, subject_of(prepared)


def test_on_this_machine_a_cap_below_the_peak_is_refused_with_the_largest_tensor_and_one_above_it_admitted(
    start_recipe,
) -> None:
    prepared, subject = _subject(start_recipe, "qualify.memory.trainer_allocator_cap_gib=0.05")
    try:
        refused = measure_admission(subject)
    finally:
        prepared.close()
    assert not refused.passed
    assert re.search(r"needs 0\.\d+ GiB at its peak, its cap is 0\.05 GiB \(largest: [a-z-]+ .*, .* GiB", refused.cause)
    low = re.search(r"trainer_allocator_cap_gib between ([\d.]+) and ([\d.]+) would be admitted", refused.remedy)
    assert low is not None, refused.remedy
    prepared, subject = _subject(start_recipe, f"qualify.memory.trainer_allocator_cap_gib={float(low[1]) + 0.1}")
    try:
        admitted = measure_admission(subject)
    finally:
        prepared.close()
    assert admitted.passed, admitted.cause
    assert admitted.wall["measured_micro_step_gib"] is not None
    assert sum(admitted.wall["sizes_gib"].values()) >= admitted.wall["peak_gib"]


def test_a_trainer_that_grows_past_its_cap_after_an_update_ends_with_3(start_recipe, tmp_path, faults) -> None:
    """Admitted by figures that were true then; sampling the second batch takes more for a moment and gives it back."""
    prepared, subject = _subject(start_recipe)
    prepared.close()
    peak = float(measure_admission(subject).wall["peak_gib"])

    def grow(plan):
        _written(512 << 20).close()
        return plan

    fault = faults.Fault(
        "grows", "", ("memory",), "its cap is", code=3, updates=2,
        overrides=(f"qualify.memory.trainer_allocator_cap_gib={peak + 0.25}",),
        tamper=faults.engine(plan=grow, from_version=1),
    )  # fmt: skip
    caught = faults.inject(fault, start_recipe, tmp_path / "run")
    assert (caught.code, caught.gate, caught.applied) == (3, "memory", 2), caught


def test_a_single_row_that_needs_more_than_predicted_raises_the_peak_of_the_whole_micro_batch(start_recipe) -> None:
    prepared, subject = _subject(start_recipe, "qualify.memory.trainer_allocator_cap_gib=64")
    try:
        usual = measure_admission(subject, _Measured(0.0)).wall["peak_gib"]
        more = measure_admission(subject, _Measured(0.5)).wall["peak_gib"]
    finally:
        prepared.close()
    (shape,) = shapes_of(subject)
    rows = shape.nodes / (len(max(subject.prompt_ids.values(), key=len)) + subject.plan.response_tokens - 1)
    assert more - usual == pytest.approx(0.5 * rows, rel=0.05)


def test_what_is_refused_by_prediction_is_not_tried(start_recipe) -> None:
    prepared, subject = _subject(start_recipe, "qualify.memory.trainer_allocator_cap_gib=0.05")
    prepared.close()
    assert not measure_admission(subject, _Measured(RuntimeError("must not be asked"))).passed


def test_a_row_that_does_not_fit_the_device_is_a_refusal_not_a_crash(start_recipe) -> None:
    prepared, subject = _subject(start_recipe, "qualify.memory.trainer_allocator_cap_gib=64")
    prepared.close()
    gate = measure_admission(subject, _Measured(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")))
    assert not gate.passed
    assert "does not fit the device: CUDA out of memory" in gate.cause


class _Measured:
    """A probe of a machine with plenty, on which a micro-step adds so much."""

    def __init__(self, added: float | Exception) -> None:
        self.added = added

    def read(self) -> Reading:
        return Reading(total=999.0, free=900.0, own=0.4, high=0.4, source="cpu")

    def peak_of(self, step) -> float:
        if isinstance(self.added, Exception):
            raise self.added
        return self.added
