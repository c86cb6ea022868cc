"""The configuration axis: what varies from one configuration to the next, as arrays [C]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import numpy as np

from simcore.base.arrays import NDArray

Array = NDArray[np.float64]

#: Multipliers on what hardware delivers; 1 is what the profile says, 2 is twice as fast.
Knob = Literal["compute", "memory", "host", "intra", "inter", "loader", "overlap"]
KNOBS: tuple[Knob, ...] = get_args(Knob)


#: What a quantity is where nothing is said of it; the others are 1.
_ABSENT = {"intra_ramp": 0.0, "inter_ramp": 0.0}
_BY_CLASS = ("class_compute", "class_host")


@dataclass(frozen=True)
class Points:
    """Batch, ranks, wires and knobs of every configuration; all arrays have shape [C].

    Link rates hold the efficiency of collectives on them, ramps are as in ``Group``.
    ``use_host``, ``use_comm`` and ``use_loader`` are 1, or 0 to ask what the step would be
    without that cost. ``class_compute`` and ``class_host`` [classes, C] are further multipliers of
    each rank class; None where all are alike.
    """

    micro_batch: Array
    grad_accum: Array
    n_ranks: Array
    n_nodes: Array
    gpus_per_node: Array
    intra_bw_bytes_per_s: Array
    inter_bw_bytes_per_s: Array
    intra_hop_s: Array
    inter_hop_s: Array
    intra_ramp: Array
    inter_ramp: Array
    compute: Array
    memory: Array
    host: Array
    intra: Array
    inter: Array
    loader: Array
    overlap: Array
    use_host: Array
    use_comm: Array
    use_loader: Array
    class_compute: Array | None = None
    class_host: Array | None = None

    @staticmethod
    def of(values: Mapping[str, object], size: int) -> Points:
        """Points from scalars and arrays; what is not given is 1, a ramp 0."""
        return Points(
            **{
                f.name: np.broadcast_to(
                    np.asarray(values.get(f.name, _ABSENT.get(f.name, 1.0)), dtype=np.float64),
                    (size,),
                )
                for f in fields(Points)
                if f.name not in _BY_CLASS
            },
            **{name: values.get(name) for name in _BY_CLASS},  # type: ignore[arg-type]
        )

    def __len__(self) -> int:
        return len(self.micro_batch)

    def take(self, index: slice | NDArray[np.intp]) -> Points:
        """A part of the axis."""
        arrays = {f.name: getattr(self, f.name) for f in fields(Points)}
        return replace(self, **{k: v[..., index] for k, v in arrays.items() if v is not None})

    def compute_of(self, index: int) -> Array:
        """The multiplier on compute of a rank class [C]."""
        common = self.compute
        return common if self.class_compute is None else common * self.class_compute[index]

    def host_of(self, index: int) -> Array:
        """The multiplier on the host of a rank class [C]."""
        return self.host if self.class_host is None else self.host * self.class_host[index]

    def with_columns(self, column: int, **changes: float) -> Points:
        """A copy with one configuration's values changed."""
        new = {}
        for name, value in changes.items():
            array = np.array(getattr(self, name))
            array[column] = value
            new[name] = array
        return replace(self, **new)
