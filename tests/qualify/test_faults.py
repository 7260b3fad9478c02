"""Deliberate faults are caught before an update that they could spoil, by the right gate, and named."""

import importlib.util
import sys
from pathlib import Path

import pytest

if "faults" not in sys.modules:
    _path = Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"
    _spec = importlib.util.spec_from_file_location("faults", _path)
    sys.modules["faults"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["faults"])
FAULTS = sys.modules["faults"].FAULTS
QUICK = {
    "temperature not applied to stored log-probs",
    "top-p mask missing in the trainer",
    "log-probs shifted to the next token",
    "sampler drops the last prompt token",
    "bfloat16 head in the sampler",
    "re-tokenised text",
    "stale policy version stamps",
    "sampler does not know the stop id",
    "verifier rejects everything",
    "reward is constant",
    "held-out problems are trained on",
    "problems too hard for any contrast",
    "every prompt ends with the stop token",
    "declared parent is another checkpoint",
    "frozen parameters would be trained",
    "190 GiB cap, 64 GiB to stay free",
    "198 GiB cap, 64 GiB to stay free",
}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=f.name, marks=[] if f.name in QUICK else [pytest.mark.slow]) for f in FAULTS],
)
def test_a_deliberate_fault_is_caught_and_named(fault, faults, start_recipe, tmp_path) -> None:
    caught = faults.inject(fault, start_recipe, tmp_path / "run")
    assert caught.code == fault.code, caught
    assert caught.gate in fault.gates, caught
    assert fault.words in caught.message, caught
    assert caught.applied <= fault.updates, "no update may be applied to what is already wrong"


def test_there_are_at_least_forty_faults_each_with_its_own_name() -> None:
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 40


def test_a_run_without_a_fault_passes_every_gate(finished) -> None:
    from algorist.qualify.why import why

    answer = why(finished)
    assert answer.status == "qualified", answer
    assert not answer.reasons
