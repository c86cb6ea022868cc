"""A machine's fits and raw measurements as curves for a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from simcore.base.arrays import Array
from simcore.base.errors import DataError
from simcore.base.figures import Figure
from simcore.base.record import dataclass
from simcore.base.units import format_si
from simcore.calibrate.bench.memory_bound import OPS
from simcore.calibrate.bench.store import RawRow, Store
from simcore.calibrate.link_fit import LinkFit
from simcore.calibrate.machine.bench_model import BenchModel
from simcore.calibrate.machine.fit import all_reduce_times, compute_work, own_rows
from simcore.calibrate.machine.row_kernels import times_kernels
from simcore.hardware.calibrations import Calibration, MeasuredDevice
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import OF_MEMORY, load_profile
from simcore.physics.kernel import roofline_s
from simcore.timing.points import COLLECTIVE_BASE_S


@dataclass(frozen=True)
class Curve:
    """Measured seconds and the fitted ones of each benchmark, arrays [rows].

    work   what the benchmark does [``unit``]: FLOP, bytes, or seconds at the datasheet's peaks
    names  the case that each row times
    """

    title: str
    unit: Literal["FLOP", "B", "s"]
    work: Array
    measured: Array
    fitted: Array
    names: tuple[str, ...]


def curves_of(record: Calibration, path: Path) -> list[Curve]:
    """The curves of the classes in the raw tables that belong to the profile at ``path``.

    The tables are in the folder with the profile's name and the suffix ``.raw``. Raises DataError
    if there is none.
    """
    store = Store(path.with_suffix(".raw"))
    if record.measured is None or not store.folder.is_dir():
        raise DataError(f"has no raw measurements in {store.folder.name} to plot", file=path)
    rows, _ = store.rows("skip")
    own = record.measured
    if own.compute_over_blind or own.memory_over_blind:
        return _over_blind(own, rows)
    gpu = _peaks_of(own.gpu, path)
    curves = [_gemm(own, rows, gpu["peak"], gpu["bandwidth"])]
    curves += _memory(own, rows, gpu["bandwidth"])
    curves += _link(own, rows, gpu["bus"])
    return [c for c in curves if c is not None]


def _over_blind(own: MeasuredDevice, rows: Sequence[RawRow]) -> list[Curve]:
    """The kernels of each table as the profile prices them; ``own`` holds multipliers."""
    mine = [r for r in rows if times_kernels(r) and r.table != "host"]
    group = parse_cluster(f"1x1x{own.gpu}").groups[0]
    model = BenchModel(mine, group, load_profile())
    figures = {
        **own.compute_over_blind,
        **{OF_MEMORY + k: f for k, f in own.memory_over_blind.items()},
    }
    fitted = model.seconds({k: math.log(f.value) for k, f in figures.items()})
    found = []
    for table in dict.fromkeys(r.table for r in mine):
        at = [i for i, r in enumerate(mine) if r.table == table]
        least_s, measured = model.at_peak_s()[at], np.array([mine[i].seconds for i in at])
        found.append(Curve(table.replace("_", "-"), "s", least_s, measured, fitted[at],
                           _names([mine[i] for i in at])))  # fmt: skip
    return found


def _peaks_of(name: str, path: Path) -> dict[str, float]:
    """Peak FLOP/s, bandwidth and bus rate that the efficiencies are shares of.

    They come from the hardware record in the profile's folder, else from the shipped one.
    """
    from simcore.base.database import load_record
    from simcore.hardware.cluster import link_named
    from simcore.hardware.spec import GPUS, GpuSpec, NodeSpec

    folder = path.parent / "hardware_db"
    card = folder / "gpus" / f"{name}.yaml"
    gpu = load_record(card, GpuSpec) if card.is_file() else GPUS[name]
    node = folder / "nodes" / f"{name}.yaml"
    bus = 0.0
    if node.is_file():
        bus = link_named(load_record(node, NodeSpec).pcie_link).bw.value
    nothing = Figure(value=0.0, source="")
    peak = gpu.peak_flop_per_s.get("fp32", nothing).value
    return {"peak": peak, "bandwidth": gpu.memory_bw.value, "bus": bus}


def _names(rows: Sequence[RawRow]) -> tuple[str, ...]:
    """The case of each row: the cells that identify it, without the GPU."""
    return tuple(
        ", ".join(cell.replace("=", " ") for cell in row.key[3:] if not cell.startswith("gpu="))
        for row in rows
    )


def _gemm(
    own: MeasuredDevice, rows: Sequence[RawRow], peak: float, bandwidth: float
) -> Curve | None:
    fitted = own.compute_efficiency.get("gemm_simt32")
    mine = [r for r in own_rows(rows, "gemm") if r.cells["dtype"] == "fp32"]
    if fitted is None or not mine or not peak:
        return None
    flop, moved, *_ = compute_work(mine)
    start = own.kernel_start.value if own.kernel_start else 0.0
    memory_s = moved / (own.memory_efficiency["gemm"].value * bandwidth)
    seconds = roofline_s(flop / (fitted.value * peak), memory_s, start)
    measured = np.array([r.seconds for r in mine])
    return Curve("matrix products, fp32", "FLOP", flop, measured, seconds, _names(mine))


def _memory(own: MeasuredDevice, rows: Sequence[RawRow], bandwidth: float) -> list[Curve]:
    found = []
    start = own.kernel_start.value if own.kernel_start else 0.0
    for kind in ("elementwise", "norm", "softmax"):
        mine = [r for r in own_rows(rows, "memory_bound") if OPS[r.cells["op"]].kind == kind]
        if mine and kind in own.memory_efficiency:
            n_bytes = np.array([r.number("bytes") for r in mine])
            fit = start + n_bytes / (own.memory_efficiency[kind].value * bandwidth)
            measured = np.array([r.seconds for r in mine])
            found.append(Curve(kind, "B", n_bytes, measured, fit, _names(mine)))
    return found


def _link(own: MeasuredDevice, rows: Sequence[RawRow], bus: float) -> list[Curve]:
    _, sizes, measured = all_reduce_times(rows)
    if own.link is None or not len(sizes) or not bus:
        return []
    n, rate = own.link.ranks, own.link.efficiency.value * bus
    fit = LinkFit(n, 2.0, COLLECTIVE_BASE_S, rate, own.link.hop.value).time_s(sizes)
    names = tuple(format_si(float(size), "B") for size in sizes)
    return [Curve(f"all-reduce, {n} ranks", "B", sizes, measured, fit, names)]
