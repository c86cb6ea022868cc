"""Efficiency profiles: the share of its datasheet's rates that hardware reaches, with uncertainty.

A profile has an answer for any device: the device's own figure, else its family's, else that of
all devices pooled. The answer names its source and its spread. Calibrated multipliers apply last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from math import hypot, inf
from pathlib import Path
from typing import Any

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.hardware.calibrations import (
    ATTENTION_BACKWARD,
    CalibratedKnob,
    Calibration,
    Knob,
    MeasuredDevice,
    calibration_file,
    calibration_named,
    efficiencies,
    own_class,
    placed_knobs,
    sources_of,
    text_of,
)
from simcore.hardware.class_figures import FP32_CLASSES, Clock, at_own_ecc, clock_ratio, figures_of
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.estimates import (
    ClassFigures,
    Estimate,
    Spreads,
    attention_over_timed,
    families_of,
    kins_of,
    l2_bytes_per_s,
    leaf,
    over_tables,
    pick,
    share_of_products,
)
from simcore.hardware.paths import LinkFigures, cluster_paths, places
from simcore.hardware.spec import GpuSpec, PeakName

#: Classes that run at sustained clocks; memory-bound work is far from the power cap.
_SUSTAINED = ("gemm_tensor16", "gemm_tensor8", "gemm_tensor4", "attention", "gemm_simt32",
              "bmm_simt32", "conv_simt32")  # fmt: skip
_CONVOLUTIONS = ("conv", "conv_winograd")
_PEAK_CLASS: dict[PeakName, str] = {
    "fp32": "simt32", "tf32": "tensor16", "fp16": "tensor16", "bf16": "tensor16",
    "fp8": "tensor8", "fp64": "simt32", "int8": "tensor8", "fp4": "tensor4",
}  # fmt: skip
#: Class that a profile may lack -> class whose figures price its kernels then.
STANDS_IN = {"bmm_simt32": "gemm_simt32"}
#: Kind of kernel -> kind as which ``simcore calibrate`` times it on a machine.
_MEASURED_AS = {"bmm": "gemm"} | dict.fromkeys(
    ("conv_winograd", "conv_pointwise", "conv_depthwise"), "conv"
)
#: Added uncertainty of TF32, which no table times. It has half the 16-bit rate at about twice the
#: energy per FLOP, so that the same share of its peak is assumed.
TF32_SD_LOG = 0.08
#: Added uncertainty of batch norms, whose thread blocks bind besides the stream: up to 15 % on A100
#: (EVT_AE) and H100 (KernelBench), more in fp32 on an H200.
NORM_SD_LOG = 0.15

#: Keys of :meth:`Profile.over_blind`: prefix of memory, ending of unaligned products, the start.
OF_MEMORY, OF_UNALIGNED, START = "memory.", "_unaligned", "start"
#: Architecture of records that describe a host's own cores; no shipped table covers these.
HOST_CPU = "CPU"
#: FLOP of flash attention's backward pass over its forward: five products instead of two.
ATTENTION_BACKWARD_FLOP = 2.5


def measured_class(kind: str, peak: PeakName) -> str:
    """Key of a kind of kernel in ``MeasuredDevice.compute_over_blind``."""
    return own_class(_MEASURED_AS.get(kind, kind), peak)


@dataclass(frozen=True, eq=False)
class Profile(LinkFigures, Spreads):
    """Efficiencies for any device. Compared and hashed by identity, so load it only once.

    ``in_bursts``: rates are those of short bursts, as benchmarks time them, whatever is asked for.
    ``residual_over_blind``: scatter of steps around predictions over that around blind ones, where
    ``residual`` does not state it.
    """

    name: str
    origin: str
    efficiency_file: Path
    runtime: Mapping[str, Any]
    knob_values: tuple[Knob, ...] = ()
    residual: Estimate | None = None
    measured: MeasuredDevice | None = None
    in_bursts: bool = False
    residual_over_blind: float = 1.0
    _seen: dict[Any, Any] = field(default_factory=dict, repr=False)

    def class_figures(self, cls: str, gpu: GpuSpec) -> ClassFigures:
        """Figures of a kernel class at burst clocks. Raises KeyError where the profile has none."""
        key = ("class", cls, gpu.name)
        if key not in self._seen:
            tables = self._tables(gpu)
            found = figures_of(tables, cls, gpu) or figures_of(tables, STANDS_IN.get(cls, cls), gpu)
            if found is None:
                raise KeyError(f"the profile {self.name} has no figures for {cls}")
            self._seen[key] = found
        return self._seen[key]

    def clock_ratio(self, cls: str, clock: Clock, gpu: GpuSpec) -> Estimate:
        """Time of a class at ``clock`` over its time in a burst (``class_figures``)."""
        return clock_ratio(self._tables(gpu), cls, clock, gpu, self.runtime)

    def over_blind(self, found: Estimate, keys: tuple[str, ...], gpu: GpuSpec) -> Estimate:
        """A blind figure of a device times the measured multipliers of its ``keys``.

        A key names a class of compute, or with the prefix ``memory.`` a kind of kernel. First come
        the multipliers of the project's own cards, then those of this profile's calibration.
        """
        found = over_tables(found, self._tables(gpu), keys, gpu)
        own = self.measured
        if own is None or own.gpu != gpu.name:
            return found
        for key in keys:
            of_memory, kind = key.startswith(OF_MEMORY), key.removeprefix(OF_MEMORY)
            moved = (own.memory_over_blind if of_memory else own.compute_over_blind).get(kind)
            if moved is not None:
                source = f"{found.source} x {moved.value:.3g} ({self.origin})"
                found = Estimate(found.value * moved.value, moved.sd_log, source)
        return found

    def compute_efficiency(
        self, kind: str, peak: PeakName, gpu: GpuSpec, *, sustained: bool = True,
        unaligned: bool = False,
    ) -> Estimate:  # fmt: skip
        """Share of the dense peak that large kernels of a kind reach.

        Above one for fp32 on CDNA, where ``peak`` is the vector units' and matrix units are faster.
        ``sustained``: at the clocks of long training; otherwise at those of a short burst.
        ``unaligned``: products whose rows are loaded a few elements at a time, but for that.
        """
        key = (kind, peak, gpu.name, sustained, unaligned)
        if key not in self._seen:
            own, as_gemm = self._class_of(kind, peak, gpu)
            figures = self.class_figures(own, gpu)
            found = figures.share
            if own in FP32_CLASSES and (matrix := gpu.peak("fp32_matrix")):
                more = matrix / (gpu.peak("fp32") or matrix)
                source = f"{found.source} x {more:.3g} for matrix units"
                found = Estimate(found.value * more, found.sd_log, source)
            if peak == "tf32" and not own.endswith("tf32"):
                found = replace(found, sd_log=hypot(found.sd_log, TF32_SD_LOG))
            if as_gemm:
                share = share_of_products(self.runtime, gpu)
                sd_log = hypot(found.sd_log, share.sd_log)
                source = f"{found.source} x {share.value:g} for convolutions ({share.source})"
                found = Estimate(found.value * share.value, sd_log, source)
            of_tables, known_as = found, measured_class(kind, peak)
            keys = (known_as, known_as + OF_UNALIGNED) if unaligned else (known_as,)
            found = self.over_blind(found, keys, gpu)
            # At half rate matrix units stay far below the power cap; vector units do not.
            below_cap = "half-rate" in families_of(gpu) and not own.endswith("simt32")
            sustained = sustained and not self.in_bursts
            if sustained and own in _SUSTAINED and not below_cap:
                clocks = self.clock_ratio(own, "sustained", gpu)
                # what benchmarks of a card found is of rates at these clocks
                sd_log = hypot(found.sd_log, clocks.sd_log * (found is of_tables))
                source = f"{found.source}, sustained clocks 1/{clocks.value:.3g}"
                found = Estimate(found.value / clocks.value, sd_log, source)
            self._seen[key] = self.scaled(found, "compute", gpu=gpu.name)
        return self._seen[key]

    def _class_of(self, kind: str, peak: PeakName, gpu: GpuSpec) -> tuple[str, bool]:
        """Class of a kind of kernel at a peak, and whether a convolution uses a GEMM class.

        ``bmm``: a product of activations alone, for which fp32 has separate figures.
        """
        unit, fast = _PEAK_CLASS[peak], kind == "conv_winograd"
        if (measured := self.own(gpu)) is not None:
            name = measured_class(kind, peak)
            if name in measured.compute_efficiency:
                return name, False
        elif kind == "bmm" and f"bmm_{unit}" in self._tables(gpu)["compute_efficiency"]:
            return f"bmm_{unit}", False
        if kind == "attention" and unit != "simt32":
            return "attention", False
        # The table times fp32 convolutions of 3x3 at stride 1, where Winograd kernels may run.
        known = "conv_simt32" in self._tables(gpu)["compute_efficiency"]
        if fast and unit == "simt32" and known and not gpu.peak("fp32_matrix"):
            return "conv_simt32", False
        as_gemm = kind in _CONVOLUTIONS and unit != "simt32"
        return f"gemm_{unit}", as_gemm

    def by_winograd(self, kind: str, peak: PeakName, gpu: GpuSpec) -> bool:
        """Whether the figures of a kind of kernel may include Winograd's algorithm."""
        return self._class_of(kind, peak, gpu)[0] == "conv_simt32"

    def product_figures(self, peak: PeakName, gpu: GpuSpec) -> ClassFigures:
        """Figures of matrix products; their ``level`` says which devices were timed."""
        return self.class_figures(self._class_of("gemm", peak, gpu)[0], gpu)

    def attention_backward_frac(self, gpu: GpuSpec) -> Estimate:
        """FLOP rate of flash attention's backward pass (2.5 times the FLOP) over its forward's."""
        measured = self.own(gpu)
        if measured is not None and measured.timed_attention:
            return Estimate(1.0, 0.0, f"both passes timed ({self.origin})")
        table = self._tables(gpu).get("backward_over_forward_time", {})
        if "attention" not in table:
            return Estimate(1.0, 0.0, "not measured")
        ratio = leaf(table["attention"])
        found = Estimate(ATTENTION_BACKWARD_FLOP / ratio.value, ratio.sd_log, ratio.source)
        return self.over_blind(found, (ATTENTION_BACKWARD,), gpu)

    def kernel_shape(self, kind: str, peak: PeakName, gpu: GpuSpec) -> tuple[float, float]:
        """(``wave_frac``, ``half_depth``) of a kind of kernel, as ``physics.fill`` uses them."""
        figures = self.class_figures(self._class_of(kind, peak, gpu)[0], gpu)
        return figures.wave_frac, figures.half_depth

    def memory_efficiency(self, kind: str, gpu: GpuSpec) -> Estimate:
        """Share of the datasheet's memory bandwidth that kernels of a kind reach.

        ``update`` is the optimizer's step.
        """
        key = ("memory", kind, gpu.name)
        if key not in self._seen:
            table = self._tables(gpu)["memory_efficiency"]
            # An optimizer step is a chain of elementwise kernels, unless it was timed as a whole.
            known = "elementwise" if kind == "update" and kind not in table else kind
            known = "conv" if kind.startswith("conv_") else known
            own = self.own(gpu)
            if kind.startswith("batch_norm"):  # a machine's benchmarks time it with other norms
                known = "norm" if own and "norm" in own.memory_efficiency else "elementwise"
            measured = own is not None and "softmax" in own.memory_efficiency
            if kind == "softmax_short" and (measured or kind not in table):
                known = "softmax"  # one figure for rows of all lengths
            _, share, level = pick(table[known], gpu)
            found = at_own_ecc(known, share, level, gpu)
            if kind.startswith("batch_norm"):
                found = replace(found, sd_log=hypot(found.sd_log, NORM_SD_LOG))
            own_kind = kind.partition("_")[0] if known == "conv" else kind
            kinds = dict.fromkeys((known, own_kind.removesuffix("_native")))
            found = self.over_blind(found, tuple(OF_MEMORY + k for k in kinds), gpu)
            self._seen[key] = self.scaled(found, "memory", gpu=gpu.name)
        return self._seen[key]

    @cached_property
    def sources(self) -> dict[str, str]:
        """Source key -> citation, of all the profile's files (for explanations)."""
        known = {**sources_of(text_of(self.efficiency_file)), **self.runtime["sources"]}
        return {str(key): str(citation) for key, citation in known.items()}

    def tells_of(self, gpu: GpuSpec) -> bool:
        """Whether this profile's calibration covers a device, or names no device at all."""
        named = {k.gpu for k in self.knob_values if k.gpu}
        named |= {self.measured.gpu} if self.measured else set()
        return not named or gpu.name in named

    def own(self, gpu: GpuSpec) -> MeasuredDevice | None:
        """Measured figures of this very device, where this profile has its kernels' times."""
        own = self.measured
        return own if own is not None and own.gpu == gpu.name and own.timed_kernels else None

    def kinds_timed(self, gpu: GpuSpec) -> bool:
        """Whether benchmarks of ``simcore calibrate`` timed kernels of every kind on this GPU."""
        cards = self._tables(gpu).get("cards", {}).get(OF_MEMORY + "elementwise") or {}
        return self.own(gpu) is not None or gpu.name in (cards.get("by_gpu") or {})

    def _tables(self, gpu: GpuSpec) -> Mapping[str, Any]:
        names = (gpu.name, *families_of(gpu), *kins_of(gpu))
        tables = efficiencies(text_of(self.efficiency_file), names, self.efficiency_file)
        if (own := self.own(gpu)) is not None:
            key = ("own", gpu.name)
            if key not in self._seen:
                self._seen[key] = own.overlay(tables, f"{self.name}, {self.origin}")
            return self._seen[key]
        if gpu.architecture == HOST_CPU:
            raise InvalidConfig(
                [f"{gpu.name} is a CPU, which has no figures without a calibration: give "
                 "--calibration with the profile that `simcore calibrate` wrote with its record"]
            )  # fmt: skip
        return tables

    def shared_rate(self, gpu: GpuSpec, ranks: int) -> tuple[float, float]:
        """(compute, memory) shares of its rates that a rank keeps while ``ranks`` share a node.

        One where it was not measured: accelerators share neither compute units nor memory.
        """
        own = self.own(gpu)
        return own.shared_rate(ranks) if own else (1.0, 1.0)

    def kernel_start_s(self, gpu: GpuSpec) -> Estimate:
        """Device time to start a kernel [s]."""
        tables = self._tables(gpu)
        found = over_tables(leaf(tables["host"]["kernel_start"], "seconds"), tables, (START,), gpu)
        own = self.measured
        if own is None or own.gpu != gpu.name or own.start_over_blind is None:
            return found
        moved = own.start_over_blind
        return Estimate(found.value * moved.value, moved.sd_log, f"{found.source}, {self.origin}")

    def eager_floor_s(self, gpu: GpuSpec) -> Estimate:
        """Time of one small eager operator between two CUDA events, host time included [s]."""
        return leaf(self._tables(gpu)["host"]["eager_event_floor"], "seconds")

    def host_issue_s(self, gpu: GpuSpec) -> Estimate:
        """Host time of one kernel issue (``hardware.class_figures.HostWork``) [s]."""
        return self._host_s("host_issue", gpu)

    def host_launch_s(self, gpu: GpuSpec) -> Estimate:
        """Host time that CUDA takes to launch one kernel [s]."""
        return self._host_s("host_launch", gpu)

    def _host_s(self, figure: str, gpu: GpuSpec) -> Estimate:
        base = leaf(self._tables(gpu)["host"][figure], "seconds")
        own = self.measured
        if own is not None and own.gpu == gpu.name and (f := getattr(own, figure)) is not None:
            base = Estimate(f.value, f.sd_log, self.origin)
        scaled = self.scaled(Estimate(1.0, base.sd_log, base.source), "host", gpu=gpu.name)
        return Estimate(base.value / scaled.value, scaled.sd_log, scaled.source)

    def loader(self, workload: str) -> Estimate:
        """Multiplier on the rate at which the host loads samples."""
        return self.scaled(Estimate(1.0, LOADER_SD_LOG, "assumption"), "loader", workload=workload)

    def cuda_context_bytes(self, gpu: GpuSpec, *, eager: bool = False) -> Estimate:
        """Device memory of a process's CUDA context before its first tensor [bytes].

        ``eager``: all kernels of its libraries are loaded at start (CUDA before 11.7).
        """
        own = self.measured
        if own is not None and own.gpu == gpu.name and own.context is not None:
            return Estimate(own.context.value, own.context.sd_log, self.origin)
        table = "cuda_context_eager" if eager else "cuda_context"
        key = (table, gpu.name)
        if key not in self._seen:
            self._seen[key] = pick(self.runtime[table], gpu, "bytes")[1]
        return self._seen[key]

    def attention_share(self, kind: str, gpu: GpuSpec) -> Estimate:
        """Rate of a kind of flash attention over that of the kernel that the op table timed.

        The table timed the family's fastest or FlashAttention-2; ``simcore calibrate`` torch's.
        """
        return attention_over_timed(self.runtime, kind, gpu, by_torch=self.own(gpu) is not None)

    @property
    def overlap_slowdown(self) -> Estimate:
        """Relative slowdown of kernels while a collective runs at the same time."""
        if self.measured is not None and self.measured.overlap is not None:
            found = self.measured.overlap.compute_slowdown
            return Estimate(found.value, found.sd_log, self.origin)
        return leaf(self.runtime["overlap_slowdown"])

    @property
    def comm_slowdown(self) -> Estimate:
        """Relative slowdown of a collective while kernels run; 0 where it was not measured."""
        if self.measured is not None and self.measured.overlap is not None:
            found = self.measured.overlap.comm_slowdown
            return Estimate(found.value, found.sd_log, self.origin)
        return Estimate(0.0, 0.0, "not modelled blind: the link's efficiency includes it")

    def knob_spread(
        self,
        cluster: ClusterSpec,
        peaks: tuple[tuple[PeakName, PeakName], ...],
        workload: str,
        conv_frac: float,
    ) -> dict[CalibratedKnob, float]:
        """Standard deviation of the logarithm of each knob for this cluster.

        A step waits for its slowest ranks, so a knob has the spread of the GPU type that is slowest
        in it, as those of links are of the slowest path. ``peaks``: of each group, that of matrix
        products and that of convolutions; ``conv_frac``: share of convolutions in the workload's
        FLOP.
        """
        key = ("spread", cluster, peaks, workload, conv_frac)
        if key not in self._seen:
            if len(self._seen) >= _MOST_SEEN:  # a server meets ever new clusters
                self._seen.pop(next(iter(self._seen)), None)
            figures = [
                self._device_spreads(group.gpu, *own, conv_frac)
                for group, own in zip(cluster.groups, peaks, strict=True)
            ]
            intra, inter = cluster_paths(cluster)
            node, link = places(cluster)
            self._seen[key] = {
                **{knob: max(of[knob] for of in figures)[1] for knob in figures[0]},
                "intra": self.route_efficiency(intra.route, node=node).sd_log,
                "inter": self.route_efficiency(inter.route, link=link).sd_log,
                "loader": self.loader(workload).sd_log,
                "overlap": self.overlap_slowdown.sd_log,
            }
        return self._seen[key]

    def _device_spreads(
        self, gpu: GpuSpec, peak: PeakName, conv_peak: PeakName, conv_frac: float
    ) -> dict[CalibratedKnob, tuple[float, float]]:
        """(Seconds of a FLOP, a byte and a kernel's issue; standard deviation of their ln)."""
        product = self.compute_efficiency("gemm", peak, gpu)
        convs = (self.compute_efficiency(k, conv_peak, gpu) for k in _CONVOLUTIONS)
        conv = max(convs, key=lambda found: found.sd_log)
        memory, issue = self.memory_efficiency("elementwise", gpu), self.host_issue_s(gpu)
        traffic = self.scaled(leaf(self.runtime["traffic"]), "memory", gpu=gpu.name).sd_log
        flop_s = (1.0 - conv_frac) / ((gpu.peak(peak) or inf) * product.value)
        flop_s += conv_frac / ((gpu.peak(conv_peak) or inf) * conv.value)
        flop_sd = hypot((1.0 - conv_frac) * product.sd_log, conv_frac * conv.sd_log)
        known = self.own(gpu) is not None or l2_bytes_per_s(self.runtime, gpu) > 0.0
        byte_sd = hypot(memory.sd_log, 0.0 if known else traffic)
        return {
            "compute": (flop_s, flop_sd),
            "memory": (1.0 / (gpu.memory_bw.value * memory.value), byte_sd),
            "host": (issue.value, issue.sd_log),
        }

    def with_knobs(
        self,
        knobs: tuple[Knob, ...],
        name: str,
        origin: str,
        residual: float | None,
        measured: MeasuredDevice | None = None,
    ) -> Profile:
        """This profile with fitted multipliers and a device's measured figures added.

        ``residual``: scatter of steps around the fit; None: that of blind predictions applies.
        """
        return Profile(
            name=name,
            origin=origin,
            efficiency_file=self.efficiency_file,
            runtime=self.runtime,
            knob_values=knobs,
            residual=None if residual is None else Estimate(residual, 0.0, name),
            measured=measured or self.measured,
        )


#: Largest number of cached answers of a profile.
_MOST_SEEN = 10_000
#: Assumed uncertainty of the loading rate, which nobody publishes: a factor of 1.6 either way.
LOADER_SD_LOG = 0.5


BLIND_ORIGIN = "datasheet x op benchmarks of other jobs; not calibrated"


def load_profile(calibration: str | Path | None = None) -> Profile:
    """The shipped blind profile, with a calibration (name or file) applied where one is given.

    The same object is returned until the calibration's file changes.
    """
    if calibration is None or calibration == "blind":
        return _blind()
    file = calibration_file(str(calibration))
    if file is None:  # raises UnknownName or DataError
        return profile_of(calibration_named(str(calibration)))
    stat = file.stat()
    return _calibrated(str(calibration), file.resolve(), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _blind() -> Profile:
    folder = shipped_root() / "hardware_db" / "calibrations"
    return Profile(
        name="blind",
        origin=BLIND_ORIGIN,
        efficiency_file=folder / "blind.yaml",
        runtime=read_yaml(folder / "runtime.yaml"),
    )


@lru_cache(maxsize=32)
def _calibrated(name: str, _file: Path, _mtime_ns: int, _size: int) -> Profile:
    return profile_of(calibration_named(name))


def profile_of(record: Calibration) -> Profile:
    """The blind profile with a calibration; raises InvalidConfig for unknown GPU, node or link."""
    profile = load_profile().with_knobs(
        placed_knobs(record), record.name, record.origin, record.residual_sd_log, record.measured
    )
    return replace(profile, residual_over_blind=record.residual_over_blind, _seen={})
