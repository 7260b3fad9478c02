"""Admission: will the trainer stay under its cap, and does the device keep free what others need beside it?

    peak <= cap            the trainer never needs more than it may allocate
    free - cap >= needed   what the driver still has free when the trainer uses its whole cap

free is the driver's figure, other processes already taken off, before the trainer allocates. Where no cap is declared
the predicted peak stands in for it. On a CPU, free is what machine and cgroup still give, and the cap bounds this
process's resident set.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

import psutil
import torch

from algorist.policy.model import CausalPolicy
from algorist.qualify.config import DeclaredMemory, MemoryConfig
from algorist.qualify.gate import Gate, Verdict

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a device and a trainer need and have, in GiB.

    >>> Reading(total=268.0, free=256.0, own=0.0, source="declared").free
    256.0
    """

    total: float
    """Memory of the device or machine (the cgroup's limit where that is smaller)."""
    free: float
    """What the driver reports free now."""
    own: float
    """What this process already holds of it."""
    source: str
    """cuda, cpu or declared."""


class MemoryProbe(Protocol):
    """Reads memory figures. Must not allocate."""

    def read(self) -> Reading:
        """The figures now."""
        ...

    def peak_of(self, step: Callable[[], None]) -> float | None:
        """Run one micro-step and return how many GiB it added at its peak; None where that cannot be measured."""
        ...


@final
class CpuProbe:
    """This process's resident set, and what machine and cgroup have left."""

    def read(self) -> Reading:
        memory = psutil.virtual_memory()
        total, free = float(memory.total), float(memory.available)
        limit, used = cgroup_memory()
        if limit is not None and limit < total:
            total, free = limit, min(free, limit - used)
        own = float(psutil.Process().memory_info().rss)
        return Reading(total=total / GIB, free=free / GIB, own=own / GIB, source="cpu")

    def peak_of(self, step: Callable[[], None]) -> float | None:
        before = psutil.Process().memory_info().rss
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark (Linux)
        except OSError:
            step()
            return None
        step()
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return max(0.0, int(line.split()[1]) * 1024 - before) / GIB
        return None


@final
class CudaProbe:
    """The driver's free memory and this process's allocator."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def read(self) -> Reading:
        free, total = torch.cuda.mem_get_info(self.device)
        own = torch.cuda.memory_reserved(self.device)
        return Reading(total=total / GIB, free=free / GIB, own=own / GIB, source="cuda")

    def peak_of(self, step: Callable[[], None]) -> float | None:
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        step()
        torch.cuda.synchronize(self.device)
        return float(torch.cuda.max_memory_allocated(self.device) - before) / GIB


@final
class DeclaredProbe:
    """Figures of a machine that is not here."""

    def __init__(self, declared: DeclaredMemory) -> None:
        self.declared = declared

    def read(self) -> Reading:
        return Reading(total=self.declared.total_gib, free=self.declared.free_gib, own=0.0, source="declared")

    def peak_of(self, step: Callable[[], None]) -> float | None:
        return None


def probe_for(policy: CausalPolicy, cfg: MemoryConfig) -> MemoryProbe:
    """The declared probe where the recipe gives one, else the device's."""
    if cfg.declared is not None:
        return DeclaredProbe(cfg.declared)
    return CudaProbe(policy.device) if policy.device.type == "cuda" else CpuProbe()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What decides the peak besides the policy."""

    micro_batch_tokens: int
    rows: int
    """Rows decoded side by side."""
    length_tokens: int
    """Longest prompt and response together."""
    reference: bool
    offload: bool
    """Layer inputs leave the device."""


def predict(policy: CausalPolicy, shape: Shape) -> dict[str, float]:
    """GiB of each large tensor of training, and of rollout's cache; float32 weights, gradients and moments.

    A prediction to about a factor of 1.5: activations are counted as 12 h + 4 ff values per token and layer, which is what
    autograd keeps of a gated transformer layer; with recomputation one layer's plus one h per layer are kept.
    """
    config = policy.model.config
    N, trainable = policy.num_parameters(), sum(p.numel() for p in policy.parameters())
    h, layers = int(config.hidden_size), int(config.num_hidden_layers)
    ff = int(getattr(config, "intermediate_size", None) or 4 * h)
    heads = int(getattr(config, "num_attention_heads", 1))
    kv = int(getattr(config, "num_key_value_heads", None) or heads) * (h // heads)
    tokens = min(shape.micro_batch_tokens, shape.rows * shape.length_tokens)
    width = 2 if policy.dtype == "bfloat16" else 4
    per_token = (12 * h + 4 * ff) * width
    kept = per_token + (0 if shape.offload else h * width * layers) if shape.offload else per_token * layers
    sizes = {
        "weights": 4.0 * N,
        "gradients": 4.0 * trainable,
        "moments": 8.0 * trainable,
        "reference": 4.0 * N if shape.reference else 0.0,
        f"activations of a micro-batch of {tokens:,} tokens": float(tokens * kept),
        f"logits of 512 positions x {int(config.vocab_size):,}": 3.0 * 4 * 512 * int(config.vocab_size),
        f"key-value cache of {shape.rows} rows x {shape.length_tokens} tokens": (
            2.0 * width * kv * layers * shape.rows * shape.length_tokens
        ),
    }
    return {name: size / GIB for name, size in sizes.items()}


def predicted_peak(sizes: Mapping[str, float]) -> float:
    """Rollout and training take turns: what always stays, plus the larger of cache and activations with logits."""
    static = sum(sizes[name] for name in ("weights", "moments", "reference"))
    rollout = sum(size for name, size in sizes.items() if name.startswith("key-value"))
    train = sum(s for name, s in sizes.items() if name.startswith(("activations", "logits", "gradients")))
    return static + max(rollout, train)


def admission(
    cfg: MemoryConfig,
    reading: Reading,
    *,
    peak: float,
    tensor: str,
    measured: float | None = None,
    free_counts: bool = True,
) -> Gate:
    """Judge the two inequalities. peak: GiB of the trainer at its worst; tensor: what dominates it.

    >>> cfg = MemoryConfig(trainer_allocator_cap_gib=198, driver_free_memory_gib=64)
    >>> reading = Reading(total=268.0, free=256.0, own=0.0, source="declared")
    >>> print(admission(cfg, reading, peak=194.0, tensor="weights").cause)
    a trainer at its cap of 198 GiB leaves 58 GiB of the 256 GiB that are free, 64 GiB must stay free
    """
    cap, needed = cfg.trainer_allocator_cap_gib, cfg.driver_free_memory_gib
    limit = peak if cap is None else cap
    room = reading.free + reading.own  # what the trainer holds already is its own to use
    left = room - limit
    causes, remedies = [], []
    if cap is not None and peak > cap:
        causes.append(f"the trainer needs {peak:.4g} GiB at its peak, its cap is {cap:g} GiB (largest: {tensor})")
    if free_counts and left < needed:
        what = (
            f"a trainer at its cap of {cap:g} GiB" if cap is not None else f"a trainer at its predicted {peak:.4g} GiB"
        )
        causes.append(
            f"{what} leaves {max(0.0, left):.4g} GiB of the {room:.4g} GiB that are free, {needed:g} GiB must stay free"
        )
    if causes:
        if room <= needed:
            remedies.append(
                f"No cap is admitted: {room:.4g} GiB are free and {needed:g} GiB must stay free. Free memory on the device, or "
                "lower qualify.memory.driver_free_memory_gib."
            )
        elif peak <= room - needed:
            remedies.append(f"A cap between {peak:.4g} and {room - needed:.4g} GiB would be admitted.")
        else:
            remedies.append(
                f"No cap is admitted: the trainer needs {peak:.4g} GiB and at most {room - needed:.4g} GiB may be taken. Lower its "
                f"peak ({tensor}): smaller rl.micro_batch_tokens, shorter responses, qualify.memory.activation_offload, more "
                "devices; or free memory on the device."
            )
    verdict = Verdict.FAILED if causes else Verdict.PASSED
    return Gate(
        name="memory",
        value=cap if cap is not None else None,
        threshold=None,
        unit="GiB cap",
        verdict=verdict,
        cause="; ".join(causes),
        remedy=" ".join(remedies),
        figures={
            "trainer_allocator_cap_gib": cap,
            "driver_free_memory_gib": needed,
            "source": reading.source,
            "declared": reading.source == "declared",
        },
        wall={
            "total_gib": round(reading.total, 3),
            "free_gib": round(reading.free, 3),
            "own_gib": round(reading.own, 3),
            "peak_gib": round(peak, 3),
            "measured_micro_step_gib": None if measured is None else round(measured, 3),
            "largest": tensor,
        },
    )


def enforce_cap(policy: CausalPolicy, cfg: MemoryConfig) -> None:
    """Make the allocator itself refuse what lies above the cap (CUDA); on a CPU the watch looks at the resident set."""
    cap = cfg.trainer_allocator_cap_gib
    if cap is None or policy.device.type != "cuda":
        return
    _, total = torch.cuda.mem_get_info(policy.device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap * GIB / total), policy.device)


def cgroup_memory() -> tuple[float | None, float]:
    """(limit, used) in bytes of this process's cgroup, version 2 or 1; (None, 0) where there is no limit."""
    pairs = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "total_inactive_file",
        ),
    )
    for limit_path, used_path, cached in pairs:
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(limit_path).read_text())
            if limit < 1 << 60:  # version 1 writes a huge number for no limit
                used = int(Path(used_path).read_text())
                lines = Path(limit_path).with_name("memory.stat").read_text().splitlines()
                given_back = next((int(line.split()[1]) for line in lines if line.split()[0] == cached), 0)
                return float(limit), float(max(0, used - given_back))
    return None, 0.0
