"""The times of benchmark rows on a GPU as functions of multipliers on the shipped figures.

A row's time comes from the code that prices a step: its kernels, the profile with the multipliers
applied, ``timing.compute.phase_seconds``. To it is added what a timed call takes beside its
kernels.

# R rows
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.calibrate.bench.queue import QUEUE_S
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.machine.row_kernels import QUEUED, op_of, precision_of
from simcore.calibrate.ops.rows import LARGE_BYTES, LARGE_FLOP
from simcore.hardware.calibrations import ATTENTION_BACKWARD, Fitted, MeasuredDevice
from simcore.hardware.cluster import NodeGroup
from simcore.hardware.profile import OF_MEMORY, OF_UNALIGNED, START, Profile, measured_class
from simcore.step.kernels import CAST, FEW_LOADED, KINDS, KernelTable, kernel_table
from simcore.step.transients import COMPUTE_KINDS
from simcore.strategy.precision import PRECISIONS, Precision
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import KernelRates, class_rates, unit_of
from simcore.workload.graph import FLASH_KINDS, Block, Workload

#: Time of a single call beside its kernels (events, the gap after the kernel before it), and the
#: standard deviation of its logarithm: an assumption that tiny calls correct.
BESIDE_S: Final = 3 * MICRO
BESIDE_SD: Final = 0.7
#: The parameter of that time.
BESIDE: Final = "beside"
#: The parameter of clocks: ln(time at the clocks of long training / time in a burst) is the shipped
#: one times (1 + parameter).
CLOCKS: Final = "clocks"
#: Parameters that are of the benchmarks alone: no step has them.
OF_BENCHMARKS: Final = (BESIDE, CLOCKS)
#: Standard deviation of ln(rate) of products with unaligned rows beside ``narrow_load_slowdown``:
#: 1.22 to 1.56 times for one of its ratios, taken as an 80 % interval (``physics.kernel``).
UNALIGNED_SD: Final = 0.1
_FLASH: Final = [KINDS.index(kind) for kind in FLASH_KINDS]


def sections(figures: Mapping[str, Fitted]) -> dict[str, Any]:
    """Multipliers by key as fields of ``MeasuredDevice``."""
    memory = {k.removeprefix(OF_MEMORY): f for k, f in figures.items() if k.startswith(OF_MEMORY)}
    compute = {k: f for k, f in figures.items()
               if not k.startswith(OF_MEMORY) and k not in (START, *OF_BENCHMARKS)}  # fmt: skip
    return {"compute_over_blind": compute, "memory_over_blind": memory,
            "start_over_blind": figures.get(START)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of one precision as a kernel table with two phases a row; ``at``: their places."""

    precision: Precision
    table: KernelTable
    at: NDArray[np.intp]

    def sums(self, column: NDArray[Any]) -> Array:
        """Sums over each row's kernels of an amount per kernel."""
        return self.by_row(np.add.reduceat(column * self.table["count"], self.table.phase_start))

    def by_row(self, phases: Array) -> Array:
        """Amounts of the forward and then the backward phases as sums of each row's two."""
        n = len(self.at)
        return phases[:n] + phases[n : 2 * n]


def _part(rows: Sequence[RawRow], at: Sequence[int], name: str) -> _Part:
    blocks = tuple(Block(name="", ops=(op_of(rows[i]),)) for i in at)
    workload = Workload(
        name="benchmarks", sample_unit="call", blocks=blocks, order=tuple(range(len(blocks)))
    )
    precision = PRECISIONS[name]
    return _Part(precision, kernel_table(workload, precision), np.array(at))


class BenchModel:
    """The times of ``rows`` on the device of ``group``; ``blind``: the profile of shipped figures.

    ``prior``: key of each parameter -> standard deviation of the logarithm of the blind figure that
    it multiplies. ``burst_log``: key of a figure that is known at the clocks of bursts ->
    ln(its rate in a burst / at the clocks of long training).
    """

    def __init__(self, rows: Sequence[RawRow], group: NodeGroup, blind: Profile) -> None:
        self.rows, self.group, self.blind = tuple(rows), group, blind
        places: dict[str, list[int]] = defaultdict(list)
        for i, row in enumerate(self.rows):
            places[precision_of(row)].append(i)
        self.parts = [_part(self.rows, at, name) for name, at in places.items()]
        self.burst_log: dict[str, float] = {}
        self.prior = self._priors()
        in_bursts, held = (self._device_s({}, in_bursts=b) for b in (True, False))
        single = np.array([r.cells.get("timing") != QUEUED for r in self.rows])
        took_s = np.array([r.seconds for r in self.rows])
        took_s = np.where(single, took_s, np.maximum(took_s, QUEUE_S))
        self.burst_frac = 1.0 - took_s / (took_s + self._rest_s())
        self.clock_log = np.log(held / in_bursts)
        self.beside_s = np.where(single, BESIDE_S, 0.0)

    def _rest_s(self) -> float:
        """Seconds between timed calls or queues of them, in which the device draws little power.

        A flush reads and writes twice the size of the last cache; the device waits for the host
        for about as long again.
        """
        gpu = self.group.gpu
        l2_bytes = gpu.l2_size.value if gpu.l2_size else 0.0
        return 2.0 * 4.0 * l2_bytes / gpu.memory_bw.value

    def _priors(self) -> dict[str, float]:
        gpu, found = self.group.gpu, {BESIDE: BESIDE_SD}
        in_bursts = replace(self.blind, in_bursts=True, _seen={})
        found[START] = self.blind.kernel_start_s(gpu).sd_log
        clocks = self.blind.clock_ratio("gemm_tensor16", "sustained", gpu)
        if clocks.value > 1.0:
            found[CLOCKS] = clocks.sd_log / math.log(clocks.value)
        for part in self.parts:
            for name in (KINDS[k] for k in np.unique(part.table["kind"])):
                kind: Any = "elementwise" if name == CAST else name.removesuffix("_native")
                if kind not in COMPUTE_KINDS and not kind.startswith("gemm"):
                    found[OF_MEMORY + kind] = self.blind.memory_efficiency(kind, gpu).sd_log
                    continue
                unit = unit_of(name, self.blind, gpu, part.precision)[0]
                family = kind if kind in COMPUTE_KINDS else "gemm"
                key = measured_class(family, unit)
                share = in_bursts.compute_efficiency(family, unit, gpu)
                found[key] = max(found.get(key, 0.0), share.sd_log)
                held = self.blind.compute_efficiency(family, unit, gpu)
                if held.sd_log > share.sd_log:  # cards are timed in long queues, others in bursts
                    self.burst_log[key] = math.log(share.value / held.value)
                if name in FEW_LOADED and unit != "fp32":
                    found[key + OF_UNALIGNED] = UNALIGNED_SD
            if (part.table["backward"] & np.isin(part.table["kind"], _FLASH)).any():
                found[ATTENTION_BACKWARD] = self.blind.attention_backward_frac(gpu).sd_log
        return found

    def _rates(
        self, theta: Mapping[str, float], precision: Precision, *, in_bursts: bool
    ) -> KernelRates:
        figures = {k: Fitted(value=math.exp(v), sd_log=0.0) for k, v in theta.items()}
        measured = MeasuredDevice(gpu=self.group.gpu.name, **sections(figures))
        profile = replace(self.blind, measured=measured, in_bursts=in_bursts, _seen={})
        # Past the cache of rates, which would keep a profile for every step of a fit.
        return class_rates.__wrapped__(self.group, precision, profile).kernels

    def _device_s(self, theta: Mapping[str, float], *, in_bursts: bool = True) -> Array:
        """The time of each row's kernels, in bursts or at sustained clocks [R]."""
        out, one = np.zeros(len(self.rows)), np.ones(1)
        for part in self.parts:
            rates = self._rates(theta, part.precision, in_bursts=in_bursts)
            out[part.at] = part.by_row(phase_seconds(part.table, rates, one, one, one)[:, 0])
        return out

    def seconds(self, theta: Mapping[str, float]) -> Array:
        """The time of each row with the multipliers exp(``theta``) [R].

        The larger the share of the time in which a device computes, the nearer is its clock to that
        of long training: times in bursts and at sustained clocks are interpolated by that share.
        The multipliers are of rates at the clocks of long training, so that a row in a burst tells
        of them only as well as the ratio of both clocks is known.
        """
        beside_s = self.beside_s * math.exp(theta.get(BESIDE, 0.0))
        ratio_log = self.clock_log * (1.0 + theta.get(CLOCKS, 0.0))
        held_s = self._device_s(theta) * np.exp(self.clock_log)
        return held_s * np.exp(-self.burst_frac * ratio_log) + beside_s

    def at_peak_s(self) -> Array:
        """The least time of each row at the datasheet's peaks [R]."""
        gpu, out = self.group.gpu, np.zeros(len(self.rows))
        for part in self.parts:
            peak = gpu.peak(part.precision.peak) or gpu.peak("fp32") or math.inf
            moved_s = part.table["n_bytes"].sum(axis=1) / gpu.memory_bw.value
            out[part.at] = part.sums(np.maximum(part.table["flop"] / peak, moved_s))
        return out

    def turned(self) -> NDArray[np.bool_]:
        """Whether a row's tensors are converted to another layout for matrix units [R].

        Its time is that of two kinds of kernel, or of others that take the tensors as they are.
        """
        out = np.zeros(len(self.rows), dtype=bool)
        for part in self.parts:
            turns = self._rates({}, part.precision, in_bursts=True).kinds["turned_s_per_byte"]
            converted = (part.table["turned_bytes"] > 0) & (turns[part.table["kind"]] > 0)
            out[part.at] = part.sums(converted.astype(float)) > 0
        return out

    def large(self) -> NDArray[np.bool_]:
        """Whether each row is large, as for the shipped figures [R]."""
        out = np.zeros(len(self.rows), dtype=bool)
        for part in self.parts:
            flop, moved = (
                part.sums(part.table["flop"]),
                part.sums(part.table["n_bytes"].sum(axis=1)),
            )
            least = np.array([LARGE_FLOP.get(self.rows[i].table, 0.0) for i in part.at])
            out[part.at] = np.where(least > 0.0, flop >= least, moved >= LARGE_BYTES)
        return out
