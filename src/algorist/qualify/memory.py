"""Admission: will the trainer stay under its cap, and does the device keep free what others need beside it?

    peak <= cap            the trainer never needs more than it may allocate
    free - cap >= needed   what the driver still has free when the trainer uses its whole cap

free is the driver's figure, other processes already taken off, before the trainer allocates. Where no cap is declared
the predicted peak stands in for it. On a CPU, free is what machine and cgroup still give, and the cap bounds this
process's resident set.
"""

import contextlib
import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, final

import psutil
import torch

from algorist.policy.model import CausalPolicy
from algorist.qualify.config import DeclaredMemory, MemoryConfig
from algorist.qualify.footprint import GIB
from algorist.qualify.gate import Gate, Verdict

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_RETURNED: Final = 1 << 20
"""Allocations from this size on go back to the system as soon as they are freed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a device and a trainer need and have, in GiB.

    >>> Reading(total=268.0, free=256.0, own=0.0, high=0.0, source="declared").free
    256.0
    """

    total: float
    """Memory of the device or machine (the cgroup's limit where that is smaller)."""
    free: float
    """What the driver reports free now."""
    own: float
    """What this process holds of it."""
    high: float
    """The most that this process has held since the last reading."""
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
@dataclass(frozen=True, slots=True, kw_only=True)
class CpuProbe:
    """This process's resident set, and what machine and cgroup have left."""

    root: Path = Path("/")
    """Where /proc and /sys are."""

    def read(self) -> Reading:
        memory = psutil.virtual_memory()
        total, free = float(memory.total), float(memory.available)
        for limit, used in cgroup_memory(self.root):
            total, free = min(total, limit), min(free, max(0.0, limit - used))
        own, high = float(psutil.Process().memory_info().rss), _high_water()
        _reset_high_water()
        return Reading(
            total=total / GIB, free=free / GIB, own=own / GIB, high=max(own, high or 0.0) / GIB, source="cpu"
        )

    def peak_of(self, step: Callable[[], None]) -> float | None:
        before = psutil.Process().memory_info().rss
        measurable = _reset_high_water()
        step()
        high = _high_water()
        return max(0.0, high - before) / GIB if measurable and high is not None else None


@final
class CudaProbe:
    """The driver's free memory and this process's allocator."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def read(self) -> Reading:
        free, total = torch.cuda.mem_get_info(self.device)
        own, high = torch.cuda.memory_reserved(self.device), torch.cuda.max_memory_reserved(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return Reading(total=total / GIB, free=free / GIB, own=own / GIB, high=high / GIB, source="cuda")

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
        declared = self.declared
        return Reading(total=declared.total_gib, free=declared.free_gib, own=0.0, high=0.0, source="declared")

    def peak_of(self, step: Callable[[], None]) -> float | None:
        return None


def probe_for(policy: CausalPolicy, cfg: MemoryConfig) -> MemoryProbe:
    """The declared probe where the recipe gives one, else the device's."""
    if cfg.declared is not None:
        return DeclaredProbe(cfg.declared)
    return CudaProbe(policy.device) if policy.device.type == "cuda" else CpuProbe()


def admission(
    cfg: MemoryConfig,
    reading: Reading,
    *,
    peak: float,
    largest: str,
    measured: float | None = None,
    sizes: Mapping[str, float] = MappingProxyType({}),
) -> Gate:
    """Judge the two inequalities. peak: GiB of the trainer at its worst; largest: what dominates it; sizes: what is in it.

    >>> cfg = MemoryConfig(trainer_allocator_cap_gib=198, driver_free_memory_gib=64)
    >>> reading = Reading(total=268.0, free=256.0, own=0.0, high=0.0, source="declared")
    >>> print(admission(cfg, reading, peak=194.0, largest="weights").cause)
    a trainer at its cap of 198 GiB leaves 58 GiB of the 256 GiB that are free, 64 GiB must stay free
    """
    cap, needed = cfg.trainer_allocator_cap_gib, cfg.driver_free_memory_gib
    room = reading.free + reading.own  # what the trainer holds already is its own to use
    left = room - (peak if cap is None else cap)
    causes = []
    if cap is not None and peak > cap:
        causes.append(f"the trainer needs {peak:.4g} GiB at its peak, its cap is {cap:g} GiB (largest: {largest})")
    if left < needed:
        what = "at its predicted peak of" if cap is None else "at its cap of"
        causes.append(
            f"a trainer {what} {peak if cap is None else cap:.4g} GiB leaves {max(0.0, left):.4g} GiB of the {room:.4g} GiB that "
            f"are free, {needed:g} GiB must stay free"
        )
    return Gate(
        name="memory",
        value=cap,
        threshold=None,
        unit="GiB cap",
        verdict=Verdict.FAILED if causes else Verdict.PASSED,
        cause="; ".join(causes),
        remedy=_remedy(cfg, room, peak, largest) if causes else "",
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
            "largest": largest,
            "sizes_gib": {name: round(size, 3) for name, size in sizes.items()},
        },
    )


def _remedy(cfg: MemoryConfig, room: float, peak: float, largest: str) -> str:
    """Which caps would be admitted; where there are none, what to lower."""
    most = room - cfg.driver_free_memory_gib
    if most <= 0:
        return (
            f"No cap is admitted: {room:.4g} GiB are free and {cfg.driver_free_memory_gib:g} GiB must stay free. Free memory on the "
            "device, or lower qualify.memory.driver_free_memory_gib."
        )
    if peak <= most:
        low, high = math.ceil(peak * 1000) / 1000, math.floor(most * 1000) / 1000
        return f"A qualify.memory.trainer_allocator_cap_gib between {low:g} and {high:g} would be admitted."
    return (
        f"No cap is admitted: the trainer needs {peak:.4g} GiB and at most {most:.4g} GiB may be taken. Lower its peak "
        f"({largest}): {_lower(largest, cfg.activation_offload)}; or free memory on the device."
    )


def _lower(largest: str, offload: bool) -> str:
    """What makes the named tensor smaller."""
    if largest.startswith("activations"):
        return "smaller rl.micro_batch_tokens, shorter responses" + (
            "" if offload else ", qualify.memory.activation_offload"
        )
    if largest.startswith(("key-value", "next-token")):
        return "smaller rl.sampling.rows, shorter responses"
    if largest.startswith("reference"):
        return "an objective without a reference policy"
    return "a smaller policy, fewer trained parameters (qualify.parameters.frozen), more devices"


def enforce_cap(policy: CausalPolicy, cfg: MemoryConfig) -> None:
    """Make the allocator itself refuse what lies above the cap (CUDA); on a CPU the watch looks at the resident set."""
    cap = cfg.trainer_allocator_cap_gib
    if cap is None or policy.device.type != "cuda":
        return
    _, total = torch.cuda.mem_get_info(policy.device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap * GIB / total), policy.device)


def return_freed_memory() -> None:
    """On a CPU, make freed tensors leave the resident set at once, so that the cap bounds what is in use.

    By default the C library of Linux keeps freed blocks below 32 MiB for later: a step then seems to hold half as much
    again as it uses. Elsewhere nothing is done.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, _RETURNED)
            libc.mallopt(_M_TRIM_THRESHOLD, _RETURNED)
            libc.malloc_trim(0)


def cgroup_memory(root: Path = Path("/")) -> Iterator[tuple[float, float]]:
    """(limit, used) in bytes of the cgroup of this process and of each above it that has a limit; version 2 or 1.

    used leaves out file pages that the kernel gives back when asked. Nothing is yielded where there is no limit.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2)}
    version_1 = next((path for controllers, path in own.items() if "memory" in controllers.split(",")), "/")
    mounted = root / "sys/fs/cgroup"
    for base, path, names in (
        (mounted, own.get("", "/"), ("memory.max", "memory.current", "inactive_file")),
        (mounted / "memory", version_1, ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ):
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(
            len(parts), -1, -1
        ):  # in a container the path of the host may lead nowhere: the mount itself
            with contextlib.suppress(OSError, ValueError):  # "max": no limit
                yield _limit(base.joinpath(*parts[:depth]), *names)


def _limit(folder: Path, limit: str, used: str, cached: str) -> tuple[float, float]:
    most = int((folder / limit).read_text())
    if most >= 1 << 60:  # how version 1 writes no limit
        raise ValueError(f"{folder / limit}: no limit")
    now = int((folder / used).read_text())
    stat = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    given_back = next((int(value) for name, value in stat if name == cached), 0)
    return float(most), float(max(0, now - given_back))


def _high_water() -> float | None:
    """Bytes of the largest resident set since the last reset; None where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(int(line.split()[1]) * 1024)
    return None


def _reset_high_water() -> bool:
    """False where that is not allowed: the high-water mark is then that of the whole life of the process."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
