"""Number formats of a training run: bytes of each kind of tensor, and which units compute.

ZeRO counts 16 bytes a parameter: 16-bit weights 2, 16-bit gradients 2, and 12 for fp32 master
weights, momentum and variance.
"""

from __future__ import annotations

from typing import Literal

from simcore.base.database import fold_name
from simcore.base.errors import UnknownName
from simcore.base.lookup import Registry
from simcore.base.record import dataclass, replace
from simcore.hardware.spec import PeakName


@dataclass(frozen=True)
class Precision:
    """Bytes of one element of each kind of tensor, and the peak that matrix products run at.

    ``low_bytes``, ``high_bytes``: the two activation classes of ``workload.graph``.
    ``master_bytes``: fp32 copy of the weights kept with the optimizer state; ``cast_bytes``:
    copies of each matrix weight that forward makes and keeps for backward: autocast's in 16 bit,
    Transformer Engine's in 8 bits as products read it in forward and, transposed, in backward
    (pytorch/module/linear.py, _Linear.forward: weightmat, saved).
    ``main_grads``: gradients accumulate in buffers that exist from the first micro-step on and are
    reduced themselves, without separate buckets (Megatron-LM's ``param.main_grad``).
    ``fused_grad_sum``: the weight gradient's product adds to the sum of earlier micro-steps
    (Megatron-LM's gradient accumulation fusion), without a kernel for the sum.
    ``input_bytes``: what products save for their weight gradient, where its format differs from
    other activations'. ``operand_bytes``: what products read, where they compute in fewer bits than
    activations have. ``cast_read_bytes``: read to convert an element to that format, or moved
    together with the operands. ``weight_cast_bytes``: moved to convert a weight's element, (in
    forward, for its input's gradient), where each product converts its own; zeros where weights are
    converted once a step when they are gathered or stored.
    ``block_scaled``: each block of a row has a scale, so that the transposed operand differs on
    every device. ``gather_bytes``: what tensor ranks gather, where it is wider than operands.
    ``narrow_state``: the optimizer state has the weights' width, as in torch's optimizers without
    fp32 master weights. ``conv_peak``: peak of convolutions, where cuDNN has one that differs from
    the products'. ``nvidia_family``: the only family of NVIDIA's devices on which Transformer
    Engine has it; empty: all with units of this peak.
    """

    name: str
    param_bytes: int
    grad_bytes: int
    master_bytes: int
    low_bytes: int
    high_bytes: int
    cast_bytes: int
    peak: PeakName
    fallbacks: tuple[PeakName, ...]
    meaning: str
    main_grads: bool = False
    fused_grad_sum: bool = False
    input_bytes: float = 0.0
    operand_bytes: float = 0.0
    cast_read_bytes: float = 0.0
    weight_cast_bytes: tuple[float, float] = (0.0, 0.0)
    block_scaled: bool = False
    gather_bytes: float = 0.0
    narrow_state: bool = False
    conv_peak: PeakName | None = None
    nvidia_family: str = ""

    def __hash__(self) -> int:
        return hash((self.name, self.grad_bytes, self.main_grads))  # few others of that name

    def cast_traffic_bytes(self, *, either_layout: bool = False) -> float:
        """Bytes moved to convert an element to the products' format.

        It is read, written, and written a second time transposed for the weight gradient.
        ``either_layout``: the device's products take transposed operands, so that one copy is
        enough.
        """
        copies = 1.0 if either_layout and not self.block_scaled else 2.0
        return self.cast_read_bytes + copies * self.operand_bytes

    @property
    def micro_scaled(self) -> bool:
        """Whether short blocks of a row or column have scales, stored next to the operand."""
        return self.block_scaled and not self.operand_bytes.is_integer()

    @property
    def autocasts(self) -> bool:
        """Whether tensors of both widths occur, as under autocast."""
        return self.low_bytes < self.high_bytes

    @property
    def native_norms(self) -> bool:
        """Whether PyTorch's own kernels compute batch norms in training, and not cuDNN's.

        cuDNN is given no bf16, and fp16 only with fp32 weights (ATen native/Normalization.cpp,
        _select_batch_norm_backend; the same in its forms since bf16 exists there, PyTorch 1.5).
        """
        return self.low_bytes == 2 and (self.peak == "bf16" or self.narrow_state)

    @property
    def base_bytes(self) -> int:
        """Bytes of a weight in the frozen base of adapters.

        Nothing updates it, and programs that train adapters under autocast store it in the format
        that products read (diffusers, examples/text_to_image/train_text_to_image_lora_sdxl.py:
        weight_dtype; also in its other scripts for adapters).
        """
        return self.low_bytes if self.autocasts else self.param_bytes

    @property
    def product_bytes(self) -> float:
        """Bytes of an element that only matrix products save."""
        return self.input_bytes or self.low_bytes

    @property
    def gathered_frac(self) -> float:
        """Bytes per element of tensor ranks' all-gathers, relative to those of their reductions.

        Products in 8 bits or fewer convert their operands before tensor ranks gather them, both
        inputs and gradients of outputs (Transformer Engine: module/linear.py, cast_to_fp8 before
        gather_along_first_dim; base.py, grad_output_preprocess; torchao: float8_tensor_parallel.py;
        torchtitan, docs/float8.md: "for TP (by default for Float8Linear)"). Reductions
        have the activations' data type.
        """
        return (self.gather_bytes or self.operand_bytes or self.low_bytes) / self.low_bytes


#: What runs on devices without fp32 and fp16: XLA multiplies fp32 in bf16 on TPUs unless told
#: otherwise (docs.jax.dev, jax.default_matmul_precision).
AMP_BF16 = "amp-bf16"
PRECISIONS: Registry[Precision] = Registry("precision")

_ALL = (
    # aten/src/ATen/Context.h: allow_tf32_cudnn = true beside Float32MatmulPrecision::HIGHEST
    Precision("fp32", 4, 4, 0, 4, 4, 0, "fp32", (),
              "fp32 as PyTorch has it since 1.12: matrix products in fp32, convolutions in TF32 on "
              "NVIDIA's GPUs that have it (torch.backends.cudnn.allow_tf32)", conv_peak="tf32"),
    Precision("fp32-ieee", 4, 4, 0, 4, 4, 0, "fp32", (),
              "fp32 everywhere, TF32 off for convolutions too"),
    Precision("tf32", 4, 4, 0, 4, 4, 0, "tf32", ("fp32",),
              "fp32 tensors, matrix products in TF32"),
    Precision("amp-fp16", 4, 4, 0, 2, 4, 2, "fp16", ("fp32",),
              "fp32 weights, autocast to fp16"),
    Precision(AMP_BF16, 4, 4, 0, 2, 4, 2, "bf16", ("fp32",),
              "fp32 weights, autocast to bf16"),
    Precision("fp16", 2, 2, 4, 2, 2, 0, "fp16", ("fp32",),
              "fp16 weights and gradients, fp32 master copy in the optimizer (16 B a parameter)"),
    Precision("bf16", 2, 2, 4, 2, 2, 0, "bf16", ("fp32",),
              "bf16 weights and gradients, fp32 master copy in the optimizer (16 B a parameter)"),
    Precision("bf16-true", 2, 2, 0, 2, 2, 0, "bf16", ("fp32",),
              "bf16 weights, gradients and optimizer state, no fp32 copy (8 B a parameter: "
              "torchtune's dtype=bf16, Lightning's bf16-true)", narrow_state=True),
    Precision("fp16-true", 2, 2, 0, 2, 2, 0, "fp16", ("fp32",),
              "fp16 weights, gradients and optimizer state, no fp32 copy (transformers' "
              "torch_dtype=float16 without autocast, Lightning's 16-true)", narrow_state=True),
    Precision("fp8", 2, 2, 4, 2, 2, 0, "fp8", ("bf16", "fp16"),
              "as bf16, matrix products in fp8, which keep their quantised inputs (Transformer "
              "Engine)", input_bytes=1.0, operand_bytes=1.0, cast_read_bytes=2.0),
    Precision("fp8-true", 2, 2, 0, 2, 2, 2, "fp8", ("bf16", "fp16"),
              "as bf16-true, matrix products in fp8, which keep their inputs and weights quantised "
              "(Transformer Engine around bf16 parameters: Lightning's transformer-engine, litgpt)",
              input_bytes=1.0, operand_bytes=1.0, cast_read_bytes=2.0, narrow_state=True),
    Precision("fp8-dynamic", 2, 2, 4, 2, 2, 0, "fp8", ("bf16", "fp16"),
              "as fp8, but inputs are kept in 16 bit and quantised again in backward (torchao)",
              operand_bytes=1.0, cast_read_bytes=2.0 + 2.0),
    # A row's scale is computed in the kernel that casts it. The transposed operand has other scales
    # and is written out in 16 bits first (torchao/testing/training/roofline_utils.py, rowwise).
    # With tensor ranks: "For rowwise recipes, we use regular TP and all-gather happens in high
    # precision" (torchtitan, models/llama3/infra/parallelize.py)
    Precision("fp8-rowwise", 2, 2, 4, 2, 2, 0, "fp8", ("bf16", "fp16"),
              "as fp8-dynamic, with a scale for each row of each operand, weights cast in every "
              "product (torchao's rowwise)", operand_bytes=1.0, cast_read_bytes=2.0 + 2.0 + 2.0,
              weight_cast_bytes=(2.0 + 1.0, 2.0 + 2.0 + 2.0 + 1.0), block_scaled=True,
              gather_bytes=2.0),
    # Transformer Engine 2.20, pytorch/quantization.py, _compute_mxfp8_support: 10.0 to below 12.0
    Precision("mxfp8", 2, 2, 4, 2, 2, 0, "fp8", ("bf16", "fp16"),
              "as fp8, with an 8-bit scale for each 32 elements (OCP Microscaling)",
              input_bytes=1 + 1 / 32, operand_bytes=1 + 1 / 32, cast_read_bytes=2.0,
              block_scaled=True, nvidia_family="Blackwell"),
    Precision("nvfp4", 2, 2, 4, 2, 2, 0, "fp4", ("fp8", "bf16"),
              "as bf16, matrix products in NVFP4, which keep their quantised inputs: 4 bits and an "
              "8-bit scale for 16 elements", input_bytes=0.5 + 1 / 16,
              operand_bytes=0.5 + 1 / 16, cast_read_bytes=2.0,
              block_scaled=True),
    Precision("mxfp4", 2, 2, 4, 2, 2, 0, "fp4", ("fp8", "bf16"),
              "as nvfp4, with an 8-bit scale for each 32 elements (OCP Microscaling; AMD's "
              "Transformer Engine)", input_bytes=0.5 + 1 / 32, operand_bytes=0.5 + 1 / 32,
              cast_read_bytes=2.0, block_scaled=True),
)  # fmt: skip
for _precision in _ALL:
    PRECISIONS.register(_precision.name)(_precision)

MainGrads = Literal["weights", "fused", "fp32"]
MAIN_GRADS: tuple[MainGrads, ...] = ("weights", "fused", "fp32")


def with_main_grads(precision: Precision, main_grads: str) -> Precision:
    """The precision with gradients of the weights' width, or accumulated and reduced in fp32.

    ``weights``: one gradient tensor a parameter, with separate buckets; ``fused``: one contiguous
    buffer of the weights' width that serves as both (Megatron-LM's --grad-reduce-in-bf16);
    ``fp32``: such a buffer in fp32. Gradients that are fp32 anyway do not change. Raises
    UnknownName.
    """
    if main_grads not in MAIN_GRADS:
        raise UnknownName("main-grads", main_grads, MAIN_GRADS)
    if main_grads == "weights" or precision.grad_bytes == 4:
        return precision
    wide = 4 if main_grads == "fp32" else precision.grad_bytes
    return replace(precision, grad_bytes=wide, main_grads=True, fused_grad_sum=True)


#: torch's names of precisions.
_TORCH_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_PRECISIONS_FOLDED = {fold_name(name): name for name in PRECISIONS} | _TORCH_NAMES


def precision_named(name: str) -> Precision:
    """The precision by name in any case and hyphenation, or torch's name. Raises UnknownName."""
    return PRECISIONS[_PRECISIONS_FOLDED.get(fold_name(name), name)]


def with_remainders(precision: Precision, wanted: bool = True) -> Precision:
    """The precision with only the lower 16 bits of master weights stored, where weights are bf16.

    bf16 is the upper half of fp32, so both halves together are the master weight. With fp16
    weights, or ``wanted`` False, the precision does not change.
    """
    if (
        not wanted
        or not precision.master_bytes
        or precision.param_bytes != 2
        or precision.name == "fp16"
    ):
        return precision
    return replace(precision, master_bytes=2)


OffloadTarget = Literal["none", "cpu", "cpu-far", "nvme"]
