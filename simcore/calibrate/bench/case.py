"""The types of a benchmark: a case, the device it runs on, and the group of ranks it runs in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, Protocol, TypeVar

from simcore.base.lookup import Registry
from simcore.base.record import dataclass

T = TypeVar("T")
#: One call to time. If only a part of the call is to be timed, it returns its seconds as a float.
Run = Callable[[], Any]
#: The cells that identify a case in its table.
Columns = dict[str, str | int | float]
#: alone: rank 0 runs, the others wait. together: every rank runs without synchronisation, so that
#: they compete for the machine. lockstep: all ranks start each call together; the slowest counts.
Mode = Literal["alone", "together", "lockstep"]
#: How a GPU is timed. call: one call at a time, with what the host takes to issue it. queue: calls
#: wait behind other work of the device, so that the host is ahead of them. sequence: calls follow
#: each other as in a loop of training. A host's own cores are always timed by single calls.
How = Literal["call", "queue", "sequence"]


@dataclass(frozen=True)
class Sample:
    """Seconds of one call, and whether another process interrupted it."""

    seconds: float
    disturbed: bool = False


class Device(Protocol):
    """The device that cases run on: a CUDA device, the host's cores, or a fake in tests."""

    @property
    def name(self) -> str:
        """The device's name in the tables."""

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes to benchmark: fp32, bf16, …"""

    @property
    def cache_bytes(self) -> int:
        """Size of the last-level cache, which is flushed before a cold call."""

    @property
    def memory_bytes(self) -> int:
        """Memory that one rank may use."""

    def flush(self) -> None:
        """Evict the data of earlier calls from the caches."""

    def time(self, run: Run) -> Sample:
        """Time one call."""

    @property
    def line(self) -> Line | None:
        """The device's queue of calls; None for the host's own cores, which have none."""


class Line(Protocol):
    """A queue of calls on a device, which the host fills while the device works."""

    def allocated_bytes(self) -> int:
        """Bytes of all tensors on the device."""

    def busy(self, seconds: float) -> None:
        """Queue work without results for at least so long."""

    def mark(self) -> Callable[[], bool]:
        """Queue a mark; returns a function that says whether the device has reached it."""

    def seconds_between(self, first: Any, last: Any) -> float:
        """Wait for the second of two marks; seconds of the device from the first to it."""

    def wait(self) -> None:
        """Wait until the queue is empty."""


#: Makes the tensors of a case and returns the call to time.
Prepare = Callable[[Device], Run]


class World:
    """The group of ranks of a calibration, and how they exchange values: here, one rank alone."""

    #: Number of this process, and number of processes.
    rank: int = 0
    size: int = 1

    def share(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        return value

    def gather(self, value: T) -> list[T]:
        """Every rank's value, on every rank."""
        return [value]

    def barrier(self) -> None:
        """Wait until every rank is here."""


@dataclass(frozen=True)
class Case:
    """One measurement. ``columns`` identify it in its ``table``; equal columns are the same case.

    ``prepare`` makes the tensors and returns the call to time; it runs on every rank that takes
    part. ``cold``: caches are flushed before each call, or calls take tensors in rotation that
    exceed them. ``seconds``: the least time to spend on the case; ``calls``: the least number of
    calls. ``first``: no profile can be fitted without the case, so it runs before all others.
    ``twice``: it is measured again after all of these, since the device's speed may have changed.
    """

    family: str
    table: str
    columns: Mapping[str, str | int | float]
    prepare: Prepare
    mode: Mode = "alone"
    cold: bool = False
    seconds: float = 0.1
    calls: int = 5
    first: bool = False
    how: How = "call"
    twice: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies the case, also among the rows of an earlier run."""
        state = "cold" if self.cold else "warm"
        named = (f"{k}={text(v)}" for k, v in sorted(self.columns.items()))
        return (self.table, self.mode, state, *named)


def text(value: str | float) -> str:
    """A value as the text of a cell; equal values give equal texts."""
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else str(int(value))
    return str(value)


class Family(Protocol):
    """A family of benchmarks."""

    def __call__(self, device: Device, world: World) -> Iterable[Case]:
        """The family's cases on ``device``, the same on every rank of ``world``."""


FAMILIES: Registry[Family] = Registry("benchmark")


@dataclass(frozen=True)
class Measured:
    """The result of a case: seconds of a typical undisturbed call, and how they were measured.

    ``sd_log`` is the standard deviation of ln(seconds), ``calls`` the number of calls that count,
    ``disturbed_frac`` the share of calls that were disturbed. ``how`` they were timed.
    """

    case: Case
    seconds: float
    sd_log: float
    calls: int
    disturbed_frac: float
    values: Mapping[str, float] = field(default_factory=dict)
    how: How = "call"


#: Least seconds for a kernel, by kind of device. A GPU repeats one to a percent in a queue.
BRIEF_S: Final = {"cpu": 0.1, "cuda": 0.03}
#: dtype in the tables -> name of the torch dtype, bytes per element.
_DTYPES: Final = {"fp32": ("float32", 4), "tf32": ("float32", 4), "bf16": ("bfloat16", 2),
                  "fp16": ("float16", 2)}  # fmt: skip


def width(dtype: str) -> int:
    """Bytes per element."""
    return _DTYPES[dtype][1]


def set_tf32(torch: Any, dtype: str) -> None:
    """Allow TF32 for products and convolutions of fp32 tensors if ``dtype`` is ``tf32``."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"


def tensor_options(torch: Any, dtype: str, device: Device) -> dict[str, Any]:
    """Keyword arguments of a new tensor; allows TF32 for fp32 if ``dtype`` is ``tf32``."""
    set_tf32(torch, dtype)
    return {"dtype": getattr(torch, _DTYPES[dtype][0]), "device": device.kind}


def one_pass(torch: Any, forward: Callable[[], Any], inputs: Sequence[Any], way: str) -> Run:
    """The forward pass, or with ``way`` bwd the gradients of ``inputs``."""
    if way == "fwd":
        return forward
    y = forward()
    g = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, inputs, g, retain_graph=True)


def seconds_of(call: Callable[[], Any]) -> Run:
    """A call that returns its wall time on the host, without the time that the device goes on."""

    def run() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return run


def spread_over(families: Sequence[Sequence[T]]) -> list[T]:
    """Merge lists so that every one of them is spread evenly over the result."""
    placed = [
        ((i + 0.5) / len(cases), n, case)
        for n, cases in enumerate(families)
        for i, case in enumerate(cases)
    ]
    return [case for _, _, case in sorted(placed, key=lambda p: p[:2])]


def shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """The shapes in a text such as ``"64x256 128x512"``, as tuples of integers."""
    return tuple(tuple(map(int, word.split("x"))) for word in text.split())
