"""Optimizers whose state and work depend on the shapes of parameters: Adafactor and Muon.

Optimizers are priced with averages over a model's parameters. The averages of these two are
computed here for a model, from the code of torch 2.13's ``_adafactor.py`` and ``_muon.py`` (torch
ships both) and from their papers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.base.units import FP32_BYTES
from simcore.strategy.optimizers import OPTIMIZERS, TENSORS_A_LAUNCH, Optimizer
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Workload, weight_grad_numel

#: Newton-Schulz iterations of Muon (Jordan et al. 2024; torch's default).
NS_STEPS = 5
#: fp32 elements that Muon moves per parameter: momentum 3, Nesterov's look-ahead 3, cast to bf16
#: 1.5, norm 0.5, scaling 1, reads and write of each iteration in bf16 1.5, decay 2, update 2.5.
_MUON_ELEMS = 3 + 3 + 1.5 + 0.5 + 1 + 1.5 * NS_STEPS + 2 + 2.5
#: Kernels a matrix: momentum, look-ahead, cast, norm, its bound, scaling, decay, update, and three
#: products in each iteration.
_MUON_KERNELS = 8 + 3 * NS_STEPS


@dataclass(frozen=True, slots=True)
class Matrix:
    """``count`` trained matrices of ``rows`` x ``columns``; ``hidden``: in a repeated layer."""

    rows: float
    columns: float
    count: float
    hidden: bool

    @property
    def numel(self) -> float:
        """Elements of all these matrices."""
        return self.rows * self.columns * self.count


def matrices(workload: Workload) -> Iterator[Matrix]:
    """The trained weights of matrix products, in forward order."""
    for block in workload.instances():
        yield from _of_block(block)


def _of_block(block: Block) -> Iterator[Matrix]:
    own = {p.numel for p in block.params}
    for op in block.ops:
        numel = weight_grad_numel(op)
        if numel not in own:  # no trained weight, or one tied to a table elsewhere
            continue
        rows, columns = op.fwd[0].k.fixed, op.fwd[0].n.fixed
        yield Matrix(rows, columns, numel / (rows * columns), block.recomputable)


@lru_cache(maxsize=64)
def fitted(optimizer: Optimizer, workload: Workload, precision: Precision) -> Optimizer:
    """The optimizer with averages over this model's parameters; most optimizers are unchanged."""
    found = optimizer
    if optimizer.by_shape:
        found = _LAWS[optimizer.by_shape](optimizer, workload)
    if not precision.narrow_state or optimizer.own_state_width:
        return found
    share = precision.param_bytes / FP32_BYTES
    return replace(
        found,
        state_bytes=share * found.state_bytes,
        traffic_elems=share * found.traffic_elems,
        temporary_elems=share * found.temporary_elems,
    )


def _factored_moments(optimizer: Optimizer, workload: Workload) -> Optimizer:
    """Second moments by row and by column of each matrix, and by element of each vector.

    Tables (embeddings) are matrices as wide as the first product is deep. Kernels of convolutions
    are factored over their last two dimensions, which are not known here: one moment an element.
    """
    width = next((m.rows for m in matrices(workload)), 1.0)
    moments = 0.0
    for block in workload.instances():
        found = list(_of_block(block))
        moments += sum((m.rows + m.columns) * m.count for m in found)
        products = {m.numel for m in found}
        convolved = {op.gemm_weight for op in block.ops if not weight_grad_numel(op)}
        for param in block.params:
            if param.numel in products:
                continue
            rows = param.numel / width
            # A bias has a few times ``width`` elements, a table many times.
            table = rows > width**0.5 and rows.is_integer() and param.numel not in convolved
            moments += rows + width if table else param.numel
    numel = max(workload.trainable_numel, 1)
    return replace(optimizer, state_bytes=FP32_BYTES * moments / numel)


def _orthogonalised(optimizer: Optimizer, workload: Workload) -> Optimizer:
    """Momentum and Newton-Schulz for matrices of repeated layers, another optimizer for the rest.

    An iteration on an s x l matrix (s the shorter side) computes X X^T, its square, and their sum
    times X: 4 s^2 l + 2 s^3 FLOP in bf16.
    """
    rest = OPTIMIZERS[optimizer.for_the_rest]
    found = [m for m in matrices(workload) if m.hidden]
    numel, n_tensors = max(workload.trainable_numel, 1), max(workload.n_tensors, 1)
    flop = 0.0
    for m in found:
        short, long = min(m.rows, m.columns), max(m.rows, m.columns)
        flop += NS_STEPS * (4.0 * short**2 * long + 2.0 * short**3) * m.count
    share = sum(m.numel for m in found) / numel
    n_matrices = sum(m.count for m in found)
    others = max(n_tensors - len(found), 0)
    each = n_matrices * _MUON_KERNELS * TENSORS_A_LAUNCH + others * rest.kernels
    return replace(
        optimizer,
        state_bytes=share * FP32_BYTES + (1.0 - share) * rest.state_bytes,
        traffic_elems=share * _MUON_ELEMS + (1.0 - share) * rest.traffic_elems,
        temporary_elems=(1.0 - share) * rest.temporary_elems,
        kernels=round(each / n_tensors),
        kernels_per_tensor=round(
            (n_matrices * _MUON_KERNELS + others * rest.kernels_per_tensor) / n_tensors
        ),
        flop=flop / numel,
    )


#: How an optimizer's figures follow from a model's shapes, by the name in the optimizer's record.
_LAWS: dict[str, Callable[[Optimizer, Workload], Optimizer]] = {
    "factored-moments": _factored_moments,
    "orthogonalised": _orthogonalised,
}
