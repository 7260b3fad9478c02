"""Deliberate faults are caught before an update that they could spoil, by the right gate, and named."""

from collections import Counter

import pytest

from .conftest import load_benchmark

FAULTS = load_benchmark("faults").FAULTS
QUICK = {
    # sampling and scoring
    "temperature 5 % too low",
    "temperature wrong from the third batch on",
    "top-p mask missing in the trainer",
    "drawn at temperature 0.5, log-probs of 0.8 stored",
    "weights one update behind, checked at update 0 only",
    "bfloat16 head in the sampler",
    "sampler drops the last prompt token",
    "log-probs shifted to the next token",
    "re-tokenised text",
    # groups and rows
    "prompts interleaved",
    "the likelier of two draws kept",
    "stale policy version stamps",
    "sampler does not know the stop id",
    "engine raises in the second batch",
    # verifier and reward
    "verifier rejects everything",
    "verdicts of the next row",
    "reward looks for the gold anywhere",
    # problems and prompts
    "held-out problems are trained on, written otherwise",
    "problems too hard for any contrast",
    "prompts say the gold",
    # policy, memory, recipe
    "declared parent is another checkpoint",
    "198 GiB cap, 64 GiB to stay free",
    # training
    "advantages normalised twice",
    "loss without gradient",
    "the optimizer steps twice",
    "sampling moves weights",
    "the reference is the policy itself",
    # resume
    "moments are not loaded",
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


def test_every_fault_has_its_own_name_and_every_kind_has_ten() -> None:
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 40
    assert min(Counter(f.kind for f in FAULTS).values()) >= 10
    assert {f.name for f in FAULTS} >= QUICK


def test_a_run_without_a_fault_passes_every_gate(finished) -> None:
    from algorist.qualify.why import why

    answer = why(finished)
    assert answer.status == "qualified", answer
    assert not answer.reasons
