"""Rates of products that a vendor published over named shapes, as figures of the profile.

Specifications that a device comes with, like its base clock, and no rows of any op table: a refit
that leaves a family's rows out keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from simcore.base.units import TERA, parse_quantity
from simcore.calibrate.pooling import Leaf, Levels, family_of, figure, mean_log
from simcore.hardware.power import held_frac, sustained_over_burst
from simcore.hardware.spec import GPUS, GpuSpec, PeakName
from simcore.physics.fill import matmul_fill
from simcore.physics.roofline import kernel_time_s

#: (m, n, k) of AMD's "typical attained FLOPs": products of DeepSeek-V3.
_TYPICAL: Final = tuple(
    (m, n, k)
    for m in (32, 32768)
    for n, k in ((2112, 7168), (3072, 1536), (7168, 2048), (4608, 7168), (7168, 256))
)
_OUTPUT_BYTES: Final = 2.0
#: One sum over ten shapes leaves open how a step's compare: half of the logarithm by which the
#: best product of the same device exceeds it (831 over 616 TFLOP/s).
OWN_SD: Final = 0.15


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """FLOP of :data:`_TYPICAL` over their time in loops of 30 s each, on one device."""

    cls: str
    peak: PeakName
    operand_bytes: float
    gpu: str
    flop_per_s: float
    #: Device -> its best product's rate over that of ``gpu``: same dies and library, other power.
    kin: Mapping[str, float]


#: AMD (rocm.blogs.amd.com): "Completing the GPU Performance Picture" (2026) for the ten shapes;
#: "Measuring Max-Achievable FLOPs, Part 2" (2025) for the best product of either device.
PUBLISHED: Final = (
    PublishedRate("gemm_tensor16", "bf16", 2.0, "MI325X", 616.4 * TERA, {"MI300X": 708 / 843}),
    PublishedRate("gemm_tensor8", "fp8", 1.0, "MI325X", 1143.2 * TERA, {"MI300X": 1273 / 1519}),
)


def typical_share(rate: PublishedRate, gpu: GpuSpec, beside: Mapping[str, Any]) -> float:
    """Share of the peak with which the model takes as long over the shapes as was published.

    ``beside``: memory, wave, depth and start of the class.
    """
    m, n, k = np.array(_TYPICAL, dtype=float).T
    flop = 2.0 * m * n * k
    n_bytes = rate.operand_bytes * (m * k + k * n) + _OUTPUT_BYTES * m * n
    sms = gpu.sm_count.value if gpu.sm_count else math.inf
    fill = matmul_fill(m, n, k, 1.0, sms, beside["wave"], beside["depth"])
    start_s = parse_quantity(beside["start"], "seconds")
    peak = gpu.peak(rate.peak) or math.nan
    published_s = flop.sum() / rate.flop_per_s

    from scipy.optimize import brentq

    def too_long(share: float) -> float:
        time_s = kernel_time_s(
            flop, n_bytes, peak, gpu.memory_bw.value, share, beside["memory"], fill, start_s
        )
        return math.log(float(np.sum(time_s)) / published_s)

    return float(brentq(too_long, 0.01, 10.0))


def add_published(compute: Mapping[str, Levels]) -> None:
    """Set devices whose vendor published rates, and count them among their families."""
    for rate in PUBLISHED:
        table = compute.get(rate.cls) or {}
        pooled = table.get("pooled", {})
        limit = pooled.get("limit_j_per_flop")
        if not limit or "wave" not in pooled:
            continue  # neither the law of power nor shapes: nothing to carry a rate over with
        beside = {name: pooled[name] for name in ("memory", "wave", "depth", "start")}
        share = typical_share(rate, GPUS[rate.gpu], beside)
        for name, over in ((rate.gpu, 1.0), *rate.kin.items()):
            clocks = sustained_over_burst(GPUS[name], limit) or 1.0
            leaf = figure(share * over * clocks, OWN_SD, "amd")
            table.setdefault("by_gpu", {}).setdefault(name, leaf | beside)
        family = family_of(rate.gpu)
        table.setdefault("by_family", {})[family] = _family(table["by_gpu"], family, limit) | beside


def _family(by_gpu: Mapping[str, Leaf], family: str, limit: float) -> Leaf:
    """The mean of a family's devices at what power leaves each of its peak."""
    mine = sorted(g for g in by_gpu if family_of(g) == family)
    held = [held_frac(GPUS[g], "tensor", limit) for g in mine]
    logs = np.log([by_gpu[g]["value"] / h for g, h in zip(mine, held, strict=True)])
    sources = sorted({str(by_gpu[g]["source"]) for g in mine})
    value = math.exp(float(logs.mean())) * mean_log(held)
    spread = math.hypot(float(logs.std(ddof=1)), OWN_SD)
    told = figure(value, spread, "+".join(sources), len(mine))
    return told | {"held": float(f"{mean_log(held):.3g}")}
