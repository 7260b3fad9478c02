"""Against TRL's own code on the same tensors, where `trl` is importable; the recorded run is in benchmarks/results."""

import importlib.util
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"grpo", "bnpo", "dr_grpo", "dapo", "cispo", "rloo", "gspo"}


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trl_differential", ROOT / "benchmarks" / "trl_differential.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trl_differential"] = module
    spec.loader.exec_module(module)
    return module


def test_advantages_losses_and_gradients_equal_trl_to_a_hundred_thousandth() -> None:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("trl is not installed: pip install trl, then run benchmarks/trl_differential.py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing trl warns about its own optional parts
        result = load().run(seeds=2)
    assert [row["trl"] for row in result["rows"] if not row["agrees"]] == []


def test_the_recorded_comparison_covers_every_pair_and_agrees() -> None:
    recorded = json.loads((ROOT / "benchmarks" / "results" / "trl_differential.json").read_text(encoding="utf-8"))
    pairs = load().PAIRS
    assert [(row["trl"], row["recipe"]) for row in recorded["rows"]] == [(pair.trl, pair.ours) for pair in pairs]
    assert all(row["agrees"] for row in recorded["rows"])
    assert {row["trl"].split(",")[0].split(" ")[0] for row in recorded["rows"]} >= NAMES
    assert all(row["why"] for row in recorded["explained"])
