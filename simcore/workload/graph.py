"""A workload as data: kernels, ops, blocks, and the order in which blocks run.

Every quantity is linear in the local batch: ``fixed + per_sample * batch``. Elements of tensors are
counted in two classes; the precision of the run decides how wide the elements of each are:

    low   results of ops that autocast runs in 16 bit (linear, conv, matmul and what follows)
    high  results that autocast keeps in fp32 (norms, softmax, losses, the residual sum)

Bytes an element: 4 and 4 in fp32 and tf32, 2 and 4 under AMP, 2 and 2 in pure 16-bit training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, get_args

from simcore.base.record import Same, dataclass, replace
from simcore.workload.saved import NOTHING, Saved

#: Kernels of fused attention that a configuration names; rates are relative to FlashAttention-2's.
#: ``attention``: torch's scaled_dot_product_attention, ``attention_masked``: under a mask tensor,
#: ``attention_flash_first``: before PyTorch 2.10; ``attention_cudnn_first``: before cuDNN 9.4;
#: ``attention_newest``: the newest FlashAttention.
FlashKind = Literal[
    "attention", "attention_v1", "attention_triton", "attention_v2", "attention_v3", "attention_v4",
    "attention_cudnn", "attention_cudnn_first", "attention_cudnn_fp8", "attention_flash_first",
    "attention_newest", "attention_masked",
]  # fmt: skip
KernelKind = Literal[
    FlashKind, "gemm", "conv", "conv_winograd", "conv_pointwise", "conv_depthwise", "copy",
    "elementwise", "norm", "batch_norm", "batch_norm_native", "softmax", "reduction", "gather",
    "recurrent", "auxiliary", "causal_conv", "chunk_products", "chunk_products_by_channel",
    "chunk_states",
]  # fmt: skip
FLASH_KINDS: tuple[KernelKind, ...] = get_args(FlashKind)
#: Kinds of convolution. ``conv_winograd``: Winograd's algorithm may compute it, which needs 3x3 at
#: stride 1, neither dilated nor in groups (Lavin & Gray 2016). cuDNN has it for all three passes
#: (cudnn.h: FWD_, BWD_DATA_ALGO_WINOGRAD, BWD_FILTER_ALGO_WINOGRAD_NONFUSED). ``conv_pointwise``:
#: 1x1 at stride 1, a product that reads the input in its present layout. ``conv_depthwise``: one
#: channel per group, computed by kernels without matrix products.
CONV_KINDS: tuple[KernelKind, ...] = ("conv", "conv_winograd", "conv_pointwise", "conv_depthwise")
#: Convolutions that are matrix products; matrix units want their operands channels last.
DENSE_CONVS: tuple[KernelKind, ...] = ("conv", "conv_winograd", "conv_pointwise")
#: Products of cuDNN's recurrent layers: torch.backends.cudnn.allow_tf32 is about them too.
RECURRENT: KernelKind = "recurrent"
#: Kernels that an operator launches beside its main one, as a sort does for each digit: they move
#: bytes as elementwise ones do, and the host launches them without a call of an operator.
AUXILIARY: KernelKind = "auxiliary"
#: Batch norms by cuDNN, and by PyTorch's own kernels, which stand beside them in an op: those of
#: which the precision runs (``Precision.native_norms``).
CUDNN_NORM: KernelKind = "batch_norm"
NATIVE_NORM: KernelKind = "batch_norm_native"
#: Elements that a kernel of matrix units loads at once where rows are aligned: 16 bytes in 16 bit.
FULL_LOAD = 8


class Affine(NamedTuple):
    """A quantity that is linear in the local batch: ``fixed + per_sample * batch``."""

    fixed: float = 0.0
    per_sample: float = 0.0


ONE, NONE = Affine(1.0, 0.0), Affine()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One device kernel, or ``launches`` equal kernels that are issued together.

    Amounts are per sample of the batch, except where the list says otherwise.

    - ``flop``: floating-point operations; a multiply-add counts 2.
    - ``low``, ``high``: elements read plus elements written, by class of width (see the module).
    - ``weight``: elements of parameters read or written per call, whatever the batch.
    - ``raw_bytes``: bytes of tensors whose width is fixed (masks, indices).
    - ``m``, ``n``, ``k``, ``groups``: geometry of a GEMM (``groups`` independent products), used
      for tile occupancy only. ``n`` of a softmax is the length of its rows, where known.
    - ``launches``: number of kernel launches.
    - ``cast``: elements converted to the format of products before this kernel, where products
      compute in 8 bits or fewer.
    - ``wide``: the product stays in 16 bit where other products compute in 8 bits or fewer.
    - ``unaligned``: rows of the operands begin at addresses that are no multiple of 8 elements, and
      vector units compute the product (a convolution: no kernel of matrix units takes it).
    - ``load_elems``: elements that a kernel of matrix units loads at a time; the addresses at which
      rows begin are multiples of it.
    - ``relaid``: elements of tensors that are channels first where a kernel of matrix units wants
      channels last, so that they are transposed.
    - ``planes``: bytes of the elements with which it is a plain product of such tensors as they are
      (16-bit, TF32).
    - ``indexed``: elements that are addressed or converted one by one because an operand is
      strided, broadcast or of another type than the result, so that PyTorch's kernel has no vector
      loads.
    - ``mixed``: elements that are ``indexed`` under autocast alone: the operands then have
      different widths.
    - ``autocasts``: elements that a separate kernel converts from one width to the other, under
      autocast alone.
    - ``rows``: rows that a thread block each reduces; ``reread_frac``: the fraction of the kernel's
      bytes that it reads a second time once the row is reduced (``physics.kernel``).
    - ``blocks``: thread blocks that together reduce all channels, mostly one a channel
      (``physics.kernel``): a number whatever the batch, and one per sample. ``block_clocks``:
      clocks per sample of all of them; 0: those of cuDNN's kernels, by the width of elements.
    - ``issues``: host work of issuing the launches, in units of one kernel launch; None:
      ``launches``.
    - ``awaited``: host work, in units of one kernel launch, during which the device is idle: the
      host reads results of the device before it knows what comes next.
    """

    kind: KernelKind
    flop: float = 0.0
    low: float = 0.0
    high: float = 0.0
    weight: float = 0.0
    raw_bytes: float = 0.0
    m: Affine = ONE
    n: Affine = ONE
    k: Affine = ONE
    groups: Affine = ONE
    launches: float = 1.0
    cast: float = 0.0
    wide: bool = False
    unaligned: bool = False
    load_elems: int = FULL_LOAD
    relaid: float = 0.0
    planes: tuple[int, ...] = ()
    indexed: float = 0.0
    mixed: float = 0.0
    autocasts: float = 0.0
    rows: float = 0.0
    reread_frac: float = 0.0
    blocks: Affine = NONE
    block_clocks: float = 0.0
    issues: float | None = None
    awaited: Affine = NONE


#: Parts of a mixture of experts (``Op.part``).
ExpertPart = Literal["", "experts", "exchange", "shared"]
#: What rules about a whole layer or model look for in its ops (``Op.role``).
OpRole = Literal[
    "",
    "mixer_sum",  # attention's or another mixer's result is added to the layer's input
    "table_sum",  # the two gradients of a table that embedding and head share are added
    "next_tokens",  # the embedding of the next tokens, for a module that predicts further tokens
    "all_logits",  # a copy of the logits of all tokens, which the loss keeps
    "buffered_logits",  # logits that a pipeline's buffer holds over the next micro-batch
    "joined_logits",  # logits of the whole vocabulary, joined from the parts of tensor ranks
]


@dataclass(frozen=True, kw_only=True)
class Op:
    """One framework operator: its forward and backward kernels, and what it saves for backward.

    - ``gemm_weight``: elements of the weight that autocast copies to 16 bit.
    - ``in_place``: the op writes its result, and backward its gradient, over its input;
      ``gradient_in_place``: backward alone does so, over what forward saved.
    - ``sink``: the op writes next to nothing (a loss), so that backward holds the gradient of its
      input and none of its output.
    - ``result``: elements that forward writes for the next op, where that is not half of the
      elements that it moves.
    - ``saves_result``: where input and result are equally large, the op saves its result.
    - ``grad_early``: elements of the weight whose gradient forward computes, piece by piece;
      ``early_flop``: FLOP of gradients that forward's kernels compute.
    - ``beside``: elements that exist while the op's kernels run, such as other ranks' keys and
      values, and in backward their gradients too.
    - ``held_by_node``: tensors that its autograd node refers to directly, not through
      save_for_backward (some of what it saves, or its input, which others save too). A checkpoint
      that is not reentrant keeps them.
    - ``part``: the part of a mixture of experts to which the op belongs: ``experts`` (the routed
      experts' products), ``exchange`` (dispatch and combination of rows) or ``shared`` (the experts
      that every token passes); empty for all other ops.
    - ``role``: what the op is to rules about its layer or model (``OpRole``); most have none.
    """

    name: str
    fwd: tuple[Kernel, ...]
    bwd: tuple[Kernel, ...] = ()
    saved: Saved = NOTHING
    gemm_weight: float = 0.0  # parameters that autocast copies to 16 bit
    in_place: bool = False
    gradient_in_place: bool = False
    sink: bool = False
    result: Saved = NOTHING
    saves_result: bool = False
    grad_early: float = 0.0
    early_flop: float = 0.0
    beside: Saved = NOTHING
    held_by_node: Saved = NOTHING
    part: ExpertPart = ""
    role: OpRole = ""

    @property
    def forward_flop(self) -> float:
        """FLOP per sample of forward itself, without gradients that its kernels compute early."""
        return sum(k.flop for k in self.fwd) - self.early_flop


def weight_grad_numel(op: Op) -> float:
    """Elements of the matrix whose gradient an op's backward computes; 0 where it computes none."""
    has = any(k.kind == "gemm" and k.k.per_sample for k in op.bwd)
    return op.gemm_weight if has and op.fwd and op.fwd[0].kind == "gemm" else 0.0


@dataclass(frozen=True)
class Param:
    """One parameter tensor. A block lists its tensors in the order of their definition.

    ``routed``: it belongs to routed experts, which expert parallelism spreads over ranks.
    """

    name: str
    numel: int
    routed: bool = False


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of the model that may repeat as a whole: the unit of recompute and of FSDP's gathers.

    - ``boundary``: the input of the block, which is all that is saved of a recomputed block.
    - ``recomputable``: whether the block is one of the repeated layers.
    - ``recomputed``: activations that selective recompute computes a second time; they are held
      while the block's backward runs.
    - ``offloaded``: activations that forward copies to the host, and backward copies back.
    - ``exchanges``: collectives among tensor ranks that forward issues; backward issues as many.
    - ``base_numel``, ``packed_bytes``: the frozen base weights under adapters: elements stored as
      wide as the trained weights, and bytes of quantised ones. ``routed_base_numel`` and
      ``routed_packed_bytes`` are the parts of these that belong to routed experts.
    """

    name: str
    ops: tuple[Op, ...]
    params: tuple[Param, ...] = ()
    boundary: Saved = NOTHING
    recomputable: bool = False
    recomputed: Saved = NOTHING
    offloaded: Saved = NOTHING
    exchanges: int = 0
    base_numel: int = 0
    packed_bytes: float = 0.0
    routed_base_numel: int = 0
    routed_packed_bytes: float = 0.0

    def routed_base_bytes(self, param_bytes: float) -> float:
        """Bytes of routed experts' frozen base weights, ``param_bytes`` per unquantised element."""
        return self.routed_base_numel * param_bytes + self.routed_packed_bytes

    def base_bytes(self, param_bytes: float) -> float:
        """Bytes of one instance's frozen base weights, ``param_bytes`` per unquantised element."""
        return self.base_numel * param_bytes + self.packed_bytes

    @cached_property
    def numel(self) -> int:
        """Parameters of one instance."""
        return sum(p.numel for p in self.params)

    @cached_property
    def largest_param_numel(self) -> int:
        """Elements of the largest parameter tensor."""
        return max((q.numel for q in self.params), default=0)

    @cached_property
    def routed_numel(self) -> int:
        """Parameters of one instance that belong to routed experts."""
        return sum(p.numel for p in self.params if p.routed)

    @cached_property
    def gemm_weights(self) -> tuple[int, float]:
        """Number of matrix weights that autocast copies to 16 bit, and their elements together."""
        sizes = [op.gemm_weight for op in self.ops if op.gemm_weight]
        return len(sizes), float(sum(sizes))

    @cached_property
    def forward_flop(self) -> float:
        """Forward FLOP of one instance, per sample."""
        return sum((op.forward_flop for op in self.ops), 0.0)

    @cached_property
    def kept_input(self) -> Saved:
        """The part of the block's input that stays on the device until the block is recomputed."""
        return self.boundary - self.offloaded

    @cached_property
    def saved(self) -> Saved:
        """Activations per sample that forward of one instance saves for backward."""
        return sum((op.saved for op in self.ops if op.saved is not NOTHING), NOTHING)


def _flop(ops: tuple[Op, ...], kinds: tuple[KernelKind, ...] = ()) -> float:
    """Forward FLOP per sample of ``ops``; only of kernels of ``kinds`` if these are given."""
    return sum((k.flop for op in ops for k in op.fwd if not kinds or k.kind in kinds), 0.0)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A network that only runs forward in each step (VAE, text encoder), on the same device.

    - ``trained``: blocks of it that are trained all the same, in the order in which they run before
      the model's own; a workload has them among its blocks.
    - ``resident_numel``: all parameters held on the device, used or not.
    - ``transient_low``: peak of live activation elements per sample while the network runs.
    - ``bytes_per_param``: storage width; None: the width follows the run's precision. With
      ``as_trained`` that is the width of trained weights under autocast too.
    """

    name: str
    resident_numel: int
    ops: tuple[Op, ...]
    transient_low: float = 0.0
    bytes_per_param: float | None = None
    as_trained: bool = False
    trained: tuple[Block, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """A model with the shape of one sample fixed.

    ``order`` lists indices into ``blocks`` in the order of forward. Workloads are compared and
    hashed by identity: caches keyed by a workload must not walk thousands of ops.
    """

    name: str
    sample_unit: str
    blocks: tuple[Block, ...]
    order: tuple[int, ...]
    frozen: tuple[Frozen, ...] = ()
    buffers_numel: int = 0  # frozen tensors of the trained module itself (position tables, …)
    n_buffers: int = 0  # number of such tensors, which DDP broadcasts before each forward
    sync_norms: int = 0  # batch norms with statistics over all ranks
    sync_norm_wait_s: float = 0.0  # wait before each exchange of these statistics
    exchanges: tuple[Any, ...] = ()  # the script's own collectives (``models.Exchange``)
    input_bytes: float = 0.0  # host-to-device bytes per sample
    tokens_per_sample: float = 0.0
    frozen_weight_flop: float = 0.0  # per sample: gradients of frozen weights, not computed
    uneven_flop: float = 0.0  # forward, per sample: experts' rows beyond balanced routing
    work_sd_frac: float = 0.0  # standard deviation over mean of a sample's work
    modules_of: str = ""  # kind of source whose library's modules a plain loop runs
    encoder_blocks: int = 0  # leading blocks of ``order`` that belong to a trained encoder
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.order or min(self.order) < 0 or max(self.order) >= len(self.blocks):
            raise ValueError(f"{self.name}: order must index blocks")

    def instances(self) -> Iterator[Block]:
        """Blocks in forward order, repeats included."""
        return (self.blocks[i] for i in self.order)

    @cached_property
    def frozen_base_numel(self) -> int:
        """Parameters of the frozen base weights under adapters; they have no kernels here."""
        return sum(f.resident_numel for f in self.frozen if not f.ops)

    @cached_property
    def kinds(self) -> Workload:
        """The same blocks and frozen networks, each block run once.

        They determine the kernels of each phase. All parts of a model that agree in them share one
        object, however often each block runs.
        """
        return _kinds(tuple(map(Same, self.blocks)), tuple(map(Same, self.frozen)))

    def count(self, block_index: int) -> int:
        """Number of times that a block runs in one forward."""
        return self.order.count(block_index)

    @cached_property
    def repeats(self) -> tuple[tuple[Block, int], ...]:
        """Each block that runs, with the number of times that it runs in one forward."""
        return tuple((self.blocks[i], n) for i, n in Counter(self.order).items())

    @cached_property
    def layer_starts(self) -> tuple[int, ...]:
        """Indices in ``order`` at which repeated layers begin.

        Blocks between one repeated layer and the next belong to the former.
        """
        return tuple(i for i, b in enumerate(self.order) if self.blocks[b].recomputable)

    @cached_property
    def trainable_numel(self) -> int:
        """Trained parameters; a tied tensor counts once."""
        return sum(n * b.numel for b, n in self.repeats)

    @cached_property
    def expert_numel(self) -> int:
        """Trained parameters of routed experts, which expert parallelism spreads over ranks."""
        return sum(n * b.routed_numel for b, n in self.repeats)

    @cached_property
    def largest_param_numel(self) -> int:
        """Elements of the largest parameter tensor."""
        return max(b.largest_param_numel for b in self.blocks)

    @cached_property
    def largest_block_numel(self) -> int:
        """Trained parameters of the largest block."""
        return max(b.numel for b in self.blocks)

    @cached_property
    def layers_numel(self) -> int:
        """Trained parameters of the repeated layers."""
        return sum(n * b.numel for b, n in self.repeats if b.recomputable)

    @cached_property
    def layer_weight_shapes(self) -> frozenset[tuple[float, float]]:
        """Distinct shapes of the matrices in repeated layers that have a gradient."""
        return frozenset(
            (op.fwd[0].k.fixed, op.fwd[0].n.fixed)
            for b in self.blocks if b.recomputable
            for op in b.ops if weight_grad_numel(op)
        )  # fmt: skip

    @cached_property
    def forward_flop(self) -> float:
        """Forward FLOP per sample of the trained model (2 x MAC, frozen parts excluded)."""
        return sum(n * b.forward_flop for b, n in self.repeats)

    @cached_property
    def model_flop(self) -> float:
        """FLOP per sample of a step as MFU counts them: without recompute and padding of experts.

        Forward once and backward twice, less the gradients that frozen weights do not need.
        """
        trained = 3.0 * (self.forward_flop - self.uneven_flop) - self.frozen_weight_flop
        return trained + self.frozen_flop

    @cached_property
    def frozen_flop(self) -> float:
        """FLOP per sample of the frozen parts."""
        return sum(_flop(f.ops) for f in self.frozen)

    @cached_property
    def n_tensors(self) -> int:
        """Trained parameter tensors."""
        return sum(n * len(b.params) for b, n in self.repeats)

    @cached_property
    def tensor_sizes(self) -> Counter[int]:
        """Number of trained parameter tensors by number of elements."""
        return Counter(p.numel for b in self.instances() for p in b.params)

    @cached_property
    def gemm_weights(self) -> tuple[int, float]:
        """Number of matrix weights that autocast copies to 16 bit, and their elements together."""
        found = [(n, *b.gemm_weights) for b, n in self.repeats]
        return sum(n * count for n, count, _ in found), float(sum(n * w for n, _, w in found))

    @cached_property
    def conv_frac(self) -> float:
        """Fraction of a training step's FLOP in convolutions (``_share``)."""
        return self._frac_of(CONV_KINDS)

    @cached_property
    def cudnn_frac(self) -> float:
        """Fraction of a training step's FLOP in convolutions and fused recurrent layers."""
        return self._frac_of((*CONV_KINDS, RECURRENT))

    def _frac_of(self, kinds: tuple[KernelKind, ...]) -> float:
        trained = sum(n * _flop(b.ops, kinds) for b, n in self.repeats)
        return self._share(trained, sum(_flop(f.ops, kinds) for f in self.frozen))

    def _share(self, trained: float, frozen: float = 0.0) -> float:
        """These forward FLOP over all of a step: trained ones count three times, frozen once."""
        total = 3.0 * self.forward_flop + self.frozen_flop
        return min(1.0, (3.0 * trained + frozen) / total) if total else 0.0

    @cached_property
    def channels_first(self) -> bool:
        """Whether convolutions read tensors that are channels first."""
        ops = [*(b.ops for b in self.blocks), *(f.ops for f in self.frozen)]
        kernels = (k for part in ops for op in part for k in (*op.fwd, *op.bwd))
        return any(k.relaid and k.kind in DENSE_CONVS for k in kernels)

    @cached_property
    def layered_frac(self) -> float:
        """Fraction of a training step's FLOP in repeated layers (``_share``)."""
        return self._share(sum(n * b.forward_flop for b, n in self.repeats if b.recomputable))

    @property
    def saved(self) -> Saved:
        """Activations per sample that forward saves for backward, without recompute."""
        return sum((block.saved for block in self.instances()), NOTHING)

    def replace(self, **changes: object) -> Workload:
        """A copy with some fields changed."""
        return replace(self, **changes)


@lru_cache(maxsize=1000)
def _kinds(blocks: tuple[Same[Block], ...], frozen: tuple[Same[Frozen], ...]) -> Workload:
    return Workload(
        name="kinds", sample_unit="", blocks=tuple(b.it for b in blocks),
        order=tuple(range(len(blocks))), frozen=tuple(f.it for f in frozen),
    )  # fmt: skip
