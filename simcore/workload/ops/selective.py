"""The selective scan of Mamba-1 (Gu & Dao 2023, arXiv 2312.00752), as mamba_ssm's CUDA kernel runs
it (ops/selective_scan_interface.py, SelectiveScanFn; csrc/selective_scan).

It has no matrix product: each of ``inner`` channels has ``state`` numbers of its own that decay at
its own pace. Priced as memory traffic; the exponential of each state and token is left out, and no
table has this kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved

#: Tokens after which the kernel writes its states down (selective_scan.cpp: n_chunks).
CHUNK = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveShape:
    """``inner`` channels of ``state`` numbers; steps come from a product of ``rank``."""

    seq: int
    inner: int
    state: int
    rank: int
    conv: int
    normed: bool

    @property
    def width(self) -> int:
        """Columns of the product behind the convolution: steps' input, B and C."""
        return self.rank + 2 * self.state


def selective_scan(name: str, s: SelectiveShape) -> Op:
    """Reads x, steps, gate, B and C, writes the result without and with the gate.

    Backward reads both of these' gradient, the same once more and the ungated result, and writes
    the gradients of x, steps and gate, and those of B and C in fp32. Kept: all that it reads, the
    ungated result, and of each chunk the states with their decays.
    """
    x, bc = float(s.seq) * s.inner, 2.0 * s.seq * s.state
    states = FP32_BYTES * 2.0 * ceil(s.seq / CHUNK) * s.inner * s.state
    fwd = Kernel(kind="elementwise", low=5 * x + bc, raw_bytes=states)
    bwd = Kernel(kind="elementwise", low=8 * x + bc, raw_bytes=states + FP32_BYTES * bc)
    # B's and C's gradients in the width of what they are added to
    cast = Kernel(kind="elementwise", low=bc, raw_bytes=FP32_BYTES * bc, launches=2.0)
    return Op(
        name=name, fwd=(fwd,), bwd=(bwd, cast), saved=Saved(low=4 * x + bc, raw_bytes=states),
        result=Saved(low=x),
    )  # fmt: skip
