"""Figures of a device: from tables, with uncertainty and source, and kernels' limits by its record.

Limits are those of rows, tiles, integers, casts and convolutions. Their figures are in
``runtime.yaml``; docs/model.md, *Convolutions*, explains the mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from math import hypot
from typing import Any, Final, Literal

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass, replace
from simcore.base.units import Dimension, parse_quantity
from simcore.hardware.spec import GpuSpec, PeakName

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


def tf32_along_depth(gpu: GpuSpec) -> bool:
    """Whether asynchronous matrix units read TF32 operands along the depth alone, as wgmma does."""
    return matrix_style(gpu) == "async" and not takes_either_layout(gpu)


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
        arch = "Blackwell-GB202" if gpu.form_factor in ("pcie", "soc") else "Blackwell"
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


#: Vendor whose GPUs run convolutions by cuDNN.
CUDNN_VENDOR: Final = "NVIDIA"
#: Most resident warps per SM (CUDA C++ Programming Guide, technical specifications per compute
#: capability), or waves per compute unit (ROCm, accelerator specifications).
_WARPS: Final = {
    "Kepler": 64, "Maxwell": 64, "Pascal": 64, "Volta": 64, "Turing": 32, "Ampere-GA100": 64,
    "Ampere": 48, "Ada": 48, "Hopper": 64, "Blackwell": 64, "Blackwell-GB202": 48,
    "GCN5": 40, "CDNA1": 40, "CDNA2": 32, "CDNA3": 32, "CDNA4": 32,
}  # fmt: skip
#: Warps in the block of a row (ATen thread_constants.h, ``num_threads``: four warps of 32 threads,
#: or of 64 on ROCm).
_BLOCK: Final = 4


def rows_in_flight(gpu: GpuSpec) -> float:
    """Rows that a whole device works on at once; 0 if unknown."""
    warps = _WARPS.get(families_of(gpu)[-1]) or _WARPS.get(gpu.architecture)
    if warps is None or gpu.sm_count is None:
        return 0.0
    return gpu.sm_count.value * (warps // _BLOCK)


def rows_per_l2_byte(gpu: GpuSpec) -> float:
    """Rows in flight, over the bytes of L2; 0 if one of them is unknown."""
    return rows_in_flight(gpu) / gpu.l2_size.value if gpu.l2_size else 0.0


def l2_bytes_per_s(runtime: Mapping[str, Any], gpu: GpuSpec) -> float:
    """Bytes per second that all SMs together read from L2; 0 where no device of its kind was timed.

    bytes per clock of an SM · SMs · clock
    """
    table: Mapping[str, Any] = runtime["l2_bytes_per_clock"]
    entry = next((table[f] for f in families_of(gpu) if f in table), None)
    if entry is None or gpu.sm_count is None or gpu.boost_clock is None or gpu.l2_size is None:
        return 0.0
    return leaf(entry).value * gpu.sm_count.value * gpu.boost_clock.value


def row_s(gpu: GpuSpec, row_clocks: float) -> float:
    """Least seconds per row of a device, at ``row_clocks`` SM clocks per row; 0 if unknown.

    The clocks pay for the launch of the row's block, dependent reductions and barriers, however
    short the row is.
    """
    if not rows_in_flight(gpu) or gpu.sm_count is None or gpu.boost_clock is None:
        return 0.0
    return row_clocks / (gpu.sm_count.value * gpu.boost_clock.value)


#: Warps per block of a batch norm's kernels. Resident blocks per SM of cuDNN's (``1C11``):
#: TensorFlow's profiler records blocks of 512 threads with 40 registers each, and a full occupancy
#: of 48 warps.
_NORM_WARPS: Final = 16
_CUDNN_NORM_BLOCKS: Final = 3


def norm_slots(gpu: GpuSpec, *, native: bool) -> float:
    """Thread blocks of a batch norm in flight on a whole device; 0 for other libraries.

    ``native``: of PyTorch's own kernels, otherwise of cuDNN's.
    """
    warps = _WARPS.get(families_of(gpu)[-1]) or _WARPS.get(gpu.architecture)
    if gpu.vendor != CUDNN_VENDOR or warps is None or gpu.sm_count is None:
        return 0.0
    blocks = warps // _NORM_WARPS
    return gpu.sm_count.value * (blocks if native else min(_CUDNN_NORM_BLOCKS, blocks))


#: Rows and columns of the (row-major) output that a block of cuBLAS 12.1's batched fp32 product
#: computes, on families for which it has a single kernel: maxwell_sgemm_128x64 (whose first side
#: runs along memory) and ampere_sgemm_128x128. NeuSight's times of P100, A100 and L4 name these
#: kernels at every shape. On Volta, Turing and Hopper cuBLAS chooses among several (64x64, 128x32,
#: 128x64 and more).
_ONLY_BATCHED_FP32: Final[Mapping[str, tuple[float, float]]] = {
    "Pascal": (64.0, 128.0),
    "Ampere": (128.0, 128.0),
    "Ampere-GA100": (128.0, 128.0),
    "Ada": (128.0, 128.0),
}


def only_batched_fp32_tile(gpu: GpuSpec) -> tuple[float, float] | None:
    """(rows, columns) of the only tile for batched fp32 products; None where cuBLAS has several."""
    return _ONLY_BATCHED_FP32.get(families_of(gpu)[-1])


#: 32-bit integer lanes of an SM since Volta, which has 64 or 128 fp32 lanes too (CUDA C++
#: Programming Guide, throughput of native arithmetic instructions). Before Volta every lane does
#: both. An AMD compute unit has as many (CDNA white papers: 64 stream processors); from CDNA3 on
#: its fp32 peak counts pairs.
INTEGER_LANES: Final = 64
_VENDORS: Final = ("NVIDIA", "AMD")
_BEFORE_VOLTA: Final = ("Kepler", "Maxwell", "Pascal")


#: Queries whose scores a block of fused attention computes with each tile of keys.
_QUERIES: Final = 128.0


def edge_keys(gpu: GpuSpec | None, edges: Array, backward: NDArray[np.bool_]) -> Array:
    """Keys that attention computes for a query beyond those in a window of so many ``edges`` [K].

        edges · queries of a block / 2

    Scores are computed in whole tiles. At an edge the last query of a block reaches as many keys
    further than the first one as the block has queries, half of them on average. A causal diagonal
    is such an edge too, which ``half_depth`` of ``physics.fill.attention_fill`` contains. Forward
    kernels of tcgen05 compute two tiles of queries at once (NVIDIA/cudnn-frontend 3929da24,
    experimental/sm100_sdpa_prefill_engine.h: Tiles_Q).
    """
    twice = gpu is not None and takes_either_layout(gpu)
    return edges * np.where(backward | (not twice), _QUERIES, 2.0 * _QUERIES) / 2.0


def integer_ops_per_s(gpu: GpuSpec) -> float:
    """32-bit integer operations per second of a whole device; 0 where its vector rate is unknown.

    Every fp32 lane of vendors other than NVIDIA and AMD is assumed to compute integers too.
    """
    lanes_per_s = (gpu.peak("fp32") or 0.0) / 2.0  # one multiply-add per lane and clock
    if gpu.vendor not in _VENDORS or gpu.architecture in _BEFORE_VOLTA:
        return lanes_per_s
    clock = gpu.boost_clock.value if gpu.boost_clock else 0.0
    if not clock or gpu.sm_count is None:
        return lanes_per_s / 2.0
    return INTEGER_LANES * gpu.sm_count.value * clock


def indexed_s(runtime: Mapping[str, Any], gpu: GpuSpec) -> float:
    """Seconds per element of a kernel that addresses or converts each singly; 0 if unknown.

    ATen's elementwise kernels load vectors where all operands are contiguous and of one type.
    Otherwise they compute an offset (``OffsetCalculator``) or look up a type (``LoadWithCast``) for
    each element.
    """
    rate = integer_ops_per_s(gpu)
    return leaf(runtime["indexed"]["integer_ops_per_element"]).value / rate if rate else 0.0


def turn_s(runtime: Mapping[str, Any], gpu: GpuSpec) -> float:
    """Least seconds per element of cuDNN's conversion of a layout; 0 if unknown."""
    rate = integer_ops_per_s(gpu)
    return leaf(runtime["layout_turn"]["integer_ops_per_element"]).value / rate if rate else 0.0


def block_cast_share(runtime: Mapping[str, Any], gpu: GpuSpec) -> float | None:
    """Share of the memory bandwidth that a block-scaling cast reaches; None where none was timed.

    The kernel finds the largest of 32 elements along rows and along columns and scales the elements
    twice. Arithmetic limits it, not memory (TransformerEngine pull request 1628).
    """
    table: Mapping[str, Any] = runtime["block_cast"]
    entry = next((table[f] for f in families_of(gpu) if f in table), None)
    return leaf(entry).value if entry else None


#: Architectures for which no measurement of cuDNN's channels-last depthwise kernels is known.
_BEFORE_AMPERE: Final = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing")


def share_of_products(runtime: Mapping[str, Any], gpu: GpuSpec) -> Estimate:
    """Rate of convolutions on matrix units, over the rate of matrix products on the device."""
    return pick(runtime["conv_share_of_gemm"], gpu)[1]


def depthwise_share(
    runtime: Mapping[str, Any], peak: PeakName, gpu: GpuSpec, *, channels_last: bool = False
) -> Estimate:
    """Share of a peak that depthwise convolutions (one channel per group) reach.

    Their kernels spend integer operations on every tap: on its address in the image and on borders.
    cuDNN's channels-last kernels share these operations between several channels.
    """
    table = runtime["depthwise"]
    last = channels_last and gpu.vendor == CUDNN_VENDOR and gpu.architecture not in _BEFORE_AMPERE
    taps = leaf(table["integer_ops_per_tap_channels_last" if last else "integer_ops_per_tap"])
    rate = 2.0 * integer_ops_per_s(gpu) / taps.value  # 2 FLOP a tap
    if not rate:
        source = f"{gpu.name}: vector rate unknown, priced by memory traffic alone"
        return Estimate(1.0, taps.sd_log, source)
    source = f"{taps.value:g} integer operations a tap ({taps.source})"
    if peak not in ("fp32", "tf32", "fp64"):
        gain = leaf(table["cudnn_16bit"])
        rate, source = rate * gain.value, f"{source}, {gain.value:g} in 16 bit ({gain.source})"
    return Estimate(rate / (gpu.peak(peak) or rate), taps.sd_log, source)


def wants_channels_last(gpu: GpuSpec, peak: PeakName) -> bool:
    """Whether convolutions at this peak run on NVIDIA's matrix units, which need channels last."""
    on_matrix_units = peak not in ("fp32", "fp64") and bool(matrix_style(gpu))
    return gpu.vendor == CUDNN_VENDOR and on_matrix_units


def attention_over_timed(
    runtime: Mapping[str, Any], kind: str, gpu: GpuSpec, *, by_torch: bool
) -> Estimate:
    """Rate of a kind of flash attention over that of the kernel that was timed.

    ``by_torch``: torch's own kernel was timed on this device; else an op table's.
    """
    table, names = runtime["attention_over_v2"], families_of(gpu)
    chosen, second = table["chosen_by_family"], Estimate(1.0, 0.0, "FlashAttention-2")

    def of_family(kernels: Mapping[str, str]) -> str:
        return next((kernels[n] for n in (*names, "other") if n in kernels), "attention_v2")

    of_table = table["measured_by_gpu"].get(gpu.name) or of_family(table["measured_by_family"])
    timed = of_family(chosen["attention"]) if by_torch else of_table
    runs = of_family(chosen[kind]) if kind in chosen else kind
    if timed == runs:
        return Estimate(1.0, 0.0, "timed by the op table")
    ours, base = (second if k == "attention_v2" else pick(table[k], gpu)[1] for k in (runs, timed))
    ratio = f"{runs} {ours.value:.3g}, {timed} {base.value:.3g} of FlashAttention-2"
    sd_log = hypot(ours.sd_log, base.sd_log)
    return Estimate(ours.value / base.value, sd_log, f"{ratio} ({ours.source})")
