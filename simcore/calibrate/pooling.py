"""From fits of single devices to figures by device, by family and for all, with spreads."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.units import MICRO
from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GPUS, GpuSpec

#: Rows of one device that tell how shapes matter, not only the share.
ENOUGH_ROWS: Final = 100
NOT_FOUND_SD: Final = 0.30  # spread given to what is assumed, not measured

Leaf: TypeAlias = dict[str, Any]
Levels: TypeAlias = dict[str, Any]


def family_of(gpu: str) -> str:
    """The family whose figures a device falls back to first."""
    return families_of(GPUS[gpu])[0]


def mean_log(values: Iterable[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


@dataclass(frozen=True)
class Found:
    """What one device reaches: a share, figures beside it, the collections, how many rows."""

    value: float
    origins: Collection[str]
    n: int
    beside: Mapping[str, float] = field(default_factory=dict)


#: Figures written beside a share: unit (as YAML text) and whether they pool as logs.
_BESIDE: Final[Mapping[str, tuple[Callable[[float], str | float], bool]]] = {
    "memory": (lambda v: float(f"{v:.3g}"), True),
    "start": (lambda v: f"{v / MICRO:.3g} us", True),
    "floor": (lambda v: f"{v / MICRO:.3g} us", True),
    "row": (lambda v: float(f"{v:.3g}"), True),
    "wave": (lambda v: round(v, 2), False),
    "depth": (lambda v: float(f"{v:.2g}"), False),
    "ramp": (lambda v: f"{v / MICRO:.3g} us", True),
}


def _pool(found: Iterable[Mapping[str, float]], middle: Callable[[Any], Any]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for name, value in one.items():
            values[name].append(value)
    return {
        n: float(np.exp(middle(np.log(v)))) if _BESIDE[n][1] else float(middle(v))
        for n, v in values.items()
    }


def levels(
    found: Mapping[str, Found],
    own_sd: float,
    kin: Callable[[GpuSpec], str] = lambda _: "",
) -> Levels:
    """Pooled, by_kin, by_family and by_gpu figures of one class.

    by_gpu: sd is ``own_sd`` (between collections, or what one shape strays where there is one).
    by_family: geometric mean over its GPUs; sd adds the spread between GPUs (half the spread of
    families where the family has a single GPU, since that GPU need not be typical). pooled:
    median over families; sd is between families and own; by_kin: the same over the families that
    share what ``kin`` says of a device, as unsure as all. Empty where nothing is left.
    """
    if not found:
        return {}
    found = dict(sorted(found.items()))
    families: dict[str, list[str]] = defaultdict(list)
    for g in found:
        families[family_of(g)].append(g)
    family_value = {f: mean_log(found[g].value for g in names) for f, names in families.items()}
    within = [
        math.log(found[g].value / family_value[f])
        for f, names in families.items() if len(names) > 1 for g in names
    ]  # fmt: skip
    freedom = sum(len(names) - 1 for names in families.values())
    gpu_sd = math.sqrt(sum(w * w for w in within) / freedom) if freedom else 0.0
    logs = np.log(list(family_value.values()))
    between = float(np.std(logs, ddof=1)) if len(logs) > 1 else NOT_FOUND_SD
    # What few rows told of shapes is held or a guess: good for that device alone.
    told = {f: [g for g in names if found[g].n >= ENOUGH_ROWS] for f, names in families.items()}
    beside = {f: _pool((found[g].beside for g in names), np.mean) for f, names in told.items()}
    pooled = figure(
        float(np.exp(np.median(logs))), math.hypot(between, gpu_sd, own_sd), "pooled", len(found),
        beside=_pool(beside.values(), np.median),
    )  # fmt: skip
    by_family = {
        f: figure(
            family_value[f],
            math.hypot(gpu_sd if len(names) > 1 else max(gpu_sd, 0.5 * between), own_sd),
            "+".join(sorted({o for g in names for o in found[g].origins})),
            len(names), beside=beside[f],
        )
        for f, names in sorted(families.items())
    }  # fmt: skip
    by_gpu = {
        g: figure(f.value, own_sd, "+".join(sorted(f.origins)), f.n, beside=f.beside)
        for g, f in found.items()
    }
    kins: dict[str, dict[str, Found]] = defaultdict(dict)
    for g, f in found.items():
        kins[kin(GPUS[g])][g] = f
    by_kin = {}
    for name, of in sorted(kins.items()):
        if name:
            mine = levels(of, own_sd)["pooled"]
            by_kin[name] = pooled | mine | {"sd_log": pooled["sd_log"]}
    places = {"pooled": pooled, "by_kin": by_kin, "by_family": by_family, "by_gpu": by_gpu}
    return {name: place for name, place in places.items() if place}


def figure(
    value: float | str,
    sd_log: float,
    source: str,
    n: int = 0,
    note: str = "",
    *,
    beside: Mapping[str, float] | None = None,
) -> Leaf:
    """One leaf of the profile; ``n`` counts rows (by_gpu) or GPUs (by_family, pooled)."""
    shown = value if isinstance(value, str) else float(f"{value:.3g}")
    leaf: Leaf = {"value": shown, "sd_log": float(f"{sd_log:.2g}")}
    leaf |= {name: _BESIDE[name][0](v) for name, v in (beside or {}).items()}
    if n:
        leaf["n"] = n
    leaf["source"] = source
    if note:
        leaf["note"] = note
    return leaf
