"""Breakdown of a measured step into the terms of a prediction.

At every moment of a step exactly one term counts: compute, if any kernel computes; else a
collective (exposed communication), if one runs; else a copy between host and device. Idle time of
the device is loading if the host is in a data loader, and host time otherwise. The terms therefore
add up to the step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate, compress, pairwise
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from simcore.base.errors import InvalidConfig
from simcore.measurements.kineto.kinds import Kind
from simcore.measurements.kineto.trace import Mark, Trace, Work

Key = TypeVar("Key", bound=Hashable)
FloatArray = NDArray[np.float64]
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
        launched = _Launched(trace.work)
        ends = [launched.finish_s(m) for m in trace.updates]
        pairs = enumerate(pairwise(ends), start=1)
        windows = [Window(f"update {i}", a, b) for i, (a, b) in pairs if b > a]
        if windows:
            return tuple(windows), "from optimizer step to optimizer step"
    start = min(w.start_s for w in trace.work)
    end = max(w.end_s for w in trace.work)
    return (Window("all", start, end),), "the whole trace as one step: no steps are marked"


class _Launched:
    """Device work in the order in which the host launched it."""

    def __init__(self, work: Sequence[Work]) -> None:
        ordered = sorted(work, key=lambda w: w.launched_s)
        self._launched_s = [w.launched_s for w in ordered]
        self._work = ordered

    def during(self, mark: Mark) -> Sequence[Work]:
        """The work that the host launched between the start and the end of a mark."""
        first = bisect_left(self._launched_s, mark.start_s)
        return self._work[first : bisect_right(self._launched_s, mark.end_s)]

    def finish_s(self, mark: Mark) -> float:
        """When the device finishes the work launched during a mark [s]; without any, its end."""
        return max((w.end_s for w in self.during(mark)), default=mark.end_s)


def _by_marks(trace: Trace, step: int | None) -> tuple[tuple[Window, ...], str]:
    """The steps marked ``ProfilerStep#N``, or the one asked for, and a description of them."""
    launched = _Launched(trace.work)
    on_device = not trace.on_host and len(trace.steps) > 1
    starts = [
        min((w.start_s for w in launched.during(m)), default=m.start_s) if on_device else m.start_s
        for m in trace.steps
    ]
    last_end = max(trace.steps[-1].end_s, launched.finish_s(trace.steps[-1]))
    names = [m.name for m in trace.steps]
    bounds = list(accumulate([*starts, last_end], max))  # a side stream may run ahead of a step
    windows = {n: Window(n, a, b) for n, (a, b) in zip(names, pairwise(bounds), strict=True)}
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
class Terms:
    """Seconds by term, as in ``Breakdown``; ``names``: by (kernel name, kind)."""

    parts: dict[str, float]
    kinds: dict[str, float]
    collectives: dict[str, list[float]]
    names: dict[tuple[str, str], float]


def take_apart(
    work: Sequence[Work], loading: Sequence[Mark], windows: Sequence[Window]
) -> tuple[Terms, int]:
    """The terms of all windows together, and the number of pieces of work in them.

    The parts add up to the windows' length. A piece of work in two windows counts in both.
    ``work``: device work; ``loading``: marks of the host in a data loader; ``windows`` do not
    overlap.
    """
    terms = Terms(dict.fromkeys(PARTS, 0.0), defaultdict(float),
                  defaultdict(lambda: [0.0, 0.0]), defaultdict(float))  # fmt: skip
    work = sorted(work, key=lambda w: w.start_s)
    loading = sorted(loading, key=lambda m: m.start_s)
    clock = _JoinedClock(windows)
    starts_s, ends_s = clock.times_s(work)
    waits_s = clock.times_s(loading)
    n_windows = clock.n_windows(work)
    time = _FreeTime(np.concatenate([starts_s, ends_s, *waits_s]), clock.length_s)

    def pieces(kinds: Container[Kind]) -> Iterator[tuple[Work, float, float]]:
        """Each piece of these kinds, its seconds in the windows, and those that it takes."""
        chosen = (n_windows > 0) & np.array([w.kind in kinds for w in work], dtype=bool)
        start_s, end_s = starts_s[chosen], ends_s[chosen]
        taken_s = time.take(start_s, end_s)
        seconds = zip((end_s - start_s).tolist(), taken_s.tolist(), strict=True)
        return ((w, *both) for w, both in zip(compress(work, chosen), seconds, strict=True))

    for w, _, taken_s in pieces(COMPUTE_KINDS):
        terms.parts[w.phase if w.phase in PARTS else "untold"] += taken_s
        terms.kinds["optimizer" if w.phase == "optimizer" else w.kind] += taken_s
        terms.names[w.name, w.kind] += taken_s
    for w, whole_s, taken_s in pieces(("collective",)):
        terms.parts["communication_exposed"] += taken_s
        terms.collectives[w.collective][0] += whole_s
        terms.collectives[w.collective][1] += taken_s
    terms.parts["input_copy"] = sum(taken_s for _, _, taken_s in pieces(("copy",)))
    terms.parts["loader"] = float(time.take(*waits_s).sum())
    terms.parts["host"] = time.left_s
    return terms, int(n_windows.sum())


def breakdown(trace: Trace, windows: Sequence[Window], how: str) -> Breakdown:
    """Mean terms of the steps in ``windows``; ``how`` is what ``windows_of`` says of these."""
    terms, n_pieces = take_apart(trace.work, trace.loading, windows)
    n = len(windows)

    def mean(total: Mapping[Key, float]) -> dict[Key, float]:
        return {k: v / n for k, v in total.items()}

    names = nlargest(_SLOWEST, mean(terms.names).items(), key=lambda x: x[1])
    return Breakdown(
        step_s=sum(w.end_s - w.start_s for w in windows) / n,
        n_steps=n,
        how=how,
        parts=mean(terms.parts),
        kinds={} if trace.predicted else mean(terms.kinds),
        collectives={k: (whole / n, exposed / n)
                     for k, (whole, exposed) in terms.collectives.items()},
        n_kernels=n_pieces / n,
        slowest=tuple((name, kind, s) for (name, kind), s in names),
    )  # fmt: skip


class _JoinedClock:
    """A clock that runs in the windows only, so that all of them are one.

    Windows are in order and do not overlap.
    """

    def __init__(self, windows: Sequence[Window]) -> None:
        self._starts = np.array([w.start_s for w in windows])
        self._ends = np.array([w.end_s for w in windows])
        self._bounds = np.stack([self._starts, self._ends], axis=1).ravel()
        runs = np.stack([np.zeros(len(windows)), self._ends - self._starts], axis=1).ravel()
        self._passed = np.cumsum(runs)  # seconds on this clock at each bound
        self.length_s = float(self._passed[-1])

    def times_s(self, pieces: Sequence[Work | Mark]) -> tuple[FloatArray, FloatArray]:
        """Start and end of each piece on this clock."""
        return (
            np.interp([p.start_s for p in pieces], self._bounds, self._passed),
            np.interp([p.end_s for p in pieces], self._bounds, self._passed),
        )

    def n_windows(self, pieces: Sequence[Work]) -> NDArray[np.intp]:
        """In how many windows each piece is, wholly or in part."""
        begun = np.searchsorted(self._starts, [p.end_s for p in pieces], side="left")
        over = np.searchsorted(self._ends, [p.start_s for p in pieces], side="right")
        return begun - over


class _FreeTime:
    """Time that no work has taken yet, cut wherever work starts or ends."""

    def __init__(self, cuts_s: FloatArray, length_s: float) -> None:
        self._cuts = np.unique([0.0, length_s, *cuts_s])
        self._free_s = np.diff(self._cuts)

    @property
    def left_s(self) -> float:
        """Seconds that nothing has taken."""
        return float(self._free_s.sum())

    def take(self, starts_s: FloatArray, ends_s: FloatArray) -> FloatArray:
        """Seconds of the free time that each piece of work takes; pieces in order of start.

        Where pieces overlap, the one that began first counts: a piece takes what is free between
        the latest end of those before it and its own end.
        """
        first, last = (np.searchsorted(self._cuts, t) for t in (starts_s, ends_s))
        latest = np.maximum.accumulate(last)
        first[1:] = np.clip(latest[:-1], first[1:], last[1:])
        passed = np.concatenate([[0.0], np.cumsum(self._free_s)])
        bounds = len(self._cuts)
        open_pieces = np.bincount(first, minlength=bounds) - np.bincount(last, minlength=bounds)
        self._free_s[np.cumsum(open_pieces)[:-1] > 0] = 0.0
        return passed[last] - passed[first]
