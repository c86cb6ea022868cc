"""Compares runs of nccl-tests with the predicted times of the same collectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcore.answer.alone import collective_alone_s
from simcore.calibrate.nccl_groups import Measured, Stated, beyond_rings, read_nccl_groups
from simcore.calibrate.op_tables import OnBad
from simcore.hardware.profile import Profile
from simcore.measurements.nccl_runs import bus_factor
from simcore.validate.metrics import summary
from simcore.validate.ops import LARGE_MESSAGE


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
