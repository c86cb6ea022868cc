"""What convolutions cost beside products of the same size: kernels of one channel, and layouts.

Shares are in ``runtime.yaml``; docs/model.md, *Convolutions*, tells the mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Any, Final

from simcore.hardware.estimates import Estimate, matrix_style
from simcore.hardware.profile_tables import leaf, pick
from simcore.hardware.spec import GpuSpec, PeakName

#: Whose GPUs run convolutions by cuDNN.
CUDNN_VENDOR: Final = "NVIDIA"
#: Multiplications of a direct convolution over those of Winograd's F(2x2, 3x3): 36 for 16
#: (Lavin & Gray 2016).
WINOGRAD_GAIN: Final = 2.25
#: Lanes of 32-bit integers in an SM since Volta, beside 64 or 128 of fp32 (CUDA C++ Programming
#: Guide, throughput of native arithmetic instructions); before, every lane does both.
INTEGER_LANES: Final = 64
_BEFORE_VOLTA: Final = ("Kepler", "Maxwell", "Pascal")
#: Of these no measurement of cuDNN's channels-last kernels of one channel a group is known.
_BEFORE_AMPERE: Final = (*_BEFORE_VOLTA, "Volta", "Turing")


def winograd_share(share: Estimate, products: Estimate) -> Estimate:
    """A share that other devices reach by Winograd's algorithm, as far as this one can.

    Power and issue slots limit what products reach, and so the multiplications that are left.
    """
    most = WINOGRAD_GAIN * products.value
    if share.value <= most:
        return share
    told = f"{products.source} x {WINOGRAD_GAIN}, all that Winograd's algorithm saves"
    return Estimate(most, hypot(share.sd_log, products.sd_log), told)


def share_of_products(runtime: Mapping[str, Any], gpu: GpuSpec) -> Estimate:
    """Rate of convolutions on matrix units over that of the device's products."""
    return pick(runtime["conv_share_of_gemm"], gpu)[1]


def _integer_ops_per_s(gpu: GpuSpec) -> float:
    lanes_per_s = (gpu.peak("fp32") or 0.0) / 2.0  # a multiply-add a lane and clock
    if gpu.vendor != CUDNN_VENDOR or gpu.architecture in _BEFORE_VOLTA:
        return lanes_per_s
    clock = gpu.boost_clock.value if gpu.boost_clock else 0.0
    if not clock or gpu.sm_count is None:
        return lanes_per_s / 2.0
    return INTEGER_LANES * gpu.sm_count.value * clock


def depthwise_share(
    runtime: Mapping[str, Any], peak: PeakName, gpu: GpuSpec, *, channels_last: bool = False
) -> Estimate:
    """Share of a peak that convolutions of one channel a group reach.

    Their kernels spend integer operations on every tap: on its place in the image, on borders.
    cuDNN's for channels last do so for several channels at once.
    """
    table = runtime["depthwise"]
    last = channels_last and gpu.vendor == CUDNN_VENDOR and gpu.architecture not in _BEFORE_AMPERE
    taps = leaf(table["integer_ops_per_tap_channels_last" if last else "integer_ops_per_tap"])
    rate = 2.0 * _integer_ops_per_s(gpu) / taps.value  # 2 FLOP a tap
    source = f"{taps.value:g} integer operations a tap ({taps.source})"
    if peak not in ("fp32", "tf32", "fp64"):
        gain = leaf(table["cudnn_16bit"])
        rate, source = rate * gain.value, f"{source}, {gain.value:g} in 16 bit ({gain.source})"
    return Estimate(rate / (gpu.peak(peak) or rate), taps.sd_log, source)


def wants_channels_last(gpu: GpuSpec, peak: PeakName) -> bool:
    """Whether convolutions at this peak need channels last: those on NVIDIA's matrix units."""
    on_matrix_units = peak not in ("fp32", "fp64") and bool(matrix_style(gpu))
    return gpu.vendor == CUDNN_VENDOR and on_matrix_units
