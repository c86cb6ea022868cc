"""Published rates of matrix products over known shapes, as figures of the profile.

They are for devices whose 16-bit products are in no op table. They count as specifications of a
device, like its base clock: a refit without a family's rows still uses them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.record import dataclass
from simcore.base.units import MILLI, TERA, parse_quantity
from simcore.calibrate.pooling import Leaf, Levels, family_of, figure, mean_log
from simcore.hardware.class_figures import held_frac, sustained_over_burst
from simcore.hardware.estimates import matrix_style
from simcore.hardware.spec import GPUS, GpuSpec, PeakName
from simcore.physics.fill import matmul_fill
from simcore.physics.kernel import roofline_s

#: (m, n, k) of each product.
Shapes: TypeAlias = tuple[tuple[int, int, int], ...]

#: The products of DeepSeek-V3 in AMD's "typical attained FLOPs".
_TYPICAL: Final[Shapes] = tuple(
    (m, n, k)
    for m in (32, 32768)
    for n, k in ((2112, 7168), (3072, 1536), (7168, 2048), (4608, 7168), (7168, 256))
)
#: The products of a step of GPT with 345 M parameters on 8 samples of 1,024 tokens: the four linear
#: layers of 24 blocks and the head over 50,304 tokens, each forward and for both gradients.
_TOKENS: Final = 8 * 1024
_LINEAR: Final = ((3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096))
_GPT: Final[Shapes] = tuple(
    shape
    for n, k in (*_LINEAR * 24, (50304, 1024))
    for shape in ((_TOKENS, n, k), (_TOKENS, k, n), (n, k, _TOKENS))
)
#: Milliseconds of three such steps by kernel, without those of attention (``h884gemm``): forward
#: 128x128_nn, 256x128_nn and the head; backward 128x128_tn, the same with 32x1, 256x128_nt, and
#: three of CUTLASS.
_GPT_MS: Final = (74.25, 98.26, 29.40, 179.84, 41.27, 14.71, 53.26, 76.93, 25.63)
_GPT_STEPS: Final = 3
#: Side of a square product -> TFLOP/s over 30 consecutive calls, after six calls to warm up.
_SQUARES: Final = {1024: 57.30, 2048: 78.23, 4096: 95.73, 8192: 97.36, 10240: 89.37}
#: The same per TensorCore of TPU7x, which has two (gemm_multiple_run, bf16).
_TPU7X_CORE: Final = {2048: 679.28, 4096: 892.94, 16384: 950.13, 32768: 956.38}
_TPU7X_CORES: Final = 2
_OUTPUT_BYTES: Final = 2.0
#: Standard deviation of ln(share). One sum over ten shapes does not determine the rate of a step's
#: shapes, so it is half of the logarithm by which the device's best product exceeds it (831 over
#: 616 TFLOP/s).
OWN_SD: Final = 0.15


def flop_of(shapes: Shapes) -> float:
    """FLOP of one call of each shape."""
    return sum(2.0 * m * n * k for m, n, k in shapes)


def _rate_of_squares(tflop_per_s: Mapping[int, float]) -> float:
    """FLOP/s over one call of each square product: the sum of FLOP over the sum of times."""
    flop = {n: 2.0 * n**3 for n in tflop_per_s}
    return sum(flop.values()) / sum(flop[n] / (r * TERA) for n, r in tflop_per_s.items())


@dataclass(frozen=True)
class PublishedRate:
    """The rate of products on one device: their FLOP over their time.

    At sustained clocks, or ``in_bursts``: single products of milliseconds.

    ``peak``: name of the peak that it is a share of; ``operand_bytes``: bytes per input element.
    """

    cls: str
    peak: PeakName
    operand_bytes: float
    gpu: str
    flop_per_s: float
    source: str
    shapes: Shapes = _TYPICAL
    #: Other device -> ratio of its best product's rate to that of ``gpu``. Dies and library are the
    #: same, the power limits differ.
    kin: Mapping[str, float] = field(default_factory=dict)
    in_bursts: bool = False


#: AMD (rocm.blogs.amd.com): "Completing the GPU Performance Picture" (2026) for the ten shapes, in
#: loops of 30 s; "Measuring Max-Achievable FLOPs, Part 2" (2025) for the best product of each.
#: V100: PaddleFleetX, docs/profiler.md (examples/gpt/single, pure fp16, on V100 of 32 GB, taken to
#: be SXM2); zzc0721/torch-performance-test-data issue 140, torch.mm of PyTorch 2.7 on an SXM2.
#: TPU: AI-Hypercomputer/tpu-recipes c8cfe2f6, microbenchmarks/README.md (8,192 cubed in
#: 1.3288 ms on v6e) and microbenchmarks/ironwood/README.md.
PUBLISHED: Final = (
    PublishedRate("gemm_tensor16", "bf16", 2.0, "MI325X", 616.4 * TERA, "amd",
                  kin={"MI300X": 708 / 843}),
    PublishedRate("gemm_tensor8", "fp8", 1.0, "MI325X", 1143.2 * TERA, "amd",
                  kin={"MI300X": 1273 / 1519}),
    PublishedRate("gemm_tensor16", "fp16", 2.0, "V100-SXM-32GB",
                  flop_of(_GPT) * _GPT_STEPS / (sum(_GPT_MS) * MILLI), "paddle", _GPT),
    PublishedRate("gemm_tensor16", "fp16", 2.0, "V100-SXM-16GB",
                  _rate_of_squares(_SQUARES), "torch-mm", tuple((n, n, n) for n in _SQUARES)),
    PublishedRate("gemm_tensor16", "bf16", 2.0, "TPU-v6e", 827.47 * TERA, "tpu-products",
                  ((8192, 8192, 8192),), in_bursts=True),
    PublishedRate("gemm_tensor16", "bf16", 2.0, "TPU-v7x",
                  _TPU7X_CORES * _rate_of_squares(_TPU7X_CORE), "tpu-products",
                  tuple((n, n, n) for n in _TPU7X_CORE), in_bursts=True),
)  # fmt: skip


def typical_share(rate: PublishedRate, gpu: GpuSpec, beside: Mapping[str, Any]) -> float:
    """The share of the peak with which the model's time of the shapes equals the published one.

    ``beside``: the class's further figures memory, wave, depth and start.
    """
    m, n, k = np.array(rate.shapes, dtype=float).T
    flop = 2.0 * m * n * k
    n_bytes = rate.operand_bytes * (m * k + k * n) + _OUTPUT_BYTES * m * n
    # A device whose cores are not counted is filled by every shape, as where a step is priced.
    cores = gpu.sm_count
    fill = matmul_fill(m, n, k, 1.0, cores.value, beside["wave"], beside["depth"]) if cores else 1.0
    start_s = parse_quantity(beside["start"], "seconds")
    peak = gpu.peak(rate.peak) or math.nan
    published_s = flop.sum() / rate.flop_per_s

    from scipy.optimize import brentq

    def too_long(share: float) -> float:
        memory_s = n_bytes / (beside["memory"] * gpu.memory_bw.value)
        time_s = roofline_s(flop / (share * peak * fill), memory_s, start_s)
        return math.log(float(np.sum(time_s)) / published_s)

    return float(brentq(too_long, 0.01, 10.0))


def add_published(compute: Mapping[str, Levels]) -> None:
    """Add the figures of devices with published rates, and of their families, to ``compute``."""
    for rate in PUBLISHED:
        table = compute.get(rate.cls) or {}
        pooled = table.get("pooled", {})
        limit = pooled.get("limit_j_per_flop")
        if not limit or "wave" not in pooled:
            continue  # without power law and influence of shapes a rate cannot be converted
        beside = _beside(table, GPUS[rate.gpu])
        share = typical_share(rate, GPUS[rate.gpu], beside)
        by_gpu = table.setdefault("by_gpu", {})
        for name, over in ((rate.gpu, 1.0), *rate.kin.items()):
            sustained = None if rate.in_bursts else sustained_over_burst(GPUS[name], limit)
            clocks = sustained or 1.0
            leaf = figure(share * over * clocks, OWN_SD, rate.source)
            by_gpu.setdefault(name, leaf | beside)
        family = family_of(rate.gpu)
        family_leaf = _family(by_gpu, family, limit) | beside
        mine = [leaf for g, leaf in by_gpu.items() if family_of(g) == family]
        if not any("n" in leaf for leaf in mine):  # no device has rows of an op table
            for leaf in (family_leaf, *mine):
                leaf["rates_only"] = True
        table.setdefault("by_family", {})[family] = family_leaf


def _beside(table: Levels, gpu: GpuSpec) -> Leaf:
    """The influence of shapes on a device: that of devices with its style of matrix instructions.

    Without such devices it is the pooled one.
    """
    of = table.get("by_kin", {}).get(matrix_style(gpu), table["pooled"])
    return {name: of[name] for name in ("memory", "wave", "depth", "start")}


def _family(by_gpu: Mapping[str, Leaf], family: str, limit: float) -> Leaf:
    """The figure of a family: the mean of its devices, each relative to its power-limited peak."""
    mine = sorted(g for g in by_gpu if family_of(g) == family)
    held = [held_frac(GPUS[g], "tensor", limit) for g in mine]
    logs = np.log([by_gpu[g]["value"] / h for g, h in zip(mine, held, strict=True)])
    sources = sorted({str(by_gpu[g]["source"]) for g in mine})
    value = math.exp(float(logs.mean())) * mean_log(held)
    spread = math.hypot(float(logs.std(ddof=1)) if len(mine) > 1 else 0.0, OWN_SD)
    leaf = figure(value, spread, "+".join(sources), len(mine))
    return leaf | {"held": float(f"{mean_log(held):.3g}")}
