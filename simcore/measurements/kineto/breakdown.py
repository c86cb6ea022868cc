"""Breakdown of a measured step into the terms of a prediction.

At every moment of a step exactly one term counts: compute, if any kernel computes; else a
collective (exposed communication), if one runs; else a copy between host and device. Idle time of
the device is loading if the host is in a data loader, and host time otherwise. The terms therefore
add up to the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from simcore.base.errors import InvalidConfig
from simcore.measurements.kineto.trace import Mark, Trace, Work

Key = TypeVar("Key", bound=Hashable)
#: Number of kernels in ``Breakdown.slowest``.
_SLOWEST: Final = 10
#: Kinds of compute, in the order of reports.
COMPUTE_KINDS: Final = ("gemm", "conv", "attention", "memory_bound")
#: Terms that add up to the step. ``untold``: compute of unknown phase.
PARTS: Final = (
    "forward", "backward", "optimizer", "untold", "communication_exposed", "input_copy", "loader",
    "host",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """A step's name, start and end on the trace's clock [s]."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Breakdown:
    """Seconds of a step by term, the mean over ``n_steps`` recorded steps.

    ``how``: how the steps were found, in words. ``parts``: the terms ``PARTS``, which add up to
    ``step_s``. ``kinds``: device time of compute by kind, with the optimizer as a kind; empty for
    simcore's own traces. ``collectives``: (all, exposed) seconds by kind of collective.
    ``n_kernels``: kernels, collectives and copies. ``slowest``: (name, kind, seconds) of the
    kernels that take most time.
    """

    step_s: float
    n_steps: int
    how: str
    parts: dict[str, float]
    kinds: dict[str, float]
    collectives: dict[str, tuple[float, float]]
    n_kernels: float
    slowest: tuple[tuple[str, str, float], ...] = field(default=())


def windows_of(
    trace: Trace, step: int | None = None, window_s: tuple[float, float] | None = None
) -> tuple[tuple[Window, ...], str]:
    """The steps of a trace, and a description of how they were found.

    Steps are those marked ``ProfilerStep#N``; without marks, from optimizer step to optimizer step;
    else the whole trace is one step. ``step``: number of the only step to return; ``window_s``:
    (start, end) since the first event, to return instead. A step on the device begins with the
    first work that the host launched in its step. Raises InvalidConfig for a step that the trace
    does not have, and for an empty window.
    """
    if window_s is not None:
        low, high = window_s
        if not high > low:
            raise InvalidConfig([f"--window ends at {high:g} s, before it begins"])
        return (Window("window", low, high),), "the window given"
    if trace.steps:
        return _by_marks(trace, step)
    if step is not None:
        raise InvalidConfig(
            [f"--step {step}: {trace.path.name} has no ProfilerStep annotations (prof.step())"]
        )
    if len(trace.updates) > 1:
        ends = [_end_of(trace, m) for m in trace.updates]
        pairs = enumerate(pairwise(ends), start=1)
        windows = [Window(f"update {i}", a, b) for i, (a, b) in pairs if b > a]
        if windows:
            return tuple(windows), "from optimizer step to optimizer step"
    start = min(w.start_s for w in trace.work)
    end = max(w.end_s for w in trace.work)
    return (Window("all", start, end),), "the whole trace as one step: no steps are marked"


def _end_of(trace: Trace, mark: Mark) -> float:
    """When the device finishes the work that the host launched during a mark [s]."""
    ends = [w.end_s for w in trace.work if mark.start_s <= w.launched_s <= mark.end_s]
    return max(ends, default=mark.end_s)


def _by_marks(trace: Trace, step: int | None) -> tuple[tuple[Window, ...], str]:
    """The steps marked ``ProfilerStep#N``, or the one asked for, and a description of them."""
    starts: list[float] = []
    last_end = 0.0
    launched = np.array([w.launched_s for w in trace.work])
    begins = np.array([w.start_s for w in trace.work])
    ends = np.array([w.end_s for w in trace.work])
    for mark in trace.steps:
        of_step = (launched >= mark.start_s) & (launched <= mark.end_s)
        first = float(begins[of_step].min()) if of_step.any() else mark.start_s
        starts.append(mark.start_s if trace.on_host or len(trace.steps) == 1 else first)
        last_end = max(mark.end_s, float(ends[of_step].max()) if of_step.any() else mark.end_s)
    names = [m.name for m in trace.steps]
    bounds = [*starts, last_end]
    windows = {n: Window(n, a, b) for n, a, b in zip(names, starts, bounds[1:], strict=True)}
    if step is not None:
        name = f"ProfilerStep#{step}"
        if name not in windows:
            raise InvalidConfig([f"--step {step}: {trace.path.name} has {', '.join(names)}"])
        return (windows[name],), name
    # Where the last step ends on the device is unknown, since no step follows: leave it out.
    used = names[:-1] if len(names) > 1 and not trace.on_host else names
    how = used[0] if len(used) == 1 else f"mean of {used[0]} to {used[-1].partition('#')[2]}"
    return tuple(windows[n] for n in used), how


@dataclass
class WindowTerms:
    """Seconds of one window by term, as in ``Breakdown``; ``names``: by (kernel name, kind)."""

    parts: dict[str, float]
    kinds: dict[str, float]
    collectives: dict[str, list[float]]
    names: dict[tuple[str, str], float]
    n_kernels: int


def take_apart(work: Sequence[Work], loading: Sequence[Mark], window: Window) -> WindowTerms:
    """The terms of one window; its parts add up to the window's length.

    ``work``: device work; ``loading``: marks of the host in a data loader.
    """
    inside = [w for w in work if w.start_s < window.end_s and w.end_s > window.start_s]
    terms = WindowTerms(dict.fromkeys(PARTS, 0.0), defaultdict(float),
                        defaultdict(lambda: [0.0, 0.0]), defaultdict(float),
                        len(inside))  # fmt: skip
    comm = [w for w in inside if w.kind == "collective"]
    waits = list(map(_as_work, loading))
    time = _FreeTime([*inside, *waits], window)
    for w, seconds in time.take(w for w in inside if w.kind in COMPUTE_KINDS):
        terms.parts[w.phase if w.phase in PARTS else "untold"] += seconds
        terms.kinds["optimizer" if w.phase == "optimizer" else w.kind] += seconds
        terms.names[w.name, w.kind] += seconds
    for w in comm:
        duration_s = min(w.end_s, window.end_s) - max(w.start_s, window.start_s)
        terms.collectives[w.collective][0] += duration_s
    for w, seconds in time.take(comm):
        terms.parts["communication_exposed"] += seconds
        terms.collectives[w.collective][1] += seconds
    copies = (w for w in inside if w.kind == "copy")
    terms.parts["input_copy"] = sum(seconds for _, seconds in time.take(copies))
    terms.parts["loader"] = sum(seconds for _, seconds in time.take(waits))
    terms.parts["host"] = time.left_s
    return terms


def breakdown(trace: Trace, windows: Sequence[Window], how: str) -> Breakdown:
    """Mean terms of the steps in ``windows``; ``how`` is what ``windows_of`` says of these."""
    steps = [take_apart(trace.work, trace.loading, w) for w in windows]
    n = len(windows)

    def mean(by_step: Iterable[Mapping[Key, float]]) -> dict[Key, float]:
        total: dict[Key, float] = defaultdict(float)
        for one in by_step:
            for key, value in one.items():
                total[key] += value / n
        return dict(total)

    whole, exposed = (mean({k: v[i] for k, v in s.collectives.items()} for s in steps)
                      for i in (0, 1))  # fmt: skip
    names = sorted(mean(s.names for s in steps).items(), key=lambda x: -x[1])
    return Breakdown(
        step_s=sum(w.end_s - w.start_s for w in windows) / n,
        n_steps=n,
        how=how,
        parts=mean(s.parts for s in steps),
        kinds={} if trace.predicted else mean(s.kinds for s in steps),
        collectives={k: (whole[k], exposed[k]) for k in whole},
        n_kernels=sum(s.n_kernels for s in steps) / n,
        slowest=tuple((name, kind, s) for (name, kind), s in names[:_SLOWEST]),
    )


def _as_work(mark: Mark) -> Work:
    return Work(mark.name, "copy", "", "untold", mark.start_s, mark.end_s, mark.start_s, "")


class _FreeTime:
    """The time of a window that no work has taken yet, cut wherever work starts or ends."""

    def __init__(self, work: Sequence[Work], window: Window) -> None:
        cuts = [window.start_s, window.end_s, *(t for w in work for t in (w.start_s, w.end_s))]
        self._cuts = np.unique(np.clip(cuts, window.start_s, window.end_s))
        self._lengths = np.diff(self._cuts)
        self._free = np.ones(len(self._lengths), dtype=bool)

    @property
    def left_s(self) -> float:
        """Seconds that nothing has taken."""
        return float(self._lengths[self._free].sum())

    def take(self, work: Iterable[Work]) -> list[tuple[Work, float]]:
        """Each piece of work with the seconds that it takes of the free time.

        Where pieces overlap, the one that began first counts.
        """
        pieces = sorted(work, key=lambda w: w.start_s)
        first = np.searchsorted(self._cuts, [w.start_s for w in pieces])
        last = np.searchsorted(self._cuts, [w.end_s for w in pieces])
        found = []
        for piece, i, j in zip(pieces, first, last, strict=True):
            free = self._free[i:j]
            found.append((piece, float(self._lengths[i:j][free].sum())))
            free[:] = False
        return found
