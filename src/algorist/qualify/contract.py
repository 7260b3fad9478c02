"""The run contract: the resolved recipe and the digest of everything it starts from, as canonical JSON.

`provenance` says where code and packages came from (commit, uncommitted changes, all installed versions) and which key will
sign the receipts, if any. It is part of the contract and its digest, but a resume does not insist on it: what decides the
numbers is matched elsewhere, by the digest of the sources and the versions of the libraries that compute.
"""

import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any, Final

import torch

from algorist.digest import JSON, digest, file_digest, sha256
from algorist.qualify.gate import GATES
from algorist.qualify.receipt import signing_key

SCHEMA = "algorist/contract/1"
UNMATCHED: Final = ("provenance", "amends")
"""Parts that a resume takes over from the run instead of comparing them."""


def build(
    *,
    recipe: Mapping[str, Any],
    recipe_digest: str,
    policy: Mapping[str, JSON],
    parents: Mapping[str, JSON],
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
        "parents": dict(parents),
        "problems": dict(problems),
        "verifier": verifier,
        "formulas": dict(formulas),
        "notes": list(notes),
        "promises": promises(recipe),
        "code": {"version": _version("algorist"), "source": source_digest()},
        "software": {name: _version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
        | {"python": platform.python_version()},
        "numerics": {
            "threads": torch.get_num_threads(),
            "machine": platform.machine(),
            "hardware": hardware(str(policy["device"])),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        },
        "provenance": {**provenance(), "signing_key": signing_key()},
    }


def promises(recipe: Mapping[str, Any]) -> dict[str, JSON]:
    """What the run will do and keep: gates, budget, tolerances with their statistic, what log-probabilities mean."""
    rl = recipe.get("rl")
    result: dict[str, JSON] = {"gates": list(GATES), "seed": recipe["seed"]}
    cfg = recipe["qualify"]
    result["tolerances"] = {
        "cache": {"statistic": "mean", "nats": cfg["cache"]["nats"]},
        "float32": {"statistic": "mean", "nats": cfg["float32"]["mean_nats"]},
    }
    if rl is None:
        return result
    result["budget"] = {
        "batches": rl["updates"],
        "prompts_per_batch": rl["prompts_per_batch"],
        "group_size": rl["group_size"],
        "responses": rl["updates"] * rl["prompts_per_batch"] * rl["group_size"],
        "response_tokens": rl["sampling"]["response_tokens"],
    }
    result["replay"] = {
        "statistic": rl["replay"]["statistic"],
        "nats": rl["replay"]["nats"],
        "every": rl["replay"]["every"],
    }
    result["log_probabilities"] = (
        f"natural logarithm of softmax(logits / {rl['sampling']['temperature']:g}), top_p {rl['sampling']['top_p']:g}, of each "
        "sampled token, the stop token included; head and softmax in float32"
    )
    return result


def hardware(device: str) -> str:
    """The class of machine that decides bits: instruction set of a CPU, name of a GPU."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"


@cache
def source_digest() -> str:
    """sha256 over the package's own source files, so that a run knows the code it ran without needing git."""
    root = Path(__file__).resolve().parents[1]
    return digest({p.relative_to(root).as_posix(): file_digest(p) for p in sorted(root.rglob("*.py"))})


@cache
def provenance() -> dict[str, JSON]:
    """Commit and digest of uncommitted changes of a source checkout, digest of all installed versions, of the lock file.

    An installed package has no commit: `origin` says so, and code.source covers every source file all the same.
    """
    root = Path(__file__).resolve().parents[3]
    checkout = (root / ".git").exists()
    commit = _git(root, "rev-parse", "HEAD") if checkout else None
    origin = (
        "source checkout" if commit else "source checkout that git cannot read" if checkout else "installed package"
    )
    changes = None if commit is None else _git(root, "diff", "HEAD", "--", "src", "pyproject.toml")
    packages = sorted({f"{d.metadata['Name']}=={d.version}" for d in distributions() if d.metadata["Name"]})
    return {
        "origin": f"{origin}; code.source is the digest of its files",
        "commit": commit,
        "uncommitted": None if changes is None else sha256(changes.encode()) if changes else "",
        "packages": digest(packages),
        "lock": _lock(root),
    }


def same(stored: Mapping[str, JSON], now: Mapping[str, JSON]) -> bool:
    """True where two contracts agree in everything a resume insists on."""
    return matched(stored) == matched(now)


def matched(document: Mapping[str, JSON]) -> str:
    """Digest of the part of a contract that a resume insists on."""
    return digest({k: v for k, v in document.items() if k not in UNMATCHED})


def differences(stored: Mapping[str, JSON], now: Mapping[str, JSON]) -> list[str]:
    """Every value that differs, as 'a.b: old -> new'; long values are cut."""
    found: list[str] = []

    def walk(at: str, a: Any, b: Any) -> None:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            for key in sorted(a.keys() | b.keys()):
                walk(f"{at}.{key}" if at else key, a.get(key), b.get(key))
        elif a != b:
            found.append(f"{at}: {_short(a)} -> {_short(b)}")

    for key in sorted((stored.keys() | now.keys()) - set(UNMATCHED)):
        walk(key, stored.get(key), now.get(key))
    return found


def _short(value: object) -> str:
    text = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _lock(root: Path) -> str | None:
    for name in ("uv.lock", "requirements.lock", "pylock.toml"):
        if (root / name).is_file():
            return file_digest(root / name)
    return None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"
