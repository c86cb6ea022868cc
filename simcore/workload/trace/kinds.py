"""The kind of an aten op's kernels, and the width that CUDA's autocast gives its result.

The lists for autocast are those of torch 2.13 ``aten/src/ATen/autocast_mode.h`` (CUDA), as
documented in "Autocast op reference" (docs.pytorch.org/docs/stable/amp.html).
"""

from __future__ import annotations

from simcore.workload.graph import KernelKind
from simcore.workload.trace.record import Width

#: Matrix products, which autocast runs in 16 bit.
GEMMS = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "_scaled_mm",
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_trilinear", "_thnn_fused_lstm_cell",
    "_cudnn_rnn", "_cudnn_rnn_backward", "_grouped_mm",
}  # fmt: skip
CONVS = {"convolution", "convolution_backward", "_convolution", "convolution_overrideable"}
ATTENTIONS = {
    "attention", "attention_backward", "attention_bias_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
}  # fmt: skip
#: Namespaces of collectives, which run no kernel of a rank's own that is counted here.
COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
NORMS = {
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm",
    "native_group_norm_backward", "native_batch_norm", "native_batch_norm_backward",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm",
    "_native_batch_norm_legit_functional", "_batch_norm_with_update", "batch_norm_backward",
    "cudnn_batch_norm_backward",
    "_fused_rms_norm", "_fused_rms_norm_backward",
}  # fmt: skip
SOFTMAXES = {
    "_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data",
    "_safe_softmax", "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward",
    "nll_loss2d_backward", "logsumexp",
}  # fmt: skip
GATHERS = {
    "embedding", "embedding_dense_backward", "index", "index_select", "gather", "scatter",
    "scatter_add", "index_put", "index_add", "_unsafe_index", "_unsafe_index_put",
    "_index_put_impl",
    "_embedding_bag", "_embedding_bag_dense_backward", "take_along_dim", "topk", "sort",
    "_embedding_bag_forward_only", "_embedding_bag_backward",
}  # fmt: skip
COPIES = {
    "clone", "copy", "_to_copy", "cat", "stack", "contiguous", "constant_pad_nd", "repeat", "roll",
    "flip", "slice_backward", "select_backward", "index_select_backward", "as_strided_copy",
    "slice_scatter", "select_scatter", "pixel_shuffle", "pixel_unshuffle", "im2col", "col2im",
    "reflection_pad2d", "replication_pad2d", "tril", "triu", "unfold_backward", "_pad_circular",
    "reflection_pad2d_backward", "replication_pad2d_backward", "reflection_pad1d",
    "reflection_pad1d_backward", "split_with_sizes_copy", "permute_copy", "repeat_interleave",
}  # fmt: skip
REDUCTIONS = {
    "sum", "mean", "amax", "amin", "max", "min", "var", "std", "var_mean", "prod", "norm",
    "linalg_vector_norm", "argmax", "argmin", "any", "all", "cumsum", "cumprod", "mse_loss",
    "smooth_l1_loss", "binary_cross_entropy_with_logits", "binary_cross_entropy", "huber_loss",
}  # fmt: skip
#: Ops that are known to be elementwise, so that no FLOP formula is missing for them.
_MAPS = {
    "add", "sub", "mul", "div", "neg", "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log",
    "native_dropout", "native_dropout_backward", "threshold_backward", "gelu_backward", "where",
    "silu_backward", "sigmoid_backward", "tanh_backward", "masked_fill", "pow", "sqrt", "rsqrt",
    "fill", "zero", "zeros", "ones", "full", "ones_like", "zeros_like", "full_like", "arange",
    "scalar_tensor", "new_zeros", "new_ones", "new_full", "leaky_relu", "leaky_relu_backward",
    "hardtanh", "hardtanh_backward", "hardswish", "hardswish_backward", "hardsigmoid", "elu",
    "hardsigmoid_backward", "elu_backward", "mish", "mish_backward", "softplus", "clamp", "abs",
    "softplus_backward", "cos", "sin", "erf", "erfinv", "reciprocal", "square", "sign", "maximum",
    "minimum", "bernoulli", "rand_like", "randn_like", "rand", "randn", "addcmul", "addcdiv",
    "lerp", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
    "bitwise_and", "bitwise_or", "bitwise_not", "rsub", "log_sigmoid_forward", "clamp_min",
    "log_sigmoid_backward", "glu", "glu_backward", "_prelu_kernel", "_prelu_kernel_backward",
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "clamp_max",
    "avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
    "upsample_nearest2d", "upsample_nearest2d_backward", "upsample_bilinear2d", "hypot",
    "upsample_bilinear2d_backward", "one_hot", "tril_indices", "linspace", "floor", "ceil",
    "round", "fmod", "remainder", "isinf", "isnan", "exponential", "normal", "uniform", "random",
    "sgn", "log1p", "expm1", "log2", "tan", "atan2", "sinh", "cosh", "floor_divide", "randint",
    "smooth_l1_loss_backward", "mse_loss_backward", "huber_loss_backward", "randperm", "logit",
    "bitwise_xor", "binary_cross_entropy_backward", "grid_sampler_2d", "grid_sampler_2d_backward",
    "max_pool3d_with_indices", "max_pool3d_with_indices_backward", "avg_pool3d", "log10",
    "avg_pool3d_backward", "upsample_bicubic2d", "upsample_bicubic2d_backward", "polar", "selu",
    "max_pool2d", "_unsafe_masked_index", "scalar", "lift_fresh_copy", "dropout", "cosh_",
    "upsample_nearest3d", "upsample_nearest3d_backward", "upsample_nearest1d", "softshrink",
    "upsample_nearest1d_backward", "upsample_linear1d", "upsample_linear1d_backward", "complex",
    "upsample_trilinear3d", "upsample_trilinear3d_backward", "_adaptive_avg_pool3d", "bucketize",
    "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d", "adaptive_max_pool2d_backward",
}  # fmt: skip

_KINDS: dict[str, KernelKind] = {
    **dict.fromkeys(GEMMS, "gemm"), **dict.fromkeys(CONVS, "conv"),
    **dict.fromkeys(ATTENTIONS, "attention"), **dict.fromkeys(NORMS, "norm"),
    **dict.fromkeys(SOFTMAXES, "softmax"), **dict.fromkeys(GATHERS, "gather"),
    **dict.fromkeys(COPIES, "copy"), **dict.fromkeys(REDUCTIONS, "reduction"),
    **dict.fromkeys(_MAPS, "elementwise"),
}  # fmt: skip

#: Results that autocast on CUDA keeps in fp32, and their gradients. BatchNorm is not among them:
#: cuDNN runs it in the width of its input.
_HIGH = {
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "pow",
    "reciprocal", "rsqrt", "sinh", "tan", "cumprod", "cumsum", "dist", "norm", "prod", "sum",
    "renorm", "logsumexp", "softplus", "softplus_backward", "mse_loss", "mse_loss_backward",
    "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss", "huber_loss_backward", "l1_loss",
    "binary_cross_entropy_with_logits", "nll_loss_forward", "nll_loss_backward", "_log_softmax",
    "nll_loss2d_forward", "nll_loss2d_backward", "_log_softmax_backward_data", "_softmax",
    "_softmax_backward_data", "_safe_softmax", "native_layer_norm", "native_layer_norm_backward",
    "native_group_norm", "native_group_norm_backward", "linalg_vector_norm", "kl_div",
    "_cdist_forward", "_fused_rms_norm", "_fused_rms_norm_backward",
}  # fmt: skip


def kind_of(name: str) -> KernelKind:
    """The kind of an op's kernels by its base name; unknown ops count as elementwise."""
    return _KINDS.get(name) or _KINDS.get(name.rstrip("_"), "elementwise")


def is_known(name: str) -> bool:
    """Whether the op is listed here; an op that is not may do work that no formula counts."""
    return name in _KINDS or name.rstrip("_") in _KINDS or name in _HIGH


def forced_width(name: str) -> Width | None:
    """The width, ``low`` or ``high``, that autocast sets for an op; None if its inputs decide."""
    if name in GEMMS or name in CONVS or name in ATTENTIONS:
        return "low"
    return "high" if name.rstrip("_") in _HIGH or name in _HIGH else None
