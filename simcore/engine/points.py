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


@dataclass(frozen=True)
class Points:
    """Batch, ranks, wires and knobs of every configuration; all arrays have shape [C].

    Link rates hold the efficiency of collectives on them, ramps are as in ``Group``.
    ``use_host``, ``use_comm`` and ``use_loader`` are 1, or 0 to ask what the step would be
    without that cost.
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
            }
        )

    def __len__(self) -> int:
        return len(self.micro_batch)

    def take(self, index: slice | NDArray[np.intp]) -> Points:
        """A part of the axis."""
        return Points(**{f.name: getattr(self, f.name)[index] for f in fields(Points)})

    def with_columns(self, column: int, **changes: float) -> Points:
        """A copy with one configuration's values changed."""
        new = {}
        for name, value in changes.items():
            array = np.array(getattr(self, name))
            array[column] = value
            new[name] = array
        return replace(self, **new)
