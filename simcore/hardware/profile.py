"""Efficiency profiles: how well hardware keeps its datasheet's promises, with spread and source.

A profile answers for any device: with its own figure, else its family's, else the pooled one;
the answer says which, and how uncertain it is. Calibrated multipliers come on top.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import hypot
from pathlib import Path
from typing import Any, Literal

from simcore.base.database import (
    Database,
    Record,
    fold_name,
    parse_shipped,
    read_yaml,
    shipped_root,
)
from simcore.base.errors import DataError, UnknownName
from simcore.base.figures import Part
from simcore.base.units import Dimension, parse_quantity
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.paths import Route, cluster_paths
from simcore.hardware.spec import GpuSpec, PeakName

CalibratedKnob = Literal["compute", "memory", "host", "intra", "inter", "loader", "overlap"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, the standard deviation of its logarithm, and where it is from."""

    value: float
    sd_log: float
    source: str


class Knob(Part):
    """A fitted multiplier on what the blind profile says, for what it names.

    Empty ``gpu``, ``node`` and ``link`` mean everywhere.
    """

    knob: CalibratedKnob
    value: float
    sd_log: float
    gpu: str = ""
    node: str = ""
    link: str = ""
    workload: str = ""
    prior_sd_log: float | None = None


class Calibration(Record):
    """Fitted multipliers with their provenance (``hardware_db/calibrations``)."""

    origin: str
    rows: int
    residual_sd_log: float
    leave_one_out_mape_frac: float | None = None
    knobs: tuple[Knob, ...]


CALIBRATIONS: Database[Calibration] = Database(
    "calibration", "hardware_db/calibrations", Calibration
)

#: Files of the same folder that every profile is made of.
NOT_CALIBRATIONS = ("blind", "runtime")

#: Tensor-core work runs at sustained clocks; vector and memory work is far from the power cap.
_SUSTAINED = ("gemm_tensor16", "gemm_tensor8", "gemm_tf32", "attention")
_PEAK_CLASS: dict[PeakName, str] = {
    "fp32": "simt32", "tf32": "tf32", "fp16": "tensor16", "bf16": "tensor16",
    "fp8": "tensor8", "fp64": "simt32", "int8": "tensor8", "fp4": "tensor8",
}  # fmt: skip


def families_of(gpu: GpuSpec) -> tuple[str, ...]:
    """Families that a device belongs to, most telling first (as ``calibrate.op_fit`` has them)."""
    found = []
    full, half = gpu.peak("fp16_acc16"), gpu.peak("fp16")
    if full and half and full > half:
        found.append("half-rate")
    arch = gpu.architecture
    if arch == "Ampere" and gpu.process_nm == GA100_PROCESS_NM:
        arch = "Ampere-GA100"
    elif arch.startswith("Blackwell"):
        arch = "Blackwell-GB202" if gpu.form_factor == "pcie" else "Blackwell"
    elif arch.startswith("CDNA"):
        arch = "CDNA"
    found.append(arch)
    return tuple(found)


#: GA100 is made in TSMC N7, the graphics chips of its generation in Samsung 8N.
GA100_PROCESS_NM = 7


@dataclass(frozen=True, eq=False)
class Profile:
    """Efficiencies for any device. Hashed by identity; load it once."""

    name: str
    origin: str
    efficiency_file: Path
    runtime: Mapping[str, Any]
    knob_values: tuple[Knob, ...] = ()
    residual: Estimate | None = None
    _seen: dict[Any, Any] = field(default_factory=dict, repr=False)

    def _leaf(self, entry: Mapping[str, Any], dimension: Dimension | None = None) -> Estimate:
        value = entry["value"]
        number = parse_quantity(value, dimension) if dimension else float(value)
        return Estimate(number, float(entry.get("sd_log", 0.0)), str(entry.get("source", "")))

    def _for(
        self, table: Mapping[str, Any], gpu: GpuSpec, dimension: Dimension | None = None
    ) -> Estimate:
        own = (table.get("by_gpu") or {}).get(gpu.name)
        if own is not None:
            found = self._leaf(own, dimension)
            return Estimate(found.value, found.sd_log, f"{gpu.name} ({found.source})")
        for family in families_of(gpu):
            entry = (table.get("by_family") or {}).get(family)
            if entry is not None:
                found = self._leaf(entry, dimension)
                return Estimate(found.value, found.sd_log, f"family {family} ({found.source})")
        found = self._leaf(table["pooled"], dimension)
        return Estimate(found.value, found.sd_log, f"all GPUs ({found.source})")

    def _scaled(self, base: Estimate, knob: CalibratedKnob, **where: str) -> Estimate:
        value, sd, source = base.value, base.sd_log, base.source
        for k in self.knob_values:
            if k.knob == knob and all(not getattr(k, key) or getattr(k, key) == at
                                      for key, at in where.items()):  # fmt: skip
                value, sd = value * k.value, k.sd_log
                source = f"{source} x {k.value:.3g} ({self.name})"
        return Estimate(value, sd, source)

    def compute_efficiency(
        self, kind: str, peak: PeakName, gpu: GpuSpec, *, sustained: bool = True
    ) -> Estimate:
        """Share of the dense peak that large kernels of a kind reach.

        Above one for fp32 on CDNA: ``peak`` is the vector unit's, the matrix unit has twice that.
        ``sustained``: at the clocks that training holds; else those of a short burst.
        """
        key = (kind, peak, gpu.name, sustained)
        if key not in self._seen:
            tables = self._tables(gpu)["compute_efficiency"]
            unit = _PEAK_CLASS[peak]
            name = "attention" if kind == "attention" and unit != "simt32" else f"{kind}_{unit}"
            as_gemm = kind == "conv" and unit != "simt32"
            own = f"gemm_{unit}" if as_gemm or name not in tables else name
            found = self._for(tables[own], gpu)
            if own == "gemm_simt32" and "CDNA" in families_of(gpu):
                # fp32 products run on the matrix units there, at twice the vector peak.
                found = self._for(tables["gemm_matrix32"], gpu)
                found = Estimate(2.0 * found.value, found.sd_log, f"2 x {found.source}")
            if as_gemm:
                share = self._leaf(self.runtime["conv_share_of_gemm"])
                found = Estimate(
                    found.value * share.value,
                    hypot(found.sd_log, share.sd_log),
                    f"{found.source} x {share.value:g} for convolutions ({share.source})",
                )
            if sustained and own in _SUSTAINED and "half-rate" not in families_of(gpu):
                clocks = self._for(self._tables(gpu)["clocks"]["sustained_over_burst"], gpu)
                found = Estimate(
                    found.value / clocks.value,
                    hypot(found.sd_log, clocks.sd_log),
                    f"{found.source}, sustained clocks 1/{clocks.value:.3g}",
                )
            self._seen[key] = self._scaled(found, "compute", gpu=gpu.name)
        result: Estimate = self._seen[key]
        return result

    def memory_efficiency(self, kind: str, gpu: GpuSpec) -> Estimate:
        """Share of the datasheet's memory bandwidth that kernels of a kind reach."""
        key = ("memory", kind, gpu.name)
        if key not in self._seen:
            table = self._tables(gpu)["memory_efficiency"]
            found = self._for(table[kind], gpu)
            self._seen[key] = self._scaled(found, "memory", gpu=gpu.name)
        result: Estimate = self._seen[key]
        return result

    @property
    def sources(self) -> dict[str, str]:
        """Source keys of the profile's files, spelt out (for explanations; parses a file once)."""
        if "sources" not in self._seen:
            known = {**_sources(_text(self.efficiency_file)), **self.runtime["sources"]}
            self._seen["sources"] = {str(k): str(v) for k, v in known.items()}
        found: dict[str, str] = self._seen["sources"]
        return found

    def _tables(self, gpu: GpuSpec) -> Mapping[str, Any]:
        names = (gpu.name, *families_of(gpu))
        return _efficiencies(_text(self.efficiency_file), names, self.efficiency_file)

    def kernel_start_s(self, gpu: GpuSpec) -> Estimate:
        """What the device spends to start a kernel."""
        return self._leaf(self._tables(gpu)["host"]["kernel_start"], "seconds")

    def eager_floor_s(self, gpu: GpuSpec) -> Estimate:
        """One small eager operator between two events, host included."""
        return self._leaf(self._tables(gpu)["host"]["eager_event_floor"], "seconds")

    def host_issue_s(self, gpu: GpuSpec) -> Estimate:
        """What the host spends to issue one eager operator's kernel."""
        base = self._leaf(self._tables(gpu)["host"]["host_issue"], "seconds")
        scaled = self._scaled(Estimate(1.0, base.sd_log, base.source), "host", gpu=gpu.name)
        return Estimate(base.value / scaled.value, scaled.sd_log, scaled.source)

    def route_efficiency(self, route: Route, *, node: str = "", link: str = "") -> Estimate:
        """Share of the slowest link's payload rate that collectives reach as bus bandwidth."""
        if route == "none":
            return Estimate(1.0, 0.0, "no link")
        found = self._leaf(self.runtime["route_efficiency"][route])
        if route.startswith("network"):
            return self._scaled(found, "inter", link=link)
        return self._scaled(found, "intra", node=node)

    def loader(self, workload: str) -> Estimate:
        """Multiplier on the rate at which samples load."""
        return self._scaled(Estimate(1.0, LOADER_SD_LOG, "assumption"), "loader", workload=workload)

    def cuda_context_bytes(self, gpu: GpuSpec) -> Estimate:
        """Device memory of a process before its first tensor."""
        return self._for(self.runtime["cuda_context"], gpu, "bytes")

    def attention_share(self, kind: str) -> Estimate:
        """Rate of an earlier flash kernel over FlashAttention-2's."""
        return self._leaf(self.runtime["attention_share"][kind])

    @property
    def device_spread(self) -> Estimate:
        """Standard deviation of equal devices' compute times over their mean."""
        return self._leaf(self.runtime["device_spread"])

    @property
    def overlap_slowdown(self) -> Estimate:
        """By how much kernels slow while a collective runs beside them."""
        return self._leaf(self.runtime["overlap_slowdown"])

    @property
    def residual_sd_log(self) -> Estimate:
        """Scatter of whole steps around the model once its parameters are known."""
        return self.residual or self._leaf(self.runtime["step_residual"])

    @property
    def memory_sd_log(self) -> Estimate:
        """Scatter of measured memory around the model."""
        return self._leaf(self.runtime["memory_residual"])

    def knob_spread(
        self, cluster: ClusterSpec, peak: PeakName, workload: str, conv_frac: float
    ) -> dict[CalibratedKnob, float]:
        """Standard deviation of the logarithm of each knob for this cluster.

        ``conv_frac`` is the share of convolutions in the workload's FLOP.
        """
        key = ("spread", cluster, peak, workload, conv_frac)
        if key not in self._seen:
            gpu = cluster.groups[0].gpu
            intra, inter = cluster_paths(cluster)
            node, link = places(cluster)
            self._seen[key] = {
                "compute": hypot(
                    (1.0 - conv_frac) * self.compute_efficiency("gemm", peak, gpu).sd_log,
                    conv_frac * self.compute_efficiency("conv", peak, gpu).sd_log,
                ),
                "memory": hypot(
                    self.memory_efficiency("elementwise", gpu).sd_log,
                    self._scaled(
                        self._leaf(self.runtime["traffic"]), "memory", gpu=gpu.name
                    ).sd_log,
                ),
                "host": self.host_issue_s(gpu).sd_log,
                "intra": self.route_efficiency(intra.route, node=node).sd_log,
                "inter": self.route_efficiency(inter.route, link=link).sd_log,
                "loader": self.loader(workload).sd_log,
                "overlap": self.overlap_slowdown.sd_log,
            }
        result: dict[CalibratedKnob, float] = self._seen[key]
        return result

    def with_knobs(
        self, knobs: tuple[Knob, ...], name: str, origin: str, residual: float
    ) -> Profile:
        """This profile with fitted multipliers on top."""
        return Profile(
            name=name,
            origin=origin,
            efficiency_file=self.efficiency_file,
            runtime=self.runtime,
            knob_values=knobs,
            residual=Estimate(residual, 0.0, name),
        )


#: Nobody publishes how fast a host decodes samples: a factor of 1.6 either way.
LOADER_SD_LOG = 0.5


def places(cluster: ClusterSpec) -> tuple[str, str]:
    """(node preset, network link) names that calibrated link multipliers refer to."""
    group = cluster.groups[0]
    return group.node.name, group.node.nics[0].link if group.node.nics else ""


BLIND_ORIGIN = "datasheet x op benchmarks of other jobs; not calibrated"


@lru_cache(maxsize=32)
def load_profile(calibration: str | None = None) -> Profile:
    """The shipped blind profile, with a calibration (name or file) on top where one is given."""
    folder = shipped_root() / "hardware_db" / "calibrations"
    blind = Profile(
        name="blind",
        origin=BLIND_ORIGIN,
        efficiency_file=folder / "blind.yaml",
        runtime=read_yaml(folder / "runtime.yaml"),
    )
    if calibration is None or calibration == "blind":
        return blind
    record = _calibration(calibration)
    return blind.with_knobs(record.knobs, record.name, record.origin, record.residual_sd_log)


def _calibration(name: str) -> Calibration:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DataError("no such calibration file", file=path)
        from simcore.base.database import load_record

        return load_record(path, Calibration)
    known = [n for n in CALIBRATIONS.names() if n not in NOT_CALIBRATIONS]
    if fold_name(name) not in map(fold_name, known):
        raise UnknownName("calibration", name, known, "(or a .yaml file)")
    return CALIBRATIONS[name]


#: What predictions read of the efficiency file; the engine has its own collective formulas.
_SECTION = re.compile(
    r"^(?:compute_efficiency|memory_efficiency|clocks|host):\n(?:[ #].*\n|\n)*", re.MULTILINE
)
_SOURCES = re.compile(r"^sources:\n(?:[ #].*\n|\n)*", re.MULTILINE)
#: One device's or family's line in a by_gpu or by_family table.
_ENTRY = re.compile(r"^      (\S+): \{.*\n", re.MULTILINE)


def _sources(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = parse_shipped(_SOURCES.findall(text)[0])["sources"]
    return found


@lru_cache(maxsize=8)
def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None


@lru_cache(maxsize=256)
def _efficiencies(text: str, names: tuple[str, ...], path: Path) -> Mapping[str, Any]:
    """The efficiency tables with the lines of ``names`` only: a tenth of the file to parse."""
    wanted = "".join(_SECTION.findall(text))
    wanted = _ENTRY.sub(lambda m: m[0] if m[1].strip("'\"") in names else "", wanted)
    try:
        data = parse_shipped(wanted)
    except Exception as err:
        problem = (str(err).splitlines() or [""])[0]
        raise DataError(f"not valid YAML: {problem}", file=path) from None
    if not isinstance(data, dict):
        raise DataError("must be a mapping", file=path)
    return data


__all__ = [
    "CALIBRATIONS", "Calibration", "Estimate", "Knob", "Profile",
    "families_of", "load_profile",
]  # fmt: skip
