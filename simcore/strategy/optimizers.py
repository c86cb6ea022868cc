"""Optimizers: what an update rule keeps, moves and launches; which there are is data.

``programs_db/optimizers`` has a record each, with its other implementations: a loop that somebody
wrote out, another framework's graph. A loop's name on the command line is the rule's, and the
implementation's after a slash or with ``--optimizer-impl``: ``adamw/op-by-op``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal, get_args

from pydantic import BaseModel, Field

from simcore.base.database import Database, Record, fold_name
from simcore.base.errors import UnknownName

#: How PyTorch's own optimizers run: lists of tensors a kernel, a loop over tensors, or one kernel.
StepImpl = Literal["foreach", "for-loop", "fused"]
#: Of which shapes of parameters an optimizer's work depends on, a function of ``by_shape`` each.
ByShape = Literal["", "factored-moments", "orthogonalised"]
#: Tensors that one kernel of a foreach step takes on average (``engine.update``).
TENSORS_A_LAUNCH = 30


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State and work of an update rule, per parameter.

    ``state_bytes``: of its state; ``traffic_elems``: fp32 elements read and written by a fused or
    foreach step besides the gradient; ``temporary_elems``: what foreach materialises; ``kernels``:
    launches of a foreach step for as many tensors as one takes; ``kernels_per_tensor``: of a loop
    in Python. ``flop``: of matrix products in 16 bit.
    ``syncs_each_tensor``: its loop waits for the device at each tensor, so that the host is never
    ahead. ``own_state_width``: its state keeps its width whatever the weights' is. ``by_shape``:
    the law by which state and work follow from a model's shapes (``strategy.by_shape``);
    ``for_the_rest``: the optimizer of what that law leaves out.
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
    """Another implementation of a rule: what differs from the record's own figures."""

    model_config = Record.model_config

    aliases: tuple[str, ...] = ()
    meaning: str
    source: str
    traffic_elems: float = Field(ge=0)
    temporary_elems: float = Field(default=0.0, ge=0)
    kernels: int | None = Field(default=None, ge=1)
    kernels_per_tensor: int = Field(ge=1)
    syncs_each_tensor: bool = False


class OptimizerRecord(Record):
    """One update rule. ``kernels`` missing: it is a loop over tensors however it is asked for."""

    meaning: str
    source: str = Field(description="file and function that the figures are counted from")
    state_bytes: float = Field(ge=0)
    traffic_elems: float = Field(ge=0)
    temporary_elems: float = Field(default=0.0, ge=0)
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
    said: OptimizerRecord | Implementation = record
    if implementation:
        said = record.implementations[implementation]
    loop = said.kernels_per_tensor * TENSORS_A_LAUNCH
    own = {f.name: getattr(said if hasattr(said, f.name) else record, f.name)
           for f in fields(Optimizer) if hasattr(record, f.name)}  # fmt: skip
    name = f"{record.name}/{implementation}" if implementation else record.name
    return Optimizer(**{**own, "name": name, "kernels": said.kernels or loop})


def implementation_of(optimizer: Optimizer) -> tuple[OptimizerRecord, str]:
    """The record of an optimizer, and which of its implementations it is; none: PyTorch's."""
    base, _, word = optimizer.name.partition("/")
    return RECORDS[base], word


def optimizer_named(name: str, implementation: str | None = None) -> Optimizer:
    """By name or alias, whatever its case and hyphens (``AdamW8bit``), or NAME/IMPLEMENTATION.

    ``implementation``: one of its record's; PyTorch's own change none of its figures. Raises
    UnknownName.
    """
    base, _, asked = name.partition("/") if RECORDS.path(name) is None else (name, "", "")
    record = RECORDS[base]
    aliased = next(
        (k for k, v in record.implementations.items()
         if fold_name(base) in map(fold_name, v.aliases)), "",
    )  # fmt: skip
    word = asked or (implementation if implementation not in get_args(StepImpl) else "") or ""
    if not word:
        return _optimizer(record, aliased)
    found = next((k for k in record.implementations if fold_name(k) == fold_name(word)), None)
    if found is None:
        known = [*get_args(StepImpl), *record.implementations]
        raise UnknownName(f"optimizer-impl of {record.name}", word, known)
    return _optimizer(record, found)


def step_impl_named(name: str | None) -> StepImpl | None:
    """One of PyTorch's own implementations; None for no word, and for one of an optimizer's own,
    which ``optimizer_named`` looks up."""
    found: StepImpl | None = next((i for i in get_args(StepImpl) if i == name), None)
    return found


class _Optimizers(Mapping[str, Optimizer]):
    """Every optimizer by name, as the databases of the folders searched have them."""

    def __getitem__(self, name: str) -> Optimizer:
        return optimizer_named(name)

    def __iter__(self) -> Iterator[str]:
        return iter(RECORDS.names())

    def __len__(self) -> int:
        return len(RECORDS.names())


OPTIMIZERS: Mapping[str, Optimizer] = _Optimizers()


def implementation_words() -> tuple[str, ...]:
    """What ``--optimizer-impl`` takes: PyTorch's own, then those of single optimizers."""
    own = sorted({word for words in implementations().values() for word in words})
    return (*get_args(StepImpl), *own)


def implementations() -> dict[str, tuple[str, ...]]:
    """Each optimizer's implementations beside PyTorch's own."""
    return {r.name: tuple(r.implementations) for r in RECORDS.all() if r.implementations}
