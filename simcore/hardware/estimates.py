"""A figure with its uncertainty and source, a device's entry in a table of them, and scatter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal

from simcore.base.record import dataclass, replace
from simcore.base.units import Dimension, parse_quantity
from simcore.hardware.spec import GpuSpec

#: Which devices a figure was measured on: this very one, its family, or all devices pooled.
Level = Literal["own", "family", "pooled"]
#: Foundry node of GA100 (TSMC N7) [nm]; other Ampere chips are made in Samsung 8N.
GA100_PROCESS_NM = 7


@dataclass(frozen=True)
class Estimate:
    """A figure, the standard deviation of its logarithm, and its source in words."""

    value: float
    sd_log: float
    source: str


@dataclass(frozen=True)
class ClassFigures:
    """Efficiency of a class of kernels on a device, and how it depends on their shapes.

    ``share``: share of the peak (or of the bandwidth, for memory-bound classes) that large kernels
    reach. ``level``: which devices the figures were measured on. ``memory``: share of the memory
    bandwidth. ``start_s``: fixed time of a call. ``floor_s``: least time of a call in eager loops.
    ``wave_frac``, ``half_depth``: as in :func:`simcore.physics.fill.matmul_fill`. ``row_clocks``:
    least SM clocks per row (``physics.kernel``). ``by_shape``: whether an op table times the class
    shape by shape; otherwise only a rate over many shapes is known.
    """

    share: Estimate
    level: Level
    memory: float
    start_s: float
    wave_frac: float
    half_depth: float
    floor_s: float = 0.0
    row_clocks: float = 0.0
    by_shape: bool = True


#: FLOP per key of one attention tile: 128 query rows, head dimension 128, two products.
_TILE_FLOP_PER_KEY = 4.0 * 128.0 * 128.0


def ramp_depth(ramp_s: float, gpu: GpuSpec) -> float:
    """Number of keys whose products take one SM ``ramp_s``, the fixed time of an attention tile."""
    peak = gpu.peak("bf16") or gpu.peak("fp16") or 0.0
    return ramp_s * peak / (gpu.sm_count.value * _TILE_FLOP_PER_KEY) if gpu.sm_count else 0.0


def ramp_s(depth: float, gpu: GpuSpec) -> float:
    """Fixed time of an attention tile [s], the inverse of :func:`ramp_depth`; 0 if unknown."""
    one = ramp_depth(1.0, gpu)
    return depth / one if one else 0.0


#: How matrix instructions get their operands, which decides how their kernels are built: from
#: registers, warp by warp (mma.sync), or asynchronously from shared memory (wgmma, tcgen05).
_REGISTERS = ("Volta", "Turing", "Ampere", "Ampere-GA100", "Ada", "Blackwell-GB202")
_ASYNC = ("Hopper", "Blackwell")


def matrix_style(gpu: GpuSpec) -> str:
    """How matrix instructions get operands: ``registers``, ``async``, or "" where neither is known.

    Empty for vendors other than NVIDIA and for devices without matrix units.
    """
    arch = families_of(gpu)[-1]
    return "registers" if arch in _REGISTERS else "async" if arch in _ASYNC else ""


def copies_into_shared(gpu: GpuSpec) -> bool:
    """Whether loads reach shared memory without passing registers (cp.async, since Ampere)."""
    return bool(matrix_style(gpu)) and families_of(gpu)[-1] not in ("Volta", "Turing")


def takes_either_layout(gpu: GpuSpec) -> bool:
    """Whether 8-bit matrix products can read transposed operands; of NVIDIA's only tcgen05 can.

    mma.sync and wgmma read 8-bit operands along the depth only (PTX ISA, wgmma: transposing is for
    16-bit types).
    """
    return families_of(gpu)[-1] == "Blackwell"


def kins_of(gpu: GpuSpec) -> tuple[str, ...]:
    """Groups of several families that a device belongs to, by the style of its matrix units."""
    style = matrix_style(gpu)
    return (style,) if style else ()


@lru_cache(maxsize=1000)
def families_of(gpu: GpuSpec) -> tuple[str, ...]:
    """Families that a device belongs to, the most specific first (``calibrate.ops.fit`` fits them).

    ``half-rate``: devices whose matrix units run at half rate when they accumulate in fp32.
    """
    families = []
    full, half = gpu.peak("fp16_acc16"), gpu.peak("fp16")
    if full and half and full > half:
        families.append("half-rate")
    arch = gpu.architecture
    if arch == "Ampere" and gpu.process_nm == GA100_PROCESS_NM:
        arch = "Ampere-GA100"
    elif arch.startswith("Blackwell"):
        arch = "Blackwell-GB202" if gpu.form_factor == "pcie" else "Blackwell"
    elif arch == "Rubin":  # not timed: figures of its predecessor
        families.append(arch)
        arch = "Blackwell"
    elif arch.startswith("CDNA"):
        arch = "CDNA"
    families.append(arch)
    return tuple(families)


def leaf(entry: Mapping[str, Any], dimension: Dimension | None = None) -> Estimate:
    """The figure of a table's entry; a text with a unit is parsed as ``dimension``."""
    value = entry["value"]
    text = dimension is not None and isinstance(value, str)
    number = parse_quantity(value, dimension) if dimension and text else float(value)
    return Estimate(number, float(entry.get("sd_log", 0.0)), str(entry.get("source", "")))


def pick(
    table: Mapping[str, Any], gpu: GpuSpec, dimension: Dimension | None = None
) -> tuple[Mapping[str, Any], Estimate, Level]:
    """The most specific entry for a device, its figure, and which devices it was measured on.

    The order is the device itself, its families, devices with equal matrix units, all devices.
    """

    def estimate(entry: Mapping[str, Any], devices: str) -> Estimate:
        figure = leaf(entry, dimension)
        return replace(figure, source=f"{devices} ({figure.source})")

    places: list[tuple[str, str, str, Level]] = [("by_gpu", gpu.name, gpu.name, "own")]
    places += [("by_family", f, f"family {f}", "family") for f in families_of(gpu)]
    places += [("by_kin", k, f"all with {k}", "pooled") for k in kins_of(gpu)]
    for section, key, devices, level in places:
        if (entry := (table.get(section) or {}).get(key)) is not None:
            return entry, estimate(entry, devices), level
    return table["pooled"], estimate(table["pooled"], "all GPUs"), "pooled"


def over_tables(
    found: Estimate, tables: Mapping[str, Any], keys: tuple[str, ...], gpu: GpuSpec
) -> Estimate:
    """A figure of the op tables times what benchmarks of the project's own cards found over it.

    ``keys``: the classes by which the figure may be known (``calibrate.ops.card_figures``).
    """
    cards = tables.get("cards", {})
    for key in keys:
        entry = ((cards.get(key) or {}).get("by_gpu") or {}).get(gpu.name)
        if entry is not None:
            moved = leaf(entry)
            source = f"{found.source} x {moved.value:.3g} ({moved.source})"
            found = Estimate(found.value * moved.value, moved.sd_log, source)
    return found


class Spreads:
    """Scatter of measured steps and memory around predictions; a part of every profile.

    ``runtime``: the figures of ``runtime.yaml``.
    """

    runtime: Mapping[str, Any]
    residual_over_blind: float

    @cached_property
    def device_spread(self) -> Estimate:
        """Standard deviation of the compute times of identical devices, over their mean."""
        return leaf(self.runtime["device_spread"])

    @cached_property
    def step_residual(self) -> dict[str, Estimate]:
        """Scatter of measured steps around predictions, by cause (``answer.residual``)."""
        widths = {name: leaf(entry) for name, entry in self.runtime["step_residual"].items()}
        factor = self.residual_over_blind
        return {name: replace(w, value=w.value * factor) for name, w in widths.items()}

    @cached_property
    def allocator_holes_frac(self) -> Estimate:
        """Free holes between the caching allocator's blocks, over the bytes a step allocates."""
        return leaf(self.runtime["allocator_holes"])

    def allocator_stuck_frac(self, kind: str = "any") -> Estimate:
        """Holes that the allocator cannot release when memory runs short, over the same bytes.

        ``kind``: "layers" for identical repeated layers in one stage, "recompute" for the same with
        full recompute (only layer inputs are stored), "unlike" for other models in one stage,
        otherwise "any".
        """
        return leaf(self.runtime["allocator_stuck"][kind])

    def memory_sd_log(self, part: str = "", *, eager: bool = False) -> Estimate:
        """Scatter of measured memory around the model, over the bytes that a step allocates.

        ``eager``: with libraries older than CUDA 11.7, whose kernels and workspaces vary more.
        ``part``: "segments_residual" for what the allocator reserves beyond live tensors, over the
        same bytes, "segments_replayed" where a replay gives it, over all allocated ones;
        "memory_foreign" for programs without measurements and "memory_assumed" for an
        assumed program, both over all memory of the framework.
        """
        return leaf(self.runtime[part or ("memory_residual_eager" if eager else "memory_residual")])

    @cached_property
    def nccl_sd_log(self) -> Estimate:
        """Scatter of the buffer sizes of NCCL communicators around their formula."""
        return leaf(self.runtime["nccl_spread"])
