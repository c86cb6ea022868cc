"""What a benchmark is: a case with the columns that name it, on a device, in a world of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from simcore.base.registry import Registry

T = TypeVar("T")
#: One timed call. It may return its own seconds, where only a part of the call is meant.
Run = Callable[[], float | None]
#: Cells that name a case in its table.
Columns = dict[str, str | int | float]
#: alone: rank 0, the others wait. together: every rank at its own pace, so that they compete.
#: lockstep: every rank starts at once, the slowest counts.
Mode = Literal["alone", "together", "lockstep"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one call, and whether something else was seen to take the processor from it."""

    seconds: float
    disturbed: bool = False


class Device(Protocol):
    """What cases run on: a CUDA device, the host's cores, or a fake in tests."""

    @property
    def name(self) -> str:
        """Name in the tables."""

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes to benchmark: fp32, bf16, …"""

    @property
    def cache_bytes(self) -> int:
        """Last-level cache; what is flushed before a cold call."""

    @property
    def memory_bytes(self) -> int:
        """Memory that one rank may use."""

    def flush(self) -> None:
        """Drive what was used before out of the caches."""

    def time(self, run: Run) -> Sample:
        """One timed call."""


#: Makes the tensors of a case and returns the call to time.
Prepare = Callable[[Device], Run]


class World(Protocol):
    """The ranks of a calibration: how they agree on what comes next."""

    @property
    def rank(self) -> int:
        """This process."""

    @property
    def size(self) -> int:
        """All processes."""

    def share(self, value: T) -> T:
        """Rank 0's value, on every rank."""

    def gather(self, value: T) -> list[T]:
        """Every rank's value, on every rank."""

    def barrier(self) -> None:
        """Wait for all."""


@dataclass(frozen=True)
class Alone:
    """A world of one."""

    rank: int = 0
    size: int = 1

    def share(self, value: T) -> T:
        """The value."""
        return value

    def gather(self, value: T) -> list[T]:
        """The value, alone."""
        return [value]

    def barrier(self) -> None:
        """Nothing to wait for."""


@dataclass(frozen=True)
class Case:
    """One measurement. ``columns`` name it in its ``table``; equal columns are the same case.

    ``prepare`` makes the tensors and returns the call to time; it runs on every rank that takes
    part. ``cold``: caches are flushed before each call. ``seconds``: the least time to spend.
    ``first``: a profile cannot do without it, so that it comes before all others.
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

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from others; also in a table written earlier."""
        state = "cold" if self.cold else "warm"
        named = (f"{k}={text(v)}" for k, v in sorted(self.columns.items()))
        return (self.table, self.mode, state, *named)


def text(value: str | float) -> str:
    """A cell as it is written, the same each time."""
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else str(int(value))
    return str(value)


class Family(Protocol):
    """A family of cases for a device in a world."""

    def __call__(self, device: Device, world: World) -> Iterable[Case]:
        """Its cases, the same on every rank."""


FAMILIES: Registry[Family] = Registry("benchmark")


@dataclass(frozen=True)
class Measured:
    """A case's result: seconds of a typical undisturbed call, its spread, and how it was got."""

    case: Case
    seconds: float
    sd_log: float
    calls: int
    disturbed_frac: float
    values: Mapping[str, float] = field(default_factory=dict)


def of_dtype(torch: Any, name: str) -> Any:
    """The torch dtype of a table's name."""
    return {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
            "fp16": torch.float16}[name]  # fmt: skip


def set_tf32(torch: Any, dtype: str) -> None:
    """Let products of fp32 tensors run in TF32 for ``tf32``, and in no other case."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"


def width(dtype: str) -> int:
    """Bytes of one element."""
    return {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}[dtype]


def spread_over(families: Sequence[Sequence[T]]) -> list[T]:
    """Merge lists so that every one of them is spread evenly over the result."""
    placed = [
        ((i + 0.5) / len(cases), n, case)
        for n, cases in enumerate(families)
        for i, case in enumerate(cases)
    ]
    return [case for _, _, case in sorted(placed, key=lambda p: p[:2])]


def shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """``"64x256 128x512"`` as tuples of whole numbers."""
    return tuple(tuple(map(int, word.split("x"))) for word in text.split())
