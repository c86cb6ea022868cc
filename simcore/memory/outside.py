"""Device memory outside a rank's own tensors: workspaces of products, NCCL's buffers, the context.

A communicator has one set of buffers for each connection and channel. Its size does not grow with
the number of ranks: each protocol has a ring buffer of a fixed number of steps (NCCL, init.cc,
computeBuffSizes). Within a node a rank connects to its ring neighbour and, with more than two
ranks, to two tree neighbours. For the network it has buffers that the NIC reads and writes
directly; the smallest protocol (LL) needs none there (transport/net.cc), and a NIC that cannot
reach device memory needs none at all.

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.base.units import MIB
from simcore.hardware.paths import cluster_paths
from simcore.request.resolved import Request
from simcore.strategy.layout import Layout
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload

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
    if not strategy.program.layers.engine_workspaces:
        return 0
    grouped = any(
        op.part == "experts" and any(k.issues is not None for k in op.fwd)
        for block in workload.blocks
        for op in block.ops
    )
    overlapped = strategy.overlap.tensor and tensor_ranks > 1
    return 1 + ENGINE_GROUPED_STREAMS * grouped + ENGINE_OVERLAP_STREAMS * overlapped


def workspace_bytes(architectures: Iterable[str], engine: int = 0) -> float:
    """Workspace bytes of one rank, on the GPU type with the largest workspace.

    ``engine``: number of Transformer Engine's workspaces beside those of PyTorch's handles. There
    are none where no such library runs: XLA plans a TPU's memory as a whole, and on processors
    products need none.
    """
    architectures = set(architectures)
    if architectures <= {"TPU", "CPU"}:
        return 0.0
    newer = any(a.startswith(("Hopper", "Blackwell")) for a in architectures)
    handle = CUBLAS_HANDLE_BYTES_HOPPER if newer else CUBLAS_HANDLE_BYTES
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
