"""One rank's trace as records: device work with the operator that launched it, and the steps."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from simcore.base.errors import DataError, refuse_bad
from simcore.base.units import MICRO
from simcore.measurements.kineto.kinds import Kind, collective_of, is_optimizer_kernel, kind_of
from simcore.measurements.kineto.stream import TraceStream

#: Phase of the step. ``untold``: unknown, as no operator around the launch tells; ``loading``: in a
#: data loader.
Phase = Literal["forward", "backward", "optimizer", "untold", "loading"]
OnBad = Literal["refuse", "skip"]

_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime")
_STEP: Final = re.compile(r"^ProfilerStep#(\d+)$")
_LOADER: Final = re.compile(r"enumerate\(DataLoader\)|DataLoader.*__next__")
_BACKWARD: Final = ("autograd::engine::evaluate_function", "AutogradEngine", "## backward")
#: Names of operators that compute, unlike nodes of autograd and annotations.
_WORKS: Final = re.compile(r"^(?!autograd::|torch::)\w+::|^(?:gloo|nccl|mpi):")
#: Argument of each event in simcore's own traces that names its term (report/trace/kineto.py).
TERM: Final = "term"
PHASE_OF_TERM: Final[dict[str, Phase]] = {
    "forward": "forward", "frozen": "forward", "backward": "backward", "optimizer": "optimizer",
    "ema": "optimizer",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """One kernel, copy or collective on the device; times in seconds on the trace's clock.

    ``launched_s``: when the host launched it; ``op``: the operator that launched it.
    """

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
    """A named interval on the host: a training step, an optimizer step, a wait for data [s]."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Trace:
    """The trace of one rank: device work in order of start, and marks on the host.

    ``steps``, ``updates``, ``loading``: marks of training steps, optimizer steps and data loading.
    ``on_host``: whether the profiler recorded no device; ``work`` is then the host's operators. If
    one file has several devices (one process, DataParallel), only the first counts. ``predicted``:
    whether simcore wrote the trace, whose events are terms of a step instead of kernels.
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
    """Events in the order of the file, by category; times in seconds.

    ``device``: (name, start, end, correlation id, arguments). ``launches``: correlation id ->
    (thread, start, name). ``ops``: thread -> (start, end, name). ``marks``: (name, start, end).
    """

    device: list[tuple[str, float, float, int, dict[str, Any]]]
    launches: dict[int, tuple[int, float, str]]
    ops: dict[int, list[tuple[float, float, str]]]
    marks: list[tuple[str, float, float]]


def read_trace(path: Path, on_bad: OnBad = "refuse") -> Trace:
    """The trace of one rank in a file. Raises DataError for a damaged file or another format.

    ``on_bad`` "skip": a truncated file is read up to its end, and invalid events are left out;
    ``problems`` of the result lists both.
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
        except (KeyError, TypeError, ValueError, OverflowError):
            ts = dur = math.nan
        name = str(event.get("name", ""))
        if not math.isfinite(ts) or not math.isfinite(dur) or dur < 0:
            problems.append(
                f"{path.name}: event {stream.n_events} ({name!r}): ts {event.get('ts')!r}, "
                f"dur {event.get('dur')!r} is no time"
            )
            continue
        # Floats of seconds since 1970 cannot resolve nanoseconds: count from the first event.
        origin = ts if origin is None else origin
        start = (ts - origin) * MICRO
        _store(raw, event, name, start, start + dur * MICRO)
    if stream.cut:
        problems.append(f"{path.name}: is cut short {stream.cut}")
    if on_bad == "refuse":
        refuse_bad("trace", problems, file=path, hint="(--bad-rows skip reads the rest)")
    return _trace_of(path, raw, stream.header, tuple(problems))


def _store(raw: _Raw, event: dict[str, Any], name: str, start: float, end: float) -> None:
    """Add an event to the lists of its category; other categories are ignored."""
    category, args = event.get("cat"), event.get("args")
    if not isinstance(args, dict):
        args = {}
    if category in _DEVICE:
        needed = {k: args[k] for k in (TERM, "Collective name", "device") if k in args}
        raw.device.append((name, start, end, int(args.get("correlation", -1)), needed))
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


def _trace_of(path: Path, raw: _Raw, header: dict[str, Any], problems: tuple[str, ...]) -> Trace:
    on_host = not raw.device
    used = {args.get("device", 0) for *_, args in raw.device}
    first = min(used, default=0)
    raw.device = [d for d in raw.device if d[-1].get("device", 0) == first]
    calls = {tid: _Calls(ops) for tid, ops in raw.ops.items()}
    work = _host_work(calls) if on_host else _device_work(raw, calls)
    if not work:
        raise DataError("holds no kernel and no operator: nothing ran while it was recorded",
                        file=path)  # fmt: skip

    def marks(wanted: Any) -> tuple[Mark, ...]:
        matching = {Mark(n, a, b) for n, a, b in raw.marks if wanted(n)}
        return tuple(sorted(matching, key=lambda m: m.start_s))

    info = header.get("distributedInfo") or {}
    devices = header.get("deviceProperties") or [{}]
    mine = next((d for d in devices if d.get("id") == first), devices[0])
    return Trace(
        path=path,
        work=tuple(sorted(work, key=lambda w: w.start_s)),
        steps=marks(_STEP.match),
        updates=marks(lambda n: n.startswith("Optimizer.step")),
        loading=marks(_LOADER.search),
        rank=info.get("rank"),
        world_size=info.get("world_size"),
        device="" if on_host else str(mine.get("name", "")),
        on_host=on_host,
        predicted=any(TERM in args for *_, args in raw.device),
        problems=problems,
    )


class _Calls:
    """Operators of one host thread, as the tree of their calls.

    ``parent``: index of the caller of each operator, -1 without one; ``phase``: of each operator.
    """

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
            caller = stack[-1] if stack else -1
            self.parent.append(caller)
            if caller >= 0:
                self.children[caller].append(i)
            self.phase.append(_phase(name, self.phase[caller] if caller >= 0 else "untold"))
            stack.append(i)

    def own(self, i: int) -> list[tuple[float, float]]:
        """Intervals (start, end) of an operator in which no operator that it calls runs."""
        start, end, _ = self.ops[i]
        intervals = []
        for child in self.children[i]:
            if self.ops[child][0] > start:
                intervals.append((start, self.ops[child][0]))
            start = max(start, self.ops[child][1])
        if end > start:
            intervals.append((start, end))
        return intervals

    def at(self, time_s: float) -> int:
        """Index of the innermost operator that runs at a time; -1 where none runs."""
        i = bisect_right(self.starts, time_s) - 1
        while i >= 0 and self.ops[i][1] < time_s:
            i = self.parent[i]
        return i


def _phase(name: str, of_caller: Phase) -> Phase:
    """Phase of an operator: by its name, else that of its caller."""
    if name.startswith(("Optimizer.", "clip_grad")):
        return "optimizer"
    if _LOADER.search(name):
        return "loading"
    if name.startswith(_BACKWARD) or re.search(r"Backward\d*$", name):
        return "backward"
    return "forward" if of_caller == "untold" else of_caller


def _device_work(raw: _Raw, calls: dict[int, _Calls]) -> list[Work]:
    """Device work, with kind, phase and operator by the operators around its launch."""
    work = []
    for name, start, end, correlation, args in raw.device:
        thread, launched, launch = raw.launches.get(correlation, (0, start, ""))
        op = ""
        phase: Phase = "untold"
        if launch and (on_thread := calls.get(thread)) is not None:
            i = on_thread.at(launched)
            if i >= 0:
                op, phase = on_thread.ops[i][2], on_thread.phase[i]
        note = str(args.get("Collective name", ""))
        kind = kind_of(name, op, note)
        if TERM in args:  # simcore's own trace: one event stands for all kernels of a term
            phase = PHASE_OF_TERM.get(str(args[TERM]), "untold")
        elif "GraphLaunch" in launch:  # the kernels of a CUDA graph may be of any phase
            phase = "untold"
        if phase in ("untold", "forward") and is_optimizer_kernel(name):
            phase = "optimizer"
        collective = collective_of(name, note) if kind == "collective" else ""
        work.append(Work(name, kind, collective, phase, start, end, launched, op))
    return work


def _host_work(calls: dict[int, _Calls]) -> list[Work]:
    """Work of a trace without a device: the time of each operator less that of those it calls.

    Annotations and nodes of autograd only call operators; the rest of their time is host time.
    """
    work = []
    for on_thread in calls.values():
        for i, (_, _, name) in enumerate(on_thread.ops):
            phase = on_thread.phase[i]
            if not _WORKS.match(name) or phase == "loading":
                continue
            kind = kind_of(name, name)
            collective = collective_of(name) if kind == "collective" else ""
            parent = on_thread.parent[i]
            caller = on_thread.ops[parent][2] if parent >= 0 else ""
            for start, end in on_thread.own(i):
                work.append(Work(name, kind, collective, phase, start, end, start, caller))
    return work
