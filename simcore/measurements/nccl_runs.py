"""Runs of nccl-tests, and the checks that each of their rows has to pass.

Format and meaning of the columns: NVIDIA/nccl-tests, src/util.cu and doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from simcore.base.record import dataclass
from simcore.base.units import GIGA, MICRO

#: Program of the suite -> collective. The size column is the whole vector for each of them.
PROGRAMS: Final = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_allv", "sendrecv": "send_recv",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "hypercube": "hypercube",
}  # fmt: skip
#: Collectives that training runs in place (gradients, broadcasts); others use two buffers.
IN_PLACE: Final = ("all_reduce", "broadcast", "reduce")
#: Collectives whose bus factor doc/PERFORMANCE.md lists.
_WITH_FACTOR: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv",
)  # fmt: skip
#: Least bandwidth [GB/s] for ratios of columns, which are printed with only two decimals.
_PRECISE_GBPS: Final = 1.0
#: Largest relative difference of bytes / time from the printed algbw.
_AGREE_FRAC: Final = 0.1
#: Largest relative difference of the median ratio from the bus factor; beyond it the file is of
#: another collective or of another number of ranks.
_RATIO_FRAC: Final = 0.05


@dataclass(frozen=True)
class Device:
    """One line of the rank list: a rank's host and the name of its device."""

    rank: int
    host: str
    name: str


@dataclass(frozen=True)
class Side:
    """Out-of-place or in-place result: seconds, GB/s as printed, number of wrong values."""

    time_s: float
    algbw_gbps: float
    busbw_gbps: float
    n_wrong: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of the table; ``out_of_place`` and ``in_place`` are None where not measured."""

    n_bytes: float
    dtype: str
    redop: str
    root: str
    out_of_place: Side | None
    in_place: Side | None
    line: int

    def side(self, op: str) -> Side | None:
        """The result that a training job of this collective corresponds to, else the other one."""
        out_of_place, in_place = self.out_of_place, self.in_place
        return (in_place or out_of_place) if op in IN_PLACE else (out_of_place or in_place)


@dataclass(frozen=True)
class NcclRun:
    """One run: a collective on some ranks over message sizes.

    Where the file does not say, ``op`` is empty, ``n_ranks`` zero and ``devices`` empty.
    ``line``: line of the file where the run begins.
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
        """Distinct names of the devices, as the driver spells them."""
        return tuple(dict.fromkeys(d.name for d in self.devices))


@dataclass(frozen=True)
class NcclFile:
    """Runs of a file, and a sentence with file and line for each invalid row."""

    runs: tuple[NcclRun, ...]
    problems: tuple[str, ...] = field(default=())

    def __add__(self, other: NcclFile) -> NcclFile:
        return NcclFile(self.runs + other.runs, self.problems + other.problems)


def bus_factor(op: str, n_ranks: int) -> float:
    """Bus over algorithm bandwidth: 2(n-1)/n for all-reduce, 1 for broadcast, else (n-1)/n."""
    if op in ("broadcast", "reduce", "send_recv"):
        return 1.0
    return (2.0 if op.startswith("all_reduce") else 1.0) * (n_ranks - 1) / n_ranks


def side_of(time_us: str, algbw: str, busbw: str, wrong: str) -> Side | str | None:
    """The result in cells of a row; None where it was not measured, a sentence if it is invalid."""
    blank = ("", "N/A")
    if time_us in blank:
        return None
    try:
        numbers = [float(x) for x in (time_us, algbw, busbw)]
        n_wrong = 0.0 if wrong in blank else float(wrong)
    except ValueError as err:
        return f"{str(err).rpartition(': ')[2]} is not a number"
    microseconds = numbers[0]
    if not all(map(math.isfinite, numbers)) or microseconds <= 0:
        return f"time {time_us!r} us must be finite and above zero"
    return Side(microseconds * MICRO, numbers[1], numbers[2], n_wrong)


def row_problem(n_bytes: float, side: Side) -> str:
    """Why a row is not a valid measurement; empty where it is one."""
    if side.n_wrong:
        return f"{side.n_wrong:g} results were wrong: not a valid measurement"
    printed_gbps = side.algbw_gbps
    if printed_gbps >= _PRECISE_GBPS:
        gbps = n_bytes / side.time_s / GIGA
        if not 1 - _AGREE_FRAC < gbps / printed_gbps < 1 + _AGREE_FRAC:
            return (
                f"{n_bytes:.0f} B in {side.time_s / MICRO:g} us are {gbps:.3g} GB/s, algbw says "
                f"{printed_gbps:g}: columns shifted or swapped?"
            )
    return ""


def ratio_of(rows: Mapping[float, Side]) -> float | None:
    """Median bus over algorithm bandwidth of rows printed precisely enough; None without any."""
    precise = (s for s in rows.values() if s.algbw_gbps > _PRECISE_GBPS)
    ratios = sorted(s.busbw_gbps / s.algbw_gbps for s in precise)
    return ratios[len(ratios) // 2] if ratios else None


def op_from_rows(rows: tuple[Row, ...], n_ranks: int) -> str:
    """The collective, by the columns redop and root and the bus factor; "" where it is unclear."""
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
    """Why a whole run contradicts its own labels; empty where it does not."""
    ranks = [d.rank for d in run.devices]
    if len(set(ranks)) < len(ranks):
        return (
            "a rank is listed twice among the devices: the processes ran separately "
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


def run_of(
    file: str, line: int, op: str, devices: Sequence[Device], rows: Sequence[Row], version: str
) -> tuple[NcclRun | None, list[str]]:
    """A run with only its valid rows, or None without any; and a sentence for each invalid row.

    Where ``op`` is empty, the rows may tell the collective. Each rank is one of the ``devices``.
    """
    name = op or (op_from_rows(tuple(rows), len(devices)) if rows else "")
    return _without_bad_rows(
        NcclRun(file, line, name, tuple(devices), len(devices), tuple(rows), version)
    )


def _without_bad_rows(run: NcclRun) -> tuple[NcclRun | None, list[str]]:
    problems: list[str] = []
    valid: list[Row] = []
    seen: dict[tuple[object, ...], int] = {}
    for row in run.rows:
        if not row.n_bytes:  # less than one element per rank: nothing was sent
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
        valid.append(row)
    checked = replace(run, rows=tuple(valid))
    if why := run_problem(checked):
        problems.append(f"{run.where}: {why}")
        return None, problems
    return (checked if valid else None), problems
