"""Times of collectives inside one node, from the profile's measured curves and pooled fits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from simcore.base.arrays import Array
from simcore.base.database import read_yaml, shipped_root
from simcore.base.units import MICRO, parse_quantity
from simcore.calibrate.collective_rows import CollectiveCurve
from simcore.hardware.estimates import Level, families_of
from simcore.hardware.spec import GPUS
from simcore.measurements.nccl_runs import bus_factor


class CollectiveProfile:
    """``collectives.yaml`` as functions of message size."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._pooled: Mapping[str, Any] = data["collectives"]["pooled"]
        self._families: Mapping[str, Any] = data["collectives"]["by_family"]
        self._curves: dict[tuple[str, str, str, int], list[tuple[str, Array, Array]]] = {}
        for row in data["curves"]:
            key = (row["path"], row["gpu"], row["collective"], int(row["ranks"]))
            self._curves.setdefault(key, []).append(
                (row["source"], np.array(row["bytes"], float), np.array(row["us"]) * MICRO)
            )

    def time_s(self, curve: CollectiveCurve) -> tuple[Array, Level]:
        """(seconds at the sizes of ``curve``, level of the figures used). Raises KeyError.

        A group that was measured uses its own curve, of the same collection if there is one.
        Between neighbouring sizes, time is linear in the size, with the latency and rate of both
        (in logarithms, latency + S/B lies below any chord); beyond its ends latency and rate stay
        the same. Other groups use the family's fit of the path, or the fit over all GPUs, at the
        nearest number of ranks.
        """
        curves = self._curves.get(curve.key)
        if curves:
            _, sizes, times = next((c for c in curves if c[0] == curve.origin), curves[0])
            time_s = np.interp(curve.n_bytes, sizes, times)
            return time_s * np.maximum(curve.n_bytes / sizes[-1], 1.0), "own"
        for family in families_of(GPUS[curve.gpu]):
            near = self._families.get(family, {})
            if leaf := _nearest(near.get(curve.path), curve):
                return _fitted(leaf, curve), "family"
        if leaf := _nearest(self._pooled.get(curve.path), curve):
            return _fitted(leaf, curve), "pooled"
        raise KeyError(f"{curve.op} over {curve.path}: no group was measured")


def _nearest(by_op: Mapping[str, Any] | None, curve: CollectiveCurve) -> Any:
    """The figures of the op (of floats if int8 was not measured) at the nearest number of ranks."""
    found = (by_op or {}).get(curve.op) or (by_op or {}).get(curve.op.removesuffix("_int8"))
    if not found:
        return None
    return found[min(found, key=lambda n: abs(np.log(int(n) / curve.ranks)))]


def _fitted(leaf: Mapping[str, Any], curve: CollectiveCurve) -> Array:
    latency = parse_quantity(leaf["latency"], "seconds")
    rate = leaf["value"] * curve.link_bytes_per_s / bus_factor(curve.op, curve.ranks)
    transfer = curve.n_bytes / rate
    return latency + transfer + leaf["ramp"] * np.sqrt(latency * transfer)


@lru_cache(maxsize=1)
def load_collectives() -> CollectiveProfile:
    """The curves that simcore ships with."""
    data: Mapping[str, Any] = read_yaml(
        shipped_root() / "hardware_db" / "calibrations" / "collectives.yaml"
    )
    return CollectiveProfile(data)
