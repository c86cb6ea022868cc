"""Collectives judged: inside one node by the profile's curves and pooled fits, logs of nccl-tests.

``CollectiveProfile`` has the times of collectives inside one node. Runs of nccl-tests are compared
with the predicted times of the same collectives, as a step has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from simcore.answer.alone import collective_alone_s
from simcore.base.arrays import Array
from simcore.base.database import read_yaml, shipped_root
from simcore.base.units import MIB, MICRO, parse_quantity
from simcore.calibrate.nccl.groups import Measured, Stated, beyond_rings, read_nccl_groups
from simcore.calibrate.ops.collective_rows import CollectiveCurve
from simcore.calibrate.tables import OnBad
from simcore.hardware.estimates import Level, families_of
from simcore.hardware.profile import Profile
from simcore.hardware.spec import GPUS
from simcore.measurements.nccl_runs import bus_factor
from simcore.validate.metrics import summary


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


#: Large collectives: above the sizes at which latency dominates.
LARGE_MESSAGE: Final = 64 * MIB


def judge_nccl(
    paths: Sequence[Path], profile: Profile, said: Stated, *, on_bad: OnBad = "skip"
) -> dict[str, Any]:
    """The result that ``simcore validate ops LOG --json`` prints for logs of nccl-tests.

    ``paths``: the logs. ``said``: what the user states that the logs lack, such as the network.
    The key ``runs`` has one entry per run: the collective, the cluster, the errors over all message
    sizes and over those of at least 64 MiB, and ``points`` (bytes, measured_s, predicted_s and both
    bus bandwidths for each size). Raises DataError, InvalidConfig.
    """
    found = read_nccl_groups(paths, said, on_bad)
    runs = [_judged(group, profile) for group in found.groups]
    return {
        "measured_by": "nccl-tests",
        "profile": profile.origin,
        "rows": found.n_rows + sum(found.skipped.values()),
        "simulated": found.n_rows,
        "skipped": dict(found.skipped),
        "notes": [note for g in found.groups if (note := beyond_rings(g))],
        "bad_rows": list(found.problems),
        "runs": runs,
    }


def _judged(m: Measured, profile: Profile) -> dict[str, Any]:
    predicted = collective_alone_s(m.cluster, profile, m.op, m.n_bytes)  # type: ignore[arg-type]
    error = predicted / m.time_s - 1.0
    factor = bus_factor(m.op, m.ranks)
    return {
        "collective": m.op,
        "cluster": str(m.cluster),
        "node": m.cluster.groups[0].node.name,
        "network": m.cluster.network if m.cluster.n_nodes > 1 else "",
        "assumptions": list(m.cluster.assumptions),
        "where": m.where,
        **summary(error),
        "large": summary(error[m.n_bytes >= LARGE_MESSAGE]),
        "points": [
            {
                "bytes": float(size), "measured_s": float(took), "predicted_s": float(expected),
                "measured_busbw_bytes_per_s": factor * float(size / took),
                "predicted_busbw_bytes_per_s": factor * float(size / expected),
            }
            for size, took, expected in zip(m.n_bytes, m.time_s, predicted, strict=True)
        ],
    }  # fmt: skip
