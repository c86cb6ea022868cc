"""Fit the shipped ``blind`` profile: the share of its datasheet that each class of op reaches.

    python -m simcore.calibrate.op_fit OPS_DIR GPU_SPECS_CSV -o hardware_db/calibrations/blind.yaml

Reads measured op tables (gemm, conv, memory_bound, attention, collectives, each ``.csv.gz``) and
fits them with the formulas of :mod:`simcore.physics.roofline`, so that the coefficients belong
to those formulas. Every sampling step is seeded: the same tables give the same file. Nothing
here reads a table of whole training steps. Figures that no op table gives stand in ``ASSUMED``
(each with its reason), ``BACKWARD_RATIO``, ``HOST`` and ``HOST_BUSBW``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simcore.base.units import GIGA, MEGA, MICRO, TERA
from simcore.physics.roofline import kernel_time_s, power_limited_frac, tile_fill

Array: TypeAlias = NDArray[np.float64]
Row: TypeAlias = dict[str, str]
Entry: TypeAlias = dict[str, Any]

SEED: Final = 20240607
EFF_MAX: Final = 1.05  # boost clocks above the datasheet's; more would be a wrong peak
BINS_PER_DECADE: Final = 4
ROWS_PER_BIN: Final = 150
SOFT_SCALE: Final = 0.1  # ln units: beyond 10 % a residual counts linearly
MAD_TO_SD: Final = 1.4826
BEYOND_L2: Final = 100 * MEGA
NOT_FOUND_SD: Final = 0.30  # spread given to what is assumed, not measured

#: Public collections behind the tables. A key joined by ``+`` means pooled over those.
SOURCES: Final[Mapping[str, str]] = {
    "aic": "aiconfigurator (Apache-2.0) systems/data/*/gemm, attention, comm; CUDA graph, burst",
    "vidur": "vidur (MIT) data/profiling; kernel times by profiler, 1 us resolution",
    "neusight": "NeuSight (MIT) scripts/asplos/data; fp32 with TF32 off, eager, mean of 5 best",
    "simumax": "SimuMax (Apache-2.0) configs/system; times derived from its efficiency factors",
    "llmcompass": "LLMCompass (BSD-3) ae/figure5 real_hardware; square-ish fp16 products",
    "vtrain": "vTrain (MIT) trace/*/AR_GPU*; nccl-tests, float, out of place",
    "gpu-benches": "gpu-benches gpu-stream and gpu-small-kernels, as published",
    "pooled": "median over the GPUs (or families) named in by_gpu and by_family of this class",
    "power-fit": "fit of power_limited_frac to the by_gpu figures of gemm_tensor16",
    "sustained-fit": "same shapes timed for a second or more against burst, aiconfigurator GEMM",
    "corpus-ddp": "exposed time of published data-parallel runs: 2(N-1)/N x gradient / (tN - t1)",
    "assumption": "no table has it: see the note",
}


# --- fitting -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RooflineFit:
    """Coefficients of ``launch + sqrt(tc^2 + tm^2)`` with the standard deviation of their logs.

    ``resid_sd_log`` is the robust scatter of ln(measured / fitted) over the compute-bound rows
    (over all rows for a memory fit): how far one shape strays.
    """

    eff_compute: float
    eff_memory: float
    launch_s: float
    sd_compute_log: float
    sd_memory_log: float
    resid_sd_log: float
    n: int


def robust_sd(values: Array) -> float:
    """Median absolute deviation, scaled to a normal's standard deviation."""
    return float(MAD_TO_SD * np.median(np.abs(values - np.median(values))))


def _solve(
    residual: Callable[[Array], Array], start: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Minimise soft-L1 of ``residual``; returns the parameters and their standard deviations."""
    from scipy.optimize import least_squares

    got = least_squares(
        residual, start, bounds=(low, high), loss="soft_l1", f_scale=SOFT_SCALE, x_scale=1.0
    )
    spread = max(robust_sd(residual(got.x)), 1e-6)
    cov = np.linalg.pinv(got.jac.T @ got.jac) * spread * spread
    return np.asarray(got.x), np.sqrt(np.diag(cov))


def fit_roofline(
    flop: Array,
    n_bytes: Array,
    fill: Array,
    time_s: Array,
    peak_flop_per_s: float,
    bw_bytes_per_s: float,
    *,
    eff_memory_min: float = 0.1,
    launch_max_s: float = 60 * MICRO,
) -> RooflineFit:
    """Fit both efficiencies and the launch time to rows of one device. Arrays are [rows].

    ``eff_memory_min``: without rows that stream memory, a low memory share would take up what
    the compute term misses; the bound keeps it physical.
    """

    def predict(p: Array) -> Array:
        return kernel_time_s(
            flop, n_bytes, peak_flop_per_s, bw_bytes_per_s,
            math.exp(p[0]), math.exp(p[1]), fill, math.exp(p[2]),
        )  # fmt: skip

    x, sd = _solve(
        lambda p: np.log(predict(p) / time_s),
        np.log([0.7, 0.8, 3 * MICRO]),
        np.log([0.02, eff_memory_min, 0.1 * MICRO]),
        np.log([EFF_MAX, 1.0, launch_max_s]),
    )
    residual = np.log(time_s / predict(x))
    compute_s = flop / (math.exp(x[0]) * peak_flop_per_s * fill)
    bound = compute_s > 0.7 * (time_s - math.exp(x[2]))
    bound &= compute_s > 5 * math.exp(x[2])
    eff_compute, eff_memory, launch_s = (float(v) for v in np.exp(x))
    return RooflineFit(
        eff_compute, eff_memory, launch_s, float(sd[0]), float(sd[1]),
        robust_sd(residual[bound] if bound.any() else residual), len(time_s),
    )  # fmt: skip


def fit_memory(n_bytes: Array, time_s: Array, bw_bytes_per_s: float) -> RooflineFit:
    """Fit ``launch + bytes / (eff · bw)`` to kernels without notable arithmetic."""

    def predict(p: Array) -> Array:
        time: Array = math.exp(p[1]) + n_bytes / (math.exp(p[0]) * bw_bytes_per_s)
        return time

    x, sd = _solve(
        lambda p: np.log(predict(p) / time_s),
        np.log([0.7, 10 * MICRO]),
        np.log([0.02, 0.1 * MICRO]),
        np.log([1.0, 300 * MICRO]),
    )
    residual = np.log(time_s / predict(x))
    return RooflineFit(
        1.0, float(np.exp(x[0])), float(np.exp(x[1])), 0.0, float(sd[0]),
        robust_sd(residual), len(time_s),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CollectiveFit:
    """``latency + S/B + ramp · sqrt(latency · S/B)``; B in bytes of message a second.

    The dimensionless ramp is the c of c·sqrt(S): c = ramp · sqrt(latency / B).
    """

    latency_s: float
    message_bytes_per_s: float
    ramp: float
    resid_sd_log: float
    n: int


def fit_collective(n_bytes: Array, time_s: Array) -> CollectiveFit:
    """Fit one curve of one collective on one group. Arrays are [sizes]."""
    start = np.log([time_s.min(), (n_bytes / time_s).max(), 0.5])

    def predict(p: Array) -> Array:
        latency, transfer = math.exp(p[0]), n_bytes / math.exp(p[1])
        time: Array = latency + transfer + math.exp(p[2]) * np.sqrt(latency * transfer)
        return time

    # B is barred from running far past the best rate seen: the ramp would take its place.
    x, _ = _solve(
        lambda p: np.log(predict(p) / time_s),
        start,
        start + np.log([0.2, 0.8, 1e-4]),
        start + np.log([5.0, 1.25, 40.0]),
    )
    residual = np.log(time_s / predict(x))
    latency_s, rate, ramp = (float(v) for v in np.exp(x))
    return CollectiveFit(latency_s, rate, ramp, robust_sd(residual), len(time_s))


def stratify(key: Array, rng: np.random.Generator, per_bin: int = ROWS_PER_BIN) -> NDArray[np.intp]:
    """Indices of at most ``per_bin`` rows from each quarter decade of ``key``, in row order."""
    bins = np.floor(np.log10(np.maximum(key, 1.0)) * BINS_PER_DECADE).astype(int)
    kept = [
        rng.permutation(np.flatnonzero(bins == b))[:per_bin] for b in np.unique(bins)
    ]  # fmt: skip
    return np.sort(np.concatenate(kept)) if kept else np.array([], dtype=np.intp)


# --- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the fit needs of a datasheet."""

    name: str
    family: str
    sm_count: float
    fp32: float
    tensor16: float
    fp8: float
    bw_bytes_per_s: float
    link_bytes_per_s: float
    tdp_w: float


def family_of(name: str, arch: str) -> str:
    """Architecture family. GA100 and GB100 differ from the graphics chips of their generation."""
    if arch == "Ampere":
        return "Ampere-GA100" if name.startswith(("A100", "A800", "A30")) else "Ampere"
    if arch.startswith("Blackwell"):
        return "Blackwell-GB202" if name.startswith("RTX") else "Blackwell"
    return "CDNA" if arch.startswith("CDNA") else arch


def read_gpus(path: Path) -> dict[str, Gpu]:
    """The datasheet table (``gpu_specs.csv``), dense peaks."""

    def number(row: Row, *columns: str) -> float:
        return next((float(row[c]) for c in columns if row[c]), math.nan)

    gpus = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            gpus[row["gpu"]] = Gpu(
                row["gpu"],
                family_of(row["gpu"], row["arch"]),
                number(row, "sm_or_cu"),
                number(row, "fp32_tflops") * TERA,
                number(row, "bf16_tflops", "fp16_tflops") * TERA,
                number(row, "fp8_tflops") * TERA,
                number(row, "mem_bw_gbs") * GIGA,
                number(row, "scaleup_gbs_bidir") * GIGA / 2,
                number(row, "tdp_w"),
            )
    return gpus


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of a gzipped CSV table."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def _column(rows: Sequence[Row], name: str) -> Array:
    return np.array([float(r[name]) for r in rows])


def _collection(source: str) -> str:
    """The table's source column to a key of SOURCES."""
    return {"AIC": "aic", "aiconfigurator": "aic"}.get(
        source.split("/")[0].split()[0], source.split("/")[0].split()[0].lower()
    )


Groups: TypeAlias = dict[tuple[str, str], list[Row]]


def _group(rows: Iterable[Row], keep: Callable[[Row], bool]) -> Groups:
    """Rows by (gpu, source tag); framework versions of one collection are separate tags."""
    groups: Groups = defaultdict(list)
    for row in rows:
        if keep(row):
            source = row["source"]
            tag = source if source.startswith("AIC") else _collection(source)
            groups[row["gpu"], tag.removesuffix("/encoder")].append(row)
    return groups


# --- the classes of op -------------------------------------------------------------------------

Fits: TypeAlias = dict[str, dict[str, RooflineFit]]  # gpu -> source tag -> fit


def fit_gemm(
    groups: Groups,
    gpus: Mapping[str, Gpu],
    peak: Callable[[Gpu], float],
    width_in: float,
    width_out: float,
    quantise: float = 0.0,
) -> Fits:
    """Roofline fit of each (gpu, source). ``quantise``: extra bytes per element of the left side.

    Rows below 0.1 GFLOP say little about efficiency and are left out.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        m, n, k, groups_ = (_column(rows, c) for c in ("m", "n", "k", "batch"))
        flop = 2.0 * m * n * k * groups_
        pick = np.flatnonzero(flop >= 100 * MEGA)
        if not pick.size:
            continue
        pick = pick[stratify(flop[pick], np.random.default_rng(SEED))]
        m, n, k, groups_, flop = (a[pick] for a in (m, n, k, groups_, flop))
        n_bytes = groups_ * (m * k * (width_in + quantise) + k * n * width_in + m * n * width_out)
        gpu = gpus[name]
        fill = tile_fill(m, n, k, groups_, gpu.sm_count)
        time_s = _column(rows, "time_us")[pick] * MICRO
        fits[name][tag] = fit_roofline(
            flop, n_bytes, fill, time_s, peak(gpu), gpu.bw_bytes_per_s, eff_memory_min=0.55
        )
    return fits


def fit_conv(groups: Groups, gpus: Mapping[str, Gpu]) -> Fits:
    """Forward convolutions in fp32, as the implicit GEMM that the workload graph counts.

    Winograd kernels need fewer multiplications than are counted here, which lifts the share.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        batch, cin, cout, kernel, hw, stride, pad = (
            _column(rows, c)
            for c in ("batch", "cin", "cout", "kernel_size", "in_hw", "stride", "pad")
        )
        out_hw = np.floor((hw + 2 * pad - kernel) / stride) + 1
        pixels, depth = batch * out_hw * out_hw, cin * kernel * kernel
        flop = 2.0 * pixels * cout * depth
        n_bytes = 4.0 * (batch * hw * hw * cin + pixels * cout + cout * depth)
        gpu = gpus[name]
        fill = tile_fill(pixels, cout, depth, 1.0, gpu.sm_count)
        time_s = _column(rows, "time_us") * MICRO
        pick = np.flatnonzero(flop >= 10 * GIGA)
        fits[name][tag] = fit_roofline(
            flop[pick], n_bytes[pick], fill[pick], time_s[pick], gpu.fp32, gpu.bw_bytes_per_s,
            eff_memory_min=0.55,
        )  # fmt: skip
    return fits


def fit_attention(groups: Groups, gpus: Mapping[str, Gpu], flop_factor: float = 1.0) -> Fits:
    """Flash attention; a causal mask halves the FLOP. ``flop_factor`` 2.5 for backward.

    Sequences of 256 to 32768: what training runs; shorter ones are launch-bound.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        b, h, kv, q, s, d, dv = (
            _column(rows, c)
            for c in ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "v_head_dim")
        )
        half = np.where(_column(rows, "causal") > 0, 0.5, 1.0)
        flop = flop_factor * 2.0 * b * h * q * s * (d + dv) * half
        pick = np.flatnonzero((q >= 256) & (q <= 32768) & (flop >= 100 * MEGA))
        if pick.size < 10:
            continue
        pick = pick[stratify(flop[pick], np.random.default_rng(SEED))]
        b, h, kv, q, s, d, dv, flop = (a[pick] for a in (b, h, kv, q, s, d, dv, flop))
        n_bytes = 2.0 * b * (h * q * (d + dv) + kv * s * (d + dv)) * (2.0 if flop_factor > 1 else 1)
        gpu = gpus[name]
        fill = tile_fill(q, d, s, b * h, gpu.sm_count)
        time_s = _column(rows, "time_us")[pick] * MICRO
        fits[name][tag] = fit_roofline(
            flop, n_bytes, fill, time_s, gpu.tensor16, gpu.bw_bytes_per_s
        )  # fmt: skip
    return fits


def fit_memory_class(groups: Groups, gpus: Mapping[str, Gpu]) -> Fits:
    """Memory-bound kernels whose traffic exceeds the L2 of every device in the tables.

    Smaller ones run from L2 in a benchmark loop and would flatter DRAM. Eager rows carry the
    host's launch in ``launch_s``.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        n_bytes, time_s = _column(rows, "bytes"), _column(rows, "time_us") * MICRO
        pick = np.flatnonzero(n_bytes >= BEYOND_L2)
        pick = pick[stratify(n_bytes[pick], np.random.default_rng(SEED))]
        fits[name][tag] = fit_memory(n_bytes[pick], time_s[pick], gpus[name].bw_bytes_per_s)
    return fits


# --- pooling -----------------------------------------------------------------------------------


def _mean_log(values: Iterable[float]) -> float:
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
    per_gpu = {g: _mean_log(get(f) for f in by_tag.values()) for g, by_tag in fits.items()}
    rows = {g: sum(f.n for f in by_tag.values()) for g, by_tag in fits.items()}
    origin = {g: "+".join(sorted({_collection(t) for t in by_tag})) for g, by_tag in fits.items()}
    families: dict[str, list[str]] = defaultdict(list)
    for g in per_gpu:
        families[gpus[g].family].append(g)
    within = [
        math.log(per_gpu[g]) - float(np.mean(np.log([per_gpu[x] for x in names])))
        for names in families.values() if len(names) > 1 for g in names
    ]  # fmt: skip
    freedom = sum(len(names) - 1 for names in families.values())
    gpu_sd = math.sqrt(sum(w * w for w in within) / freedom) if freedom else 0.0
    family_value = {f: _mean_log(per_gpu[g] for g in names) for f, names in families.items()}
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


# --- power -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PowerFit:
    """``eff = unlimited · power_limited_frac(tdp, peak, limit · node)`` and what it explains."""

    unlimited: float
    limit_j_per_flop: float
    resid_sd_log: float
    left_out: dict[str, tuple[float, float]]  # gpu -> (measured, predicted without its family)


def _fit_power(watts: Array, peak: Array, eff: Array) -> tuple[float, float]:
    x, _ = _solve(
        lambda p: np.log(math.exp(p[0]) * power_limited_frac(watts, peak, math.exp(p[1])) / eff),
        np.log([0.8, 0.5 / TERA]),
        np.log([0.5, 0.01 / TERA]),
        np.log([EFF_MAX, 20 / TERA]),
    )
    return math.exp(x[0]), math.exp(x[1])


def fit_power(
    eff: Mapping[str, float],
    gpus: Mapping[str, Gpu],
    peak: Callable[[Gpu], float],
    scale: Callable[[Gpu], float] = lambda _: 1.0,
) -> PowerFit:
    """Fit efficiencies against tdp/peak, and predict each family from the others."""
    names = sorted(eff)
    # A smaller node needs less energy a FLOP: dividing the watts' need is dividing by scale.
    watts = np.array([gpus[g].tdp_w / scale(gpus[g]) for g in names])
    peaks = np.array([peak(gpus[g]) for g in names])
    value = np.array([eff[g] for g in names])
    family = np.array([gpus[g].family for g in names])
    unlimited, limit = _fit_power(watts, peaks, value)
    left_out: dict[str, tuple[float, float]] = {}
    for out in sorted(set(family)):
        keep = family != out
        u, w0 = _fit_power(watts[keep], peaks[keep], value[keep])
        guess = u * power_limited_frac(watts, peaks, w0)
        left_out |= {
            g: (float(value[i]), float(guess[i])) for i, g in enumerate(names) if not keep[i]
        }
    fitted = unlimited * power_limited_frac(watts, peaks, limit)
    return PowerFit(unlimited, limit, float(np.std(np.log(value / fitted))), left_out)


def constant_left_out(
    eff: Mapping[str, float], gpus: Mapping[str, Gpu]
) -> dict[str, tuple[float, float]]:
    """Each GPU predicted by the median over the other families' means."""
    out = {}
    for g in sorted(eff):
        others: dict[str, list[float]] = defaultdict(list)
        for x, value in eff.items():
            if gpus[x].family != gpus[g].family:
                others[gpus[x].family].append(value)
        guess = float(np.median([_mean_log(v) for v in others.values()]))
        out[g] = (eff[g], guess)
    return out


def rms_log(pairs: Mapping[str, tuple[float, float]]) -> float:
    """Root mean square of ln(predicted / measured)."""
    return math.sqrt(float(np.mean([math.log(p / m) ** 2 for m, p in pairs.values()])))


# --- what no table has -------------------------------------------------------------------------

#: (section, class, level, key) -> value, sd of its log, reason. Written with source "assumption".
ASSUMED: Final[Mapping[tuple[str, str, str, str], tuple[float, float, str]]] = {
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "RTX4090"): (
        0.92, 0.08, "half-rate tensor cores (fp32 accumulate) feed easily, 450 W seldom binds; "
        "public torch.matmul reports known when chosen: 0.95 to 1.0"),
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "RTX3090"): (
        0.92, 0.10, "half-rate tensor cores (fp32 accumulate) feed easily, 350 W seldom binds; "
        "public torch.matmul reports known when chosen: 1.06"),
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "RTX2080Ti"): (
        0.90, 0.12, "half-rate tensor cores (fp32 accumulate) feed easily"),
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "T4"): (
        0.50, 0.25, "70 W: its fp32 products keep 0.6 of what the median device keeps"),
    ("compute_efficiency", "gemm_tensor16", "by_family", "half-rate"): (
        0.90, 0.12, "devices whose fp16 peak with fp32 accumulate is half of that with fp16"),
    ("compute_efficiency", "gemm_tensor16", "by_family", "MUSA"): (
        0.71, 0.30, "the median of the others; another vendor's libraries"),
    ("compute_efficiency", "gemm_simt32", "by_family", "Ada"): (
        0.60, 0.25, "half of the fp32 lanes share issue slots with integer work; "
        "public torch.matmul reports known when chosen: 0.35 (72 W) to 0.66 (450 W)"),
    ("compute_efficiency", "gemm_simt32", "by_family", "Ampere"): (
        0.64, 0.20, "GA10x: half of the fp32 lanes share issue slots with integer work; "
        "public torch.matmul reports known when chosen: 0.62 to 0.70"),
    ("compute_efficiency", "gemm_simt32", "by_family", "MUSA"): (
        0.65, 0.30, "another vendor's libraries"),
    ("compute_efficiency", "conv_tensor16", "pooled", ""): (
        0.45, 0.35, "no conv table in 16 bit: NCHW or NHWC alone moves a net 1.5 to 2.5 times"),
    ("compute_efficiency", "conv_tf32", "pooled", ""): (
        0.45, 0.35, "no conv table in TF32: taken as 16 bit"),
    ("memory_efficiency", "conv", "pooled", ""): (0.75, 0.15, "taken as GEMM's"),
    ("memory_efficiency", "reduction", "pooled", ""): (
        0.70, 0.25, "between elementwise and norm: reads dominate, the tail does not fill"),
    ("memory_efficiency", "gather", "pooled", ""): (
        0.55, 0.35, "rows of a few KB at random: full sectors, poor locality"),
    ("memory_efficiency", "copy", "pooled", ""): (
        0.80, 0.15, "strided on one side; a plain stream reaches 0.74 to 0.95 (gpu-benches)"),
}  # fmt: skip

#: Backward over forward time of memory-bound ops (NeuSight's per-op labels, fp32 eager, medians
#: over ops above 60 us): op class -> (ratio, sd of its log, what it covers).
BACKWARD_RATIO: Final[Mapping[str, tuple[float, float, str]]] = {
    "elementwise": (1.5, 0.20, "gelu"),
    "product": (1.8, 0.20, "mul: two gradients"),
    "dropout": (2.3, 0.30, "dropout"),
    "norm": (2.75, 0.10, "layer norm, 2.6 to 2.9, with its weight gradients"),
    "softmax": (2.7, 0.20, "softmax"),
    "gemm": (1.85, 0.05, "linear 1.9, bmm 1.8"),
}

#: Host and launch: name -> (value, sd of its log, source, note).
HOST: Final[Mapping[str, tuple[str, float, str, str]]] = {
    "host_issue": ("7 us", 0.35, "assumption",
                   "one eager PyTorch op, Python included: 5 to 10 us on current servers"),
    "stream_launch": ("2 us", 0.25, "gpu-benches", "back to back empty kernels, 1.6 to 2.6 us"),
    "graph_launch": ("1.1 us", 0.2, "gpu-benches", "per kernel of a CUDA graph, 0.9 to 1.3 us"),
}  # fmt: skip

#: Bus bandwidth [GB/s] implied by published data-parallel runs: exposed = t_N - t_1, so a floor
#: where communication overlaps. (path, host, ranks, values of several models and precisions).
HOST_BUSBW: Final[Sequence[tuple[str, str, int, tuple[float, ...]]]] = (
    ("host_memory", "RTX 4090, 2022", 2, (6.7, 6.1, 5.3, 5.2)),
    ("host_memory", "RTX 3090, later host", 2, (7.2, 7.2, 5.9, 5.4)),
    ("host_memory", "RTX A6000, later host", 2, (4.8, 4.1, 3.9)),
    ("host_memory", "A100-PCIe-80, later host", 2, (6.5, 5.3)),
    ("host_memory", "H100-PCIe, PCIe4 host", 2, (7.1, 7.2)),
    ("host_memory", "RTX 3070", 2, (5.0,)),
    ("host_memory", "RTX A6000, later host", 4, (5.2, 4.2)),
    ("host_memory", "H100-PCIe, PCIe4 host", 4, (10.0, 8.4)),
    ("host_memory", "RTX 3070", 4, (4.3,)),
    ("host_memory", "RTX 3090, shared uplinks", 4, (1.6, 1.3, 1.6)),
    ("host_memory", "H100-PCIe, PCIe4 host", 8, (2.6, 2.2, 2.2)),
    ("host_memory", "RTX 3070", 8, (1.7,)),
    ("host_memory", "RTX 3090, shared uplinks", 8, (0.8, 0.7, 0.8)),
    ("pcie_p2p", "RTX A4000, PCIe4", 2, (18, 15)),
    ("pcie_p2p", "RTX A4500, PCIe4", 2, (22, 19)),
    ("pcie_p2p", "RTX A5000, PCIe4", 2, (28, 20)),
    ("pcie_p2p", "RTX A4000, PCIe4", 4, (19, 18)),
    ("pcie_p2p", "RTX A4500, PCIe4", 4, (24, 21)),
    ("pcie_p2p", "RTX A5000, PCIe4", 4, (19, 17)),
    ("pcie_p2p", "RTX A4000, PCIe4", 8, (15, 13)),
    ("pcie_p2p", "RTX A4500, PCIe4", 8, (16, 14)),
    ("nvlink_pairs", "RTX A6000", 2, (43, 57)),
    ("nvlink_pairs", "A40", 2, (42, 43, 28)),
    ("nvlink_pairs", "A100-PCIe-40", 2, (62, 76)),
    ("nvlink_pairs", "RTX A6000", 4, (27, 34, 28)),
    ("nvlink_pairs", "A40", 4, (29, 34, 26)),
    ("nvlink_pairs", "A100-PCIe-40", 4, (48, 45)),
    ("nvlink_pairs", "RTX A6000", 8, (24, 26)),
    ("nvlink_pairs", "A40", 8, (18, 23, 12)),
    ("nvlink_pairs", "A100-PCIe-40", 8, (39, 35)),
)

#: NVLink generation to one-way bytes/s; the tables name the device loosely.
DEVICE_OF: Final[Mapping[str, str]] = {
    "A100-SXM4-80GB": "A100-SXM-80GB", "H100-SXM": "H100-SXM-80GB", "B200": "B200-SXM",
    "V100": "V100-SXM-32GB",
}  # fmt: skip
PCIE4_X16, PCIE5_X16 = 31.5 * GIGA, 63.0 * GIGA
#: (device as tabled, ranks) -> path, one-way rate of the link, for groups on PCIe.
PCIE_PATH: Final[Mapping[tuple[str, int], tuple[str, float]]] = {
    ("L40S", 2): ("pcie_p2p", PCIE4_X16),
    ("L40S", 4): ("pcie_host", PCIE4_X16),
    ("L40S", 8): ("pcie_host", PCIE4_X16),
    ("A100", 4): ("pcie_p2p", PCIE4_X16),
    ("H100", 4): ("pcie_p2p", PCIE5_X16),
}


# --- the profile -------------------------------------------------------------------------------

Profile: TypeAlias = dict[str, Any]
ELEMENTWISE: Final = frozenset(
    {"add", "addu", "mul", "mulu", "div", "divu", "relu", "gelu", "tanh"}
)


def bus_factor(collective: str, ranks: int) -> float:
    """Bus over algorithm bandwidth (nccl-tests): 2(n-1)/n for all-reduce, (n-1)/n otherwise."""
    return (2.0 if collective == "all_reduce" else 1.0) * (ranks - 1) / ranks


def _collectives(path: Path, gpus: Mapping[str, Gpu]) -> Profile:
    curves: dict[tuple[str, str, str, int, str], list[tuple[float, float]]] = defaultdict(list)
    rates: dict[tuple[str, str], float] = {}
    for row in read_rows(path):
        if row["nodes"] != "1" or not row["time_us"] or not row["size_bytes"]:
            continue
        ranks, device, link = int(row["gpus"]), row["gpu_type"], row["intra_link"]
        origin = _collection(row["source"])
        on_pcie = (device, ranks) in PCIE_PATH and ("PCIe" in link)
        if origin == "aic":
            if row["algo"] != "NCCL" or not row["notes"].startswith("half"):
                continue
        elif (origin, device) != ("vtrain", "V100") and not (origin == "vidur" and on_pcie):
            continue
        if row["collective"] == "send_recv" or float(row["size_bytes"]) <= 0:
            continue
        if on_pcie:
            kind, rate = PCIE_PATH[device, ranks]
            name = device if device in gpus else f"{device}-PCIE-80GB"
        else:
            name = DEVICE_OF.get(device, device)
            rate = gpus[name].link_bytes_per_s
            kind = "nvlink_mesh" if device == "V100" else "nvswitch"
        rates[kind, name] = rate
        curves[kind, name, row["collective"], ranks, origin].append(
            (float(row["size_bytes"]), float(row["time_us"]) * MICRO)
        )
    rows, pooled = [], defaultdict(list)
    for (kind, name, op, ranks, origin), points in sorted(curves.items()):
        table = np.array(sorted(points))
        fit = fit_collective(table[:, 0], table[:, 1])
        frac = fit.message_bytes_per_s * bus_factor(op, ranks) / rates[kind, name]
        rows.append({
            "path": kind, "gpu": name, "collective": op, "ranks": ranks,
            "bus_frac": float(f"{frac:.3g}"), "latency": f"{fit.latency_s / MICRO:.3g} us",
            "ramp": float(f"{fit.ramp:.2g}") if fit.ramp > 0.01 else 0.0,
            "sd_log": float(f"{fit.resid_sd_log:.2g}"), "n": fit.n, "source": origin,
        })  # fmt: skip
        pooled[kind, op, ranks].append((frac, fit.latency_s, max(fit.ramp, 0.01)))
    summary: Profile = {}
    for (kind, op, ranks), values in sorted(pooled.items()):
        logs = np.log(np.array(values))
        mid = np.exp(np.median(logs, axis=0))
        # One group is no sample of hosts: give it the spread that PCIe hosts show.
        alone = (0.35, 0.35, 0.8) if kind.startswith("pcie") else (0.12, 0.25, 0.4)
        spread = np.std(logs, axis=0, ddof=1) if len(values) > 2 else np.array(alone)
        spread = np.maximum(spread, (0.05, 0.10, 0.2))
        summary.setdefault(kind, {}).setdefault(op, {})[ranks] = {
            "bus_frac": figure(float(mid[0]), float(spread[0]), "pooled", len(values)),
            "latency": figure(
                f"{mid[1] / MICRO:.3g} us", float(spread[1]), "pooled", len(values)
            ),
            "ramp": figure(float(mid[2]), float(spread[2]), "pooled", len(values)),
        }  # fmt: skip
    return {"pooled": summary, "fits": rows}


def _host_busbw() -> Profile:
    pooled: dict[str, dict[int, Entry]] = defaultdict(dict)
    seen: dict[tuple[str, int], list[float]] = defaultdict(list)
    rows = []
    for path, host, ranks, values in HOST_BUSBW:
        value = _mean_log(values)
        seen[path, ranks].append(value)
        rows.append({
            "path": path, "host": host, "ranks": ranks, "busbw": f"{value:.3g} GB/s",
            "sd_log": float(f"{max(float(np.std(np.log(values))), 0.1):.2g}"),
            "source": "corpus-ddp",
        })  # fmt: skip
    for (path, ranks), hosts in seen.items():
        spread = float(np.std(np.log(hosts), ddof=1)) if len(hosts) > 1 else NOT_FOUND_SD
        pooled[path][ranks] = figure(
            f"{np.exp(np.median(np.log(hosts))):.3g} GB/s", math.hypot(spread, 0.1),
            "corpus-ddp", len(hosts),
        )  # fmt: skip
    return {"pooled": dict(pooled), "hosts": rows}


def sustained_over_burst(gemm: Iterable[Row]) -> dict[str, tuple[float, float, int]]:
    """GPU -> (median time ratio, robust sd of its log, shapes): seconds-long runs over bursts.

    Only pairs of one framework, of 10 GFLOP and more: kernels long enough to heat the device.
    """
    times: dict[str, dict[tuple[str, ...], list[float]]] = {
        "graph_burst": defaultdict(list), "graph_sustained": defaultdict(list),
    }  # fmt: skip
    for row in gemm:
        kept = times.get(row["timing"])
        if kept is None or row["dtype"] != "bf16" or "/trtllm/" not in row["source"]:
            continue
        if 2.0 * float(row["m"]) * float(row["n"]) * float(row["k"]) < 10 * GIGA:
            continue
        kept[row["gpu"], row["m"], row["n"], row["k"]].append(float(row["time_us"]))
    logs = defaultdict(list)
    for shape, sustained in times["graph_sustained"].items():
        if burst := times["graph_burst"].get(shape):
            logs[shape[0]].append(math.log(float(np.median(sustained)) / float(np.median(burst))))
    return {
        gpu: (math.exp(float(np.median(v))), robust_sd(np.array(v)), len(v))
        for gpu, v in sorted(logs.items())
    }


def backward_over_forward(rows: Iterable[Row]) -> dict[str, Array]:
    """GPU -> ln(backward time / forward time) over attention shapes that have both."""
    times: dict[str, dict[tuple[str, ...], float]] = {"fwd": {}, "bwd": {}}
    for row in rows:
        if row["timing"] == "derived_from_eff" and row["pass"] in times:
            shape = ("gpu", "batch", "heads", "kv_heads", "seq_q", "head_dim", "kernel")
            times[row["pass"]][tuple(row[c] for c in shape)] = float(row["time_us"])
    logs = defaultdict(list)
    for shape_key, bwd in times["bwd"].items():
        if shape_key in times["fwd"]:
            logs[shape_key[0]].append(math.log(bwd / times["fwd"][shape_key]))
    return {gpu: np.array(v) for gpu, v in sorted(logs.items())}


def _steady(row: Row) -> bool:
    """GEMM rows whose times mean what the class says (see the notes in the written file)."""
    return (
        row["timing"] != "graph_sustained"
        and "vllm" not in row["source"]  # weights left uninitialised: too fast
        and not row["op"].startswith("grouped")
        and not (row["gpu"] == "B200-SXM" and row["source"].startswith("SimuMax"))
        and row["gpu"] != "Arc-Pro-B60"  # its only source is vLLM
    )


def _worst_shape(fits: Fits) -> float:
    return float(np.median([f.resid_sd_log for by_tag in fits.values() for f in by_tag.values()]))


def build_profile(ops_dir: Path, specs: Path) -> Profile:
    """Fit every class from the tables in ``ops_dir``; plain data, ready to be written."""
    gpus = read_gpus(specs)
    gemm = list(read_rows(ops_dir / "gemm.csv.gz"))
    compute: Profile = {}
    memory: Profile = {}

    tensor16 = fit_gemm(
        _group(gemm, lambda r: r["dtype"] in ("bf16", "fp16") and _steady(r)),
        gpus, lambda g: g.tensor16, 2, 2,
    )  # fmt: skip
    between_sources = source_sd(tensor16, lambda f: f.eff_compute)
    own_sd = max(between_sources, 0.5 * _worst_shape(tensor16))
    compute["gemm_tensor16"] = summarise(tensor16, gpus, lambda f: f.eff_compute, own_sd)
    no_floor = {  # a floor that binds says nothing of memory
        g: {t: f for t, f in by.items() if 0.56 < f.eff_memory < 0.99} for g, by in tensor16.items()
    }
    no_floor = {g: by for g, by in no_floor.items() if by}
    memory["gemm"] = summarise(
        no_floor, gpus, lambda f: f.eff_memory, source_sd(no_floor, lambda f: f.eff_memory)
    )

    tensor8 = fit_gemm(
        _group(gemm, lambda r: r["dtype"] == "fp8" and _steady(r)), gpus, lambda g: g.fp8, 1, 2, 3
    )
    compute["gemm_tensor8"] = summarise(tensor8, gpus, lambda f: f.eff_compute, own_sd)

    simt32 = fit_gemm(
        _group(
            gemm,
            lambda r: r["dtype"] == "fp32" and "_test" in r["source"] and r["gpu"][:2] != "MI",
        ),
        gpus, lambda g: g.fp32, 4, 4,
    )  # fmt: skip
    compute["gemm_simt32"] = summarise(simt32, gpus, lambda f: f.eff_compute, _worst_shape(simt32))
    matrix32 = fit_gemm(
        _group(gemm, lambda r: r["dtype"] == "fp32" and r["gpu"][:2] == "MI"),
        gpus, lambda g: 2.0 * g.fp32, 4, 4,
    )  # fmt: skip
    compute["gemm_matrix32"] = summarise(
        matrix32, gpus, lambda f: f.eff_compute, _worst_shape(matrix32)
    )

    conv = fit_conv(_group(read_rows(ops_dir / "conv.csv.gz"), lambda _: True), gpus)
    compute["conv_simt32"] = summarise(conv, gpus, lambda f: f.eff_compute, _worst_shape(conv))

    attention_rows = list(read_rows(ops_dir / "attention.csv.gz"))
    attention = fit_attention(
        _group(
            attention_rows,
            lambda r: r["pass"] == "fwd" and r["timing"] == "graph_burst"
            and r["gpu"] != "Arc-Pro-B60",
        ),
        gpus,
    )  # fmt: skip
    kernel_sd = max(source_sd(attention, lambda f: f.eff_compute), _worst_shape(attention))
    compute["attention"] = summarise(attention, gpus, lambda f: f.eff_compute, kernel_sd)
    memory["attention"] = summarise(attention, gpus, lambda f: f.eff_memory, kernel_sd)

    memory_rows = list(read_rows(ops_dir / "memory_bound.csv.gz"))
    eager = [r for r in memory_rows if r["source"].startswith("NeuSight")]
    classes: dict[str, Fits] = {}
    for kind, ops in (
        ("elementwise", ELEMENTWISE), ("norm", frozenset({"ln"})),
        ("softmax", frozenset({"softmax"})),
    ):  # fmt: skip
        classes[kind] = fit_memory_class(_group(eager, lambda r, ops=ops: r["op"] in ops), gpus)  # type: ignore[misc]
        memory[kind] = summarise(
            classes[kind], gpus, lambda f: f.eff_memory, max(_worst_shape(classes[kind]), 0.03)
        )

    profile: Profile = {"compute_efficiency": compute, "memory_efficiency": memory}
    profile["power"] = _power(compute, gpus)
    for (section, kind, level, key), (value, sd, note) in ASSUMED.items():
        leaf = figure(value, sd, "assumption", note=note)
        place = profile[section].setdefault(kind, {})
        if level == "pooled":
            place["pooled"] = leaf
        else:
            place.setdefault(level, {})[key] = leaf
    compute["gemm_tf32"] = _as_tf32(compute["gemm_tensor16"])

    ratios = backward_over_forward(attention_rows)
    spread = float(np.std([np.median(v) for v in ratios.values()])) if len(ratios) > 1 else 0.1
    everything = np.concatenate(list(ratios.values()))
    backward: Profile = {
        "attention": figure(
            math.exp(float(np.mean([np.median(v) for v in ratios.values()]))),
            math.hypot(spread, 0.5 * robust_sd(everything)), "simumax", everything.size,
            note="flash attention; 2.5 times the FLOP, so the rest is efficiency",
        )
    }  # fmt: skip
    for kind, (value, sd, note) in BACKWARD_RATIO.items():
        backward[kind] = figure(value, sd, "neusight", note=note)
    profile["backward_over_forward_time"] = backward

    profile["clocks"] = _clocks(gemm)
    profile["host"] = _host(tensor16, eager)
    profile["collectives"] = _collectives(ops_dir / "collectives.csv.gz", gpus)
    profile["host_busbw"] = _host_busbw()
    return profile


def _as_tf32(tensor16: Profile) -> Profile:
    """TF32 has half the rate and about twice the energy a FLOP: the same relative limits."""

    def widen(leaf: Entry) -> Entry:
        return figure(leaf["value"], math.hypot(leaf["sd_log"], 0.08), "assumption")

    copy: Profile = {
        "pooled": widen(tensor16["pooled"])
        | {"note": "no TF32 table: taken as gemm_tensor16, at half its peak and watts a FLOP/s x2"}
    }
    for level in ("by_family", "by_gpu"):
        copy[level] = {k: widen(leaf) for k, leaf in tensor16[level].items()}
    return copy


def _power(compute: Profile, gpus: Mapping[str, Gpu]) -> Profile:
    """Power term of the tensor class, its test against constants, and what follows for Ada."""
    eff = {g: leaf["value"] for g, leaf in compute["gemm_tensor16"]["by_gpu"].items()}
    eff = {g: v for g, v in eff.items() if gpus[g].family != "CDNA"}
    fit = fit_power(eff, gpus, lambda g: g.tensor16)
    simt = {g: leaf["value"] for g, leaf in compute["gemm_simt32"]["by_gpu"].items()}
    fit32 = fit_power(simt, gpus, lambda g: g.fp32)
    # Ada has one measured device; its limit is what makes the curve pass through it.
    l40s = gpus["L40S"]
    share = min(eff["L40S"] / fit.unlimited, 0.999)
    limit = (share**-4 - 1.0) ** 0.25 * l40s.tdp_w / l40s.tensor16
    for name, spec, sd, note in (
        ("A6000ada", gpus["RTX-6000-Ada"], 0.16, "L40S at 300 W instead of 350 W, same silicon"),
        ("L4", gpus["L4"], 0.20, "L40S's watts a FLOP, at 72 W"),
    ):
        scaled = fit.unlimited * float(power_limited_frac(spec.tdp_w, spec.tensor16, limit))
        compute["gemm_tensor16"]["by_gpu"][name] = figure(scaled, sd, "power-fit", note=note)

    def judged(constant: Mapping[str, tuple[float, float]], term: PowerFit) -> Profile:
        return {
            "constant": float(f"{rms_log(constant):.2g}"),
            "power_term": float(f"{rms_log(term.left_out):.2g}"),
        }

    return {
        "gemm_tensor16": {
            "unlimited": figure(fit.unlimited, fit.resid_sd_log, "power-fit", len(eff)),
            "limit_j_per_flop": {
                "pooled": figure(fit.limit_j_per_flop, 0.5, "power-fit", len(eff)),
                "Ada": figure(limit, 0.15, "power-fit", 1, "from L40S alone"),
            },
            "left_family_out_rms_log": judged(constant_left_out(eff, gpus), fit),
        },
        "gemm_simt32": {
            "unlimited": figure(fit32.unlimited, fit32.resid_sd_log, "power-fit", len(simt)),
            "limit_j_per_flop": {
                "pooled": figure(fit32.limit_j_per_flop, 0.5, "power-fit", len(simt))
            },
            "left_family_out_rms_log": judged(constant_left_out(simt, gpus), fit32),
        },
    }


def _clocks(gemm: Iterable[Row]) -> Profile:
    ratios = sustained_over_burst(gemm)
    logs = np.log([r for r, _, _ in ratios.values()])
    within = float(np.median([sd for _, sd, _ in ratios.values()]))
    return {
        "sustained_over_burst": {
            "pooled": figure(
                float(np.exp(logs.mean())), within, "sustained-fit", len(ratios),
                "time ratio at the power cap; devices far below theirs may show none",
            ),
            "by_gpu": {
                g: figure(r, sd, "sustained-fit", n) for g, (r, sd, n) in ratios.items()
            },
        }
    }  # fmt: skip


def _host(tensor16: Fits, eager: Iterable[Row]) -> Profile:
    starts = [
        fit.launch_s
        for by_tag in tensor16.values() for tag, fit in by_tag.items()
        if tag.startswith("AIC") and fit.launch_s > 0.5 * MICRO
    ]  # fmt: skip
    floors = defaultdict(list)
    for row in eager:
        if float(row["bytes"]) < MEGA:
            floors[row["gpu"]].append(float(row["time_us"]))
    floor_us = [float(np.median(v)) for v in floors.values() if len(v) >= 10]
    host: Profile = {
        "kernel_start": figure(
            f"{float(np.median(starts)) / MICRO:.3g} us", float(np.std(np.log(starts))), "aic",
            len(starts), "on the device, inside a CUDA graph",
        )
    }  # fmt: skip
    if floor_us:
        host["eager_event_floor"] = figure(
            f"{float(np.median(floor_us)):.3g} us", float(np.std(np.log(floor_us))), "neusight",
            len(floor_us), "one small eager op between two events, host included",
        )  # fmt: skip
    for name, (value, sd, source, note) in HOST.items():
        host[name] = figure(value, sd, source, note=note)
    return host


# --- writing -----------------------------------------------------------------------------------

COMMENTS: Final[Mapping[str, str]] = {
    "": """The shipped profile: what devices reach of their datasheets, from published op tables.
Written by `python -m simcore.calibrate.op_fit`: change the tables or that module, not this file.
Whole training steps fed nothing here but host_busbw (see its source).
A value comes with sd_log, the standard deviation of its logarithm; n counts rows in by_gpu, devices
in by_family and pooled. Look a figure up by GPU, then by family, then pooled. Families are
architectures, but Ampere-GA100 and Blackwell (GB100) stand apart from the graphics chips, and
half-rate (GeForce: fp16_acc16 above fp16) goes before the architecture.
Left out: vLLM's rows (uninitialised weights), grouped products, Arc Pro B60 (vLLM only).""",
    "compute_efficiency": """Share of the dense datasheet peak at burst clocks, in
launch + sqrt(tc^2 + tm^2), tc = flop / (value * peak * tile_fill).
  gemm_tensor16  bf16 and fp16, fp32 accumulate      gemm_tensor8  fp8, quantising its activations
  gemm_simt32    fp32 on vector units                gemm_tf32     no table: as gemm_tensor16
  gemm_matrix32  fp32 on CDNA's matrix units, against twice its vector peak
  conv_simt32    3x3 stride 1, Winograd included; conv_tensor16 and conv_tf32: no table
  attention      flash, forward; causal FLOP halved; against the 16-bit peak""",
    "memory_efficiency": """Share of the datasheet bandwidth: tm = bytes / (value * bandwidth), with
the traffic of unfused kernels. attention's takes up what short sequences lose, not DRAM traffic.
Of fp32 eager kernels; gemm's from the tensor fits.""",
    "backward_over_forward_time": """Measured ratios of time, not of FLOP or bytes.""",
    "power": """eff = unlimited * (1 + (w0/w)^4)^(-1/4) with w = tdp/peak and w0 = limit_j_per_flop.
left_family_out_rms_log: error of ln(eff) when each family is predicted from the others.""",
    "clocks": """Time of kernels repeated for seconds over the same kernels in short bursts.
Training runs sustained.""",
    "host": """Launch path: what the device and the host spend on a kernel beside its work.""",
    "collectives": """Inside one node: latency + S/B + ramp * sqrt(latency * S/B), S = message bytes
(all-gather: the gathered output), B = bus_frac * link / bus factor, the factor 2(n-1)/n for
all_reduce and (n-1)/n for the others; keys below the collective are ranks. link is one way: the
device's NVLink, or PCIe x16 (31.5 GB/s generation 4, 63 generation 5). bus_frac is the fit's
asymptote; above 1 the switch itself reduces (NVLS).""",
    "host_busbw": """All-reduce bus bandwidth of real hosts, large messages; keys are ranks.
host_memory: no peer-to-peer, so through host memory.""",
}


def _scalar(value: object) -> str:
    if isinstance(value, str):
        plain = value and not set(value) & set(":#{}[],&*'\"|>%@`") and not value[0].isspace()
        return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _flow(leaf: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{k}: {_scalar(v)}" for k, v in leaf.items()) + "}"


def to_yaml(profile: Profile, sources: Mapping[str, str]) -> str:
    """YAML 1.2 text: one leaf a line, a comment above each section."""
    lines = [f"# {text}" for text in COMMENTS[""].splitlines()]
    lines += ["name: blind", "sources:"]
    lines += [f"  {key}: {_scalar(text)}" for key, text in sources.items()]

    def walk(node: Mapping[Any, Any], depth: int) -> None:
        pad = "  " * depth
        for key, item in node.items():
            if isinstance(item, list):
                lines.append(f"{pad}{key}:")
                lines.extend(f"{pad}  - {_flow(row)}" for row in item)
            elif isinstance(item, dict) and any(isinstance(v, dict | list) for v in item.values()):
                lines.append(f"{pad}{key}:")
                walk(item, depth + 1)
            else:
                lines.append(f"{pad}{key}: {_flow(item)}")

    for section, item in profile.items():
        lines.append("")
        lines += [f"# {text}" for text in COMMENTS.get(section, "").splitlines()]
        lines.append(f"{section}:")
        walk(item, 1)
    return "\n".join(lines) + "\n"


def used_sources(profile: Profile) -> dict[str, str]:
    """The citations that the profile's leaves name; joined keys cite each part."""
    keys: set[str] = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("source"), str):
                keys.add(node["source"])
            for item in node.values():
                walk(item)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(profile)
    plain = {k: SOURCES[k] for k in SOURCES if any(k in key.split("+") for key in keys)}
    joined = {k: "all of: " + ", ".join(k.split("+")) for k in sorted(keys) if "+" in k}
    return plain | joined


def main(argv: Sequence[str] | None = None) -> None:
    """Command line: fit and write the profile."""
    parser = argparse.ArgumentParser(prog="python -m simcore.calibrate.op_fit", description=__doc__)
    parser.add_argument("ops_dir", type=Path, help="folder of the measured op tables (*.csv.gz)")
    parser.add_argument("gpu_specs", type=Path, help="datasheet table (CSV)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    profile = build_profile(args.ops_dir, args.gpu_specs)
    args.output.write_text(to_yaml(profile, used_sources(profile)), encoding="utf-8")


if __name__ == "__main__":
    main()
