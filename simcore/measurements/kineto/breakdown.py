"""A measured step in the terms of a prediction: what ran, what it waited for.

At every moment of a step one thing counts: compute, where any runs; else a collective (exposed);
else a copy between host and device; else nothing runs, which is loading where the host is in a
data loader and the host's own time otherwise. So the terms add up to the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig
from simcore.measurements.kineto.trace import Mark, Trace, Work

Array = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
#: Kernels that a step names.
_SLOWEST: Final = 10
#: Kinds of compute, as they are shown.
COMPUTE_KINDS: Final = ("gemm", "conv", "attention", "memory_bound")
#: Parts of the step that add up to it.
PARTS: Final = (
    "forward", "backward", "optimizer", "untold", "communication_exposed", "input_copy", "loader",
    "host",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """One step on the device's clock [s]."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Breakdown:
    """Seconds of a step, a mean where several were recorded.

    ``parts`` add up to ``step_s``. ``kinds``: device time of compute by kind, the optimizer's
    apart, and none of a prediction's own trace; ``collectives``: by kind (all, exposed).
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
    """The steps of a trace, and how they were found.

    By ``ProfilerStep#N``; else from optimizer step to optimizer step; else all of it as one.
    ``step``: that one alone; ``window_s``: this stretch since the first event instead.
    A step of the device begins with the first work that the host's step launched.
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
        found = [Window(f"update {i}", a, b) for i, (a, b) in pairs if b > a]
        if found:
            return tuple(found), "from optimizer step to optimizer step"
    start = min(w.start_s for w in trace.work)
    end = max(w.end_s for w in trace.work)
    return (Window("all", start, end),), "all of the trace as one step: it marks none"


def _end_of(trace: Trace, mark: Mark) -> float:
    mine = [w.end_s for w in trace.work if mark.start_s <= w.launched_s <= mark.end_s]
    return max(mine, default=mark.end_s)


def _by_marks(trace: Trace, step: int | None) -> tuple[tuple[Window, ...], str]:
    starts: list[float] = []
    last_end = 0.0
    launched = np.array([w.launched_s for w in trace.work])
    begins = np.array([w.start_s for w in trace.work])
    ends = np.array([w.end_s for w in trace.work])
    for mark in trace.steps:
        mine = (launched >= mark.start_s) & (launched <= mark.end_s)
        first = float(begins[mine].min()) if mine.any() else mark.start_s
        starts.append(mark.start_s if trace.on_host or len(trace.steps) == 1 else first)
        last_end = max(mark.end_s, float(ends[mine].max()) if mine.any() else mark.end_s)
    names = [m.name for m in trace.steps]
    bounds = [*starts, last_end]
    found = {n: Window(n, a, b) for n, a, b in zip(names, starts, bounds[1:], strict=True)}
    if step is not None:
        name = f"ProfilerStep#{step}"
        if name not in found:
            raise InvalidConfig([f"--step {step}: {trace.path.name} has {', '.join(names)}"])
        return (found[name],), name
    # The last step has no successor: what of its end is the host's cannot be told.
    kept = names[:-1] if len(names) > 1 and not trace.on_host else names
    told = kept[0] if len(kept) == 1 else f"mean of {kept[0]} to {kept[-1].partition('#')[2]}"
    return tuple(found[n] for n in kept), told


@dataclass
class Taken:
    """One window taken apart; seconds, as ``Breakdown`` has them."""

    parts: dict[str, float]
    kinds: dict[str, float]
    collectives: dict[str, list[float]]
    names: dict[tuple[str, str], float]
    n_kernels: int


def take_apart(work: Sequence[Work], loading: Sequence[Mark], window: Window) -> Taken:
    """What ran in a window and what it waited for; the parts add up to the window."""
    mine = [w for w in work if w.start_s < window.end_s and w.end_s > window.start_s]
    found = Taken(dict.fromkeys(PARTS, 0.0), defaultdict(float), defaultdict(lambda: [0.0, 0.0]),
                  defaultdict(float), len(mine))  # fmt: skip
    comm = [w for w in mine if w.kind == "collective"]
    busy = _Union()
    for w, alone in busy.add((w for w in mine if w.kind in COMPUTE_KINDS), window):
        found.parts[w.phase if w.phase in PARTS else "untold"] += alone
        found.kinds["optimizer" if w.phase == "optimizer" else w.kind] += alone
        found.names[w.name, w.kind] += alone
    for w in comm:
        inside = min(w.end_s, window.end_s) - max(w.start_s, window.start_s)
        found.collectives[w.collective][0] += inside
    for w, alone in busy.add(comm, window):
        found.parts["communication_exposed"] += alone
        found.collectives[w.collective][1] += alone
    for _, alone in busy.add((w for w in mine if w.kind == "copy"), window):
        found.parts["input_copy"] += alone
    for _, alone in busy.add(map(_as_work, loading), window):
        found.parts["loader"] += alone
    found.parts["host"] = window.end_s - window.start_s - busy.length_s
    return found


def breakdown(trace: Trace, windows: Sequence[Window], how: str) -> Breakdown:
    """Terms of the steps in ``windows``, their mean."""
    found = [take_apart(trace.work, trace.loading, w) for w in windows]
    n = len(windows)

    def mean(of: Iterable[Mapping[Key, float]]) -> dict[Key, float]:
        total: dict[Key, float] = defaultdict(float)
        for one in of:
            for key, value in one.items():
                total[key] += value / n
        return dict(total)

    whole, exposed = (mean({k: v[i] for k, v in f.collectives.items()} for f in found)
                      for i in (0, 1))  # fmt: skip
    names = sorted(mean(f.names for f in found).items(), key=lambda x: -x[1])
    return Breakdown(
        step_s=sum(w.end_s - w.start_s for w in windows) / n,
        n_steps=n,
        how=how,
        parts=mean(f.parts for f in found),
        kinds={} if trace.predicted else mean(f.kinds for f in found),
        collectives={k: (whole[k], exposed[k]) for k in whole},
        n_kernels=sum(f.n_kernels for f in found) / n,
        slowest=tuple((name, kind, s) for (name, kind), s in names[:_SLOWEST]),
    )


def _as_work(mark: Mark) -> Work:
    return Work(mark.name, "copy", "", "untold", mark.start_s, mark.end_s, mark.start_s, "")


class _Union:
    """The stretches that are taken already; what is added counts where nothing was before."""

    def __init__(self) -> None:
        self._low: Array = np.zeros(0)
        self._high: Array = np.zeros(0)
        self._total: Array = np.zeros(1)  # seconds taken before each stretch

    @property
    def length_s(self) -> float:
        """Seconds taken."""
        return float(self._total[-1])

    def _taken(self, until: Array) -> Array:
        """Seconds taken before each time."""
        i = np.searchsorted(self._low, until, side="right")
        inside = np.zeros_like(until)
        some = i > 0
        at = i[some] - 1
        inside[some] = np.minimum(until[some], self._high[at]) - self._low[at]
        before = np.zeros_like(until)
        before[some] = self._total[at]
        return before + inside

    def add(self, work: Iterable[Work], window: Window) -> list[tuple[Work, float]]:
        """Each piece with the seconds that it alone takes; then they are taken.

        Of pieces that run at once the one that began first counts.
        """
        pieces = sorted(work, key=lambda w: w.start_s)
        pieces = [w for w in pieces if w.start_s < window.end_s and w.end_s > window.start_s]
        if not pieces:
            return []
        start = np.maximum(np.array([w.start_s for w in pieces]), window.start_s)
        end = np.minimum(np.array([w.end_s for w in pieces]), window.end_s)
        reached = np.maximum.accumulate(end)
        begun = np.maximum(start, np.concatenate([[-np.inf], reached[:-1]]))
        begun = np.minimum(begun, end)
        alone = (end - begun) - (self._taken(end) - self._taken(begun))
        self._merge(start, reached)
        return list(zip(pieces, np.maximum(alone, 0.0).tolist(), strict=True))

    def _merge(self, start: Array, end: Array) -> None:
        low = np.concatenate([self._low, start])
        high = np.concatenate([self._high, end])
        order = np.argsort(low, kind="stable")
        low, high = low[order], np.maximum.accumulate(high[order])
        new = np.concatenate([[True], low[1:] > high[:-1]])
        first = np.flatnonzero(new)
        last = np.concatenate([first[1:] - 1, [len(low) - 1]])
        self._low, self._high = low[first], high[last]
        self._total = np.concatenate([[0.0], np.cumsum(self._high - self._low)])
