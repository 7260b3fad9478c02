"""Fixtures shared by all rooms: one small real policy, made once, and a quiet single-threaded torch."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SHARED = Path(os.environ.get("ALGORIST_SHARED", Path(__file__).resolve().parents[2] / "shared"))
"""Folder with public cases and data sets; tests that need it skip where it is absent."""


@pytest.fixture(scope="session", autouse=True)
def _threads() -> None:
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


@pytest.fixture(autouse=True)
def _threads_again(_threads: None) -> Iterator[None]:
    """A verb that ran in this process may have left its own number of threads behind, and it is part of every contract."""
    yield
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def make_policy() -> Callable[..., object]:
    """A factory of from-scratch policies: the same seed gives the same weights, bit for bit."""
    from algorist.policy.build import build_policy
    from algorist.policy.config import NewPolicyConfig, PolicyConfig

    def make(seed: int = 0, *, dtype: str = "float32", context: int = 48, kv_heads: int | None = 2) -> object:
        new = NewPolicyConfig(
            hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=kv_heads, context=context
        )
        cfg = PolicyConfig(new=new, dtype=dtype, device="cpu")
        return build_policy(cfg, base=Path(), texts=["0123456789+-*= \n"], seed=seed)

    return make


@pytest.fixture
def shared() -> Path:
    """The folder with public cases and data; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the shared cases and data folder ({SHARED.name}); set ALGORIST_SHARED")
    return SHARED
