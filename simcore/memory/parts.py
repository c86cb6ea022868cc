"""What memory is computed from: sizes and moments of parts of a model, and memory beside tensors.

Beside a rank's own tensors are workspaces of products, NCCL's buffers and the context. A
communicator has one set of buffers for each connection and channel. Its size does not grow with
the number of ranks: each protocol has a ring buffer of a fixed number of steps (NCCL, init.cc,
computeBuffSizes). Within a node a rank connects to its ring neighbour and, with more than two
ranks, to two tree neighbours. For the network it has buffers that the NIC reads and writes
directly; the smallest protocol (LL) needs none there (transport/net.cc), and a NIC that cannot
reach device memory needs none at all.

# C configs, N parts of a model, J ops, S saved storages
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import Same, dataclass
from simcore.base.units import FP32_BYTES, MIB
from simcore.hardware.paths import cluster_paths
from simcore.memory.moments import Moments, Walked, moments_of
from simcore.request.resolved import Request
from simcore.step.parallel import blocks_ahead, outer_layers_stay
from simcore.step.transients import output_bytes, saved_bytes, storages, swapped_base
from simcore.strategy.layout import Layout
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Frozen, Workload


class SavedActivations(NamedTuple):
    """Bytes per sample that forward saves for backward.

    ``kept``: all of them; ``inputs``: those that are inputs of recomputed blocks; ``storages``:
    how many storages there are of each size.
    """

    kept: float
    inputs: float
    storages: dict[float, float]


@lru_cache(maxsize=1000)
def saved_activations(workload: Workload, p: Precision, recompute: bool) -> SavedActivations:
    """What a part of a model saves, for one precision and recompute policy."""
    kept = inputs = 0.0
    sizes: dict[float, float] = {}
    for block, times in workload.repeats:
        again = recompute and block.recomputable
        saved, each = _saved_of(Same(block), p, again)
        kept, inputs = kept + saved * times, inputs + saved * times * again
        for n in each:
            sizes[n] = sizes.get(n, 0.0) + times
    return SavedActivations(kept, inputs, sizes)


@lru_cache(maxsize=2000)
def _saved_of(block: Same[Block], p: Precision, again: bool) -> tuple[float, tuple[float, ...]]:
    """Bytes per sample that a block saves, and each of their storages.

    ``again``: it is recomputed, so that only its input is saved.
    """
    parts = [block.it.kept_input] if again else [op.saved for op in block.it.ops]
    saved = saved_bytes(block.it.kept_input if again else block.it.saved, p)
    return saved, tuple(n for part in parts for n in storages(part, p))


def frozen_width(net: Frozen, p: Precision) -> float:
    """Bytes per parameter of a frozen network."""
    if net.bytes_per_param is not None:
        return net.bytes_per_param
    return p.param_bytes if net.ops or net.as_trained else p.base_bytes


def live_bytes(net: Frozen, p: Precision) -> int:
    """Bytes per element of a frozen network's activations: fp32 where it is stored in fp32."""
    return FP32_BYTES if net.bytes_per_param == FP32_BYTES else p.low_bytes


def frozen_base(workload: Workload, p: Precision) -> tuple[float, float]:
    """Bytes of the adapters' frozen base in the blocks: (all of it, routed experts')."""
    resident = sum(f.resident_numel * frozen_width(f, p) for f in workload.frozen if not f.ops)
    whole = min(sum(n * b.base_bytes(p.base_bytes) for b, n in workload.repeats), resident)
    routed = sum(n * b.routed_base_bytes(p.base_bytes) for b, n in workload.repeats)
    return whole, min(routed, whole)


def frozen_away(
    base: tuple[Array, Array] | tuple[float, float], shards: Array | float, expert_ranks: float
) -> Array:
    """Bytes of a frozen base that ZeRO-3 keeps on other ranks; it is sharded like trained
    parameters.

    DeepSpeed partitions every parameter, FSDP every one of a wrapped module, trained or not. An
    expert's is sharded among the ranks that hold the same experts (``parallel.zero.holdings``).
    """
    whole, routed = base
    of_expert = np.maximum(np.asarray(shards) / expert_ranks, 1.0)
    return (whole - routed) * (1.0 - 1.0 / np.asarray(shards)) + routed * (1.0 - 1.0 / of_expert)


def hands_stubs(strategy: Strategy) -> bool:
    """Whether autograd gets a stub in place of gradients that a kernel adds to main gradients."""
    stub = strategy.program.gradients.stub_after_fused_sum
    return strategy.precision.main_grads and strategy.zero_stage < 3 and stub


def early_bytes(p: Precision) -> int:
    """Bytes an element of a gradient made in forward: itself, a piece of it as a product and in
    fp32 (Liger-Kernel, fused linear cross-entropy).
    """
    return p.param_bytes + p.low_bytes + FP32_BYTES


def stub_bytes(workload: Workload, p: Precision) -> float:
    """Bytes of the tensors that stand in for gradients under fused sums into main gradients.

    Autograd gets them in place of a gradient. Transformer Engine keeps one tensor of the weights'
    width for each weight shape (module/base.py, get_dummy_wgrad); Megatron-LM's own head makes a
    new one each time (layers.py).
    """
    return p.main_grads * p.param_bytes * sum(k * n for k, n in workload.layer_weight_shapes)


def rests_of_loss(workload: Workload, p: Precision) -> float:
    """Bytes per sample that logits leave of the blocks which they are cut from.

    Logits that stay in a pipeline's buffer over the next micro-batch, and the parts that tensor
    ranks gather and join, are put into blocks that the loss has freed. Its tensors are larger
    (fp32), so that the next one does not fit into what is left. Replays of last stages
    (docs/memory.md) have holes as large as the difference, once for the buffer and once for the
    parts.
    """
    first, last = (workload.blocks[workload.order[end]] for end in (0, -1))
    cut = [saved_bytes(op.saved, p) for op in first.ops if op.role == "buffered_logits"]
    cut += [output_bytes(op, p) for op in last.ops if op.role == "joined_logits"]
    of_loss = max((saved_bytes(op.saved, p) for op in last.ops), default=0.0) if cut else 0.0
    return sum(max(of_loss - n_bytes, 0.0) for n_bytes in cut)


class PartSizes(NamedTuple):
    """Sizes that the memory of a part of a model is computed from; arrays [N] or [C].

    Element counts are those of ``Workload``; bytes are those of ``SavedActivations``, of frozen
    networks (live in their forward, with a sample; resident), of the base of adapters (all, routed
    experts', and ``swapped_base``), of ``stub_bytes``, and of ``rests_of_loss``.
    """

    trainable_numel: Array
    expert_numel: Array
    layers_numel: Array
    largest_block_numel: Array
    largest_param_numel: Array
    kept: Array
    inputs: Array
    transient_frozen: Array
    resident_frozen: Array
    base: Array
    routed_base: Array
    swapped_base: Array
    stubs: Array
    rests: Array


def _sizes(w: Workload, p: Precision, saved: SavedActivations, swapped: int) -> tuple[float, ...]:
    """One part's values of ``PartSizes``, in its order."""
    transient = max((f.transient_low * live_bytes(f, p) for f in w.frozen), default=0.0)
    resident = sum(f.resident_numel * frozen_width(f, p) for f in w.frozen)
    return (
        w.trainable_numel, w.expert_numel, w.layers_numel, w.largest_block_numel,
        w.largest_param_numel, saved.kept, saved.inputs, transient,
        resident + w.buffers_numel * p.param_bytes, *frozen_base(w, p),
        swapped_base(w, p, swapped), stub_bytes(w, p), rests_of_loss(w, p),
    )  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """Several parts of one model: ``sizes`` [N], ``moments`` [J, N], storages [S, N].

    A part with fewer storages than others is padded with storages whose count is zero.
    ``recomputed`` [N]: whether the layers of each part are checkpointed.
    """

    sizes: PartSizes
    moments: Moments
    storage_bytes: Array
    storage_count: Array
    recomputed: NDArray[np.bool_]

    def sizes_at(self, part: NDArray[np.intp]) -> PartSizes:
        """The sizes of each configuration's part; ``part`` [C] is its index."""
        if len(self.storage_bytes[0]) == 1:
            return self.sizes
        return PartSizes(*np.array(self.sizes)[:, part])


def holds_checkpoint_inputs(strategy: Strategy) -> bool:
    """Whether inputs of checkpoints stay until backward ends, beside a frozen base.

    FSDP 1 reshards a unit of frozen parameters by a hook on the unit's inputs
    (torch/distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook), which is
    removed when backward ends (_finalize_params). The hook has the node that adds up the input's
    gradient (torch/autograd/graph.py, register_multi_grad_hook), and that node has the input, where
    it is a leaf: the detached input of a reentrant checkpoint.
    """
    program = strategy.program
    hooked = program.fsdp.holds_checkpoint_inputs and program.recompute.reentrant
    return hooked and strategy.zero_stage >= 2


def joined_moments(parts: Sequence[Moments]) -> Moments:
    """Moments of several workloads, arrays [J, workloads]; shorter lists repeat their first row."""
    table = [[getattr(m, f.name) for f in fields(Moments)] for m in parts]
    longest = max(len(columns[0]) for columns in table)
    rows = [np.where(np.arange(longest) < len(c[0]), np.arange(longest), 0) for c in table]
    return Moments(
        *(
            np.stack([column[row] for column, row in zip(of, rows, strict=True)], axis=1)
            for of in zip(*table, strict=True)
        )
    )


def parts_of(
    workloads: tuple[Workload, ...], strategy: Strategy, recomputed: tuple[bool, ...] = ()
) -> Parts:
    """The inputs of ``memory_of``, for one part of a model or several.

    ``recomputed``: as in ``Parts``; empty: for all as the strategy says.
    """
    program = strategy.program
    return _parts(
        workloads, strategy.precision,
        recomputed or (strategy.recompute == "full",) * len(workloads),
        tuple(blocks_ahead(w, strategy) for w in workloads), outer_layers_stay(strategy),
        program.zero3.tensors_at_once, program.fsdp.queued_numel, strategy.offload.blocks,
        holds_checkpoint_inputs(strategy),
    )  # fmt: skip


@lru_cache(maxsize=1000)
def _parts(
    workloads: tuple[Workload, ...], p: Precision, recomputed: tuple[bool, ...],
    ahead: tuple[int, ...], root: bool, tensors: int, queued: float, swapped: int, stay: bool,
) -> Parts:  # fmt: skip
    saved = [saved_activations(w, p, r) for w, r in zip(workloads, recomputed, strict=True)]
    sizes = [_sizes(w, p, a, swapped) for w, a in zip(workloads, saved, strict=True)]
    stored = np.zeros((2, max([1, *(len(a.storages) for a in saved)]), len(saved)))
    for n, a in enumerate(saved):
        stored[:, : len(a.storages), n] = list(a.storages), list(a.storages.values())
    walks = [
        Walked(w, again, n, stay and frozen_base(w, p)[0] > 0.0)
        for w, again, n in zip(workloads, recomputed, ahead, strict=True)
    ]
    moments = joined_moments(moments_of(walks, p, root, tensors, queued))
    of_parts = PartSizes(*np.array(sizes, dtype=np.float64).T)
    return Parts(of_parts, moments, stored[0], stored[1], np.array(recomputed))


#: cuBLAS workspace that PyTorch reserves for each handle: CUBLAS_WORKSPACE_CONFIG's default
#: ":4096:2:16:8", i.e. 2 x 4096 KiB + 8 x 16 KiB (docs.pytorch.org, notes/randomness); 32 MiB from
#: Hopper on (parseChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp).
CUBLAS_HANDLE_BYTES = 2 * 4 * MIB + MIB // 8
CUBLAS_HANDLE_BYTES_HOPPER = 32 * MIB
#: cuBLAS handles of a rank: one of the thread that runs forward, one of autograd's thread.
CUBLAS_HANDLES = 2
CUBLAS_WORKSPACE_BYTES = CUBLAS_HANDLES * CUBLAS_HANDLE_BYTES
#: Workspace that Transformer Engine allocates for its own products (pytorch/cpp_extensions/gemm.py,
#: get_cublas_workspace_size_bytes), before Hopper and from it on.
ENGINE_BYTES = 4 * MIB
ENGINE_BYTES_HOPPER = 32 * MIB
#: Streams among which its grouped products alternate, each with such a workspace
#: (common/util/multi_stream.cpp, get_num_compute_streams), and those of products that overlap with
#: the exchanges of tensor ranks (gemm.py, _NUM_MAX_UB_STREAMS).
ENGINE_GROUPED_STREAMS = 4
ENGINE_OVERLAP_STREAMS = 3


def engine_workspaces(strategy: Strategy, workload: Workload, tensor_ranks: int = 1) -> int:
    """Number of Transformer Engine's workspaces on a rank; 0 where it runs no products.

    One for all products, and more for grouped products of experts that a loop in C++ issues and for
    products of ``tensor_ranks`` that overlap with their exchanges. Each is allocated once and kept
    (pytorch/cpp_extensions/gemm.py, get_cublas_workspace).
    """
    layers = strategy.program.layers
    experts = [op for block in workload.blocks for op in block.ops if op.part == "experts"]
    if not layers.engine_workspaces:
        return int(layers.engine_routers and bool(experts))
    grouped = any(k.issues is not None for op in experts for k in op.fwd)
    overlapped = strategy.overlap.tensor and tensor_ranks > 1
    return 1 + ENGINE_GROUPED_STREAMS * grouped + ENGINE_OVERLAP_STREAMS * overlapped


def scores_buffer_bytes(strategy: Strategy, part: Workload) -> float:
    """Bytes per sample of the tensor that attention's scores are computed from, if it is kept.

    Megatron-LM's own attention adds q's product with k to a tensor of the scores' size, times zero,
    which all layers share and no step frees (core/transformer/dot_product_attention.py,
    get_global_memory_buffer).
    """
    if not strategy.program.layers.scores_buffer:
        return 0.0
    scores = (op for b in part.blocks for op in b.ops if op.name.endswith("attention.scores"))
    return max((output_bytes(op, strategy.precision) for op in scores), default=0.0)


def workspace_bytes(architectures: Iterable[str], engine: int = 0, handle: int = 0) -> float:
    """Workspace bytes of one rank, on the GPU type with the largest workspace.

    ``engine``: number of Transformer Engine's workspaces beside those of PyTorch's handles, each of
    ``handle`` bytes, or of PyTorch's default where that is 0. There are none where no such library
    runs: XLA plans a TPU's memory as a whole, and on processors products need none.
    """
    architectures = set(architectures)
    if architectures <= {"TPU", "CPU"}:
        return 0.0
    newer = any(a.startswith(("Hopper", "Blackwell")) for a in architectures)
    handle = handle or (CUBLAS_HANDLE_BYTES_HOPPER if newer else CUBLAS_HANDLE_BYTES)
    return float(
        CUBLAS_HANDLES * handle + engine * (ENGINE_BYTES_HOPPER if newer else ENGINE_BYTES)
    )


@dataclass(frozen=True)
class Beside:
    """Device memory outside a rank's own tensors, whatever its part of the model.

    NCCL's buffers [C], the CUDA context and the workspaces of products.
    """

    nvlink: bool
    communicators_bytes: Array
    context_bytes: float
    cublas_bytes: float

    def repeated(self, times: int) -> Beside:
        """The same, tiled along an axis that is ``times`` as long."""
        return replace(self, communicators_bytes=np.tile(self.communicators_bytes, times))


def beside_tensors(request: Request, n_gpus: Array, n_nodes: Array) -> Beside:
    """Device memory outside tensors; equal for every stage of a job (arrays [C])."""
    groups = request.cluster.groups
    layout = request.placed.layout if request.placed else Layout()
    intra, inter = cluster_paths(request.cluster)
    nvlink = intra.route == "nvlink"
    by_nccl = all(g.node.torus is None for g in groups)  # XLA plans the buffers of a slice's chips
    made = groups_of(
        layout,
        n_gpus,
        np.ceil(n_gpus / n_nodes),
        request.strategy.program.ranks.communicators_a_dimension,
    )
    return Beside(
        nvlink,
        nccl_bytes(made, nvlink=nvlink, direct=inter.route == "network_rdma") * by_nccl,
        max(
            request.profile.cuda_context_bytes(g.gpu, eager=request.eager_kernels).value
            for g in groups
        ),
        workspace_bytes(
            (g.gpu.architecture for g in groups),
            engine_workspaces(request.strategy, request.held_workload, layout.tp),
            request.strategy.program.layers.handle_workspace_bytes,
        ),
    )


#: Bytes of one buffer of each protocol, eight steps long: NCCL_BUFFSIZE's default (NCCL user
#: guide); 120 words of 8 bytes for 640 threads; 8 lines of 16 bytes for 512 threads (NCCL,
#: device.h).
SIMPLE_BYTES = 4 * MIB
LL128_BYTES = 120 * 640 * 8 * 8
LL_BYTES = 8 * 512 * 8 * 16
#: Channels that NCCL opens: 24 on NVSwitch systems, 2 to 4 over PCIe; to the network 4, or 2 for
#: each NIC port where every device has its own port.
CHANNELS_NVLINK = 24
CHANNELS_PCIE = 4
CHANNELS_NETWORK = 4
CHANNELS_OF_A_NIC = 2
#: Connections within a node, of more than two ranks (ring neighbour and two tree neighbours:
#: 662 MiB on NVSwitch) and of two. Measured on four A100: 688 MB for a communicator of more than
#: two ranks, 544 MB for one of two (NVIDIA/nccl issue 964).
CONNECTIONS_NODE = 3
CONNECTIONS_PAIR = 2
#: Connections to the network: send and receive along the ring and to up to three tree neighbours.
CONNECTIONS_NETWORK = 8


class Group(NamedTuple):
    """One communicator: its number of ranks, and how many of them share a node."""

    n_ranks: Array
    here: Array


def communicator_bytes(group: Group, *, nvlink: bool, direct: bool) -> Array:
    """Buffer bytes of one communicator [C]; 0 for a single rank.

    ``nvlink``: GPUs of a node are joined by NVLink. ``direct``: the NIC reaches device memory.
    """
    channels = CHANNELS_NVLINK if nvlink else CHANNELS_PCIE
    one_set = SIMPLE_BYTES + LL128_BYTES + LL_BYTES
    near = np.where(group.here > 2, CONNECTIONS_NODE, CONNECTIONS_PAIR) * (group.here > 1)
    # Each channel leaves the node at one rank and enters it at one, so ranks share the channels.
    leaving = np.maximum(CHANNELS_NETWORK, CHANNELS_OF_A_NIC * group.here * nvlink) / group.here
    far = CONNECTIONS_NETWORK * leaving * (SIMPLE_BYTES + LL128_BYTES) * direct
    held: Array = (channels * near * one_set + far * (group.n_ranks > group.here)) * 1.0
    return held * (group.n_ranks > 1)


def groups_of(
    layout: Layout, n_gpus: Array, gpus_per_node: Array | float, copies: int
) -> Sequence[Group]:
    """The communicators of a rank: one of the whole job, and those of each parallel dimension.

    Pipeline neighbours have communicators of two ranks. One of tensor times pipeline ranks sums the
    norm of the gradient over a replica. ``copies``: how many times the tensor and data
    communicators exist; above 1 where a library creates its own in addition to those it is given.
    """
    one = np.ones_like(n_gpus)

    def group(size: Array | float, stride: Array | float) -> Group:
        wide = one * size
        here = np.maximum(1.0, np.minimum(wide, np.floor(gpus_per_node / stride)))
        return Group(wide, here)

    found = [group(n_gpus, 1.0)]
    if layout.trivial:
        return found
    data = np.maximum(1.0, n_gpus / layout.model_ranks)
    dense = float(layout.tp * layout.cp)
    found += [group(layout.tp, 1.0), group(data, dense)] * copies
    found += [group(layout.cp, float(layout.tp))]
    found += [group(layout.ep, float(layout.expert_tp))]
    if layout.pp > 1:
        found += [group(2.0, dense * data)] * min(2, layout.pp - 1)
        found += [group(layout.tp * layout.pp, 1.0)] * (layout.tp > 1)
    return found


def nccl_bytes(groups: Sequence[Group], *, nvlink: bool, direct: bool) -> Array:
    """Buffer bytes of all communicators of a rank [C]."""
    every = Group(np.stack([g.n_ranks for g in groups]), np.stack([g.here for g in groups]))
    return communicator_bytes(every, nvlink=nvlink, direct=direct).sum(axis=0)
