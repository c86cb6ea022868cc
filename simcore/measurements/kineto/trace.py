"""One rank's trace as arrays of what matters: device work, who launched it, the steps."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from simcore.base.errors import DataError
from simcore.base.units import MICRO
from simcore.measurements.kineto.kinds import Kind, collective_of, kind_of, updates
from simcore.measurements.kineto.stream import TraceStream

#: ``untold``: nothing says what launched it; ``loading``: in a data loader.
Phase = Literal["forward", "backward", "optimizer", "untold", "loading"]
OnBad = Literal["refuse", "skip"]

_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime")
_STEP: Final = re.compile(r"^ProfilerStep#(\d+)$")
_LOADER: Final = re.compile(r"enumerate\(DataLoader\)|DataLoader.*__next__")
_BACKWARD: Final = ("autograd::engine::evaluate_function", "AutogradEngine", "## backward")
#: Operators that work; nodes of autograd and annotations have no such name.
_WORKS: Final = re.compile(r"^(?!autograd::|torch::)\w+::|^(?:gloo|nccl|mpi):")
#: simcore's own traces say each slice's term (report/trace/kineto.py).
TERM: Final = "term"
PHASE_OF_TERM: Final[dict[str, Phase]] = {
    "forward": "forward", "frozen": "forward", "backward": "backward", "optimizer": "optimizer",
    "ema": "optimizer",
}  # fmt: skip
#: Bad events that a refusal spells out.
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of device work [s, on the trace's clock]; ``launched_s``: when it was asked for."""

    name: str
    kind: Kind
    collective: str
    phase: Phase
    start_s: float
    end_s: float
    launched_s: float
    op: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A named stretch of the host's time: a step, an optimizer's step, a wait for data."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Trace:
    """A rank: its device work in order of start, and marks on the host.

    ``on_host``: the profiler saw no device, and operators of the host are the work.
    ``predicted``: simcore's own, whose work are stretches of a step, not kernels.
    """

    path: Path
    work: tuple[Work, ...]
    steps: tuple[Mark, ...]
    updates: tuple[Mark, ...]
    loading: tuple[Mark, ...]
    rank: int | None
    world_size: int | None
    device: str
    on_host: bool
    predicted: bool
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Raw:
    """Events as they come in, by what they are; times in seconds."""

    device: list[tuple[str, float, float, int, dict[str, Any]]]
    launches: dict[int, tuple[int, float, str]]
    ops: dict[int, list[tuple[float, float, str]]]
    marks: list[tuple[str, float, float]]


def read_trace(path: Path, on_bad: OnBad = "refuse") -> Trace:
    """Read one rank's trace. Raises DataError for a file that is none, or that is damaged.

    ``skip``: a truncated file is read as far as it goes and events that cannot be are left out;
    both are told in ``problems``.
    """
    stream = TraceStream(path)
    raw = _Raw([], {}, defaultdict(list), [])
    problems: list[str] = []
    origin: float | None = None
    for event in stream:
        if event.get("ph") != "X":
            continue
        try:
            ts, dur = float(event["ts"]), float(event.get("dur", 0.0))
        except (KeyError, TypeError, ValueError):
            ts = dur = math.nan
        name = str(event.get("name", ""))
        if not math.isfinite(ts) or not math.isfinite(dur) or dur < 0:
            problems.append(
                f"{path.name}: event {stream.n_events} ({name!r}): ts {event.get('ts')!r}, "
                f"dur {event.get('dur')!r} is no time"
            )
            continue
        origin = ts if origin is None else origin  # seconds since 1970 leave no nanoseconds
        start = (ts - origin) * MICRO
        _take(raw, event, name, start, start + dur * MICRO)
    if stream.cut:
        problems.append(f"{path.name}: is cut short {stream.cut}")
    if problems and on_bad == "refuse":
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise DataError(
            f"bad trace: {'; '.join(problems[:_SHOWN])}{more} (--bad-rows skip reads the rest)",
            file=path,
        )
    return _made(path, raw, stream.header, tuple(problems))


def _take(raw: _Raw, event: dict[str, Any], name: str, start: float, end: float) -> None:
    category, args = event.get("cat"), event.get("args") or {}
    if category in _DEVICE:
        kept = {k: args[k] for k in (TERM, "Collective name") if k in args}
        raw.device.append((name, start, end, int(args.get("correlation", -1)), kept))
    elif category in _LAUNCH:
        if "correlation" in args:
            raw.launches[int(args["correlation"])] = (event.get("tid", 0), start, name)
    elif category in ("cpu_op", "Operator", "operator"):
        raw.ops[event.get("tid", 0)].append((start, end, name))
        if name.startswith("Optimizer.") or _LOADER.search(name):
            raw.marks.append((name, start, end))
    elif category == "user_annotation":
        raw.marks.append((name, start, end))
        if not _STEP.match(name):
            raw.ops[event.get("tid", 0)].append((start, end, name))


def _made(path: Path, raw: _Raw, header: dict[str, Any], problems: tuple[str, ...]) -> Trace:
    on_host = not raw.device
    calls = {tid: _Calls(ops) for tid, ops in raw.ops.items()}
    work = _host_work(calls) if on_host else _device_work(raw, calls)
    if not work:
        raise DataError("holds no kernel and no operator: nothing ran while it was recorded",
                        file=path)  # fmt: skip

    def marks(wanted: Any) -> tuple[Mark, ...]:
        found = {Mark(n, a, b) for n, a, b in raw.marks if wanted(n)}
        return tuple(sorted(found, key=lambda m: m.start_s))

    info = header.get("distributedInfo") or {}
    devices = header.get("deviceProperties") or [{}]
    return Trace(
        path=path,
        work=tuple(sorted(work, key=lambda w: w.start_s)),
        steps=marks(_STEP.match),
        updates=marks(lambda n: n.startswith("Optimizer.step")),
        loading=marks(_LOADER.search),
        rank=info.get("rank"),
        world_size=info.get("world_size"),
        device="" if on_host else str(devices[0].get("name", "")),
        on_host=on_host,
        predicted=any(TERM in args for *_, args in raw.device),
        problems=problems,
    )


class _Calls:
    """Operators of one thread, nested as they were called."""

    def __init__(self, ops: list[tuple[float, float, str]]) -> None:
        self.ops = sorted(ops, key=lambda o: (o[0], -o[1]))
        self.starts = [o[0] for o in self.ops]
        self.parent: list[int] = []
        self.children: list[list[int]] = [[] for _ in self.ops]
        self.phase: list[Phase] = []
        stack: list[int] = []
        for i, (start, end, name) in enumerate(self.ops):
            while stack and self.ops[stack[-1]][1] <= start and self.ops[stack[-1]][1] < end:
                stack.pop()
            over = stack[-1] if stack else -1
            self.parent.append(over)
            if over >= 0:
                self.children[over].append(i)
            self.phase.append(_phase(name, self.phase[over] if over >= 0 else "untold"))
            stack.append(i)

    def own(self, i: int) -> list[tuple[float, float]]:
        """The stretches of an operator in which none that it calls runs."""
        start, end, _ = self.ops[i]
        found = []
        for child in self.children[i]:
            if self.ops[child][0] > start:
                found.append((start, self.ops[child][0]))
            start = max(start, self.ops[child][1])
        if end > start:
            found.append((start, end))
        return found

    def at(self, time_s: float) -> int:
        """The innermost operator that runs at a time; -1 where none does."""
        i = bisect_right(self.starts, time_s) - 1
        while i >= 0 and self.ops[i][1] < time_s:
            i = self.parent[i]
        return i


def _phase(name: str, above: Phase) -> Phase:
    """Of an operator, by its name, else by what called it."""
    if name.startswith(("Optimizer.", "clip_grad")):
        return "optimizer"
    if _LOADER.search(name):
        return "loading"
    if name.startswith(_BACKWARD) or re.search(r"Backward\d*$", name):
        return "backward"
    return "forward" if above == "untold" else above


def _device_work(raw: _Raw, calls: dict[int, _Calls]) -> list[Work]:
    found = []
    for name, start, end, correlation, args in raw.device:
        thread, launched, by = raw.launches.get(correlation, (0, start, ""))
        op = ""
        phase: Phase = "untold"
        if by and (of := calls.get(thread)) is not None and (i := of.at(launched)) >= 0:
            op, phase = of.ops[i][2], of.phase[i]
        told = str(args.get("Collective name", ""))
        kind = kind_of(name, op, told)
        if TERM in args:  # a prediction's own trace: a stretch of compute, its kernels together
            phase = PHASE_OF_TERM.get(str(args[TERM]), "untold")
        elif "GraphLaunch" in by:  # kernels of one launch belong to whatever was captured
            phase = "untold"
        if phase in ("untold", "forward") and updates(name):
            phase = "optimizer"
        which = collective_of(name, told) if kind == "collective" else ""
        found.append(Work(name, kind, which, phase, start, end, launched, op))
    return found


def _host_work(calls: dict[int, _Calls]) -> list[Work]:
    """Operators' own time, less what they call: on a processor that is what kernels are.

    Annotations and nodes of autograd only call; their own time is the host's.
    """
    found = []
    for of in calls.values():
        for i, (_, _, name) in enumerate(of.ops):
            if not _WORKS.match(name) or of.phase[i] == "loading":
                continue
            kind = kind_of(name, name)
            which = collective_of(name) if kind == "collective" else ""
            above = of.ops[of.parent[i]][2] if of.parent[i] >= 0 else ""
            for start, end in of.own(i):
                found.append(Work(name, kind, which, of.phase[i], start, end, start, above))
    return found
