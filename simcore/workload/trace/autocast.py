"""CUDA's autocast policy on a machine without CUDA.

CPU autocast runs norms, softmax, sums and powers in 16 bit, CUDA autocast in fp32; CPU autocast
alone has an entry of its own for cross_entropy_loss, whose parts CUDA's autocast treats. Inside
``cuda_policy`` the CUDA list applies (torch 2.13 ``aten/src/ATen/autocast_mode.h``; "Autocast op
reference", docs.pytorch.org/docs/stable/amp.html). A model's own ``autocast("cuda")`` takes effect.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

#: Ops that CUDA autocast runs in fp32.
_FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal",
    "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus",
    "layer_norm", "group_norm", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss",
    "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss",
    "huber_loss", "mse_loss", "margin_ranking_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm",
    "logsumexp", "norm.Scalar", "norm.ScalarOpt_dim", "rms_norm",
)  # fmt: skip
#: Ops whose result CUDA autocast makes fp32 unless the caller states its type
#: (``fp32_set_opt_dtype``).
_FP32_RESULT = (
    "prod", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum", "sum.dim_IntList",
    "linalg_vector_norm",
)  # fmt: skip


def _as_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _in_fp32(op: Any, unless_stated: bool) -> Any:
    """The op with its 16-bit arguments converted to fp32.

    ``unless_stated``: only where the caller does not state the type of the result.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        stated = any(isinstance(v, torch.dtype) for v in (*args, *kwargs.values()))
        off = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        with torch._C._ExcludeDispatchKeyGuard(off):
            if unless_stated and stated:
                return op(*args, **kwargs)
            wide_args, wide_kwargs = tree_map_only(torch.Tensor, _as_fp32, (args, kwargs))
            return op(*wide_args, **wide_kwargs)

    return run


def _as_parts(*args: Any, **kwargs: Any) -> Any:
    """cross_entropy_loss, whose log-softmax and likelihood autocast then treats one by one."""
    return torch.ops.aten.cross_entropy_loss.default.decompose(*args, **kwargs)


@contextmanager
def cuda_policy() -> Iterator[None]:
    """A context in which autocast follows CUDA's list, whichever device a model names."""
    lib = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that kernels are replaced; that is intended.
        for full in (*_FP32, *_FP32_RESULT):
            name, _, overload = full.partition(".")
            packet = getattr(torch.ops.aten, name, None)
            op = getattr(packet, overload or "default", None)
            if op is not None:
                run = _in_fp32(op, full in _FP32_RESULT)
                lib.impl(full, run, "AutocastCPU", allow_override=True)
        lib.impl("cross_entropy_loss", _as_parts, "AutocastCPU", allow_override=True)
    plain = torch.amp.autocast_mode.autocast.__init__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            if not args and kwargs.get("dtype") is None:
                kwargs["dtype"] = torch.float16  # CUDA's default; the CPU's is bfloat16
            device_type = "cpu"
        plain(self, device_type, *args, **kwargs)

    torch.amp.autocast_mode.autocast.__init__ = init
    try:
        yield
    finally:
        torch.amp.autocast_mode.autocast.__init__ = plain
        lib._destroy()
