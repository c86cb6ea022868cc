"""Points of a space as they are answered: one batch of arrays a form and kind of cluster."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import FP32_BYTES
from simcore.engine.resolved import Request
from simcore.planning.space import Form
from simcore.strategy.layout import DEGREES, Layout
from simcore.strategy.shares import check_shares
from simcore.strategy.strategy import HYBRID, SINGLE, folded_strategy
from simcore.workload.resolve import ModelSource

Array = NDArray[np.float64]

#: Words of a form that its layout says, and those of the program that is traced.
_NAMED = (*DEGREES, "inputs")
NO_MEMORY = "does not fit in the GPU's memory"
_FIGURES = re.compile(r"\d[\d,]*")
_WHAT_IS_ALLOWED = re.compile(r"(?:: allowed|; allowed|: use |: try |, not ).*$")


@dataclass(frozen=True)
class FormWords:
    """What all points of a form share, as it is written in a table."""

    model: str
    strategy: str
    precision: str
    optimizer: str
    recompute: str
    offload: str
    seq_len: int | None
    layout: Layout
    checkpoint_bytes: float
    options: tuple[tuple[str, Any], ...]

    @property
    def more(self) -> str:
        """Words that have no name of their own here: ``main-grads fp32, shard-ranks 8``."""
        told = {*_NAMED, *(f.name for f in fields(self))}
        return ", ".join(f"{k.replace('_', '-')} {v}" for k, v in self.options if k not in told)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the layout's degrees beside the others."""
        return {**asdict(self), "options": dict(self.options)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FormWords:
        """What ``to_dict`` gave."""
        layout = Layout(**values["layout"])
        options = tuple(sorted(values["options"].items()))
        return cls(**{**values, "layout": layout, "options": options})


@dataclass(frozen=True)
class Batch:
    """Valid points of one unit (a form on one kind of cluster), arrays [C], and who fell out.

    A large unit comes in several pieces. ``n_points`` counts all points of the piece, ``invalid``
    those of them that fell out. ``cluster`` indexes the space's clusters. ``capacity_bytes`` is one
    figure where it is the same for all. ``busy_frac`` and
    those after it are there where a plan asked for them (``engine.sweep.Outcome``).
    """

    unit: int
    n_points: int
    invalid: dict[str, int]
    piece: int = 0
    form: FormWords | None = None
    cluster: NDArray[np.intp] | None = None
    micro_batch: Array | None = None
    grad_accum: Array | None = None
    step_time_s: Array | None = None
    samples_per_s: Array | None = None
    memory_bytes: Array | None = None
    needed_bytes: Array | None = None
    capacity_bytes: Array | float = 0.0
    busy_frac: Array | None = None
    faster_s: Array | None = None
    balanced_s: Array | None = None
    least_bytes: Array | None = None

    def __len__(self) -> int:
        return 0 if self.step_time_s is None else len(self.step_time_s)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each point's fullest device holds it."""
        assert self.needed_bytes is not None
        return self.needed_bytes <= self.capacity_bytes


def reason_of(violation: str) -> str:
    """A violation without its figures: points fall out for equal reasons, not equal numbers."""
    return _FIGURES.sub("N", _WHAT_IS_ALLOWED.sub("", violation)).strip()


def checkpoint_bytes(request: Request) -> float:
    """What a checkpoint holds: weights, their fp32 masters, the optimizer's state, the EMA."""
    s = request.strategy
    each = s.precision.param_bytes + s.precision.master_bytes + s.optimizer.state_bytes
    ema = FP32_BYTES if s.ema else 0.0
    return float(request.workload.trainable_numel * (each + ema))


def words_of(source: ModelSource, request: Request, form: Form, layout: Layout) -> FormWords:
    """The resolved words of a form, whose ``layout`` is known."""
    named = folded_strategy(form.get("strategy") or "")
    seq_len = form.get("seq_len") or getattr(source, "config", {}).get("seq_len")
    return FormWords(
        model=request.workload.name,
        strategy=named if named in (HYBRID, SINGLE) else request.strategy.parallelism,
        precision=request.strategy.precision.name,
        optimizer=request.strategy.optimizer.name,
        recompute=request.strategy.recompute,
        offload=str(request.strategy.offload),
        seq_len=seq_len if isinstance(seq_len, int) else None,
        layout=layout,
        checkpoint_bytes=checkpoint_bytes(request),
        options=tuple(sorted((k, v) for k, v in form.items() if v is not None and _told(k, v))),
    )


def _told(name: str, value: Any) -> bool:
    """Whether a word says more than nothing: equal shares are what everyone has."""
    return name != "shares" or bool(check_shares(value))
