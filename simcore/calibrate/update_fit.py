"""The rate of optimizers' updates on a GPU, from the benchmark of AdamW in its table ``host``.

Kernels on lists of tensors (``multi_tensor_apply``) move their bytes more slowly than elementwise
kernels on one tensor. Rows that the host limits tell of the host instead (``host_fit``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from simcore.base.units import FP32_BYTES
from simcore.calibrate.bench.host import ELEMENTS_MOVED
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.host_fit import device_bound
from simcore.calibrate.link_fit import LEAST_SD
from simcore.hardware.calibrations import Fitted
from simcore.hardware.profile import OF_MEMORY, Profile
from simcore.hardware.spec import GpuSpec
from simcore.strategy.optimizers import OPTIMIZERS

#: Key of the multiplier, which comes on top of that of elementwise kernels.
UPDATE: Final = OF_MEMORY + "update"
#: fp32 elements that an update moves for each parameter.
_MOVED: Final = {
    "adamw-foreach": OPTIMIZERS["adamw"].traffic_elems,
    "adamw-fused": float(ELEMENTS_MOVED["fused"]),
}


def with_update(
    figures: Mapping[str, Fitted], rows: Sequence[RawRow], gpu: GpuSpec, blind: Profile
) -> dict[str, Fitted]:
    """``figures`` of a GPU's kernels and, where a row tells of it, that of the update.

    ``figures``: key -> measured rate over ``blind``; ``rows``: of any table.
    """
    timed = [r for r in rows if r.cells.get("op") in _MOVED and device_bound(r, gpu)]
    if not timed:
        return dict(figures)
    elementwise = figures.get(OF_MEMORY + "elementwise")
    known = blind.memory_efficiency("update", gpu).value * (elementwise.value if elementwise else 1)
    logs = [math.log(_bytes_per_s(r) / (known * gpu.memory_bw.value)) for r in timed]
    spread = max(LEAST_SD, float(np.std(logs)))
    found = Fitted(value=math.exp(float(np.mean(logs))), sd_log=spread, rows=len(timed))
    return {**figures, UPDATE: found}


def _bytes_per_s(row: RawRow) -> float:
    op = row.cells["op"]
    elements = row.number("bytes") / (FP32_BYTES * ELEMENTS_MOVED[op.removeprefix("adamw-")])
    return elements * _MOVED[op] * FP32_BYTES / row.seconds
