"""The kernels of look-ups' gradients and of sorts, as ``ops.lookup`` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload.graph import AUXILIARY
from simcore.workload.ops.lookup import (
    INDEX_KERNELS,
    SEGMENT_LAUNCHES,
    UNSORTED_INDICES,
    index_bits,
    radix_sort,
)
from simcore.workload.trace.record import KernelRecord, Piece

Of = Callable[[Any], Piece]
Kernels = tuple[KernelRecord, ...]


def lookup_kernels(name: str, args: Any, out: Any, of: Of) -> Kernels | None:
    """The kernels of an op that sorts indices; None for another one.

    Batches are traced smaller than they run: indices with a dimension of their own for samples are
    taken to be so many that PyTorch sorts them.
    """
    if name == "embedding_dense_backward":
        return _embedding_gradient(of(args[0]), args[1], of(out), of)
    if name in ("index_put", "_index_put_impl", "_unsafe_index_put") and any(args[3:4]):
        indices = [i for i in args[1] if i is not None]
        if not any(i.dtype in (torch.bool, torch.uint8) for i in indices):
            return _added_at_indices(indices[0], args[0].shape[0], of(args[2]), of)
    if name == "sort" and args[0].ndim == 1:
        numbers = of(args[0])
        return _sorted(numbers), KernelRecord(AUXILIARY, 0, (), (_int64(numbers),))
    return None


def _int64(piece: Piece, times: float = 1.0) -> Piece:
    return Piece(round(times * piece.numel), int(INT64_BYTES), "raw", "activation")


def _sorted(indices: Piece, bits: int | None = None) -> KernelRecord:
    one = radix_sort(1.0) if bits is None else radix_sort(1.0, bits)
    moved = _int64(indices, one.raw_bytes / INT64_BYTES)
    return KernelRecord(AUXILIARY, 0, (moved,), (), launches=one.launches)


def _embedding_gradient(rows: Piece, indices: Any, table: Piece, of: Of) -> Kernels:
    zeros = KernelRecord(AUXILIARY, 0, (), (table,))
    every = _int64(of(indices))
    shared = indices.ndim == 1 or indices.shape[0] == 1  # positions, the same of each sample
    if shared and indices.numel() <= UNSORTED_INDICES:
        return zeros, KernelRecord("gather", 0, (rows, every), (rows,))
    parts = Piece(rows.numel, FP32_BYTES, "raw", "activation")
    between = _int64(every, SEGMENT_LAUNCHES)
    return (
        zeros,
        KernelRecord(AUXILIARY, 0, (), (every,)),
        _sorted(every),
        KernelRecord(AUXILIARY, 0, (between,), (between,), launches=SEGMENT_LAUNCHES),
        KernelRecord("gather", 0, (rows, every), (parts,)),
        KernelRecord(AUXILIARY, 0, (parts,), (rows,)),
    )


def _added_at_indices(indices: Any, into: int, rows: Piece, of: Of) -> Kernels:
    every = _int64(of(indices))
    moved = _int64(every, INDEX_KERNELS)
    return (
        KernelRecord(AUXILIARY, 0, (moved,), (moved,), launches=INDEX_KERNELS),
        _sorted(every, index_bits(into)),
        KernelRecord("gather", 0, (rows, rows, _int64(every, 2.0)), (rows,)),
    )
