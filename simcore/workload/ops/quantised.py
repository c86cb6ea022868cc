"""A frozen weight that is stored in few bits, brought to 16 bit before each product."""

from __future__ import annotations

from simcore.workload.graph import Kernel, Op

#: Parameters that share a scale and a zero point in GPTQ's checkpoints (AutoGPTQ's group_size).
GPTQ_GROUP = 128
#: Bytes that each of PyTorch's operators moves to unpack one parameter of 4 bits (AutoGPTQ 0.4.2,
#: nn_modules/qlinear/qlinear_cuda_old.py, forward): 0.5 packed are shifted to 4, narrowed to 1,
#: masked, less the zero point (1 a group), times the scale (2 a group) to 2.
_UNPACKED_BYTES = (0.5 + 4, 4 + 1, 1 + 1, 1 + 1 + 1 / GPTQ_GROUP, 1 + 2 + 2 / GPTQ_GROUP)
#: The same for one zero point: shifted, narrowed, masked, plus one.
_ZERO_BYTES = (0.5 + 4, 4 + 1, 1 + 1, 1 + 1)
#: Bytes of what ``Kernel.weight`` counts where parameters are 16 bit.
_NARROW_BYTES = 2


def dequantised(name: str, numel: float, packed_bytes: float) -> Op:
    """A weight of ``packed_bytes`` a parameter, written in 16 bit by one kernel, in both passes."""
    spread = Kernel(kind="copy", weight=numel * (1 + packed_bytes / _NARROW_BYTES))
    return Op(name=f"{name}.dequantise", fwd=(spread,), bwd=(spread,))


def unpacked(name: str, numel: float) -> Op:
    """A weight in GPTQ's 4 bits, brought to 16 by PyTorch's operators.

    GPTQ's kernels that multiply packed weights have no backward. Autograd keeps the result, so that
    backward does not unpack it again; the memory that it takes until then is not counted.
    """
    moved = [numel * count for count in _UNPACKED_BYTES]
    zeros = [numel / GPTQ_GROUP * count for count in _ZERO_BYTES]
    kernels = [Kernel(kind="elementwise", weight=b / _NARROW_BYTES) for b in (*zeros, *moved)]
    return Op(name=f"{name}.dequantise", fwd=tuple(kernels))
