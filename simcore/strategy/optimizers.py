"""Optimizers: the state that an update rule keeps, the bytes it moves and the kernels it launches.

Each has a record in ``programs_db/optimizers``, with its other implementations (a hand-written
loop, another framework's graph). On the command line an implementation's name follows the rule's
after a slash, or is given with ``--optimizer-impl``: ``adamw/op-by-op``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal, get_args

from pydantic import BaseModel, Field

from simcore.base.database import Database, Record, fold_name
from simcore.base.errors import UnknownName

#: How PyTorch's own optimizers run: kernels on lists of tensors, a loop over tensors, one kernel.
StepImpl = Literal["foreach", "for-loop", "fused"]
#: How an optimizer's work depends on the shapes of parameters; each is a function of ``by_shape``.
ByShape = Literal["", "factored-moments", "orthogonalised"]
#: Average number of tensors that one kernel of a foreach step takes (``timing.quantities``).
TENSORS_A_LAUNCH = 30


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State and work of an update rule, per parameter.

    ``state_bytes``: of its state; ``traffic_elems``: fp32 elements that a fused or foreach step
    reads and writes in addition to the gradient; ``temporary_elems``: fp32 elements that foreach
    materialises; ``kernels``: launches of a foreach step for as many tensors as one takes;
    ``kernels_per_tensor``: launches of a Python loop. ``flop``: of matrix products in 16 bit.
    ``syncs_each_tensor``: the loop waits for the device at each tensor, so that the host is never
    ahead. ``own_state_width``: the state keeps its width whatever the weights' width. ``by_shape``:
    how state and work follow from a model's shapes (``strategy.by_shape``); ``for_the_rest``: the
    optimizer of the parameters that this does not cover.
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
    by_shape: ByShape = ""
    for_the_rest: str = ""


class Implementation(BaseModel):
    """Another implementation of a rule: the figures that differ from the record's own."""

    model_config = Record.model_config

    aliases: tuple[str, ...] = ()
    meaning: str
    source: str
    traffic_elems: float = Field(ge=0, allow_inf_nan=False)
    temporary_elems: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    kernels: int | None = Field(default=None, ge=1)
    kernels_per_tensor: int = Field(ge=1)
    syncs_each_tensor: bool = False


class OptimizerRecord(Record):
    """One update rule. Without ``kernels`` it is a loop over tensors in every implementation."""

    meaning: str
    source: str = Field(description="file and function that the figures are counted from")
    state_bytes: float = Field(ge=0, allow_inf_nan=False)
    traffic_elems: float = Field(ge=0, allow_inf_nan=False)
    temporary_elems: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    kernels: int | None = Field(default=None, ge=1)
    kernels_per_tensor: int = Field(ge=1)
    syncs_each_tensor: bool = False
    own_state_width: bool = False
    by_shape: ByShape = ""
    for_the_rest: str = ""
    implementations: dict[str, Implementation] = Field(default_factory=dict)


RECORDS: Database[OptimizerRecord] = Database(
    "optimizer", "programs_db/optimizers", OptimizerRecord
)


@lru_cache(maxsize=256)
def _optimizer(record: OptimizerRecord, implementation: str) -> Optimizer:
    figures: OptimizerRecord | Implementation = record
    if implementation:
        figures = record.implementations[implementation]
    loop = figures.kernels_per_tensor * TENSORS_A_LAUNCH
    own = {f.name: getattr(figures if hasattr(figures, f.name) else record, f.name)
           for f in fields(Optimizer) if hasattr(record, f.name)}  # fmt: skip
    name = f"{record.name}/{implementation}" if implementation else record.name
    return Optimizer(**{**own, "name": name, "kernels": figures.kernels or loop})


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
