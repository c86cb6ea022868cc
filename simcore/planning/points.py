"""Evaluated points of a space: one batch of arrays for each form and kind of cluster."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

import numpy as np

from simcore.answer.sweep import Outcome
from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.planning.space import Form
from simcore.request.resolved import Request
from simcore.strategy.layout import DEGREES, Layout
from simcore.strategy.options import OPTIONS, check_shares, shown
from simcore.strategy.strategy import HYBRID, SINGLE, folded_strategy
from simcore.workload.resolve import ModelSource

#: Options that ``FormWords.more`` leaves out, besides its fields: degrees are in the layout, and
#: inputs belong to the model.
_NAMED = (*DEGREES, "inputs")
#: Arrays of a batch that a sweep on disk stores.
ARRAYS = (
    "cluster", "micro_batch", "grad_accum", "step_time_s", "samples_per_s", "memory_bytes",
    "needed_bytes", "capacity_bytes",
)  # fmt: skip
#: Columns of the points of a sweep, in order, and those of text; the others are numbers.
COLUMNS = (
    "model", "cluster", "n_gpus", "n_nodes", "network", "strategy", "precision", "optimizer",
    "recompute", "offload", "seq_len", "tp", "pp", "vpp", "cp", "ep", "more", "micro_batch",
    "grad_accum", "global_batch", "step_time_s", "samples_per_s", "samples_per_s_per_gpu",
    "tokens_per_s", "memory_bytes", "capacity_bytes", "fits",
)  # fmt: skip
WORDS = (
    "model", "cluster", "network", "strategy", "precision", "optimizer", "recompute", "offload",
    "more",
)  # fmt: skip
NO_MEMORY = "does not fit in the GPU's memory"
_FIGURES = re.compile(r"('[^']*')|\d[\d,]*")
_WHAT_IS_ALLOWED = re.compile(r"(?:: allowed|; allowed|: use |: try |, not ).*$")


@dataclass(frozen=True)
class FormWords:
    """The resolved options that all points of a form share, for tables.

    ``options``: the options as they were given; ``checkpoint_bytes``: size of a checkpoint;
    ``tokens_per_sample``: tokens of a sample of text, 0 for other samples.
    """

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
    tokens_per_sample: float = 0.0

    @property
    def more(self) -> str:
        """Text of the options that have no field here: ``main-grads fp32, shard-ranks 8``."""
        named = {*_NAMED, *(f.name for f in fields(self))}
        return ", ".join(
            f"{OPTIONS[k].typed.removeprefix('--')} {shown(v)}"
            for k, v in self.options
            if k not in named
        )

    def columns(self) -> dict[str, Any]:
        """The columns that all points of the form share."""
        names = ("model", "strategy", "precision", "optimizer", "recompute", "offload", "seq_len")
        degrees = {degree: getattr(self.layout, degree) for degree in DEGREES}
        return {**{name: getattr(self, name) for name in (*names, "more")}, **degrees}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which ``from_dict`` makes an equal object."""
        return {**asdict(self), "options": dict(self.options)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FormWords:
        """The object from which ``to_dict`` made ``values``."""
        layout = Layout(**values["layout"])
        options = tuple(sorted(values["options"].items()))
        return cls(**{**values, "layout": layout, "options": options})


@dataclass(frozen=True, kw_only=True)
class Batch(Outcome):
    """The valid points of one piece of a unit (a form on one kind of cluster), as arrays [C].

    n_points   number of all points of the piece, with the invalid ones
    invalid    number of invalid points by reason; points that do not fit count too
    form       the form; None where no point is valid
    cluster    index into the space's clusters
    """

    unit: int
    n_points: int
    invalid: dict[str, int]
    piece: int = 0
    form: FormWords | None = None
    cluster: NDArray[np.intp]
    micro_batch: Array
    grad_accum: Array
    samples_per_s: Array

    @classmethod
    def of_none(cls, unit: int, piece: int, n_points: int, invalid: dict[str, int]) -> Batch:
        """The batch of a piece without a valid point."""
        arrays: dict[str, Any] = {name: np.array([]) for name in ARRAYS}
        return cls(unit=unit, piece=piece, n_points=n_points, invalid=invalid, **arrays)

    def __len__(self) -> int:
        return len(self.step_time_s)

    @property
    def work_per_s(self) -> Array:
        """What a ranking by throughput compares [C]: tokens per second where samples are text, so
        that sequences of different lengths are compared fairly; else samples per second.
        """
        tokens = self.form.tokens_per_sample if self.form is not None else 0.0
        return self.samples_per_s * tokens if tokens else self.samples_per_s


@lru_cache(maxsize=10_000)
def reason_of(violation: str) -> str:
    """The message of a broken rule without its numbers: equal reasons are counted together.

    Quoted words keep theirs.
    """
    return _FIGURES.sub(lambda m: m[1] or "N", _WHAT_IS_ALLOWED.sub("", violation)).strip()


def checkpoint_bytes(request: Request) -> float:
    """Bytes of a checkpoint: weights, fp32 master weights, optimizer states and the EMA."""
    s = request.strategy
    each = s.precision.param_bytes + s.precision.master_bytes + s.optimizer.state_bytes
    return float(request.workload.trainable_numel * (each + s.ema_bytes))


def words_of(source: ModelSource, request: Request, form: Form, layout: Layout) -> FormWords:
    """The resolved options of a form."""
    named = folded_strategy(form.get("strategy") or "")
    is_text = request.workload.sample_unit.startswith("sequence")
    seq_len = (
        form.get("seq_len")
        or request.options.get("seq_len")
        or getattr(source, "config", {}).get("seq_len")
    )
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
        options=tuple(sorted((k, v) for k, v in form.items() if v is not None and _stated(k, v))),
        tokens_per_sample=request.workload.tokens_per_sample if is_text else 0.0,
    )


def _stated(name: str, value: Any) -> bool:
    """Whether an option differs from its default; only equal ``shares`` do not."""
    return name != "shares" or bool(check_shares(value))
