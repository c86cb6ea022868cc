"""Sustained rates of one rank class: datasheet figures times the efficiencies of the profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import hypot, log2

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig
from simcore.hardware.calibrations import CalibratedKnob
from simcore.hardware.casts import block_cast_share
from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named
from simcore.hardware.convolutions import CUDNN_VENDOR, depthwise_share, wants_channels_last
from simcore.hardware.estimates import (
    Estimate,
    copies_into_shared,
    matrix_style,
    takes_either_layout,
)
from simcore.hardware.host import ISSUERS, Issuer, issue_over_torch
from simcore.hardware.integers import indexed_s
from simcore.hardware.paths import port_share
from simcore.hardware.profile import HOST_CPU, Profile
from simcore.hardware.rows import channel_slots, row_s, rows_per_l2_byte
from simcore.hardware.spec import GpuSpec, PeakName
from simcore.hardware.tiles import only_batched_fp32_tile
from simcore.physics.fill import EXP_PER_SM_CLOCK, softmax_width
from simcore.physics.narrow_loads import narrow_load_slowdown
from simcore.physics.winograd import conv_fill
from simcore.step.kernels import (
    BATCHED,
    BATCHED_LOADS,
    CAST,
    COMPUTE_KINDS,
    DEPTHWISE_LAST,
    KINDS,
    NARROW_LOADS,
    UNALIGNED,
    VECTOR_CONV,
    WIDE,
)
from simcore.strategy.precision import PRECISIONS, Precision
from simcore.workload.graph import CONV_KINDS, DENSE_CONVS, FLASH_KINDS, KernelKind, Workload

Array = NDArray[np.float64]


#: Share of the sockets' link that a processor or a DMA engine reaches on the other socket's memory;
#: the link's payload_frac is the share for peer-to-peer traffic of two PCIe devices.
FAR_MEMORY_FRAC = 0.8


@dataclass(frozen=True)
class ClassRates:
    """Sustained rates of one device type in one node type; arrays over kernel kinds [kinds].

    ``tile`` [2, kinds]: rows and columns to which outputs are padded, 1 where the library chooses;
    None where it chooses for all kinds. Convolutions of channels-first tensors either convert them
    to channels last at ``relaid_s_per_byte`` (0: no conversion needed), or run on vector units at
    the ``direct`` rates. ``indexed_s``: seconds an element that is addressed or converted one by
    one. ``row_s``: least seconds a row that is processed by its own block of a kernel;
    ``rows_per_l2_byte``: such rows in flight per byte of L2, 0 where it is not known.
    ``channel_slots``: blocks of one channel each in flight; ``clock_s``: seconds of one clock.
    ``winograd`` [kinds]: convolutions that Winograd's algorithm may compute; ``direct_winograd``:
    the same at the ``direct`` rates.
    """

    gpu: GpuSpec
    flop_per_s: Array
    bytes_per_s: Array
    update_bytes_per_s: float
    wave_frac: Array
    half_depth: Array
    half_width: float
    attention_bwd_frac: float
    sm_count: float
    kernel_start_s: float
    host_issue_s: float
    issue_over_torch: Mapping[Issuer, float]
    h2d_bytes_per_s: float
    dram_bytes_per_s: float
    far_bytes_per_s: float
    nvme_read_bytes_per_s: float
    nvme_write_bytes_per_s: float
    overlap_slowdown_frac: float
    comm_slowdown_frac: float
    cores: int
    ranks_per_socket: float
    gpus_per_node: int
    peak_flop_per_s: float
    assumptions: tuple[str, ...]
    half_product_flop_per_s: float = np.inf
    device_sd_frac: float = 0.0
    conv_peak_flop_per_s: float = 0.0  # 0: that of products
    relaid_s_per_byte: Array = field(default_factory=lambda: np.zeros(len(KINDS)))
    direct_flop_per_s: Array = field(default_factory=lambda: np.full(len(KINDS), np.inf))
    direct_wave_frac: Array = field(default_factory=lambda: np.zeros(len(KINDS)))
    direct_half_depth: Array = field(default_factory=lambda: np.zeros(len(KINDS)))
    tile: Array | None = None
    indexed_s: float = 0.0
    row_s: float = 0.0
    rows_per_l2_byte: float = 0.0
    channel_slots: float = 0.0
    clock_s: float = 0.0
    winograd: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(len(KINDS), bool))
    direct_winograd: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(len(KINDS), bool))

    def peak_of(self, conv_frac: float) -> float:
        """Dense peak [FLOP/s] of work with this share of convolutions.

        It is the FLOP over the time that both parts would take at their own peaks.
        """
        if not self.conv_peak_flop_per_s:
            return self.peak_flop_per_s
        rest = (1.0 - conv_frac) / self.peak_flop_per_s
        return 1.0 / (conv_frac / self.conv_peak_flop_per_s + rest)

    def issue_s(self, issuer: Issuer) -> float:
        """Host seconds to issue one kernel from a program of this kind."""
        return self.host_issue_s * self.issue_over_torch.get(issuer, 1.0)


_NARROW = ("fp8", "fp4")
#: Least share of convolutions in a model's FLOP at which their precision and layout are reported.
TOLD_CONV_FRAC = 0.01
#: Kinds in the kernel table that are priced like another kind of ``workload.graph``.
_STANDS_FOR = {
    WIDE: "gemm", BATCHED: "gemm", UNALIGNED: "gemm", DEPTHWISE_LAST: "conv_depthwise",
    VECTOR_CONV: "conv", CAST: "elementwise",
    **dict.fromkeys((*NARROW_LOADS.values(), *BATCHED_LOADS.values()), "gemm"),
}  # fmt: skip


def peak_for(gpu: GpuSpec, precision: Precision) -> tuple[PeakName, float, str]:
    """(name, FLOP/s, note) of the peak for matrix products in this precision.

    The note is not empty where another precision's peak stands in. Raises InvalidConfig where the
    device has no suitable peak.
    """
    for name in (precision.peak, *precision.fallbacks):
        peak = gpu.peak(name)
        if peak is not None:
            if name == precision.peak:
                return name, peak, ""
            return (
                name,
                peak,
                f"{gpu.name} has no {precision.peak} unit: predicted with {name} peak",
            )
    if precision.peak == "fp32":
        raise InvalidConfig([f"{gpu.name} has no fp32 peak in the database"])
    known = ", ".join(gpu.peak_flop_per_s)
    raise InvalidConfig([f"{gpu.name} cannot run {precision.name}: it has peaks for {known}"])


def product_peak_for(gpu: GpuSpec, precision: Precision) -> tuple[PeakName, float]:
    """``peak_for``, but for fp32 the matrix units' peak where they run products (CDNA: twice)."""
    name, peak, _ = peak_for(gpu, precision)
    matrix = gpu.peak("fp32_matrix") if name == "fp32" else None
    return ("fp32_matrix", matrix) if matrix else (name, peak)


def conv_peak_for(gpu: GpuSpec, precision: Precision) -> tuple[PeakName, float]:
    """The peak for convolutions: that of products, except where cuDNN's defaults allow another."""
    own = precision.conv_peak
    if own is not None and gpu.vendor == CUDNN_VENDOR and (peak := gpu.peak(own)) is not None:
        return own, peak
    return peak_for(gpu, precision)[:2]


def conv_unit(
    profile: Profile, kind: KernelKind, gpu: GpuSpec, name: PeakName, peak: float
) -> tuple[PeakName, float]:
    """The peak that a kind of convolution really uses where the given one is allowed.

    TF32 is allowed, not required (cuDNN's API reference, CUDNN_DEFAULT_MATH): cuDNN also has fp32
    kernels, which are faster where TF32 only reaches the rate of vector units (GeForce).
    """
    vector = gpu.peak("fp32")
    if name != "tf32" or gpu.vendor != CUDNN_VENDOR or vector is None or kind not in DENSE_CONVS:
        return name, peak
    in_fp32 = vector * profile.compute_efficiency(kind, "fp32", gpu).value
    in_fp32 *= _winograd_gain(profile, kind, gpu)
    in_tf32 = peak * profile.compute_efficiency(kind, name, gpu).value
    return ("fp32", vector) if in_fp32 > in_tf32 else (name, peak)


#: The layer on which fp32 and TF32 kernels are compared: pixels, images, channels in and out (one
#: from the middle of ResNet-50).
_MIDDLE_CONV = (28.0**2, 32.0, 128.0, 128.0)


def _winograd_gain(profile: Profile, kind: KernelKind, gpu: GpuSpec) -> float:
    """Rate of a convolution's fp32 kernels in a middle layer over that of large matrix products."""
    if not profile.by_winograd(kind, "fp32", gpu) or gpu.sm_count is None:
        return 1.0
    rate = (gpu.peak("fp32") or 0.0) * profile.compute_efficiency(kind, "fp32", gpu).value
    moved = gpu.memory_bw.value * profile.memory_efficiency(kind, gpu).value
    shape = profile.kernel_shape(kind, "fp32", gpu)
    return float(conv_fill(*_MIDDLE_CONV, gpu.sm_count.value, *shape, rate / moved))


def conv_notes(
    gpus: Iterable[GpuSpec], precision: Precision, workload: Workload
) -> tuple[str, ...]:
    """Assumptions about a model's convolutions where their precision or layout needs mention."""
    if workload.conv_frac < TOLD_CONV_FRAC:
        return ()
    kinds, found = tuple(gpus), []
    if any(conv_peak_for(g, precision)[0] != peak_for(g, precision)[0] for g in kinds):
        found.append("convolutions run in TF32 and matrix products in fp32, PyTorch's defaults "
                     "(fp32 for both: precision fp32-ieee)")  # fmt: skip
    turned = any(wants_channels_last(g, conv_peak_for(g, precision)[0]) for g in kinds)
    if turned and workload.channels_first:
        found.append("convolutions have channels-first tensors, PyTorch's default, which cuDNN "
                     "converts for tensor cores (--layout nhwc avoids that; for a traced model "
                     "channels_last after the shape in --input)")  # fmt: skip
    return tuple(found)


def _clock_hz(gpu: GpuSpec) -> float:
    """The boost clock [Hz]; where none is stated, that of the fp32 peak with 128 lanes an SM."""
    clock = gpu.boost_clock.value if gpu.boost_clock else 0.0
    lanes = 128.0 * (gpu.sm_count.value if gpu.sm_count else 1.0)
    return clock or (gpu.peak("fp32") or 0.0) / (2.0 * lanes)


def _narrow_loads(gpu: GpuSpec, precision: Precision) -> Mapping[str, float]:
    """Slowdown of matrix products with narrow loads on this device, by kernel kind."""
    wide = precision.peak in _NARROW  # 8-bit recipes run such products in 16 bit
    name, peak, _ = peak_for(gpu, PRECISIONS["bf16"] if wide else precision)
    style = matrix_style(gpu)
    if not style or name in ("fp32", "fp64") or gpu.sm_count is None or not _clock_hz(gpu):
        return dict.fromkeys((*NARROW_LOADS.values(), *BATCHED_LOADS.values()), 1.0)
    # A power of two, because the clock of some datasheets' peaks is below the boost clock.
    fma_per_clock = 2.0 ** round(log2(peak / (2.0 * gpu.sm_count.value * _clock_hz(gpu))))
    return {
        named: narrow_load_slowdown(
            fma_per_clock,
            elems,
            precision.low_bytes,
            copies=copies_into_shared(gpu),
            asynchronous=style == "async",
        )
        for elems, weights in NARROW_LOADS.items()
        for named in (weights, BATCHED_LOADS[elems])
    }


def attention_width(gpu: GpuSpec) -> float:
    """Head dimension [elements] at which products take as long as the scores' exponentials."""
    peak = gpu.peak("bf16") or gpu.peak("fp16")
    if not peak or gpu.sm_count is None:
        return 0.0
    clock = _clock_hz(gpu)
    rate = gpu.exp_per_sm_clock.value if gpu.exp_per_sm_clock else EXP_PER_SM_CLOCK
    return softmax_width(peak, gpu.sm_count.value, clock, rate) if clock else 0.0


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


def _unit_of(
    named: str, profile: Profile, gpu: GpuSpec, precision: Precision
) -> tuple[PeakName, float]:
    """The peak that a kind in the kernel table computes at."""
    name, peak, _ = peak_for(gpu, precision)
    kind: KernelKind = _STANDS_FOR.get(named, named)  # type: ignore[assignment]
    if named in (UNALIGNED, VECTOR_CONV) and gpu.vendor == "NVIDIA":
        return "fp32", gpu.peak("fp32") or peak
    if kind in CONV_KINDS:
        return conv_unit(profile, kind, gpu, *conv_peak_for(gpu, precision))
    attends = kind == "attention" or kind in FLASH_KINDS
    loads_apart = named in (WIDE, UNALIGNED, *NARROW_LOADS.values(), *BATCHED_LOADS.values())
    if name in _NARROW and (attends or loads_apart):
        return "bf16", gpu.peak("bf16") or peak  # recipes keep these in 16 bit
    return name, peak


def _kernel_rates(gpu: GpuSpec, precision: Precision, profile: Profile) -> dict[str, Array]:
    """Rates of each kind of kernel on a device used by one rank, as fields of ``ClassRates``."""
    n = len(KINDS)
    flop_per_s, bytes_per_s = np.full(n, np.inf), np.empty(n)
    wave_frac, half_depth = np.zeros(n), np.zeros(n)
    slowdown = _narrow_loads(gpu, precision)
    for i, named in enumerate(KINDS):
        kind: KernelKind = _STANDS_FOR.get(named, named)  # type: ignore[assignment]
        if kind == "attention_cudnn_fp8" and not precision.operand_bytes:
            kind = "attention_cudnn"  # 8-bit attention only where products have 8-bit operands
        bytes_per_s[i] = gpu.memory_bw.value * memory_share_of(profile, kind, gpu).value
        if named == CAST and precision.operand_bytes:
            own = precision.cast_traffic_bytes(either_layout=takes_either_layout(gpu))
            bytes_per_s[i] *= precision.cast_traffic_bytes() / own
            if precision.micro_scaled and (of := block_cast_share(profile.runtime, gpu)):
                bytes_per_s[i] = gpu.memory_bw.value * of
        if kind not in COMPUTE_KINDS:
            continue
        unit, peak = _unit_of(named, profile, gpu, precision)
        if named in (BATCHED, UNALIGNED, *BATCHED_LOADS.values()):
            share, shaped = profile.compute_efficiency("bmm", unit, gpu), "bmm"
        else:
            last = named == DEPTHWISE_LAST
            share = compute_share_of(profile, kind, unit, gpu, channels_last=last)
            shaped = "attention" if kind in FLASH_KINDS else kind
        flop_per_s[i] = peak * share.value / slowdown.get(named, 1.0)
        wave_frac[i], half_depth[i] = profile.kernel_shape(shaped, unit, gpu)
    return {
        "flop_per_s": flop_per_s,
        "bytes_per_s": bytes_per_s,
        "wave_frac": wave_frac,
        "half_depth": half_depth,
    }


def _by_winograd(
    gpu: GpuSpec, profile: Profile, precision: Precision | None = None
) -> NDArray[np.bool_]:
    """Kinds that Winograd's algorithm may compute [kinds]; without ``precision``, in fp32."""
    found = np.zeros(len(KINDS), bool)
    for kind in DENSE_CONVS:
        unit = _unit_of(kind, profile, gpu, precision)[0] if precision else "fp32"
        found[KINDS.index(kind)] = profile.by_winograd(kind, unit, gpu)
    return found


def _tiles(batched: tuple[float, float]) -> Array:
    """Tiles [2, kinds] of a device whose library has only this one for batched products."""
    found = np.ones((2, len(KINDS)))
    found[:, KINDS.index(BATCHED)] = batched
    return found


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
    notes = (note, pooled if untimed else "")
    conv_name, conv_peak = conv_peak_for(gpu, precision)
    kernels = _kernel_rates(gpu, precision, profile)
    kernels |= _channels_first(gpu, profile, conv_name, conv_peak)
    # Ranks on one host's cores share caches and memory: a factor where that was measured, else 1.
    compute_share, memory_share = profile.shared_rate(gpu, group.gpus_per_node)
    kernels["flop_per_s"] = kernels["flop_per_s"] * compute_share
    kernels["bytes_per_s"] = kernels["bytes_per_s"] * memory_share
    tile = only_batched_fp32_tile(gpu)
    # Without a fit to rows, a norm's efficiency already includes the cost of its rows.
    row_clocks = profile.class_figures("norm", gpu).row_clocks
    return ClassRates(
        gpu=gpu,
        update_bytes_per_s=gpu.memory_bw.value
        * profile.memory_efficiency("update", gpu).value
        * memory_share,
        tile=_tiles(tile) if tile is not None and peak_name == "fp32" else None,
        half_width=attention_width(gpu) if peak_name not in ("fp32", "fp64") else 0.0,
        attention_bwd_frac=profile.attention_backward_frac(gpu).value,
        sm_count=gpu.sm_count.value if gpu.sm_count else 0.0,
        kernel_start_s=profile.kernel_start_s(gpu).value,
        host_issue_s=profile.host_issue_s(gpu).value,
        issue_over_torch={
            who: issue_over_torch(
                profile.runtime,
                who,
                "" if profile.own(gpu) is not None else node.cpu.model,
                eight_bit=peak_name in ("fp8", "fp4"),
            )
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
        ranks_per_socket=max(1.0, group.gpus_per_node / node.cpu.sockets),
        gpus_per_node=group.gpus_per_node,
        peak_flop_per_s=product_peak_for(gpu, precision)[1],
        assumptions=tuple(filter(None, notes)),
        half_product_flop_per_s=_half_products(gpu, profile) * compute_share,
        device_sd_frac=profile.device_spread.value,
        conv_peak_flop_per_s=conv_peak if conv_name != peak_name else 0.0,
        indexed_s=0.0 if gpu.architecture == HOST_CPU else indexed_s(profile.runtime, gpu),
        row_s=row_s(gpu, row_clocks),
        rows_per_l2_byte=rows_per_l2_byte(gpu) if row_clocks else 0.0,
        channel_slots=channel_slots(gpu) if profile.own(gpu) is None else 0.0,
        clock_s=1.0 / _clock_hz(gpu) if _clock_hz(gpu) else 0.0,
        winograd=_by_winograd(gpu, profile, precision),
        direct_winograd=_by_winograd(gpu, profile),
        **kernels,
    )


def _channels_first(
    gpu: GpuSpec, profile: Profile, name: PeakName, peak: float
) -> dict[str, Array]:
    """Rates of convolutions of channels-first tensors, as fields of ``ClassRates``.

    A device with measurements of its own was measured with such tensors, PyTorch's default.
    """
    found = {
        "relaid_s_per_byte": np.zeros(len(KINDS)),
        "direct_flop_per_s": np.full(len(KINDS), np.inf),
        "direct_wave_frac": np.zeros(len(KINDS)),
        "direct_half_depth": np.zeros(len(KINDS)),
    }
    vector = gpu.peak("fp32")
    if profile.own(gpu) is not None or vector is None:
        return found
    for kind in DENSE_CONVS:
        unit = conv_unit(profile, kind, gpu, name, peak)[0]
        i = KINDS.index(kind)
        if wants_channels_last(gpu, unit):
            moved = gpu.memory_bw.value * profile.memory_efficiency("copy", gpu).value
            found["relaid_s_per_byte"][i] = 1.0 / moved
        # On vector units the rate is the same for either layout.
        share = profile.compute_efficiency(kind, "fp32", gpu).value
        found["direct_flop_per_s"][i] = vector * share
        wave, depth = profile.kernel_shape(kind, "fp32", gpu)
        found["direct_wave_frac"][i], found["direct_half_depth"][i] = wave, depth
    return found


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
    gpu = cluster.groups[0].gpu
    return profile.knob_spread(
        cluster, peak_for(gpu, precision)[0], workload.name, workload.conv_frac,
        conv_peak_for(gpu, precision)[0],
    )  # fmt: skip
