"""Rates of products that were published over named shapes, as figures of the profile.

Of devices whose 16-bit products no op table has. They count as specifications that a device comes
with, like its base clock: a refit that leaves a family's rows out keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.units import MILLI, TERA, parse_quantity
from simcore.calibrate.pooling import Leaf, Levels, family_of, figure, mean_log
from simcore.hardware.estimates import matrix_style
from simcore.hardware.power import held_frac, sustained_over_burst
from simcore.hardware.spec import GPUS, GpuSpec, PeakName
from simcore.physics.fill import matmul_fill
from simcore.physics.roofline import kernel_time_s

#: (m, n, k) of each product.
Shapes: TypeAlias = tuple[tuple[int, int, int], ...]

#: AMD's "typical attained FLOPs": products of DeepSeek-V3.
_TYPICAL: Final[Shapes] = tuple(
    (m, n, k)
    for m in (32, 32768)
    for n, k in ((2112, 7168), (3072, 1536), (7168, 2048), (4608, 7168), (7168, 256))
)
#: A step of GPT of 345 M parameters, 8 samples of 1,024 tokens: the four linear layers of 24 blocks
#: and the head over 50,304 words, each forward and for both gradients.
_TOKENS: Final = 8 * 1024
_LINEAR: Final = ((3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096))
_GPT: Final[Shapes] = tuple(
    shape
    for n, k in (*_LINEAR * 24, (50304, 1024))
    for shape in ((_TOKENS, n, k), (_TOKENS, k, n), (n, k, _TOKENS))
)
#: Milliseconds of three such steps, kernel by kernel (attention's own, ``h884gemm``, left out):
#: forward 128x128_nn, 256x128_nn and the head; backward 128x128_tn, the same 32x1, 256x128_nt, and
#: three of CUTLASS.
_GPT_MS: Final = (74.25, 98.26, 29.40, 179.84, 41.27, 14.71, 53.26, 76.93, 25.63)
_GPT_STEPS: Final = 3
#: Sides of squares -> TFLOP/s, 30 calls in a row of each after six to warm up.
_SQUARES: Final = {1024: 57.30, 2048: 78.23, 4096: 95.73, 8192: 97.36, 10240: 89.37}
_OUTPUT_BYTES: Final = 2.0
#: One sum over ten shapes leaves open how a step's compare: half of the logarithm by which the
#: best product of the same device exceeds it (831 over 616 TFLOP/s).
OWN_SD: Final = 0.15


def flop_of(shapes: Shapes) -> float:
    """FLOP of one call of each."""
    return sum(2.0 * m * n * k for m, n, k in shapes)


def _rate_of_squares(tflop_per_s: Mapping[int, float]) -> float:
    """One call of each side: their FLOP over their time."""
    flop = {n: 2.0 * n**3 for n in tflop_per_s}
    return sum(flop.values()) / sum(flop[n] / (r * TERA) for n, r in tflop_per_s.items())


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """FLOP of products over their time on one device, at clocks that it holds for long."""

    cls: str
    peak: PeakName
    operand_bytes: float
    gpu: str
    flop_per_s: float
    source: str
    shapes: Shapes = _TYPICAL
    #: Device -> its best product's rate over that of ``gpu``: same dies and library, other power.
    kin: Mapping[str, float] = field(default_factory=dict)


#: AMD (rocm.blogs.amd.com): "Completing the GPU Performance Picture" (2026) for the ten shapes, in
#: loops of 30 s; "Measuring Max-Achievable FLOPs, Part 2" (2025) for the best product of either.
#: V100: PaddleFleetX, docs/profiler.md (examples/gpt/single, pure fp16, on V100 of 32 GB, taken to
#: be SXM2); zzc0721/torch-performance-test-data issue 140, torch.mm of PyTorch 2.7 on an SXM2.
PUBLISHED: Final = (
    PublishedRate("gemm_tensor16", "bf16", 2.0, "MI325X", 616.4 * TERA, "amd",
                  kin={"MI300X": 708 / 843}),
    PublishedRate("gemm_tensor8", "fp8", 1.0, "MI325X", 1143.2 * TERA, "amd",
                  kin={"MI300X": 1273 / 1519}),
    PublishedRate("gemm_tensor16", "fp16", 2.0, "V100-SXM-32GB",
                  flop_of(_GPT) * _GPT_STEPS / (sum(_GPT_MS) * MILLI), "paddle", _GPT),
    PublishedRate("gemm_tensor16", "fp16", 2.0, "V100-SXM-16GB",
                  _rate_of_squares(_SQUARES), "torch-mm", tuple((n, n, n) for n in _SQUARES)),
)  # fmt: skip


def typical_share(rate: PublishedRate, gpu: GpuSpec, beside: Mapping[str, Any]) -> float:
    """Share of the peak with which the model takes as long over the shapes as was published.

    ``beside``: memory, wave, depth and start of the class.
    """
    m, n, k = np.array(rate.shapes, dtype=float).T
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
    """Set devices whose rates were published, and count them among their families."""
    for rate in PUBLISHED:
        table = compute.get(rate.cls) or {}
        pooled = table.get("pooled", {})
        limit = pooled.get("limit_j_per_flop")
        if not limit or "wave" not in pooled:
            continue  # neither the law of power nor shapes: nothing to carry a rate over with
        beside = _beside(table, GPUS[rate.gpu])
        share = typical_share(rate, GPUS[rate.gpu], beside)
        by_gpu = table.setdefault("by_gpu", {})
        for name, over in ((rate.gpu, 1.0), *rate.kin.items()):
            clocks = sustained_over_burst(GPUS[name], limit) or 1.0
            leaf = figure(share * over * clocks, OWN_SD, rate.source)
            by_gpu.setdefault(name, leaf | beside)
        family = family_of(rate.gpu)
        told = _family(by_gpu, family, limit) | beside
        mine = [leaf for g, leaf in by_gpu.items() if family_of(g) == family]
        if not any("n" in leaf for leaf in mine):  # rows of an op table
            for leaf in (told, *mine):
                leaf["rates_only"] = True
        table.setdefault("by_family", {})[family] = told


def _beside(table: Levels, gpu: GpuSpec) -> Leaf:
    """How shapes matter on a device: as on those whose instructions take operands alike, or all."""
    of = table.get("by_kin", {}).get(matrix_style(gpu), table["pooled"])
    return {name: of[name] for name in ("memory", "wave", "depth", "start")}


def _family(by_gpu: Mapping[str, Leaf], family: str, limit: float) -> Leaf:
    """The mean of a family's devices at what power leaves each of its peak."""
    mine = sorted(g for g in by_gpu if family_of(g) == family)
    held = [held_frac(GPUS[g], "tensor", limit) for g in mine]
    logs = np.log([by_gpu[g]["value"] / h for g, h in zip(mine, held, strict=True)])
    sources = sorted({str(by_gpu[g]["source"]) for g in mine})
    value = math.exp(float(logs.mean())) * mean_log(held)
    spread = math.hypot(float(logs.std(ddof=1)) if len(mine) > 1 else 0.0, OWN_SD)
    told = figure(value, spread, "+".join(sources), len(mine))
    return told | {"held": float(f"{mean_log(held):.3g}")}
