"""Sustained rates of one rank class: datasheet figures times the efficiencies of the profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from math import hypot, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass, replace
from simcore.base.units import FP32_BYTES
from simcore.hardware.calibrations import CalibratedKnob, TimedUpdate
from simcore.hardware.class_figures import issue_over_torch
from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named
from simcore.hardware.estimates import (
    Estimate,
    block_cast_share,
    copies_into_shared,
    depthwise_share,
    indexed_s,
    l2_bytes_per_s,
    leaf,
    matrix_style,
    norm_slots,
    only_batched_fp32_tile,
    row_s,
    rows_per_l2_byte,
    takes_either_layout,
    tf32_along_depth,
    turn_s,
    wants_channels_last,
)
from simcore.hardware.paths import port_share
from simcore.hardware.profile import HOST_CPU, Profile
from simcore.hardware.spec import GpuSpec, PeakName
from simcore.physics import fill
from simcore.physics.kernel import WARPWISE_FRAC, TrafficLimits, narrow_load_slowdown
from simcore.step.kernels import (
    ACROSS,
    BATCHED,
    BATCHED_LOADS,
    CAST,
    DEPTH_LOADS,
    DEPTHWISE_LAST,
    FEW_LOADED,
    KINDS,
    LINEAR_ATTENTION,
    NARROW_LOADS,
    PLANES,
    UNALIGNED,
    VECTOR_CONV,
    WIDE,
)
from simcore.step.transients import COMPUTE_KINDS
from simcore.strategy.precision import PRECISIONS, Precision
from simcore.strategy.programs.mechanisms import ISSUERS, Issuer
from simcore.timing.peaks import conv_peak_for, conv_unit, peak_for, product_peak_for
from simcore.workload.graph import (
    AUXILIARY,
    CONV_KINDS,
    CUDNN_NORM,
    DENSE_CONVS,
    FLASH_KINDS,
    NATIVE_NORM,
    RECURRENT,
    KernelKind,
    Workload,
)

if TYPE_CHECKING:
    from simcore.timing.timed import TimedKernels

#: Share of the sockets' link that a processor or a DMA engine reaches on the other socket's memory;
#: the link's payload_frac is the share for peer-to-peer traffic of two PCIe devices.
FAR_MEMORY_FRAC = 0.8

#: Rates of a kind of kernel. ``flop_per_s``, ``bytes_per_s``: of large ones. ``wave_frac``,
#: ``half_depth``: as in ``physics.fill.matmul_fill``. ``tile``: rows and columns to which outputs
#: are padded, 1 where the library chooses. ``winograd``: Winograd's algorithm may compute it.
#: ``turned_s_per_byte``: seconds per byte of the conversion of channels-first tensors to channels
#: last, 0 where none is needed; ``least_turned_s_per_byte``: whatever the bandwidth. ``clock_s``:
#: of one of the clocks, or units of work, of kernels that ``block_slots`` blocks in flight limit.
KIND_RATES = np.dtype([
    ("flop_per_s", np.float64), ("bytes_per_s", np.float64),
    ("wave_frac", np.float64), ("half_depth", np.float64), ("tile", np.float64, (2,)),
    ("turned_s_per_byte", np.float64), ("least_turned_s_per_byte", np.float64),
    ("winograd", np.bool_), ("block_slots", np.float64), ("clock_s", np.float64),
], align=True)  # fmt: skip


def no_work() -> NDArray[np.void]:
    """Rates [kinds] of kernels that take no time to compute and transfer at no rate."""
    kinds = np.zeros(len(KINDS), dtype=KIND_RATES)
    kinds["flop_per_s"], kinds["tile"] = np.inf, 1.0
    return kinds


@dataclass(frozen=True, eq=False)
class KernelRates:
    """Sustained rates of kernels on one rank's device.

    ``kinds`` [kinds]: structured array with the columns of ``KIND_RATES``; ``direct``: the same for
    convolutions on vector units. ``sm_count``: 0 where it is unknown. ``half_width``: as in
    ``physics.fill.attention_fill``. ``attention_bwd_frac``: rate of attention's backward over that
    of its forward. ``start_s``: least seconds of a kernel. ``timed``: kernels of steps, timed
    on this device. ``alone``: the rates without other ranks on the node, if they differ. ``gpu``:
    the device, whose SMs limit kernels of linear attention and whose systolic arrays narrow ones.
    """

    kinds: NDArray[np.void]
    direct: NDArray[np.void]
    limits: TrafficLimits
    sm_count: float
    half_width: float
    attention_bwd_frac: float
    start_s: float
    timed: TimedKernels | None = None
    alone: KernelRates | None = None
    gpu: GpuSpec | None = None
    attention_fill: Callable[..., Array] = fill.attention_fill

    def of(self, kind: str) -> np.void:
        """The rates of one of ``KINDS``."""
        return self.kinds[KINDS.index(kind)]

    @cached_property
    def turns_layouts(self) -> bool:
        """Whether any convolution wants its tensors converted to channels last."""
        return bool(self.kinds["turned_s_per_byte"].any())


@dataclass(frozen=True, eq=False)
class ClassRates:
    """Sustained rates of one device type in one node type.

    ``issue_over_torch``: time to issue a kernel over that of PyTorch, by issuer.
    ``half_product_flop_per_s``: of 16-bit matrix products, whatever the run's precision.
    ``conv_peak_flop_per_s``: 0 where it is that of products. ``updates``: those timed on it.
    """

    gpu: GpuSpec
    kernels: KernelRates
    update_bytes_per_s: float
    host_issue_s: float
    host_launch_s: float
    issue_over_torch: Mapping[Issuer, float]
    h2d_bytes_per_s: float
    dram_bytes_per_s: float
    far_bytes_per_s: float
    nvme_read_bytes_per_s: float
    nvme_write_bytes_per_s: float
    overlap_slowdown_frac: float
    comm_slowdown_frac: float
    cores: int
    sockets: int
    ranks_per_socket: float
    gpus_per_node: int
    peak_flop_per_s: float
    assumptions: tuple[str, ...]
    half_product_flop_per_s: float = np.inf
    device_sd_frac: float = 0.0
    conv_peak_flop_per_s: float = 0.0
    updates: tuple[TimedUpdate, ...] = ()

    @property
    def elementwise_bytes_per_s(self) -> float:
        """Memory bandwidth that elementwise kernels sustain."""
        return float(self.kernels.of("elementwise")["bytes_per_s"])

    def peak_of(self, cudnn_frac: float) -> float:
        """Dense peak [FLOP/s] of work with this share of convolutions and recurrent layers.

        It is the FLOP over the time that both parts would take at their own peaks.
        """
        if not self.conv_peak_flop_per_s:
            return self.peak_flop_per_s
        rest = (1.0 - cudnn_frac) / self.peak_flop_per_s
        return 1.0 / (cudnn_frac / self.conv_peak_flop_per_s + rest)

    def issue_s(self, issuer: Issuer) -> float:
        """Host seconds of one kernel issue in a program of this kind."""
        return self.host_issue_s * self.issue_over_torch.get(issuer, 1.0)

    @property
    def launch_s(self) -> float:
        """Host seconds that CUDA takes to launch one kernel."""
        return self.host_launch_s * self.issue_over_torch.get("torch", 1.0)


_NARROW = ("fp8", "fp4")
_DENSE = (*DENSE_CONVS, PLANES)
#: Kinds in the kernel table that are priced like another kind of ``workload.graph``.
STANDS_FOR = {
    WIDE: "gemm", BATCHED: "gemm", UNALIGNED: "gemm", ACROSS: "gemm",
    RECURRENT: "gemm", AUXILIARY: "elementwise", DEPTHWISE_LAST: "conv_depthwise",
    PLANES: "conv_pointwise", VECTOR_CONV: "conv", CAST: "elementwise",
    **dict.fromkeys(LINEAR_ATTENTION, "elementwise"),
    **dict.fromkeys(FEW_LOADED, "gemm"),
}  # fmt: skip


def clock_hz(gpu: GpuSpec) -> float:
    """The boost clock [Hz]; where none is stated, that of the fp32 peak with 128 lanes an SM.

    0 where the number of SMs is not known either.
    """
    if gpu.boost_clock:
        return gpu.boost_clock.value
    return (gpu.peak("fp32") or 0.0) / (2.0 * 128.0 * gpu.sm_count.value) if gpu.sm_count else 0.0


def _load_slowdowns(gpu: GpuSpec, precision: Precision) -> Mapping[str, float]:
    """Slowdown of matrix products by the loads of their operands, by kind; empty without any.

    Asynchronous products of Hopper read TF32 operands along the depth alone (PTX ISA, wgmma:
    imm-trans-a and -b are for 16 bit), so that gradients of weights take warp-wise ones.
    """
    wide = precision.peak in _NARROW  # 8-bit recipes run such products in 16 bit
    name, peak, _ = peak_for(gpu, PRECISIONS["bf16"] if wide else precision)
    style, hz = matrix_style(gpu), clock_hz(gpu)
    if not style or name in ("fp32", "fp64") or gpu.sm_count is None or not hz:
        return {}
    # A power of two, because the clock of some datasheets' peaks is below the boost clock.
    fma_per_clock = 2.0 ** round(log2(peak / (2.0 * gpu.sm_count.value * hz)))
    loads = {kind: (e, 0) for of in (NARROW_LOADS, BATCHED_LOADS) for e, kind in of.items()}
    loads |= {kind: key for key, kind in DEPTH_LOADS.items()}
    narrow = {
        kind: narrow_load_slowdown(
            fma_per_clock, e, precision.low_bytes, copies=copies_into_shared(gpu),
            asynchronous=style == "async", operands_along_depth=deep)
        for kind, (e, deep) in loads.items()
    }  # fmt: skip
    return {**narrow, ACROSS: 1.0 / WARPWISE_FRAC if tf32_along_depth(gpu) else 1.0}


def attention_width(gpu: GpuSpec) -> float:
    """Head dimension [elements] at which products take as long as the scores' exponentials."""
    peak = gpu.peak("bf16") or gpu.peak("fp16")
    if not peak or gpu.sm_count is None:
        return 0.0
    clock = clock_hz(gpu)
    rate = gpu.exp_per_sm_clock.value if gpu.exp_per_sm_clock else fill.EXP_PER_SM_CLOCK
    return fill.softmax_width(peak, gpu.sm_count.value, clock, rate) if clock else 0.0


def _wide_attention(
    profile: Profile, gpu: GpuSpec, precision: Precision
) -> Mapping[str, Any] | None:
    """Figures of torch's attention in fp32 on matrix units; None where another kernel computes it.

    FlashAttention and cuDNN take 16 bit. fp32 goes to CUTLASS's memory-efficient kernel, from
    Ampere on by three TF32 products, whether or not TF32 is allowed (``gemm_kernel_utils.h``,
    OpMultiplyAddFastF32). Figures of a device's own calibration are of this kernel.
    """
    on_matrix_units = gpu.vendor == "NVIDIA" and gpu.peak("tf32") is not None
    if precision.low_bytes < FP32_BYTES or not on_matrix_units or profile.own(gpu) is not None:
        return None
    return profile.runtime["attention_fp32"]


def _of_flash(table: Estimate, share: Estimate) -> Estimate:
    source = f"{table.source} x {share.value:.3g} ({share.source})"
    return Estimate(table.value * share.value, hypot(table.sd_log, share.sd_log), source)


def compute_share_of(
    profile: Profile, kind: KernelKind, peak: PeakName, gpu: GpuSpec, *, channels_last: bool = False
) -> Estimate:
    """Share of the peak that a kind of kernel reaches; for fused attention, that named kernel.

    ``channels_last``: for depthwise convolutions, that tensors have this layout.
    """
    if kind == "conv_depthwise" and gpu.architecture != HOST_CPU:
        share = depthwise_share(profile.runtime, peak, gpu, channels_last=channels_last)
        return profile.scaled(share, "compute", gpu=gpu.name)
    if kind not in FLASH_KINDS:
        return profile.compute_efficiency(kind, peak, gpu)
    table = profile.compute_efficiency("attention", peak, gpu)
    return _of_flash(table, profile.attention_share(kind, gpu))


def memory_share_of(profile: Profile, kind: KernelKind, gpu: GpuSpec) -> Estimate:
    """Share of the memory bandwidth that a kind of kernel reaches."""
    if kind not in FLASH_KINDS:
        return profile.memory_efficiency(kind, gpu)
    table = profile.memory_efficiency("attention", gpu)
    return _of_flash(table, profile.attention_share(kind, gpu))


def unit_of(
    named: str, profile: Profile, gpu: GpuSpec, precision: Precision
) -> tuple[PeakName, float]:
    """The peak that a kind in the kernel table computes at."""
    name, peak, _ = peak_for(gpu, precision)
    kind: KernelKind = STANDS_FOR.get(named, named)  # type: ignore[assignment]
    if named in (UNALIGNED, VECTOR_CONV) and gpu.vendor == "NVIDIA":
        return "fp32", gpu.peak("fp32") or peak
    if named == RECURRENT:
        return conv_peak_for(gpu, precision)
    if kind in CONV_KINDS:
        return conv_unit(profile, kind, gpu, *conv_peak_for(gpu, precision))
    attends = kind == "attention" or kind in FLASH_KINDS
    loads_apart = named in (WIDE, UNALIGNED, *FEW_LOADED)
    if name in _NARROW and (attends or loads_apart):
        return "bf16", gpu.peak("bf16") or peak  # recipes keep these in 16 bit
    return name, peak


@lru_cache(maxsize=256)
def _kind_rates(gpu: GpuSpec, precision: Precision, profile: Profile) -> NDArray[np.void]:
    """Rates of each kind of kernel on a device used by one rank [kinds]; not to be changed."""
    kinds = no_work()
    slowdown, wide = _load_slowdowns(gpu, precision), _wide_attention(profile, gpu, precision)
    for rates, named in zip(kinds, KINDS, strict=True):
        kind: KernelKind = STANDS_FOR.get(named, named)  # type: ignore[assignment]
        if kind == "attention_cudnn_fp8" and not precision.operand_bytes:
            kind = "attention_cudnn"  # 8-bit attention only where products have 8-bit operands
        memory_share = memory_share_of(profile, kind, gpu).value
        if named == CAST and precision.operand_bytes:
            own = precision.cast_traffic_bytes(either_layout=takes_either_layout(gpu))
            memory_share *= precision.cast_traffic_bytes() / own
            if precision.micro_scaled:
                memory_share = block_cast_share(profile.runtime, gpu) or memory_share
        rates["bytes_per_s"] = gpu.memory_bw.value * memory_share
        if kind in (CUDNN_NORM, NATIVE_NORM) and profile.own(gpu) is None and (hz := clock_hz(gpu)):
            rates["block_slots"] = norm_slots(gpu, native=kind == NATIVE_NORM)
            rates["clock_s"] = 1.0 / hz
        if kind not in COMPUTE_KINDS:
            continue
        unit, peak = unit_of(named, profile, gpu, precision)
        last = named == DEPTHWISE_LAST
        few = named in FEW_LOADED
        if few or named in (BATCHED, UNALIGNED):
            shaped = kind if few and named not in BATCHED_LOADS.values() else "bmm"
            share = profile.compute_efficiency(shaped, unit, gpu, unaligned=few)
        else:
            share = compute_share_of(profile, kind, unit, gpu, channels_last=last)
            shaped = "attention" if kind in FLASH_KINDS else kind
        rates["flop_per_s"] = peak * share.value / slowdown.get(named, 1.0)
        rates["wave_frac"], rates["half_depth"] = profile.kernel_shape(shaped, unit, gpu)
        rates["winograd"] = named in _DENSE and profile.by_winograd(kind, unit, gpu)
        if kind in FLASH_KINDS and wide:
            issued = WARPWISE_FRAC if matrix_style(gpu) == "async" else 1.0
            third = (gpu.peak("tf32") or 0.0) * issued / 3.0
            rates["flop_per_s"] = third * leaf(wide["share"]).value
            rates["wave_frac"], rates["half_depth"] = 0.0, leaf(wide["half_depth"]).value
    return kinds


def _channels_first(
    kinds: NDArray[np.void], gpu: GpuSpec, precision: Precision, profile: Profile
) -> NDArray[np.void]:
    """Rates of convolutions of channels-first tensors on vector units, the same for either layout.

    Sets ``turned_s_per_byte`` of ``kinds`` too. A device's own measurements are of such tensors.
    """
    direct = no_work()
    direct["bytes_per_s"] = kinds["bytes_per_s"]
    vector = gpu.peak("fp32")
    if profile.own(gpu) is not None or vector is None:
        return direct
    for named in _DENSE:
        i, kind = KINDS.index(named), STANDS_FOR.get(named, named)
        turns = named != PLANES or tf32_along_depth(gpu)
        if turns and wants_channels_last(gpu, unit_of(kind, profile, gpu, precision)[0]):
            moved = gpu.memory_bw.value * profile.memory_efficiency("copy", gpu).value
            kinds["turned_s_per_byte"][i] = 1.0 / moved
            kinds["least_turned_s_per_byte"][i] = turn_s(profile.runtime, gpu) / (
                2.0 * precision.low_bytes  # an element is read and written
            )
        direct["flop_per_s"][i] = vector * profile.compute_efficiency(kind, "fp32", gpu).value
        direct["wave_frac"][i], direct["half_depth"][i] = profile.kernel_shape(kind, "fp32", gpu)
        direct["winograd"][i] = profile.by_winograd(kind, "fp32", gpu)
    return direct


def _kernel_rates(group: NodeGroup, precision: Precision, profile: Profile) -> KernelRates:
    """Rates of kernels on the devices of a group."""
    gpu = group.gpu
    peak_name, wide = peak_for(gpu, precision)[0], _wide_attention(profile, gpu, precision)
    kinds = _kind_rates(gpu, precision, profile).copy()
    # Ranks on one host's cores share caches and memory: a factor where that was measured, else 1.
    compute_share, memory_share = profile.shared_rate(gpu, group.gpus_per_node)
    kinds["flop_per_s"] *= compute_share
    kinds["bytes_per_s"] *= memory_share
    if peak_name == "fp32" and (tile := only_batched_fp32_tile(gpu)) is not None:
        kinds["tile"][KINDS.index(BATCHED)] = tile
    # Without a fit to rows, a norm's efficiency already includes the cost of its rows.
    row_clocks = profile.class_figures("norm", gpu).row_clocks
    width = attention_width(gpu) if peak_name not in ("fp32", "fp64") else 0.0
    timed, alone = _timed(profile, gpu, precision), None
    sms, l2 = gpu.sm_count.value if gpu.sm_count else 0.0, l2_bytes_per_s(profile.runtime, gpu)
    if timed is not None and (compute_share, memory_share) != (1.0, 1.0):
        alone = _kernel_rates(replace(group, gpus_per_node=1), precision, profile)
    return KernelRates(
        kinds=kinds,
        direct=_channels_first(kinds, gpu, precision, profile),
        limits=TrafficLimits(
            rows_per_l2_byte=rows_per_l2_byte(gpu) if row_clocks else 0.0,
            row_s=row_s(gpu, row_clocks),
            indexed_s=0.0 if gpu.architecture == HOST_CPU else indexed_s(profile.runtime, gpu),
            l2_bytes=gpu.l2_size.value if gpu.l2_size else 0.0,
            l2_bytes_per_s=l2,
            sm_bytes_per_s=l2 / sms if sms and profile.own(gpu) is None else 0.0,
        ),
        sm_count=sms,
        half_width=leaf(wide["half_width"]).value if wide else width,
        attention_bwd_frac=profile.attention_backward_frac(gpu).value,
        start_s=profile.kernel_start_s(gpu).value,
        timed=timed,
        alone=alone,
        gpu=gpu,
        attention_fill=fill.tiled_attention_fill if wide else fill.attention_fill,
    )


def _timed(profile: Profile, gpu: GpuSpec, precision: Precision) -> TimedKernels | None:
    """The kernels that the profile timed on this device by shape; None if there are none."""
    if profile.measured is None or not profile.measured.kernels:
        return None
    from simcore.timing.timed import timed_kernels

    return timed_kernels(profile.measured, gpu, precision)


def _h2d_bytes_per_s(group: NodeGroup) -> float:
    """Bytes/s of a copy from host memory to each device of a node, all at the same time."""
    if group.gpu.architecture == HOST_CPU:
        return np.inf  # a CPU computes on a batch in host memory without a copy
    port = link_named(group.node.pcie_link)
    alone = port.bw.value * port.payload_frac.value * port_share(group.gpu, port)
    return alone / min(group.gpus_per_node, group.node.gpus_per_pcie_root)


@lru_cache(maxsize=4096)
def class_rates(group: NodeGroup, precision: Precision, profile: Profile) -> ClassRates:
    """Sustained rates of one group's devices, under a precision and an efficiency profile."""
    gpu, node = group.gpu, group.node
    peak_name, _, note = peak_for(gpu, precision)
    pooled = (
        f"{gpu.name}: matrix products in {peak_name} are assumed as efficient as on all GPUs "
        f"together; none of its kind ({gpu.architecture}, {gpu.form_factor}) was timed"
    )
    untimed = profile.product_figures(peak_name, gpu).level == "pooled"
    conv_name, conv_peak = conv_peak_for(gpu, precision)
    compute_share, memory_share = profile.shared_rate(gpu, group.gpus_per_node)
    update_share = profile.memory_efficiency("update", gpu).value * memory_share
    processor = "" if profile.own(gpu) is not None else node.cpu.model
    eight_bit, own = peak_name in _NARROW, profile.measured
    return ClassRates(
        gpu=gpu,
        kernels=_kernel_rates(group, precision, profile),
        update_bytes_per_s=gpu.memory_bw.value * update_share,
        host_issue_s=profile.host_issue_s(gpu).value,
        host_launch_s=profile.host_launch_s(gpu).value,
        issue_over_torch={
            who: issue_over_torch(profile.runtime, who, processor, eight_bit=eight_bit)
            for who in ISSUERS
        },
        h2d_bytes_per_s=_h2d_bytes_per_s(group),
        dram_bytes_per_s=node.cpu.dram_bw_per_socket.value,
        far_bytes_per_s=(
            link_named(node.socket_link).bw.value * FAR_MEMORY_FRAC if node.socket_link else np.inf
        ),
        nvme_read_bytes_per_s=node.nvme.read_bw.value if node.nvme else 0.0,
        nvme_write_bytes_per_s=node.nvme.write_bw.value if node.nvme else 0.0,
        overlap_slowdown_frac=profile.overlap_slowdown.value,
        comm_slowdown_frac=profile.comm_slowdown.value,
        cores=node.cpu.sockets * node.cpu.cores_per_socket,
        sockets=node.cpu.sockets,
        ranks_per_socket=max(1.0, group.gpus_per_node / node.cpu.sockets),
        gpus_per_node=group.gpus_per_node,
        peak_flop_per_s=product_peak_for(gpu, precision)[1],
        assumptions=tuple(filter(None, (note, pooled if untimed else ""))),
        half_product_flop_per_s=_half_products(gpu, profile) * compute_share,
        device_sd_frac=profile.device_spread.value,
        conv_peak_flop_per_s=conv_peak if conv_name != peak_name else 0.0,
        updates=own.updates if own is not None and own.gpu == gpu.name else (),
    )


def _half_products(gpu: GpuSpec, profile: Profile) -> float:
    """Sustained FLOP/s of 16-bit matrix products, whatever the run's precision."""
    for name in ("bf16", "fp16", "fp32"):
        if peak := gpu.peak(name):
            return peak * profile.compute_efficiency("gemm", name, gpu).value
    return np.inf


def knob_spread_of(
    profile: Profile, cluster: ClusterSpec, precision: Precision, workload: Workload
) -> Mapping[CalibratedKnob, float]:
    """Standard deviation of the logarithm of each knob, for a job."""
    peaks = tuple(
        (peak_for(g.gpu, precision)[0], conv_peak_for(g.gpu, precision)[0]) for g in cluster.groups
    )
    return profile.knob_spread(cluster, peaks, workload.name, workload.conv_frac)
