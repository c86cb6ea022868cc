"""Pools fits of single devices into figures by device, by family and for all, with spreads."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GPUS, GpuSpec

#: The least number of rows of a device that also determine the influence of shapes; fewer rows
#: determine only the share of the peak.
ENOUGH_ROWS: Final = 100
#: Standard deviation between families if only one was measured: an assumption.
NOT_FOUND_SD: Final = 0.30

#: One figure of the profile: value, spread, source and further figures.
Leaf: TypeAlias = dict[str, Any]
#: Figures of one class: ``pooled``, ``by_kin``, ``by_family`` and ``by_gpu``.
Levels: TypeAlias = dict[str, Any]


def family_of(gpu: str) -> str:
    """The family whose figures a device uses first if it has none itself."""
    return families_of(GPUS[gpu])[0]


def mean_log(values: Iterable[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


@dataclass(frozen=True)
class DeviceFigures:
    """The fitted figures of one class on one device.

    ``value``: share of the peak or bandwidth. ``origins``: keys of the collections. ``n``: number
    of rows. ``beside``: further figures by name (see ``_BESIDE``).
    """

    value: float
    origins: Collection[str]
    n: int
    beside: Mapping[str, float] = field(default_factory=dict)


#: Further figure of a leaf -> its form in the YAML file, and whether logarithms are pooled.
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
    """Each further figure pooled over devices or families with ``middle``, a mean or a median."""
    values: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for name, value in one.items():
            values[name].append(value)
    return {
        n: float(np.exp(middle(np.log(v)))) if _BESIDE[n][1] else float(middle(v))
        for n, v in values.items()
    }


def levels(
    found: Mapping[str, DeviceFigures],
    own_sd: float,
    kin: Callable[[GpuSpec], str] = lambda _: "",
) -> Levels:
    """The figures of one class: pooled, by_kin, by_family and by_gpu; empty without devices.

    ``found`` is device -> figures. Standard deviations are of logarithms:

    - by_gpu: ``own_sd``, that between collections (or of single shapes, for one collection).
    - by_family: the geometric mean over the family's GPUs. Its standard deviation adds that
      between GPUs; for a family of one GPU at least half of that between families, since this GPU
      need not be typical.
    - pooled: the median over families. Its standard deviation combines that between families,
      that between GPUs and ``own_sd``.
    - by_kin: the same over the devices with an equal ``kin(device)`` that is not "", with the
      standard deviation of pooled.
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
    # With few rows the influence of shapes is not fitted or a guess, good only for that device.
    enough = {f: [g for g in names if found[g].n >= ENOUGH_ROWS] for f, names in families.items()}
    beside = {f: _pool((found[g].beside for g in names), np.mean) for f, names in enough.items()}
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
    kins: dict[str, dict[str, DeviceFigures]] = defaultdict(dict)
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
    """One figure of the profile as it is written to YAML, rounded.

    ``n`` counts rows (by_gpu) or GPUs (by_family, pooled); ``beside`` are further figures by name.
    """
    shown = value if isinstance(value, str) else float(f"{value:.3g}")
    leaf: Leaf = {"value": shown, "sd_log": float(f"{sd_log:.2g}")}
    leaf |= {name: _BESIDE[name][0](v) for name, v in (beside or {}).items()}
    if n:
        leaf["n"] = n
    leaf["source"] = source
    if note:
        leaf["note"] = note
    return leaf
