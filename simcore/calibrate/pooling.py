"""From fits of single devices to figures by device, by family and for all, with spreads."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from simcore.calibrate.curve_fits import RooflineFit
from simcore.calibrate.op_classes import Fits
from simcore.calibrate.op_tables import Gpu, collection_of

NOT_FOUND_SD: Final = 0.30  # spread given to what is assumed, not measured


def mean_log(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def source_sd(fits: Fits, get: Callable[[RooflineFit], float]) -> float:
    """Log spread between independent collections on one GPU, pooled over GPUs with several."""
    squares, freedom = 0.0, 0
    for by_tag in fits.values():
        logs = np.log([get(f) for f in by_tag.values()])
        squares += float(np.sum((logs - logs.mean()) ** 2))
        freedom += len(logs) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0


def summarise(
    fits: Fits,
    gpus: Mapping[str, Gpu],
    get: Callable[[RooflineFit], float],
    own_sd: float,
) -> dict[str, Any]:
    """Pooled, by_family and by_gpu figures of one coefficient.

    by_gpu: geometric mean over collections; sd is ``own_sd`` (between collections, or what one
    shape strays where there is one). by_family: geometric mean over its GPUs; sd adds the spread
    between GPUs (the pooled one where the family has a single GPU, since that GPU need not be
    typical). pooled: median over families; sd is between families and own.
    """
    per_gpu = {g: mean_log(get(f) for f in by_tag.values()) for g, by_tag in fits.items()}
    rows = {g: sum(f.n for f in by_tag.values()) for g, by_tag in fits.items()}
    origin = {g: "+".join(sorted({collection_of(t) for t in by_tag})) for g, by_tag in fits.items()}
    families: dict[str, list[str]] = defaultdict(list)
    for g in per_gpu:
        families[gpus[g].family].append(g)
    within = [
        math.log(per_gpu[g]) - float(np.mean(np.log([per_gpu[x] for x in names])))
        for names in families.values() if len(names) > 1 for g in names
    ]  # fmt: skip
    freedom = sum(len(names) - 1 for names in families.values())
    gpu_sd = math.sqrt(sum(w * w for w in within) / freedom) if freedom else 0.0
    family_value = {f: mean_log(per_gpu[g] for g in names) for f, names in families.items()}
    logs = np.log(list(family_value.values()))
    between = float(np.std(logs, ddof=1)) if len(logs) > 1 else NOT_FOUND_SD
    pooled = figure(
        float(np.exp(np.median(logs))), math.hypot(between, gpu_sd, own_sd), "pooled", len(per_gpu)
    )
    by_family = {
        f: figure(
            family_value[f],
            math.hypot(gpu_sd if len(names) > 1 else max(gpu_sd, 0.5 * between), own_sd),
            "+".join(sorted({p for g in names for p in origin[g].split("+")})),
            len(names),
        )
        for f, names in sorted(families.items())
    }
    by_gpu = {g: figure(per_gpu[g], own_sd, origin[g], rows[g]) for g in sorted(per_gpu)}
    return {"pooled": pooled, "by_family": by_family, "by_gpu": by_gpu}


def figure(
    value: float | str, sd_log: float, source: str, n: int = 0, note: str = ""
) -> dict[str, Any]:
    """One leaf of the profile; ``n`` counts rows (by_gpu) or GPUs (by_family, pooled)."""
    shown = value if isinstance(value, str) else float(f"{value:.3g}")
    leaf: dict[str, Any] = {"value": shown, "sd_log": float(f"{sd_log:.2g}")}
    if n:
        leaf["n"] = n
    leaf["source"] = source
    if note:
        leaf["note"] = note
    return leaf
