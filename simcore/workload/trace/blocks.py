"""A trace divided into segments: each call of a repeated module, and the ops between such calls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from simcore.workload.trace.record import ParamRecord, Trace, UnitCall


@dataclass(slots=True)
class Segment:
    """Consecutive forward ops, numbers ``start`` (included) to ``stop`` (excluded).

    ``call``: the call of a repeated module to which they belong; None between repeated modules.
    ``params``: trained parameters assigned to the segment.
    """

    start: int
    stop: int
    call: UnitCall | None
    params: list[ParamRecord] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """Path of the repeated module; empty between repeated modules."""
        return self.call.module if self.call else ""


def segments(trace: Trace) -> list[Segment]:
    """The segments of forward, divided at the start and at the end of each repeated module."""
    units = set(trace.units)
    unit_of: dict[str, str] = {}

    def unit(path: str) -> str:
        if path not in unit_of:
            parts = path.split(".")
            ancestors = (".".join(parts[:n]) for n in range(1, len(parts) + 1))
            unit_of[path] = next((a for a in ancestors if a in units), "")
        return unit_of[path]

    calls = {c.at: c for c in trace.calls}
    result: list[Segment] = []
    call: UnitCall | None = None
    for i, op in enumerate(trace.ops):
        if op.phase != "forward":
            break
        started = calls.get(i)
        inside = unit(op.module)
        if started is not None and started.module == inside:
            call = started
        elif call is None or inside != call.module:
            call = None
        if not result or result[-1].call is not call:
            result.append(Segment(i, i, call))
        result[-1].stop = i + 1
    return result


def segment_of_ops(found: Sequence[Segment]) -> list[int]:
    """The number of the segment of each forward op; ``found``: all segments in order."""
    return [i for i, s in enumerate(found) for _ in range(s.start, s.stop)]


def place_params(trace: Trace, found: list[Segment]) -> tuple[str, ...]:
    """Assign every trained parameter to a segment; returns those that never get a gradient.

    ``found``: all segments in order, whose ``params`` are filled. Reversed, the parameters of all
    segments are in the order in which their gradients become ready. A parameter belongs to the
    segment that reads it first, unless that breaks the order (a tied parameter, or one that is read
    several times); then it belongs to the segment of its neighbour in the order.
    """
    of_op = segment_of_ops(found)
    by_name = {p.names[0]: p for p in trace.params if p.trained}
    ordered = [by_name[name] for name in reversed(trace.gradient_order) if name in by_name]
    owners = [of_op[p.first_use] if 0 <= p.first_use < len(of_op) else 0 for p in ordered]
    for param, owner in zip(ordered, _monotone(owners), strict=True):
        found[owner].params.append(param)
    ready = set(trace.gradient_order)
    unready = [p for name, p in by_name.items() if name not in ready]
    for param in reversed(unready):
        owner = of_op[param.first_use] if 0 <= param.first_use < len(of_op) else 0
        found[owner].params.insert(0, param)
    return tuple(p.names[0] for p in unready)


def _monotone(owners: Sequence[int]) -> list[int]:
    """``owners`` made non-decreasing with as few changes as possible.

    Entries of the longest non-decreasing subsequence stay; each other one takes the value before.
    """
    tails: list[int] = []  # the smallest last value of a subsequence of each length
    tail_at: list[int] = []  # its index in ``owners``
    previous = [-1] * len(owners)
    for i, owner in enumerate(owners):
        n = bisect_right(tails, owner)
        previous[i] = tail_at[n - 1] if n else -1
        if n == len(tails):
            tails.append(owner)
            tail_at.append(i)
        else:
            tails[n], tail_at[n] = owner, i
    unchanged: set[int] = set()
    i = tail_at[-1] if tail_at else -1
    while i >= 0:
        unchanged.add(i)
        i = previous[i]
    result: list[int] = []
    current = min((owners[i] for i in unchanged), default=0)
    for i, owner in enumerate(owners):
        current = owner if i in unchanged else current
        result.append(current)
    return result
