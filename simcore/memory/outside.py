"""Device memory outside a rank's own tensors: workspaces of products, NCCL's buffers, the context.

# C configs
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass
from simcore.base.units import MIB
from simcore.hardware.paths import cluster_paths
from simcore.memory.communicators import groups_of, nccl_bytes
from simcore.request.resolved import Request
from simcore.strategy.layout import Layout
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload

Array = NDArray[np.float64]

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
