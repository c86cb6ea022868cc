"""Attention traced as one fused operator, whichever kernels the tracing machine has.

On the CPU, ``scaled_dot_product_attention`` takes other paths than on CUDA: the CPU's own flash
kernel, or explicit matrix products and a softmax with dropout or on the meta device. It is replaced
at the dispatcher, because a torch function mode is not active inside ``backward``, where
checkpoints recompute.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch.nn.attention import flex_attention

Attention = Literal["flash", "efficient", "math", "native"]

_LIB = torch.library.Library("simcore", "DEF")
_LIB.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, float drop, bool causal)"
    " -> (Tensor, Tensor)"
)
_LIB.define(
    "attention_backward(Tensor g, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,"
    " Tensor? mask, float drop, bool causal) -> (Tensor, Tensor, Tensor)"
)
_LIB.define(
    "attention_bias_backward(Tensor g, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,"
    " Tensor mask, float drop, bool causal) -> (Tensor, Tensor, Tensor, Tensor)"
)


def _attention(q: Any, k: Any, v: Any, mask: Any, drop: float, causal: bool) -> Any:
    # The output has the query's memory layout (CUDA's flash kernel: empty_like of the query), so
    # that the usual transpose and reshape after it need no copy.
    if q.shape[-1] == v.shape[-1]:
        out = torch.empty_like(q)
    else:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


def _attention_backward(
    g: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, mask: Any, drop: float, causal: bool
) -> Any:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _attention_bias_backward(
    g: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, mask: Any, drop: float, causal: bool
) -> Any:
    """Gradients of q, k and v, and that of a trained mask for every attention score.

    Ops after the kernel sum the mask's gradient over broadcast dimensions
    (``attention_backward.cu``, ``_efficient_attention_backward``: ``grad_bias``).
    """
    bias = q.new_empty(*q.shape[:-1], k.shape[-2])
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), bias


torch.library.register_fake("simcore::attention", _attention, lib=_LIB)
torch.library.register_fake("simcore::attention_backward", _attention_backward, lib=_LIB)
torch.library.register_fake("simcore::attention_bias_backward", _attention_bias_backward, lib=_LIB)


class _Fused(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, mask: Any, drop: float, causal: bool) -> Any:
        out, lse = torch.ops.simcore.attention(q, k, v, mask, drop, causal)
        ctx.save_for_backward(q, k, v, out, lse, mask)
        ctx.rest = drop, causal
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, out, lse, mask = ctx.saved_tensors
        args = (grad, q, k, v, out, lse, mask, *ctx.rest)
        if mask is None or not ctx.needs_input_grad[3]:
            return (*torch.ops.simcore.attention_backward(*args), None, None, None)
        *grads, bias = torch.ops.simcore.attention_bias_backward(*args)
        return (*grads, bias.sum_to_size(mask.shape), None, None)


def _flex(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """``flex_attention`` as the fused operator; a block mask counts as a causal one."""
    names = ("score_mod", "block_mask", "scale", "enable_gqa", "return_lse", "kernel_options")
    given = dict(zip(names, args, strict=False)) | kwargs
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=given.get("block_mask") is not None,
        enable_gqa=given.get("enable_gqa", False),
    )  # fmt: skip
    if not given.get("return_lse") and given.get("return_aux") is None:
        return out
    lse = query.new_empty(query.shape[:-1], dtype=torch.float32)
    if given.get("return_aux") is None:
        return out, lse
    return out, flex_attention.AuxOutput(lse=lse, max_scores=lse)


@contextmanager
def attention_as(kind: Attention) -> Iterator[None]:
    """A context in which every ``scaled_dot_product_attention`` runs as ``kind``.

    ``flash`` and ``efficient`` save q, k, v, the output and a log-sum-exp per row (Dao 2022;
    Rabe & Staats 2021). ``math`` saves what explicit matrix products and a softmax save. ``native``
    changes nothing. ``flex_attention``, where it is imported in the context, runs so too.
    """
    if kind == "native":
        yield
        return

    def fused(
        q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if type(q).__name__ == "DTensor":  # of context ranks: torch divides its own kernels
            return torch.ops.aten._scaled_dot_product_flash_attention(
                q, k, v, dropout_p, is_causal, scale=scale
            )[0]
        if kind == "math":
            return torch.ops.aten._scaled_dot_product_attention_math(
                q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )[0]
        return _Fused.apply(q, k, v, attn_mask, dropout_p, is_causal)

    lib = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a kernel is replaced; that is intended.
        lib.impl("scaled_dot_product_attention", fused, "AutogradCPU", allow_override=True)
    flex, flex_attention.flex_attention = flex_attention.flex_attention, _flex
    try:
        yield
    finally:
        flex_attention.flex_attention = flex
        lib._destroy()
