"""Share of the memory bandwidth that error correction (ECC) leaves.

GDDR memory has no extra cells for ECC bits: they are stored among the data and fetched with every
access (inline ECC). HBM has extra cells for them, which cost no bandwidth.
"""

from __future__ import annotations

from typing import Final

from simcore.hardware.spec import GpuSpec

#: Bandwidth with inline ECC over that without (CUDA C++ Best Practices Guide, Theoretical Bandwidth
#: Calculation: "approximately 20%" less on GPUs with GDDR). Measurements agree: with inline ECC
#: fp32 streams reach 0.75 of the bandwidth on P4 and 0.74 on T4 (NeuSight), without it 0.94 on A40
#: and 0.89 on L40 (gpu-benches).
INLINE_ECC_FRAC: Final = 0.8
#: Kinds of kernel that inline ECC does not slow like a stream: L2 serves much of their operands.
_NOT_STREAMS: Final = ("gemm", "attention")


def ecc_frac(gpu: GpuSpec) -> float:
    """Share of its memory bandwidth that a device keeps with ECC as shipped."""
    return INLINE_ECC_FRAC if gpu.inline_ecc else 1.0


def carried_frac(kind: str, level: str, gpu: GpuSpec) -> float:
    """Factor for a share of the bandwidth that was measured on other devices.

    Figures of families and of all devices hold without inline ECC, so that a device with it keeps
    less. A figure of the device itself (``level`` "own") already includes its ECC.
    """
    return 1.0 if level == "own" or kind in _NOT_STREAMS else ecc_frac(gpu)
