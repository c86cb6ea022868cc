"""The two real devices: a CUDA GPU timed by events, the host's cores timed by the clock."""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simcore.base.units import KIB, MIB
from simcore.calibrate.bench.case import Run, Sample

#: A call of one thread took this much longer than its processor time: it was interrupted.
INTERRUPTED_FRAC: Final = 0.05
INTERRUPTED_S: Final = 20e-6
#: Assumed where the system does not say how large its last cache is.
CACHE_UNKNOWN_BYTES: Final = 32 * MIB


@dataclass
class CpuDevice:
    """``threads`` of the host's cores: what one rank computes on."""

    name: str
    threads: int
    ranks: int
    kind: str = "cpu"
    dtypes: tuple[str, ...] = ("fp32",)
    _sink: Any = field(default=None, repr=False)

    @property
    def cache_bytes(self) -> int:
        """The largest cache that the system names."""
        sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
        found = [re.match(r"(\d+)([KM])", p.read_text(encoding="ascii")) for p in sizes]
        known = [int(m[1]) * (MIB if m[2] == "M" else KIB) for m in found if m]
        return max(known, default=CACHE_UNKNOWN_BYTES)

    @property
    def memory_bytes(self) -> int:
        """A rank's share of the host's memory."""
        return host_memory_bytes() // self.ranks

    def flush(self) -> None:
        """Write twice the cache."""
        import torch

        if self._sink is None:
            self._sink = torch.zeros(2 * self.cache_bytes // 4)
        self._sink.add_(1.0)

    def time(self, run: Run) -> Sample:
        """Wall time; of one thread that was taken off its core, the processor time it had.

        Undisturbed the two are equal: the thread computes and never waits.
        """
        switched = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        cpu, wall = time.process_time(), time.perf_counter()
        own = run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw > switched
        waited = self.threads == 1 and wall > cpu * (1.0 + INTERRUPTED_FRAC) + INTERRUPTED_S
        if own is not None:
            return Sample(own, taken)
        disturbed = taken or waited
        return Sample(cpu if disturbed and self.threads == 1 else wall, disturbed)

    def conditions(self) -> dict[str, str]:
        """What a reader must know to trust or repeat the figures."""
        import torch

        return {
            "processor": processor_name(), "threads": str(self.threads),
            "clock": processor_clock(), "torch": str(torch.__version__),
            "system": f"{platform.system()} {platform.machine()}",
        }  # fmt: skip


@dataclass
class CudaDevice:
    """One GPU, timed by events; the clock is the device's own."""

    name: str
    index: int
    kind: str = "cuda"
    _sink: Any = field(default=None, repr=False)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """fp32 (TF32 off) and what its matrix units take."""
        import torch

        major = torch.cuda.get_device_capability(self.index)[0]
        return ("fp32", "tf32", "bf16") if major >= 8 else ("fp32", "fp16")

    @property
    def cache_bytes(self) -> int:
        """L2 as the driver reports it."""
        import torch

        found = getattr(torch.cuda.get_device_properties(self.index), "L2_cache_size", 0)
        return int(found) or CACHE_UNKNOWN_BYTES

    @property
    def memory_bytes(self) -> int:
        """Memory that the driver reports as total."""
        import torch

        return int(torch.cuda.get_device_properties(self.index).total_memory)

    def flush(self) -> None:
        """Write twice the L2; the launch of what follows hides behind it."""
        import torch

        if self._sink is None:
            self._sink = torch.zeros(2 * self.cache_bytes // 4, device=f"cuda:{self.index}")
        self._sink.add_(1.0)

    def time(self, run: Run) -> Sample:
        """Device time between two events."""
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        own = run()
        end.record()
        end.synchronize()
        return Sample(start.elapsed_time(end) / 1e3 if own is None else own)

    def conditions(self) -> dict[str, str]:
        """Versions, driver, clocks as NVML has them where it is installed."""
        import torch

        found = {
            "device": torch.cuda.get_device_name(self.index), "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version()),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }  # fmt: skip
        try:
            found["clock"] = f"{torch.cuda.clock_rate(self.index)} MHz when asked"
        except Exception:  # NVML's Python bindings are optional
            found["clock"] = "not known"
        return found


def host_memory_bytes() -> int:
    """Physical memory of the host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor_name() -> str:
    """The processor's model as the system prints it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def processor_clock() -> str:
    """The first core's clock at this moment."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "not known"
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", text, re.MULTILINE)
    return f"{float(match[1]):.0f} MHz when asked" if match else "not known"
