"""One small start policy and one finished run, shared by the tests of this room."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def load_benchmark(name: str, folder: Path = BENCHMARKS):
    """A module of benchmarks/, or of another folder that is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def faults():
    return load_benchmark("faults")


@pytest.fixture(scope="session")
def forging():
    """How a run is tampered with: forging.py."""
    return load_benchmark("forging", Path(__file__).parent)


@pytest.fixture(scope="session")
def start_recipe(tmp_path_factory, faults) -> Path:
    """A recipe over a policy that solves some problems."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("start")
    recipe = faults.start_policy(folder)
    faults.write_data(folder)
    yield recipe
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def finished(start_recipe, faults, tmp_path_factory) -> Path:
    """A run without a fault. Never changed: copy it with `copy_of`."""
    from algorist.report.page import build

    out = tmp_path_factory.mktemp("runs") / "clean"
    caught = faults.inject(faults.Fault("none", "", ()), start_recipe, out)
    assert caught.code == 0, caught
    build(out)
    return out


@pytest.fixture
def copy_of(tmp_path):
    def copy(run: Path) -> Path:
        return Path(shutil.copytree(run, tmp_path / "copy", symlinks=True))

    return copy


@pytest.fixture
def policy():
    """An untrained character model: what it says does not matter, only that it can be scored."""
    from algorist.policy.build import build_policy
    from algorist.policy.config import NewPolicyConfig, PolicyConfig

    new = NewPolicyConfig(hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, context=64)
    return build_policy(PolicyConfig(new=new), base=Path(), texts=["0123456789+=ab \n"], seed=0)
