"""The selective scan of Mamba-1, as mamba_ssm's CUDA kernel runs it.

Gu & Dao 2023, arXiv 2312.00752; ops/selective_scan_interface.py, SelectiveScanFn;
csrc/selective_scan. The scan has no matrix product: each of ``inner`` channels has ``state``
numbers, each with its own decay rate. It is priced as memory traffic; the exponential per state and
token is left out, and no measured table has this kernel.
"""

from __future__ import annotations

from math import ceil

from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved

#: Tokens between the states that the kernel writes to memory (selective_scan.cpp: n_chunks).
CHUNK = 2048


@dataclass(frozen=True, kw_only=True)
class SelectiveShape:
    """Sizes of a layer: ``inner`` channels with ``state`` numbers each.

    ``rank``: columns of the product's result from which the step sizes are computed. ``conv``: taps
    of the convolution. ``normed``: whether step sizes, B and C are normalised.
    """

    seq: int
    inner: int
    state: int
    rank: int
    conv: int
    normed: bool

    @property
    def width(self) -> int:
        """Columns of the product after the convolution: the input of the step sizes, B and C."""
        return self.rank + 2 * self.state


def selective_scan(name: str, s: SelectiveShape) -> Op:
    """Reads x, step sizes, gate, B and C; writes the result without the gate and with it.

    Backward reads the gradient of the gated result, the same tensors once more and the ungated
    result, and writes the gradients of x, step sizes and gate, and those of B and C in fp32. Saves
    all tensors that it reads, the ungated result, and the states of each chunk with their decays.
    """
    x, bc = float(s.seq) * s.inner, 2.0 * s.seq * s.state
    states = FP32_BYTES * 2.0 * ceil(s.seq / CHUNK) * s.inner * s.state
    fwd = Kernel(kind="elementwise", low=5 * x + bc, raw_bytes=states)
    bwd = Kernel(kind="elementwise", low=8 * x + bc, raw_bytes=states + FP32_BYTES * bc)
    # Casts of the gradients of B and C to the width of the gradients to which they are added.
    cast = Kernel(kind="elementwise", low=bc, raw_bytes=FP32_BYTES * bc, launches=2.0)
    return Op(
        name=name, fwd=(fwd,), bwd=(bwd, cast), saved=Saved(low=4 * x + bc, raw_bytes=states),
        result=Saved(low=x),
    )  # fmt: skip
