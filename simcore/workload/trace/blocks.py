"""A trace cut into stretches: each call of a repeated module, and what lies between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from simcore.workload.trace.record import ParamRecord, Trace, UnitCall


@dataclass(slots=True)
class Segment:
    """Forward ops ``start`` to ``stop`` in order. ``call`` is none between repeated modules."""

    start: int
    stop: int
    call: UnitCall | None
    params: list[ParamRecord] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """Path of the repeated module, empty between them."""
        return self.call.module if self.call else ""


def segments(trace: Trace) -> list[Segment]:
    """Forward, cut at every call of a repeated module and at its end."""
    units = set(trace.units)
    unit_of: dict[str, str] = {}

    def unit(path: str) -> str:
        if path not in unit_of:
            parts = path.split(".")
            heads = (".".join(parts[:n]) for n in range(1, len(parts) + 1))
            unit_of[path] = next((h for h in heads if h in units), "")
        return unit_of[path]

    calls = {c.at: c for c in trace.calls}
    found: list[Segment] = []
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
        if not found or found[-1].call is not call:
            found.append(Segment(i, i, call))
        found[-1].stop = i + 1
    return found


def segment_of_ops(found: Sequence[Segment]) -> list[int]:
    """Which segment each forward op is in."""
    return [i for i, s in enumerate(found) for _ in range(s.start, s.stop)]


def place_params(trace: Trace, found: list[Segment]) -> tuple[str, ...]:
    """Give every trained parameter to a segment; returns those that never get a gradient.

    Read from the last segment to the first, each from its last parameter to its first, they are
    in the order in which gradients become ready. A parameter usually belongs where it is read
    first; where that would break the order (a tied one, one that is read again) its neighbour's
    segment has it.
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
        at = of_op[param.first_use] if 0 <= param.first_use < len(of_op) else 0
        found[at].params.insert(0, param)
    return tuple(p.names[0] for p in unready)


def _monotone(owners: Sequence[int]) -> list[int]:
    """``owners`` made non-decreasing by changing as few as possible (longest subsequence)."""
    tails: list[int] = []  # smallest last value of a subsequence of each length
    at: list[int] = []
    before = [-1] * len(owners)
    for i, owner in enumerate(owners):
        n = bisect_right(tails, owner)
        before[i] = at[n - 1] if n else -1
        if n == len(tails):
            tails.append(owner)
            at.append(i)
        else:
            tails[n], at[n] = owner, i
    kept: set[int] = set()
    i = at[-1] if at else -1
    while i >= 0:
        kept.add(i)
        i = before[i]
    result: list[int] = []
    current = min((owners[i] for i in kept), default=0)
    for i, owner in enumerate(owners):
        current = owner if i in kept else current
        result.append(current)
    return result
