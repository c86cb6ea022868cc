"""What one rank class delivers: datasheet figures times the profile's efficiencies."""

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


#: Share of the sockets' link that a processor or a DMA engine reaches on the other socket's
#: memory; the link's payload_frac is what peer-to-peer traffic of two PCIe devices gets.
FAR_MEMORY_FRAC = 0.8


@dataclass(frozen=True)
class ClassRates:
    """Sustained rates of one device type in one node type; arrays over kernel kinds [kinds].

    ``tile`` [2, kinds]: rows and columns that outputs are padded to, 1 where the library chooses;
    None where it does for all.
    Convolutions between tensors that are channels first either bring them to channels last, in
    ``relaid_s_per_byte`` (0: no need), or run on vector units, at the ``direct`` rates.
    ``indexed_s``: what an element costs that is addressed or converted by itself [s].
    ``row_s``: what a row costs at least that has a block of a kernel for itself [s];
    ``rows_per_l2_byte``: so many of them are in flight a byte of L2, 0 where it is not known.
    ``channel_slots``: blocks of a channel each that are in flight, ``clock_s`` what a clock takes.
    ``winograd`` [kinds]: convolutions that Winograd's algorithm may compute, ``direct_winograd``
    where they run at the ``direct`` rates.
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
        """Dense peak [FLOP/s] of work of which this share is convolutions: its FLOP over the time
        that they would take at the peak of each part.
        """
        if not self.conv_peak_flop_per_s:
            return self.peak_flop_per_s
        rest = (1.0 - conv_frac) / self.peak_flop_per_s
        return 1.0 / (conv_frac / self.conv_peak_flop_per_s + rest)

    def issue_s(self, issuer: Issuer) -> float:
        """What the host spends on a kernel that a program issues [s]."""
        return self.host_issue_s * self.issue_over_torch.get(issuer, 1.0)


_NARROW = ("fp8", "fp4")
#: Share of a model's FLOP from which on it is told how convolutions compute.
TOLD_CONV_FRAC = 0.01
#: Kinds of the kernel table that are priced as others of ``workload.graph``.
_STANDS_FOR = {
    WIDE: "gemm", BATCHED: "gemm", UNALIGNED: "gemm", DEPTHWISE_LAST: "conv_depthwise",
    VECTOR_CONV: "conv", CAST: "elementwise",
    **dict.fromkeys((*NARROW_LOADS.values(), *BATCHED_LOADS.values()), "gemm"),
}  # fmt: skip


def peak_for(gpu: GpuSpec, precision: Precision) -> tuple[PeakName, float, str]:
    """The peak that matrix products of this precision run at; falls back, and says so."""
    for name in (precision.peak, *precision.fallbacks):
        peak = gpu.peak(name)
        if peak is not None:
            if name == precision.peak:
                return name, peak, ""
            return name, peak, f"{gpu.name} has no {precision.peak} unit: {name} peak taken"
    if precision.peak == "fp32":
        raise InvalidConfig([f"{gpu.name} has no fp32 peak in the database"])
    known = ", ".join(gpu.peak_flop_per_s)
    raise InvalidConfig([f"{gpu.name} cannot run {precision.name}: it has peaks for {known}"])


def product_peak_for(gpu: GpuSpec, precision: Precision) -> tuple[PeakName, float]:
    """``peak_for``, of fp32 on the units that run its products: CDNA's matrix units have twice."""
    name, peak, _ = peak_for(gpu, precision)
    matrix = gpu.peak("fp32_matrix") if name == "fp32" else None
    return ("fp32_matrix", matrix) if matrix else (name, peak)


def conv_peak_for(gpu: GpuSpec, precision: Precision) -> tuple[PeakName, float]:
    """The peak that convolutions run at: the products', but for what cuDNN may do by default."""
    own = precision.conv_peak
    if own is not None and gpu.vendor == CUDNN_VENDOR and (peak := gpu.peak(own)) is not None:
        return own, peak
    return peak_for(gpu, precision)[:2]


def conv_unit(
    profile: Profile, kind: KernelKind, gpu: GpuSpec, name: PeakName, peak: float
) -> tuple[PeakName, float]:
    """The peak that a kind of convolution really takes where this one is allowed.

    TF32 is allowed, not asked for (cuDNN's API reference, CUDNN_DEFAULT_MATH): there are fp32
    kernels too, and they are quicker where TF32 has but the rate of vector units (GeForce).
    """
    vector = gpu.peak("fp32")
    if name != "tf32" or gpu.vendor != CUDNN_VENDOR or vector is None or kind not in DENSE_CONVS:
        return name, peak
    in_fp32 = vector * profile.compute_efficiency(kind, "fp32", gpu).value
    in_fp32 *= _winograd_gain(profile, kind, gpu)
    in_tf32 = peak * profile.compute_efficiency(kind, name, gpu).value
    return ("fp32", vector) if in_fp32 > in_tf32 else (name, peak)


#: The layer that tells whether fp32 kernels are quicker: pixels, images, channels in and out (the
#: middle of ResNet-50's).
_MIDDLE_CONV = (28.0**2, 32.0, 128.0, 128.0)


def _winograd_gain(profile: Profile, kind: KernelKind, gpu: GpuSpec) -> float:
    """Rate of a convolution's fp32 kernels over that of large products, in a middle layer."""
    if not profile.by_winograd(kind, "fp32", gpu) or gpu.sm_count is None:
        return 1.0
    rate = (gpu.peak("fp32") or 0.0) * profile.compute_efficiency(kind, "fp32", gpu).value
    moved = gpu.memory_bw.value * profile.memory_efficiency(kind, gpu).value
    shape = profile.kernel_shape(kind, "fp32", gpu)
    return float(conv_fill(*_MIDDLE_CONV, gpu.sm_count.value, *shape, rate / moved))


def conv_notes(
    gpus: Iterable[GpuSpec], precision: Precision, workload: Workload
) -> tuple[str, ...]:
    """What is assumed of a model's convolutions where they compute as products do not."""
    if workload.conv_frac < TOLD_CONV_FRAC:
        return ()
    kinds, found = tuple(gpus), []
    if any(conv_peak_for(g, precision)[0] != peak_for(g, precision)[0] for g in kinds):
        found.append("convolutions in TF32, matrix products in fp32: PyTorch's defaults (all fp32: "
                     "precision fp32-ieee)")  # fmt: skip
    turned = any(wants_channels_last(g, conv_peak_for(g, precision)[0]) for g in kinds)
    if turned and workload.channels_first:
        found.append("tensors of convolutions are channels first, PyTorch's default: cuDNN turns "
                     "them for matrix units (--layout nhwc, of a library's model channels_last "
                     "behind the shape of --input, spares that)")  # fmt: skip
    return tuple(found)


def _clock_hz(gpu: GpuSpec) -> float:
    """The boost clock; where none is stated, that of 128 fp32 lanes an SM."""
    clock = gpu.boost_clock.value if gpu.boost_clock else 0.0
    lanes = 128.0 * (gpu.sm_count.value if gpu.sm_count else 1.0)
    return clock or (gpu.peak("fp32") or 0.0) / (2.0 * lanes)


def _narrow_loads(gpu: GpuSpec, precision: Precision) -> Mapping[str, float]:
    """How much longer products take on this device that load few elements at a time."""
    wide = precision.peak in _NARROW  # recipes keep such products in 16 bit
    name, peak, _ = peak_for(gpu, PRECISIONS["bf16"] if wide else precision)
    style = matrix_style(gpu)
    if not style or name in ("fp32", "fp64") or gpu.sm_count is None or not _clock_hz(gpu):
        return dict.fromkeys((*NARROW_LOADS.values(), *BATCHED_LOADS.values()), 1.0)
    # A power of two: the clock of some datasheets' peaks is below the boost clock.
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
    """Head dimension [elements] whose products last as long as the scores' exponentials."""
    peak = gpu.peak("bf16") or gpu.peak("fp16")
    if not peak or gpu.sm_count is None:
        return 0.0
    clock = _clock_hz(gpu)
    rate = gpu.exp_per_sm_clock.value if gpu.exp_per_sm_clock else EXP_PER_SM_CLOCK
    return softmax_width(peak, gpu.sm_count.value, clock, rate) if clock else 0.0


def _of_flash(table: Estimate, share: Estimate) -> Estimate:
    told = f"{table.source} x {share.value:.3g} ({share.source})"
    return Estimate(table.value * share.value, hypot(table.sd_log, share.sd_log), told)


def compute_share_of(
    profile: Profile, kind: KernelKind, peak: PeakName, gpu: GpuSpec, *, channels_last: bool = False
) -> Estimate:
    """Share of the peak that a kind of kernel reaches; of fused attention, the kernel named.

    ``channels_last``: of convolutions of one channel a group, between tensors of that layout.
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
    """The peak that a kind of the kernel table computes at."""
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
    """Rates of each kind of kernel on a device that it has for itself, as ``ClassRates``."""
    n = len(KINDS)
    flop_per_s, bytes_per_s = np.full(n, np.inf), np.empty(n)
    wave_frac, half_depth = np.zeros(n), np.zeros(n)
    slowdown = _narrow_loads(gpu, precision)
    for i, named in enumerate(KINDS):
        kind: KernelKind = _STANDS_FOR.get(named, named)  # type: ignore[assignment]
        if kind == "attention_cudnn_fp8" and not precision.operand_bytes:
            kind = "attention_cudnn"  # 8 bits are the products' affair
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
    """Kinds of kernel that Winograd's algorithm may compute, [kinds]; in fp32 without precision."""
    found = np.zeros(len(KINDS), bool)
    for kind in DENSE_CONVS:
        unit = _unit_of(kind, profile, gpu, precision)[0] if precision else "fp32"
        found[KINDS.index(kind)] = profile.by_winograd(kind, unit, gpu)
    return found


def _tiles(batched: tuple[float, float]) -> Array:
    """Tiles [2, kinds] of a device whose library has this one alone for batched products."""
    found = np.ones((2, len(KINDS)))
    found[:, KINDS.index(BATCHED)] = batched
    return found


def _h2d_bytes_per_s(group: NodeGroup) -> float:
    """Rate of a copy from host memory to each device of a node, all at once."""
    if group.gpu.architecture == HOST_CPU:
        return np.inf  # a batch in host memory is where it is needed
    port = link_named(group.node.pcie_link)
    alone = port.bw.value * port.payload_frac.value * port_share(group.gpu, port)
    return alone / min(group.gpus_per_node, group.node.gpus_per_pcie_root)


@lru_cache(maxsize=4096)
def class_rates(group: NodeGroup, precision: Precision, profile: Profile) -> ClassRates:
    """Rates of one group's devices under a precision and an efficiency profile."""
    gpu, node = group.gpu, group.node
    peak_name, _, note = peak_for(gpu, precision)
    pooled = (
        f"{gpu.name}: matrix products in {peak_name} reach what they do on all GPUs; none of its "
        f"kind ({gpu.architecture}, {gpu.form_factor}) was timed"
    )
    untimed = profile.product_figures(peak_name, gpu).level == "pooled"
    notes = (note, pooled if untimed else "")
    conv_name, conv_peak = conv_peak_for(gpu, precision)
    kernels = _kernel_rates(gpu, precision, profile)
    kernels |= _channels_first(gpu, profile, conv_name, conv_peak)
    # Ranks on the cores of one host share caches and memory; measured on it, else none.
    compute_share, memory_share = profile.shared_rate(gpu, group.gpus_per_node)
    kernels["flop_per_s"] = kernels["flop_per_s"] * compute_share
    kernels["bytes_per_s"] = kernels["bytes_per_s"] * memory_share
    tile = only_batched_fp32_tile(gpu)
    # A norm's share that was fitted to no rows holds what they cost.
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
    """Rates of convolutions between tensors that are channels first, as ``ClassRates`` has them.

    A device that was measured was so with such tensors, as PyTorch has them by default.
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
        # On vector units either way: the same rate, whatever the layout.
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
    """Standard deviation of the logarithm of each knob of a job."""
    gpu = cluster.groups[0].gpu
    return profile.knob_spread(
        cluster, peak_for(gpu, precision)[0], workload.name, workload.conv_frac,
        conv_peak_for(gpu, precision)[0],
    )  # fmt: skip
