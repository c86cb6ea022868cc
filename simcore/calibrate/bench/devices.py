"""The two kinds of device: a CUDA GPU timed by events, the host's cores timed by the clock."""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from simcore.base.units import KIB, MIB
from simcore.calibrate.bench.case import Device, Run, Sample

#: A call of one thread whose wall time exceeds its processor time by this share plus these seconds
#: was interrupted.
INTERRUPTED_FRAC: Final = 0.05
INTERRUPTED_S: Final = 20e-6
#: Size of the last-level cache if the system does not state it: an assumption.
CACHE_UNKNOWN_BYTES: Final = 32 * MIB
#: Size of the tensor whose passes keep a GPU busy while calls are queued behind them, and passes
#: over it that are timed once.
BALLAST_BYTES: Final = 512 * MIB
BALLAST_PASSES: Final = 5


def flush(device: Device) -> None:
    """Evict the caches by writing twice the size of the last-level one.

    On a GPU this also hides the launch of the next kernel.
    """
    _sink(device.kind, device.cache_bytes).add_(1.0)


@cache
def _sink(kind: str, cache_bytes: int) -> Any:
    import torch

    return torch.zeros(2 * cache_bytes // 4, device=kind)


@dataclass
class CpuDevice:
    """The host's cores as a device: one rank computes on ``threads`` of them."""

    name: str
    threads: int
    ranks: int
    kind: str = "cpu"
    dtypes: tuple[str, ...] = ("fp32",)
    line: None = None

    @property
    def cache_bytes(self) -> int:
        """Size of the largest cache that the system lists."""
        sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
        matches = [re.match(r"(\d+)([KM])", p.read_text(encoding="ascii")) for p in sizes]
        known = [int(m[1]) * (MIB if m[2] == "M" else KIB) for m in matches if m]
        return max(known, default=CACHE_UNKNOWN_BYTES)

    @property
    def memory_bytes(self) -> int:
        """One rank's share of the host's memory."""
        return host_memory_bytes() // self.ranks

    def flush(self) -> None:
        """Evict the data of earlier calls."""
        flush(self)

    def time(self, run: Run) -> Sample:
        """The wall time of a call; of a single thread that was interrupted, its processor time.

        For an undisturbed thread the two are equal, since it computes and never waits.
        """
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        cpu, wall = time.process_time(), time.perf_counter()
        returned_s = run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        preempted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw > switches
        waited = self.threads == 1 and wall > cpu * (1.0 + INTERRUPTED_FRAC) + INTERRUPTED_S
        if isinstance(returned_s, float):
            return Sample(returned_s, preempted)
        disturbed = preempted or waited
        return Sample(cpu if disturbed and self.threads == 1 else wall, disturbed)

    def conditions(self) -> dict[str, str]:
        """Processor, threads, clock and versions: what a reader needs to repeat the figures."""
        import torch

        return {
            "processor": processor_name(), "threads": str(self.threads),
            "clock": processor_clock(), "torch": str(torch.__version__),
            "system": f"{platform.system()} {platform.machine()}",
        }  # fmt: skip


@dataclass
class CudaDevice:
    """One GPU, timed by CUDA events, that is by the device's clock."""

    name: str
    index: int
    kind: str = "cuda"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """fp32 with TF32 off, and the dtypes of the GPU's matrix units."""
        import torch

        major = torch.cuda.get_device_capability(self.index)[0]
        return ("fp32", "tf32", "bf16") if major >= 8 else ("fp32", "fp16")

    @property
    def cache_bytes(self) -> int:
        """Size of the L2 cache as the driver reports it."""
        import torch

        l2_bytes = getattr(torch.cuda.get_device_properties(self.index), "L2_cache_size", 0)
        return int(l2_bytes) or CACHE_UNKNOWN_BYTES

    @property
    def memory_bytes(self) -> int:
        """Total memory as the driver reports it."""
        import torch

        return int(torch.cuda.get_device_properties(self.index).total_memory)

    @property
    def line(self) -> CudaLine:
        """The current stream."""
        return CudaLine()

    def flush(self) -> None:
        """Evict the data of earlier calls."""
        flush(self)

    def time(self, run: Run) -> Sample:
        """The time on the device between an event before the call and one after it."""
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        returned_s = run()
        end.record()
        end.synchronize()
        whole_s = start.elapsed_time(end) / 1e3
        return Sample(returned_s if isinstance(returned_s, float) else whole_s)

    def conditions(self) -> dict[str, str]:
        """The device, versions of the libraries, and the clock that NVML reports if installed."""
        import torch

        conditions = {
            "device": torch.cuda.get_device_name(self.index), "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version()),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }  # fmt: skip
        try:
            conditions["clock"] = f"{torch.cuda.clock_rate(self.index)} MHz when read"
        except Exception:  # NVML's Python bindings are optional
            conditions["clock"] = "not known"
        return conditions


class CudaLine:
    """The current stream of the current GPU (``case.Line``)."""

    def allocated_bytes(self) -> int:
        """Bytes of all tensors."""
        import torch

        return int(torch.cuda.memory_allocated())

    def busy(self, seconds: float) -> None:
        """Queue passes over a large tensor for at least so long."""
        tensor, pass_s = _ballast()
        for _ in range(math.ceil(seconds / pass_s)):
            tensor.add_(1.0)

    def mark(self) -> CudaMark:
        """Queue an event."""
        return CudaMark()

    def seconds_between(self, first: CudaMark, last: CudaMark) -> float:
        """Seconds between two events, by the device's clock."""
        last.event.synchronize()
        return float(first.event.elapsed_time(last.event)) / 1e3

    def wait(self) -> None:
        """Wait until all streams are empty."""
        import torch

        torch.cuda.synchronize()


class CudaMark:
    """An event that was recorded; calling it says whether the device has reached it."""

    def __init__(self) -> None:
        import torch

        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()

    def __call__(self) -> bool:
        """Whether everything queued before the event is done."""
        return bool(self.event.query())


@cache
def _ballast() -> tuple[Any, float]:
    """A tensor of ``BALLAST_BYTES`` and the seconds of a pass over it."""
    import torch

    tensor = torch.zeros(BALLAST_BYTES // 4, device="cuda")
    for _ in range(2):
        tensor.add_(1.0)
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(BALLAST_PASSES):
        tensor.add_(1.0)
    end.record()
    end.synchronize()
    return tensor, float(start.elapsed_time(end)) / 1e3 / BALLAST_PASSES


def host_memory_bytes() -> int:
    """Physical memory of the host in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor_name() -> str:
    """The name of the processor's model, from /proc/cpuinfo if there is one."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def _cpu_info(key: str) -> str:
    """The first value of a key of /proc/cpuinfo; "" without one."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def processor_clock() -> str:
    """The current clock of the first core as text."""
    mhz = _cpu_info("cpu MHz")
    return f"{float(mhz):.0f} MHz when read" if mhz else "not known"
