"""Collectives inside one node for the shipped profile: measured curves and pooled fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from simcore.base.units import MICRO
from simcore.calibrate.collective_rows import CollectiveCurve, merged
from simcore.calibrate.curve_fits import fit_collective
from simcore.calibrate.pooling import family_of
from simcore.measurements.nccl_runs import bus_factor

#: The largest number of points of a written curve, evenly spread over ln(size).
POINTS: Final = 24
#: The least number of points of a curve that is written or fitted.
MIN_POINTS: Final = 6
#: A collection whose kernel times jump between 20 and 60 us at any size. Its curves are written
#: and compared with predictions, but not pooled.
NOISY: Final = "vidur"
#: Standard deviations of the logarithms of (bus share, latency, ramp) if fewer than three families
#: were measured: those between PCIe hosts, and those of other paths.
_ALONE_PCIE, _ALONE = (0.35, 0.35, 0.8), (0.12, 0.25, 0.4)
#: The least such standard deviations; the share of the standard deviation between families that
#: holds within one; and the least ramp, since its logarithm is pooled. All are assumptions.
_LEAST_SD, _FAMILY_SHARE = (0.05, 0.10, 0.2), 0.7
_LEAST_RAMP = 0.01


def curve_rows(curves: Iterable[CollectiveCurve], without: Collection[str] = ()) -> list[Any]:
    """The curves as entries of the profile's file: message sizes in bytes and times in us.

    Curves with fewer than ``MIN_POINTS`` points and of families in ``without`` are left out.
    """
    rows = []
    for c in merged(curves):
        if len(c.n_bytes) < MIN_POINTS or family_of(c.gpu) in without:
            continue
        at = np.unique(np.round(np.linspace(0, len(c.n_bytes) - 1, POINTS)).astype(int))
        if len(c.n_bytes) > POINTS:
            grid = np.geomspace(c.n_bytes[0], c.n_bytes[-1], POINTS)
            at = np.unique(np.abs(np.log(c.n_bytes[:, None] / grid)).argmin(axis=0))
        rows.append({
            "path": c.path, "gpu": c.gpu, "collective": c.op, "ranks": c.ranks, "source": c.origin,
            "bytes": [int(v) for v in c.n_bytes[at]],
            "us": [float(f"{v / MICRO:.4g}") for v in c.time_s[at]],
        })  # fmt: skip
    return sorted(rows, key=lambda r: [str(r[k]) for k in ("path", "gpu", "collective", "ranks")])


def collective_section(
    curves: Sequence[CollectiveCurve], without: Collection[str] = ()
) -> dict[str, Any]:
    """Fits by path, collective and ranks: pooled over families, and by family.

    A value is the bus bandwidth as a share of one direction of the link. Families in ``without``
    are left out.
    """
    fitted: dict[tuple[str, str, int], dict[str, list[tuple[float, float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for c in merged(curves):
        if len(c.n_bytes) < MIN_POINTS or c.origin == NOISY or family_of(c.gpu) in without:
            continue
        fit = fit_collective(c.n_bytes, c.time_s)
        share = fit.message_bytes_per_s * bus_factor(c.op, c.ranks) / c.link_bytes_per_s
        fitted[c.path, c.op, c.ranks][family_of(c.gpu)].append(
            (share, fit.latency_s, max(fit.ramp, _LEAST_RAMP))
        )
    section: dict[str, Any] = {"pooled": {}, "by_family": {}}
    for (path, op, ranks), families in sorted(fitted.items()):
        mids = {f: np.exp(np.mean(np.log(v), axis=0)) for f, v in families.items()}
        logs = np.log(np.array(list(mids.values())))
        alone = np.array(_ALONE_PCIE if path.startswith("pcie") else _ALONE)
        spread = np.std(logs, axis=0, ddof=1) if len(logs) > 2 else alone
        spread = np.maximum(spread, _LEAST_SD)
        place = section["pooled"].setdefault(path, {}).setdefault(op, {})
        place[ranks] = _leaf(np.exp(np.median(logs, axis=0)), spread, len(mids))
        for family, mid in sorted(mids.items()):
            by_op = section["by_family"].setdefault(family, {}).setdefault(path, {})
            by_op.setdefault(op, {})[ranks] = _leaf(
                mid, _FAMILY_SHARE * spread, len(families[family])
            )
    return section


def _leaf(values: Any, spread: Any, n: int) -> dict[str, Any]:
    return {
        "value": float(f"{values[0]:.3g}"), "sd_log": float(f"{spread[0]:.2g}"),
        "latency": f"{values[1] / MICRO:.3g} us", "ramp": float(f"{values[2]:.2g}"),
        "n": n, "source": "pooled",
    }  # fmt: skip
