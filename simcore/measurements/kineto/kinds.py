"""Kind of a device kernel, by its name and by the operator that launched it.

The kinds are those that a prediction prices: matrix products, convolutions, attention, collectives,
copies; all other kernels count as memory-bound.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

Kind = Literal[
    "gemm", "conv", "attention", "memory_bound", "collective", "copy",
]  # fmt: skip

#: (part of a kernel's name in small letters only, collective); the first match counts.
COLLECTIVES: Final = (
    ("allreduce", "all_reduce"), ("reducescatter", "reduce_scatter"), ("allgather", "all_gather"),
    ("alltoall", "all_to_all"), ("sendrecv", "send_recv"), ("broadcast", "broadcast"),
    ("gather", "gather"), ("scatter", "scatter"), ("reduce", "reduce"), ("send", "send_recv"),
    ("recv", "send_recv"),
)  # fmt: skip
_COMM: Final = re.compile(
    r"^(?:void )?(?:nccl|rccl|msccl|hccl|oneccl|gloo:|nccl:|c10d::)|nvshmem|deep_ep"
    r"|cross_device_reduce|symm_mem|multimem"
)
_ATTENTION: Final = re.compile(
    r"flash|fmha|attention|_attn|attn_|sdpa|(?<![a-z])mha_|mem_?eff", re.IGNORECASE
)
_CONV: Final = re.compile(
    r"convol|conv[123]d|_conv(?!ert)|asmconv|implicit_gemm|winograd|fprop|dgrad|wgrad|cudnn.*conv|im2col|col2im"
    r"|igemm_(?:fwd|bwd|wrw)",
    re.IGNORECASE,
)
_GEMM: Final = re.compile(
    r"gemm|gemv|cutlass|cublas|xmma|splitk|wmma|nvjet|cijk_|matmul|_mm_|triton_(?:mm|tem|bmm)"
    r"|tensorop|hmma|dot_kernel|(?:^|::)(?:add|badd|b)?mm$|aten::(?:linear|matmul|mv|dot)$"
    r"|mkldnn_linear|_scaled_mm",
    re.IGNORECASE,
)
#: Elementwise, reduction and copy kernels, whatever operator launches them (such as the bias of a
#: linear layer).
_MAP: Final = re.compile(
    r"elementwise|vectorized|reduce_kernel|memset|copy_|fill|catarray|transpose|nchwtonhwc"
    r"|nhwctonchw|triton_(?:poi|red|per|for)|layer_?norm|softmax|dropout|index",
    re.IGNORECASE,
)
_CONV_OP: Final = re.compile(r"conv(?!ert)", re.IGNORECASE)
_GEMM_OP: Final = re.compile(
    r"^aten::(?:mm|bmm|addmm|baddbmm|addbmm|linear|matmul|mv|dot|einsum|_scaled_mm|_grouped_mm)$"
)
#: Kernels of optimizers. Not "lamb": the names of most torch kernels contain "lambda".
_OPTIMIZER: Final = re.compile(r"multi_tensor_apply|fusedadam|fusedoptimizer|adamw?_kernel",
                               re.IGNORECASE)  # fmt: skip
#: Elementwise and reduction kernels of torch.compile. Their names list all fused operators, even
#: matrix products that run as separate kernels.
_FUSED_MAP: Final = re.compile(r"^triton_(?:poi|red|per|for)_")


@lru_cache(maxsize=65536)
def kind_of(name: str, op: str = "", collective: str = "") -> Kind:
    """Kind of a kernel: by its name, the operator that launched it, and the profiler's note.

    ``collective``: the profiler's ``Collective name``, empty for other kernels.
    """
    if collective or _COMM.search(name):
        return "collective"
    if name.startswith(("Memcpy HtoD", "Memcpy DtoH", "CopyHostToDevice", "CopyDeviceToHost")):
        return "copy"
    if name.startswith(("Memcpy", "Memset", "Copy")):
        return "memory_bound"
    if _FUSED_MAP.match(name):
        return "memory_bound"
    if _ATTENTION.search(name):
        return "attention"
    if _MAP.search(name) and not _GEMM.search(name):
        return "memory_bound"
    if _CONV.search(name) or (_CONV_OP.search(op) and _GEMM.search(name)):
        return "conv"
    if _GEMM.search(name):
        return "gemm"
    if _GEMM_OP.match(op):
        return "gemm"
    return "conv" if _CONV_OP.search(op) else "memory_bound"


@lru_cache(maxsize=4096)
def collective_of(name: str, note: str = "") -> str:
    """The collective that a kernel runs; ``other`` where it is unknown.

    ``note``: the profiler's ``Collective name``, which takes precedence over the kernel's name.
    """
    for text in (note, name):
        plain = re.sub(r"[^a-z]", "", text.lower()).removeprefix("nccldevkernel")
        for part, op in COLLECTIVES:
            if part in plain:
                return op
    return "other"


@lru_cache(maxsize=65536)
def is_optimizer_kernel(name: str) -> bool:
    """Whether a kernel's name alone says that it is an optimizer's."""
    return bool(_OPTIMIZER.search(name))
