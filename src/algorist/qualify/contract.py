"""The run contract: the resolved recipe and the digest of everything it starts from, as canonical JSON."""

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from algorist.digest import JSON, digest, file_digest

SCHEMA = "algorist/contract/1"


def build(
    *,
    recipe: JSON,
    recipe_digest: str,
    policy: Mapping[str, JSON],
    problems: Mapping[str, JSON],
    verifier: str,
    formulas: Mapping[str, JSON],
    notes: tuple[str, ...],
) -> dict[str, JSON]:
    """The contract of a run on this machine. Its digest names the run; changing anything in it makes another contract."""
    return {
        "schema": SCHEMA,
        "recipe": recipe,
        "recipe_digest": recipe_digest,
        "policy": dict(policy),
        "problems": dict(problems),
        "verifier": verifier,
        "formulas": dict(formulas),
        "notes": list(notes),
        "code": {"version": version("algorist"), "source": source_digest()},
        "software": {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
        | {"python": platform.python_version()},
        "numerics": {
            "threads": torch.get_num_threads(),
            "machine": platform.machine(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        },
    }


@cache
def source_digest() -> str:
    """sha256 over the package's own source files, so that a run knows the code it ran without needing git."""
    root = Path(__file__).resolve().parents[1]
    return digest({p.relative_to(root).as_posix(): file_digest(p) for p in sorted(root.rglob("*.py"))})
