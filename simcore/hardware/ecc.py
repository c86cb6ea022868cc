"""What error correction leaves of a memory's bandwidth.

GDDR has no place for ECC bits beside the data: they are stored in it and fetched with every access.
HBM carries them beside the data, which costs nothing.
"""

from __future__ import annotations

from typing import Final

from simcore.hardware.spec import GpuSpec

#: Bandwidth with inline ECC over that without (CUDA C++ Best Practices Guide, Theoretical Bandwidth
#: Calculation: "approximately 20%" less on GPUs with GDDR). What NeuSight's rows show: fp32 streams
#: reach 0.75 of P4 and 0.74 of T4, which have it, gpu-benches' 0.94 and 0.89 of A40 and L40.
INLINE_ECC_FRAC: Final = 0.8
#: Kinds whose share is not that of a stream: their operands come from L2 in good part.
_NOT_STREAMS: Final = ("gemm", "attention")


def ecc_frac(gpu: GpuSpec) -> float:
    """Share of its bandwidth that a device's error correction leaves, as shipped."""
    return INLINE_ECC_FRAC if gpu.inline_ecc else 1.0


def carried_frac(kind: str, level: str, gpu: GpuSpec) -> float:
    """What a share of the bandwidth that is not the device's own is to be multiplied by: figures of
    families and of all devices are those without inline ECC.
    """
    return 1.0 if level == "own" or kind in _NOT_STREAMS else ecc_frac(gpu)
