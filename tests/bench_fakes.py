"""A clock that moves when told, a device that takes the time a formula gives, ranks as threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from simcore.calibrate.bench.case import Case, Columns, Run, Sample


@dataclass
class FakeClock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FakeDevice:
    """Runs cost what they return; the clock moves by it."""

    clock: FakeClock
    name: str = "fake"
    kind: str = "cpu"
    dtypes: tuple[str, ...] = ("fp32",)
    cache_bytes: int = 10**6
    memory_bytes: int = 10**10
    flushes: int = 0
    line: None = None
    ran: list[str] = field(default_factory=list)

    def flush(self) -> None:
        self.flushes += 1

    def time(self, run: Run) -> Sample:
        seconds = run() or 0.0
        self.clock.now_s += seconds
        return Sample(seconds)


def case(
    op: str, seconds: float = 0.01, *, cold: bool = False, on_run: Callable[[], None] | None = None
) -> Case:
    """A memory-bound row that takes ``seconds``."""
    columns: Columns = {
        "gpu": "fake", "dtype": "fp32", "op": op, "rows": 10, "cols": 10, "elements": 100,
        "bytes": 800,
    }  # fmt: skip

    def prepare(device: FakeDevice) -> Run:  # type: ignore[override]
        device.ran.append(op)

        def run() -> float:
            if on_run is not None:
                on_run()
            return seconds

        return run

    return Case("fake", "memory_bound", columns, prepare, cold=cold)  # type: ignore[arg-type]
