"""A workload as data: kernels, ops, blocks, and the order in which blocks run.

Everything is linear in the local batch: a quantity is ``fixed + per_sample * batch``. Element
counts come in two classes, whose width the precision decides:

    low   results of ops that autocast runs in 16 bit (linear, conv, matmul and what follows)
    high  results that autocast keeps in fp32 (norms, softmax, losses, the residual sum)

fp32/tf32: 4 and 4 bytes; AMP: 2 and 4; pure 16-bit training: 2 and 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal

from simcore.workload.saved import NOTHING, Saved

KernelKind = Literal[
    "gemm", "conv", "conv_winograd", "conv_pointwise", "conv_depthwise", "attention",
    "attention_v1", "attention_triton", "attention_v2", "attention_v3", "attention_cudnn",
    "attention_cudnn_fp8", "elementwise", "norm", "batch_norm", "softmax", "reduction", "gather",
    "copy",
]  # fmt: skip
#: Kernels of fused attention that a configuration names, at a rate over FlashAttention-2's;
#: ``attention`` is what torch's scaled_dot_product_attention takes on the device.
OTHER_FLASH: tuple[KernelKind, ...] = (
    "attention_v1", "attention_triton", "attention_v2", "attention_v3", "attention_cudnn",
    "attention_cudnn_fp8",
)  # fmt: skip
FLASH_KINDS: tuple[KernelKind, ...] = ("attention", *OTHER_FLASH)
#: Convolutions; the second are those that Winograd's algorithm may compute: 3x3 at stride 1,
#: neither dilated nor in groups (Lavin & Gray 2016). cuDNN has it for all three passes (cudnn.h:
#: FWD_ALGO_WINOGRAD, BWD_DATA_ALGO_WINOGRAD, BWD_FILTER_ALGO_WINOGRAD_NONFUSED). The third, 1x1 at
#: stride 1, are matrix products of the input as it lies. The last have one channel a group: kernels
#: without products.
CONV_KINDS: tuple[KernelKind, ...] = (
    "conv", "conv_winograd", "conv_pointwise", "conv_depthwise",
)  # fmt: skip
#: Those that are products, whose operands matrix units want channels last.
DENSE_CONVS: tuple[KernelKind, ...] = ("conv", "conv_winograd", "conv_pointwise")
#: Elements that a matrix unit's kernel loads at a time of aligned rows: 16 bytes in 16 bit.
FULL_LOAD = 8
#: Ops by whose names a cut finds a table that two blocks share: the first sums up its two gradients
#: where the head reads the embedding's, the second looks the next tokens of a further-token module
#: up in it.
TIE = "tie"
NEXT_TOKENS = "mtp.tokens"


@dataclass(frozen=True, slots=True)
class Affine:
    """``fixed + per_sample * batch``."""

    fixed: float = 0.0
    per_sample: float = 0.0


ONE = Affine(1.0, 0.0)
NONE = Affine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One device kernel (or ``launches`` equal ones issued together).

    ``flop`` counts 2 per multiply-add, per sample. ``low``/``high`` are elements read plus written
    per sample, ``weight`` elements of parameters read or written per call whatever the batch,
    ``raw_bytes`` bytes per sample of fixed width (masks, indices). GEMM geometry ``m n k groups``
    (``groups`` independent products) is used for tile occupancy only; ``n`` of a softmax is the
    length of its rows, where known. Where products compute in 8 bits or fewer, ``cast`` elements
    per sample are brought to that format before this one; a ``wide`` product stays in 16 bit.
    ``unaligned``: rows of its operands begin at addresses that 8 elements do not divide, and vector
    units compute it (a convolution: no kernel of matrix units takes it); ``load_elems``: that many
    do divide them, and matrix units load as many at a time. ``relaid`` elements per sample are of
    tensors that are channels first where a kernel of matrix units wants channels last; with
    ``planes`` 16-bit products take them as they lie. ``indexed`` elements per sample are addressed
    or converted one by one: an operand is strided, broadcast or of another type than the result, so
    that PyTorch's kernel has no vector loads. Under autocast alone so are ``mixed`` elements, whose
    operands are of both widths, and ``autocasts`` elements are brought from one width to the other
    by a kernel beside this one. ``rows`` per sample are a block each of the kernel, which reads the
    share ``again`` of its bytes a second time once a row is reduced (``physics.rows``).
    ``channels`` are a block each whatever the batch (``physics.channels``), ``instances`` per
    sample beside them: instance norm is a batch norm of each image's channels. ``issues``: what
    issuing the launches costs the host, in kernels' worth, where they are not issued one by one.
    ``awaited``: what the host does, in kernels' worth, while the device has nothing left to do: it
    reads results of the device before it knows what comes next.
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
    planes: bool = False
    indexed: float = 0.0
    mixed: float = 0.0
    autocasts: float = 0.0
    rows: float = 0.0
    again: float = 0.0
    channels: float = 0.0
    instances: float = 0.0
    issues: float | None = None
    awaited: Affine = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One framework operator: its forward and backward kernels and what it saves.

    ``sink``: it writes next to nothing, so that backward makes its input's gradient alone.
    ``in_place``: it writes its result, and backward its gradient, into the storage that it reads.
    ``result``: what forward writes for the next op, where that is not half of what it moves.
    ``saves_result``: of an input and a result as large, it is the result that is saved.
    ``grad_early``: elements of the weight whose gradient forward makes already, piece by piece;
    ``early_flop``: work of gradients among forward's kernels.
    """

    name: str
    fwd: tuple[Kernel, ...]
    bwd: tuple[Kernel, ...] = ()
    saved: Saved = NOTHING
    gemm_weight: float = 0.0  # parameters that autocast copies to 16 bit
    in_place: bool = False
    sink: bool = False
    result: Saved = NOTHING
    saves_result: bool = False
    grad_early: float = 0.0
    early_flop: float = 0.0

    @property
    def forward_flop(self) -> float:
        """Work a sample of forward itself."""
        return sum(k.flop for k in self.fwd) - self.early_flop


def weight_grad_numel(op: Op) -> float:
    """Elements of the matrix that an op's backward makes the gradient of; 0 where it makes none."""
    has = any(k.kind == "gemm" and k.k.per_sample for k in op.bwd)
    return op.gemm_weight if has and op.fwd and op.fwd[0].kind == "gemm" else 0.0


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter tensor, in definition order."""

    name: str
    numel: int

    @property
    def routed(self) -> bool:
        """Whether it belongs to routed experts, which expert parallelism spreads over ranks."""
        return self.name.startswith("experts.")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A stretch of the model that repeats as a whole; the unit of recompute and of gathering.

    ``boundary`` is what is kept of a block that is recomputed: its input. ``remade`` is what
    selective recompute makes again, held while the block's backward runs; ``away`` what goes to
    the host in forward and comes back in backward. ``exchanges``: collectives among tensor ranks
    that its forward issues, and its backward. ``base_numel``, ``packed_bytes``: of adapters' frozen
    base, what is as wide as the weights and what is quantised; ``routed_base_numel``,
    ``routed_packed_bytes``: of these, what is experts'.
    """

    name: str
    ops: tuple[Op, ...]
    params: tuple[Param, ...] = ()
    boundary: Saved = NOTHING
    recomputable: bool = False
    remade: Saved = NOTHING
    away: Saved = NOTHING
    exchanges: int = 0
    base_numel: int = 0
    packed_bytes: float = 0.0
    routed_base_numel: int = 0
    routed_packed_bytes: float = 0.0

    def routed_base_bytes(self, param_bytes: float) -> float:
        """What of the frozen base belongs to routed experts."""
        return self.routed_base_numel * param_bytes + self.routed_packed_bytes

    def base_bytes(self, param_bytes: float) -> float:
        """The frozen base of adapters in one instance, where weights are so wide."""
        return self.base_numel * param_bytes + self.packed_bytes

    @cached_property
    def numel(self) -> int:
        """Parameters of one instance."""
        return sum(p.numel for p in self.params)

    @cached_property
    def largest_param_numel(self) -> int:
        """Elements of its largest parameter tensor."""
        return max((q.numel for q in self.params), default=0)

    @cached_property
    def routed_numel(self) -> int:
        """Of these, those of routed experts."""
        return sum(p.numel for p in self.params if p.routed)

    @cached_property
    def gemm_weights(self) -> tuple[int, float]:
        """(how many matrix weights autocast copies, their elements)."""
        sizes = [op.gemm_weight for op in self.ops if op.gemm_weight]
        return len(sizes), float(sum(sizes))

    @cached_property
    def forward_flop(self) -> float:
        """Forward FLOP of one instance, per sample."""
        return sum((op.forward_flop for op in self.ops), 0.0)

    @cached_property
    def kept_input(self) -> Saved:
        """What of it stays on the device where it is recomputed."""
        return self.boundary - self.away

    @cached_property
    def saved(self) -> Saved:
        """Activation storages that one instance pins, per sample."""
        total = NOTHING
        for op in self.ops:
            total = total + op.saved
        return total


def _flop(ops: tuple[Op, ...], kinds: tuple[KernelKind, ...] = ()) -> float:
    """Forward FLOP per sample of some operators; of some kinds of kernel, where they are given."""
    return sum((k.flop for op in ops for k in op.fwd if not kinds or k.kind in kinds), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A network that only runs forward in each step (VAE, text encoder), on the same device.

    ``resident_numel`` counts every parameter held on the device, used or not;
    ``transient_low`` is the peak of live activation elements per sample while it runs.
    ``bytes_per_param`` is its storage width; None means it follows the run's precision, and that of
    trained weights under autocast too with ``as_trained``.
    """

    name: str
    resident_numel: int
    ops: tuple[Op, ...]
    transient_low: float = 0.0
    bytes_per_param: float | None = None
    as_trained: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """A model with the shape of one sample fixed. ``order`` indexes ``blocks`` as forward runs.

    Compared and hashed by identity: caches keyed by a workload must not walk thousands of ops.
    """

    name: str
    sample_unit: str
    blocks: tuple[Block, ...]
    order: tuple[int, ...]
    frozen: tuple[Frozen, ...] = ()
    buffers_numel: int = 0  # frozen tensors of the trained module itself (position tables, …)
    n_buffers: int = 0  # how many such tensors DDP broadcasts each forward
    sync_norms: int = 0  # batch norms whose statistics all ranks average
    sync_norm_wait_s: float = 0.0  # before each such exchange is sent
    input_bytes: float = 0.0  # host-to-device bytes per sample
    tokens_per_sample: float = 0.0
    frozen_weight_flop: float = 0.0  # per sample: weight gradients that frozen weights do not need
    uneven_flop: float = 0.0  # forward, per sample: experts' beyond those of balanced routing
    work_sd_frac: float = 0.0  # standard deviation of one sample's work over the mean
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.order or any(not 0 <= i < len(self.blocks) for i in self.order):
            raise ValueError(f"{self.name}: order must index blocks")

    def instances(self) -> Iterator[Block]:
        """Blocks in forward order, repeats included."""
        return (self.blocks[i] for i in self.order)

    @cached_property
    def frozen_base_numel(self) -> int:
        """Parameters that adapters train beside: resident, without work of their own."""
        return sum(f.resident_numel for f in self.frozen if not f.ops)

    @cached_property
    def outline(self) -> Workload:
        """The same blocks, parameters and buffers without what they compute and save.

        What shapes a step's graph; one object for all models that agree in it, whatever the
        length of a sample.
        """
        return _outline(
            tuple(replace(b, ops=(), boundary=NOTHING, remade=NOTHING) for b in self.blocks),
            self.order,
            tuple(replace(f, ops=()) for f in self.frozen),
            self.buffers_numel,
            self.n_buffers,
            self.sync_norms,
        )

    def count(self, block_index: int) -> int:
        """How many times a block runs in one forward."""
        return self.order.count(block_index)

    @cached_property
    def repeats(self) -> tuple[tuple[Block, int], ...]:
        """Each block that runs and how many times it does in one forward."""
        return tuple((self.blocks[i], n) for i, n in Counter(self.order).items())

    @cached_property
    def layer_starts(self) -> tuple[int, ...]:
        """Where in ``order`` the repeated layers begin; what follows one is its, up to the next."""
        return tuple(i for i, b in enumerate(self.order) if self.blocks[b].recomputable)

    @cached_property
    def trainable_numel(self) -> int:
        """Trained parameters, ties counted once."""
        return sum(n * b.numel for b, n in self.repeats)

    @cached_property
    def expert_numel(self) -> int:
        """Trained parameters of routed experts: what expert parallelism spreads over ranks."""
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
        """Shapes of the matrices in repeated layers that have a gradient, each once."""
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
        """FLOP of a step per sample as MFU counts them: no recompute, no padding of experts.

        Forward once and backward twice, less what frozen weights do not need.
        """
        forward = self.forward_flop - self.uneven_flop
        return 3.0 * forward - self.frozen_weight_flop + self.frozen_flop

    @cached_property
    def frozen_flop(self) -> float:
        """FLOP per sample of the frozen parts."""
        return sum(_flop(f.ops) for f in self.frozen)

    @cached_property
    def n_tensors(self) -> int:
        """Trained parameter tensors."""
        return self.tensor_sizes.total()

    @cached_property
    def tensor_sizes(self) -> Counter[int]:
        """How many trained parameter tensors have so many elements."""
        return Counter(p.numel for b in self.instances() for p in b.params)

    @cached_property
    def gemm_weights(self) -> tuple[int, float]:
        """(how many matrix weights autocast copies, their elements)."""
        found = [(n, *b.gemm_weights) for b, n in self.repeats]
        return sum(n * count for n, count, _ in found), float(sum(n * w for n, _, w in found))

    @cached_property
    def conv_frac(self) -> float:
        """Share of convolutions in a training step's FLOP, frozen parts once, the model thrice."""
        trained = sum(n * _flop(b.ops, CONV_KINDS) for b, n in self.repeats)
        frozen = sum(_flop(f.ops, CONV_KINDS) for f in self.frozen)
        total = 3.0 * self.forward_flop + self.frozen_flop
        return (3.0 * trained + frozen) / total if total else 0.0

    @cached_property
    def channels_first(self) -> bool:
        """Whether convolutions are given tensors that are channels first."""
        ops = [*(b.ops for b in self.blocks), *(f.ops for f in self.frozen)]
        kernels = (k for part in ops for op in part for k in (*op.fwd, *op.bwd))
        return any(k.relaid and k.kind in DENSE_CONVS for k in kernels)

    @cached_property
    def layered_frac(self) -> float:
        """Share of a training step's FLOP in repeated layers, frozen parts once, those thrice."""
        layered = sum(n * b.forward_flop for b, n in self.repeats if b.recomputable)
        total = 3.0 * self.forward_flop + self.frozen_flop
        return min(1.0, 3.0 * layered / total) if total else 0.0

    @property
    def saved(self) -> Saved:
        """Activation storages that forward pins, per sample, without recompute."""
        total = NOTHING
        for block in self.instances():
            total = total + block.saved
        return total

    def replace(self, **changes: object) -> Workload:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _outline(
    blocks: tuple[Block, ...],
    order: tuple[int, ...],
    frozen: tuple[Frozen, ...],
    buffers_numel: int,
    n_buffers: int,
    sync_norms: int,
) -> Workload:
    return Workload(
        name="outline", sample_unit="", blocks=blocks, order=order, frozen=frozen,
        buffers_numel=buffers_numel, n_buffers=n_buffers, sync_norms=sync_norms,
    )  # fmt: skip
