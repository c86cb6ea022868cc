"""Optimizers: the state that an update rule keeps, the bytes it moves and the kernels it launches.

Each has a record in ``programs_db/optimizers``, with its other implementations (a hand-written
loop, another framework's graph). On the command line an implementation's name follows the rule's
after a slash, or is given with ``--optimizer-impl``: ``adamw/op-by-op``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from math import inf
from typing import Literal, get_args

from simcore.base.database import Database, fold_name
from simcore.base.errors import UnknownName
from simcore.base.figures import Part, Record, entry
from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Workload, weight_grad_numel

#: How PyTorch's own optimizers run: kernels on lists of tensors, a loop over tensors, one kernel.
StepImpl = Literal["foreach", "for-loop", "fused"]
#: How an optimizer's work depends on the shapes of parameters; each is a function of ``by_shape``.
ByShape = Literal["", "factored-moments", "orthogonalised"]
#: Average number of tensors that one kernel of a foreach step takes (``timing.quantities``).
TENSORS_A_LAUNCH = 30


@dataclass(frozen=True)
class Optimizer:
    """State and work of an update rule, per parameter.

    ``state_bytes``: of its state; ``traffic_elems``: fp32 elements that a foreach step reads
    and writes, gradients included; ``temporary_elems``: fp32 elements that foreach
    materialises; ``kernels``: launches of a foreach step for as many tensors as one takes;
    ``kernels_per_tensor``: launches of a Python loop. ``flop``: of matrix products in 16 bit.
    ``syncs_each_tensor``: the loop waits for the device at each tensor, so that the host is never
    ahead. ``own_state_width``: the state keeps its width whatever the weights' width. ``paged``:
    the state is in CUDA's managed memory, which leaves the device where that is short.
    ``by_shape``: how state and work follow from a model's shapes; ``for_the_rest``: the optimizer
    of the parameters that this does not cover.
    """

    name: str
    meaning: str
    state_bytes: float
    traffic_elems: float
    temporary_elems: float
    kernels: int
    kernels_per_tensor: int
    flop: float = 0.0
    syncs_each_tensor: bool = False
    own_state_width: bool = False
    paged: bool = False
    by_shape: ByShape = ""
    for_the_rest: str = ""


class Work(Part):
    """Figures of a rule's work in one implementation; without ``kernels`` a loop over tensors.

    ``own_state_width``: None for that of the rule's record.
    """

    aliases: tuple[str, ...] = ()
    meaning: str
    source: str = entry(description="file and function that the figures are counted from")
    traffic_elems: float = entry(ge=0, allow_inf_nan=False)
    temporary_elems: float = entry(default=0.0, ge=0, allow_inf_nan=False)
    kernels: int | None = entry(default=None, ge=1)
    kernels_per_tensor: int = entry(ge=1)
    syncs_each_tensor: bool = False
    own_state_width: bool | None = None
    paged: bool = False


class OptimizerRecord(Record, Work):
    """One update rule; ``implementations``: the work of others than PyTorch's."""

    state_bytes: float = entry(ge=0, allow_inf_nan=False)
    by_shape: ByShape = ""
    for_the_rest: str = ""
    implementations: dict[str, Work] = entry(default_factory=dict)


RECORDS: Database[OptimizerRecord] = Database(
    "optimizer", "programs_db/optimizers", OptimizerRecord
)


@lru_cache(maxsize=256)
def _optimizer(record: OptimizerRecord, implementation: str) -> Optimizer:
    figures: Work = record.implementations[implementation] if implementation else record
    loop = figures.kernels_per_tensor * TENSORS_A_LAUNCH
    own = {f.name: getattr(figures if hasattr(figures, f.name) else record, f.name)
           for f in fields(Optimizer) if hasattr(record, f.name)}  # fmt: skip
    name = f"{record.name}/{implementation}" if implementation else record.name
    width = record.own_state_width if figures.own_state_width is None else figures.own_state_width
    known = {"name": name, "kernels": figures.kernels or loop, "own_state_width": bool(width)}
    return Optimizer(**{**own, **known})


def implementation_of(optimizer: Optimizer) -> tuple[OptimizerRecord, str]:
    """The record of an optimizer, and the name of its implementation ("" for PyTorch's)."""
    base, _, word = optimizer.name.partition("/")
    return RECORDS[base], word


def optimizer_named(name: str, implementation: str | None = None) -> Optimizer:
    """The optimizer by name or alias in any case and hyphenation, or by NAME/IMPLEMENTATION.

    ``implementation``: one of its record's; one of PyTorch's own changes no figure here. Raises
    UnknownName.
    """
    base, _, named = name.partition("/") if RECORDS.path(name) is None else (name, "", "")
    record = RECORDS[base]
    aliased = next(
        (k for k, v in record.implementations.items()
         if fold_name(base) in map(fold_name, v.aliases)), "",
    )  # fmt: skip
    word = named or (implementation if implementation not in get_args(StepImpl) else "") or ""
    if not word:
        return _optimizer(record, aliased)
    found = next((k for k in record.implementations if fold_name(k) == fold_name(word)), None)
    if found is None:
        known = [*get_args(StepImpl), *record.implementations]
        raise UnknownName(f"optimizer-impl of {record.name}", word, known)
    return _optimizer(record, found)


def step_impl_named(name: str | None) -> StepImpl | None:
    """One of PyTorch's own implementations; None for another name.

    ``optimizer_named`` looks up the implementations of single optimizers.
    """
    found: StepImpl | None = next((i for i in get_args(StepImpl) if i == name), None)
    return found


class _Optimizers(Mapping[str, Optimizer]):
    """Every optimizer by name, from the databases in the searched folders."""

    def __getitem__(self, name: str) -> Optimizer:
        return optimizer_named(name)

    def __iter__(self) -> Iterator[str]:
        return iter(RECORDS.names())

    def __len__(self) -> int:
        return len(RECORDS.names())


OPTIMIZERS: Mapping[str, Optimizer] = _Optimizers()


def implementation_words() -> tuple[str, ...]:
    """Values of ``--optimizer-impl``: PyTorch's own, then those of single optimizers."""
    own = sorted({word for words in implementations().values() for word in words})
    return (*get_args(StepImpl), *own)


def implementations() -> dict[str, tuple[str, ...]]:
    """Implementations of each optimizer other than PyTorch's own."""
    return {r.name: tuple(r.implementations) for r in RECORDS.all() if r.implementations}


#: Newton-Schulz iterations of Muon (Jordan et al. 2024; torch's default).
NS_STEPS = 5
#: fp32 elements that Muon moves per parameter: momentum 3, Nesterov's look-ahead 3, cast to bf16
#: 1.5, norm 0.5, scaling 1, reads and write of each iteration in bf16 1.5, decay 2, update 2.5.
_MUON_ELEMS = 3 + 3 + 1.5 + 0.5 + 1 + 1.5 * NS_STEPS + 2 + 2.5
#: Kernels a matrix: momentum, look-ahead, cast, norm, its bound, scaling, decay, update, and three
#: products in each iteration.
_MUON_KERNELS = 8 + 3 * NS_STEPS


@dataclass(frozen=True)
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
    width = next((m.rows for m in matrices(workload)), inf)
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
    sides = [(*sorted((m.rows, m.columns)), m.count) for m in found]
    flop = NS_STEPS * sum((4.0 * a**2 * b + 2.0 * a**3) * count for a, b, count in sides)
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
