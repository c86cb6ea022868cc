"""What a run of nccl-tests is, and the checks that every row of it has to pass.

Format and meaning of the columns: NVIDIA/nccl-tests, src/util.cu and doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from simcore.base.units import GIGA, MICRO

#: Programs of the suite -> the collective as it is called here; the whole vector is its size.
PROGRAMS: Final = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_allv", "sendrecv": "send_recv",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "hypercube": "hypercube",
}  # fmt: skip
#: Training reduces gradients and broadcasts in place; the others have a buffer for each side.
IN_PLACE: Final = ("all_reduce", "broadcast", "reduce")
#: Collectives whose bus factor doc/PERFORMANCE.md lists.
_WITH_FACTOR: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv",
)  # fmt: skip
#: Columns are printed with two decimals: a ratio of them says something from here on [GB/s].
_TOLD_GBPS: Final = 1.0
_AGREE_FRAC: Final = 0.1
#: A median off by more than this is another collective's, or another number of ranks'.
_RATIO_FRAC: Final = 0.05


@dataclass(frozen=True, slots=True)
class Device:
    """One line of the rank list."""

    rank: int
    host: str
    name: str


@dataclass(frozen=True, slots=True)
class Side:
    """Out of place or in place: seconds, GB/s as printed, results that were wrong."""

    time_s: float
    algbw_gbps: float
    busbw_gbps: float
    n_wrong: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``out_of_place`` and ``in_place``: None where not measured."""

    n_bytes: float
    dtype: str
    redop: str
    root: str
    out_of_place: Side | None
    in_place: Side | None
    line: int

    def side(self, op: str) -> Side | None:
        """The side that a training job uses of the collective, or what there is."""
        first, second = self.out_of_place, self.in_place
        return (second or first) if op in IN_PLACE else (first or second)


@dataclass(frozen=True, slots=True)
class NcclRun:
    """One run: a collective on some ranks over message sizes.

    ``op`` is empty where the file does not tell it, ``n_ranks`` zero, ``devices`` empty.
    ``line``: where the run begins.
    """

    file: str
    line: int
    op: str
    devices: tuple[Device, ...]
    n_ranks: int
    rows: tuple[Row, ...]
    version: str = ""

    @property
    def where(self) -> str:
        """File and line for messages."""
        return f"{self.file}:{self.line}"

    def ranks_by_host(self) -> dict[str, int]:
        """Ranks on each host, in the order of the list."""
        return dict(Counter(d.host for d in self.devices))

    def gpu_names(self) -> tuple[str, ...]:
        """Names of the devices as the driver calls them, each once."""
        return tuple(dict.fromkeys(d.name for d in self.devices))


@dataclass(frozen=True)
class NcclFile:
    """Runs of a file, and what is wrong with rows that are none, by file and line."""

    runs: tuple[NcclRun, ...]
    problems: tuple[str, ...] = field(default=())

    def __add__(self, other: NcclFile) -> NcclFile:
        return NcclFile(self.runs + other.runs, self.problems + other.problems)


def bus_factor(op: str, n_ranks: int) -> float:
    """Bus over algorithm bandwidth: 2(n-1)/n for all-reduce, (n-1)/n for what is dealt out."""
    if op in ("broadcast", "reduce", "send_recv"):
        return 1.0
    return (2.0 if op.startswith("all_reduce") else 1.0) * (n_ranks - 1) / n_ranks


def side_of(time_us: str, algbw: str, busbw: str, wrong: str) -> Side | str | None:
    """Cells of one side; None where it was not measured, a sentence where it cannot be."""
    blank = ("", "N/A")
    if time_us in blank:
        return None
    try:
        numbers = [float(x) for x in (time_us, algbw, busbw)]
        n_wrong = 0.0 if wrong in blank else float(wrong)
    except ValueError as err:
        return f"{str(err).rpartition(': ')[2]} is not a number"
    time = numbers[0]
    if not all(map(math.isfinite, numbers)) or time <= 0:
        return f"time {time_us!r} us must be finite and above zero"
    return Side(time * MICRO, numbers[1], numbers[2], n_wrong)


def row_problem(n_bytes: float, side: Side) -> str:
    """Why a row is no measurement; empty where it is one."""
    if side.n_wrong:
        return f"{side.n_wrong:g} results were wrong: no measurement"
    told = side.algbw_gbps
    if told >= _TOLD_GBPS:
        found = n_bytes / side.time_s / GIGA
        if not 1 - _AGREE_FRAC < found / told < 1 + _AGREE_FRAC:
            return (
                f"{n_bytes:.0f} B in {side.time_s / MICRO:g} us are {found:.3g} GB/s, algbw says "
                f"{told:g}: columns shifted or swapped?"
            )
    return ""


def ratio_of(rows: Mapping[float, Side]) -> float | None:
    """Median of bus over algorithm bandwidth where the digits printed tell it."""
    ratios = sorted(s.busbw_gbps / s.algbw_gbps for s in rows.values() if s.algbw_gbps > _TOLD_GBPS)
    return ratios[len(ratios) // 2] if ratios else None


def told_op(rows: tuple[Row, ...], n_ranks: int) -> str:
    """The collective by what only it prints: its reduction, its root, its bus factor; or ""."""
    sides = {r.n_bytes: s for r in rows if (s := r.out_of_place or r.in_place)}
    ratio = ratio_of(sides)
    if ratio is None or n_ranks < 2 or not rows[0].redop or rows[0].redop == "none":
        return ""
    if rows[0].root not in ("", "-1"):
        return ""
    near = [op for op in ("all_reduce", "reduce_scatter")
            if abs(ratio / bus_factor(op, n_ranks) - 1.0) < _RATIO_FRAC]  # fmt: skip
    return near[0] if len(near) == 1 else ""


def run_problem(run: NcclRun) -> str:
    """Why a whole run cannot be what it says; empty where it can."""
    ranks = [d.rank for d in run.devices]
    if len(set(ranks)) < len(ranks):
        return (
            "a rank stands twice in the list of devices: processes that did not find each other "
            "(nccl-tests built without MPI=1?)"
        )
    sides = {r.n_bytes: s for r in run.rows if (s := r.side(run.op)) is not None}
    ratio = ratio_of(sides)
    if ratio is None or run.n_ranks < 2 or run.op not in _WITH_FACTOR:
        return ""
    factor = bus_factor(run.op, run.n_ranks)
    if abs(ratio / factor - 1.0) > _RATIO_FRAC:
        return (
            f"busbw over algbw is {ratio:.3g}; for {run.op} on {run.n_ranks} ranks it is "
            f"{factor:.3g}: another collective, or another number of ranks"
        )
    return ""


def sound(run: NcclRun) -> tuple[NcclRun | None, list[str]]:
    """A run without rows that cannot be, and what is wrong with these; None: nothing is left."""
    problems: list[str] = []
    kept: list[Row] = []
    seen: dict[tuple[object, ...], int] = {}
    for row in run.rows:
        if not row.n_bytes:  # below one element a rank: latency of nothing
            continue
        where, side = f"{run.file}:{row.line}", row.side(run.op)
        if side is None:
            problems.append(f"{where}: no time")
            continue
        sides = (x for x in (row.out_of_place, row.in_place) if x is not None)
        if why := next(filter(None, (row_problem(row.n_bytes, x) for x in sides)), ""):
            problems.append(f"{where}: {why}")
            continue
        key = (row.n_bytes, row.dtype, row.redop, row.root)
        if key in seen:
            problems.append(f"{where}: size {row.n_bytes:.0f} is listed in line {seen[key]} too")
            continue
        seen[key] = row.line
        kept.append(row)
    whole = NcclRun(run.file, run.line, run.op, run.devices, run.n_ranks, tuple(kept), run.version)
    if why := run_problem(whole):
        problems.append(f"{run.where}: {why}")
        return None, problems
    return (whole if kept else None), problems
