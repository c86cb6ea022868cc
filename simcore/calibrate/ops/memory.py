"""The profile's memory-bound classes: shares of the bandwidth by device, family and for all."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from simcore.base.units import GIGA
from simcore.calibrate.ops.assumed import STREAM_GB_PER_S
from simcore.calibrate.ops.clocks import median_of_families
from simcore.calibrate.ops.model import MemoryFit
from simcore.calibrate.pooling import DeviceFigures, Leaf, Levels, family_of, levels, mean_log
from simcore.hardware.class_figures import STREAM_FRAC, ecc_frac
from simcore.hardware.spec import GPUS

#: Classes of kernels that load 16 bits at a time. The rate at which SMs issue loads limits them:
#: A100 and H100 agree in bytes per SM and clock, not in shares of their bandwidths.
ISSUE_BOUND: Final = ("norm_serving", "gate_serving", "act_serving")
#: Classes whose share of the bandwidth is in a fixed ratio to that of elementwise ops.
AS_STREAMS: Final = ("add_serving", "norm", "pow", "softmax", "softmax_short")


def memory_levels(
    fits: Mapping[str, Mapping[str, tuple[MemoryFit, ...]]], without: Collection[str]
) -> dict[str, Levels]:
    """Class of ops -> share of the memory bandwidth reached, by device, by family and for all.

    ``fits``: class -> device -> fits. ``without``: families of devices that are left out. The
    figures of a family and of all devices are for memory without inline ECC
    (``class_figures.ecc_frac``).
    """
    memory: dict[str, Levels] = {}
    found: dict[str, dict[str, DeviceFigures]] = {"elementwise": _streams()}
    for cls, both in fits.items():
        found.setdefault(cls, {}).update({
            g: DeviceFigures(
                mean_log(f.eff_memory for f in m) / ecc_frac(GPUS[g]), (_origin(m),),
                sum(f.n for f in m),
                _beside(m[0]),
            )
            for g, m in both.items()
        })  # fmt: skip
    known = {c: {g: f for g, f in of.items() if family_of(g) not in without}
             for c, of in found.items()}  # fmt: skip
    for cls, both in sorted(fits.items()):
        own_sd = max(0.03, float(np.median([f.resid_sd_log for m in both.values() for f in m])))
        seen = known[cls]
        memory[cls] = levels({**_from_streams(cls, seen, known["elementwise"]), **seen}, own_sd)
        if memory[cls]:
            memory[cls]["by_gpu"] = {g: _as_shipped(memory[cls]["by_gpu"][g], g) for g in seen}
        if cls in ISSUE_BOUND and seen:
            memory[cls]["pooled"]["issue_bytes_per_sm_clock"] = _issue_rate(seen)
    return memory


def _beside(fit: MemoryFit) -> dict[str, float]:
    """The further figures of a fit: start and floor of eager kernels, clocks per row of norms."""
    times = {"start": fit.start_s, "floor": fit.floor_s} if fit.eager else {}
    return times | ({"row": fit.row_clocks} if fit.row_clocks else {})


def _as_shipped(leaf: Leaf, gpu: str) -> Leaf:
    """A device's own figure with its ECC; the fits before this are without ECC."""
    return leaf | {"value": float(f"{leaf['value'] * ecc_frac(GPUS[gpu]):.3g}")}


def _from_streams(
    cls: str, seen: Mapping[str, DeviceFigures], streams: Mapping[str, DeviceFigures]
) -> dict[str, DeviceFigures]:
    """The shares of families that were not measured in a class, scaled from plain streams.

    The ratio of the class's share to that of streams is the median over families that have both.
    """
    families = {family_of(g) for g in seen}
    if cls not in AS_STREAMS:
        return {}
    over = {g: seen[g].value / streams[g].value for g in seen if g in streams}
    ratio = median_of_families(over) if over else 1.0
    return {
        g: DeviceFigures(f.value * ratio, f.origins, 0)
        for g, f in streams.items() if family_of(g) not in families
    }  # fmt: skip


def _streams() -> dict[str, DeviceFigures]:
    """The share of the bandwidth on devices for which only a stream benchmark was published.

    A40 and L40 reach more than inline ECC in GDDR would allow, so ECC was off.
    """
    return {
        g: DeviceFigures(rate * GIGA / GPUS[g].memory_bw.value, ("gpu-benches",), 0)
        for g, rate in STREAM_GB_PER_S.items()
    }


def _issue_rate(found: Mapping[str, DeviceFigures]) -> float:
    """Bytes per SM and clock that explain why the shares are below that of a plain stream."""
    rates = []
    for gpu, one in found.items():
        spec = GPUS[gpu]
        if spec.sm_count and spec.boost_clock:
            short = math.sqrt(max(one.value**-2 - STREAM_FRAC**-2, 1e-6))
            per_clock = spec.sm_count.value * spec.boost_clock.value
            rates.append(spec.memory_bw.value / (per_clock * short))
    return float(f"{mean_log(rates):.3g}") if rates else 0.0


def _origin(fits: Sequence[MemoryFit]) -> str:
    return "neusight" if fits[0].eager else "vidur"
