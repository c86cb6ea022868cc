"""Which peak of its datasheet a device computes at: by precision, for products and convolutions."""

from __future__ import annotations

from collections.abc import Iterable

from simcore.base.errors import InvalidConfig
from simcore.base.names import Changed
from simcore.hardware.estimates import CUDNN_VENDOR, families_of, wants_channels_last
from simcore.hardware.profile import Profile
from simcore.hardware.spec import GpuSpec, PeakName
from simcore.physics.fill import conv_fill
from simcore.strategy.precision import AMP_BF16, Precision
from simcore.workload.graph import DENSE_CONVS, KernelKind, Workload

#: Least share of convolutions in a model's FLOP at which their precision and layout are reported.
NOTED_CONV_FRAC = 0.01


def peak_for(gpu: GpuSpec, precision: Precision) -> tuple[PeakName, float, str]:
    """(name, FLOP/s, note) of the peak for matrix products in this precision.

    The note is not empty where another precision's peak stands in. Raises InvalidConfig where the
    device has no suitable peak.
    """
    for name in (precision.peak, *precision.fallbacks):
        peak = gpu.peak(name)
        if peak is not None:
            if name == precision.peak:
                return name, peak, _library_lacks(gpu, precision)
            faster = name == "fp32" and gpu.peak("fp16") is not None
            hint = " (amp-fp16 is faster)" if faster else ""
            text = f"{gpu.name} has no {precision.peak} unit: predicted with {name} peak{hint}"
            return name, peak, Changed(text)
    known = ", ".join(gpu.peak_flop_per_s)
    other = f" (--precision {AMP_BF16})" if gpu.peak("bf16") else ""
    raise InvalidConfig(
        [f"{gpu.name} cannot run {precision.name}: it has peaks for {known}{other}"]
    )


def _library_lacks(gpu: GpuSpec, precision: Precision) -> str:
    """The note where the device has the units but NVIDIA's library not the kernels; else empty."""
    only = precision.nvidia_family
    if gpu.vendor != CUDNN_VENDOR or not only or only in families_of(gpu):
        return ""
    return Changed(
        f"Transformer Engine has no {precision.name} on {gpu.name}: predicted as if it had "
        "(--precision fp8 runs)"
    )


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
    in_fp32 *= _winograd_gain(profile, kind, gpu, vector)
    in_tf32 = peak * profile.compute_efficiency(kind, name, gpu).value
    return ("fp32", vector) if in_fp32 > in_tf32 else (name, peak)


#: The layer on which fp32 and TF32 kernels are compared: pixels, images, channels in and out (one
#: from the middle of ResNet-50).
_MIDDLE_CONV = (28.0**2, 32.0, 128.0, 128.0)


def _winograd_gain(profile: Profile, kind: KernelKind, gpu: GpuSpec, peak: float) -> float:
    """Rate of a convolution's fp32 kernels in a middle layer over that of large matrix products."""
    if not profile.by_winograd(kind, "fp32", gpu) or gpu.sm_count is None:
        return 1.0
    rate = peak * profile.compute_efficiency(kind, "fp32", gpu).value
    moved = gpu.memory_bw.value * profile.memory_efficiency(kind, gpu).value
    shape = profile.kernel_shape(kind, "fp32", gpu)
    return float(conv_fill(*_MIDDLE_CONV, gpu.sm_count.value, *shape, rate / moved))


def conv_notes(
    gpus: Iterable[GpuSpec], precision: Precision, workload: Workload
) -> tuple[str, ...]:
    """Assumptions about a model's convolutions where their precision or layout needs mention."""
    if workload.conv_frac < NOTED_CONV_FRAC:
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
