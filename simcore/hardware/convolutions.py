"""Efficiency of convolutions relative to matrix products: depthwise kernels and tensor layouts.

The figures are in ``runtime.yaml``; docs/model.md, *Convolutions*, explains the mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.hardware.estimates import Estimate, matrix_style
from simcore.hardware.integers import integer_ops_per_s
from simcore.hardware.profile_tables import leaf, pick
from simcore.hardware.spec import GpuSpec, PeakName

#: Vendor whose GPUs run convolutions by cuDNN.
CUDNN_VENDOR: Final = "NVIDIA"
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
