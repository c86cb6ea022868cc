"""The fit finds what made the data; the shipped profile is sound and cites itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcore.base.database import read_yaml, shipped_root
from simcore.base.units import GIGA, MIB, MICRO, TERA, parse_quantity
from simcore.calibrate import curve_fits, pooling, yaml_text
from simcore.calibrate.ops import assumed, clocks
from simcore.calibrate.ops import fit as op_fit
from simcore.calibrate.ops import memory as op_memory
from simcore.calibrate.ops import model as op_model
from simcore.calibrate.ops.model import OpFigures, op_time_s
from simcore.calibrate.ops.rows import OpBatch, read_op_rows
from simcore.hardware.class_figures import held_frac, open_frac, power_limited_frac
from simcore.hardware.estimates import matrix_style
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS

PROFILE = shipped_root() / "hardware_db" / "calibrations" / "blind.yaml"
PEAK, BANDWIDTH, SMS = 300 * TERA, 2000 * GIGA, 108
NOISE = 0.05


def synthetic_gemm(
    rng: np.random.Generator, eff_compute: float, eff_memory: float, launch_s: float, n: int = 1500
) -> dict[str, np.ndarray]:
    """Rows timed by the plain formula, written out here on its own."""
    m, cols, k = (2.0 ** rng.integers(5, 14, n) for _ in range(3))
    flop = 2 * m * cols * k
    n_bytes = 2 * (m * k + k * cols + m * cols)
    tiles = np.ceil(m / 128) * np.ceil(cols / 128) * np.maximum(1, k // 512)
    fill = np.minimum(1, tiles / SMS)
    exact = launch_s + np.hypot(
        flop / (eff_compute * PEAK * fill), n_bytes / (eff_memory * BANDWIDTH)
    )
    time_s = exact * np.exp(NOISE * rng.standard_normal(n))
    return {"flop": flop, "n_bytes": n_bytes, "fill": fill, "time_s": time_s, "m": m, "n": cols,
            "k": k}  # fmt: skip


@pytest.mark.parametrize(("eff_c", "eff_m"), [(0.8, 0.75), (0.5, 0.9), (0.95, 0.6)])
def test_roofline_recovered(eff_c: float, eff_m: float) -> None:
    rows = synthetic_gemm(np.random.default_rng(7), eff_c, eff_m, 3 * MICRO)
    fit = curve_fits.fit_roofline(
        rows["flop"], rows["n_bytes"], rows["fill"], rows["time_s"], PEAK, BANDWIDTH
    )
    assert abs(math.log(fit.eff_compute / eff_c)) < 2 * fit.sd_compute_log
    assert abs(math.log(fit.eff_memory / eff_m)) < 2 * fit.sd_memory_log
    assert fit.launch_s == pytest.approx(3 * MICRO, rel=0.02)
    assert fit.resid_sd_log == pytest.approx(NOISE, rel=0.2)
    # The stated deviation is a small one, or the check above could not fail.
    assert fit.sd_compute_log < 0.01 and fit.sd_memory_log < 0.01


def test_one_row_in_twenty_gone_wrong_moves_little() -> None:
    rng = np.random.default_rng(11)
    rows = synthetic_gemm(rng, 0.8, 0.75, 3 * MICRO)
    rows["time_s"][rng.random(rows["time_s"].size) < 0.05] *= 4
    fit = curve_fits.fit_roofline(
        rows["flop"], rows["n_bytes"], rows["fill"], rows["time_s"], PEAK, BANDWIDTH
    )
    assert fit.eff_compute == pytest.approx(0.8, rel=0.02)


def test_memory_recovered_nineteen_times_in_twenty() -> None:
    inside = [0, 0]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n_bytes = 10 ** rng.uniform(5, 9.5, 800)
        exact = 20 * MICRO + n_bytes / (0.82 * BANDWIDTH)
        fit = curve_fits.fit_memory(
            n_bytes, exact * np.exp(NOISE * rng.standard_normal(800)), BANDWIDTH
        )
        inside[0] += abs(math.log(fit.eff_memory / 0.82)) < 2 * fit.sd_memory_log
        inside[1] += fit.launch_s == pytest.approx(20 * MICRO, rel=0.02)
        assert fit.sd_memory_log < 0.01
    assert min(inside) >= 19


@pytest.mark.parametrize("ramp", [0.2, 1.2])
def test_collective_recovered(ramp: float) -> None:
    n_bytes = 2.0 ** np.arange(8, 31)
    transfer = n_bytes / (150 * GIGA)
    time_s = 12 * MICRO + transfer + ramp * np.sqrt(12 * MICRO * transfer)
    fit = curve_fits.fit_collective(n_bytes, time_s)
    assert fit.latency_s == pytest.approx(12 * MICRO, rel=0.01)
    assert fit.message_bytes_per_s == pytest.approx(150 * GIGA, rel=0.01)
    assert fit.ramp == pytest.approx(ramp, rel=0.05)


def test_stratify_caps_each_quarter_decade_and_repeats_itself() -> None:
    key = np.concatenate([np.full(1000, 3.0e9), np.full(7, 3.0e12)])
    picks = [curve_fits.stratify(key, np.random.default_rng(1), 50) for _ in range(2)]
    assert np.array_equal(*picks)
    assert (key[picks[0]] < 1e10).sum() == 50 and (key[picks[0]] > 1e10).sum() == 7


def gemm_batch(
    rng: np.random.Generator, figures: OpFigures, n: int = 1500, **labels: Any
) -> OpBatch:
    """Products of an A100 timed by the model, 5 % noise."""
    m, cols, k = (np.round(2.0 ** rng.uniform(6, 13.5, n)) for _ in range(3))
    flop, ones = 2 * m * cols * k, np.ones(n)
    values: dict[str, Any] = {
        "gpu": "A100-SXM-80GB", "op": "linear", "dtype": "bf16", "kind": "gemm",
        "cls": "gemm_tensor16", "form": "matmul", "peak": "bf16", "eager": False,
        "clock": "burst", "source": "AIC/a100/x/1",
    }  # fmt: skip
    batch = OpBatch(
        **(values | labels), line=np.arange(n), flop=flop,
        n_bytes=2 * (m * k + k * cols + m * cols), cast_bytes=0 * ones,
        reread_bytes=0 * ones, m=m, n=cols, k=k, groups=ones, time_s=ones, large=flop >= GIGA,
    )  # fmt: skip
    exact = op_time_s(batch, GPUS["A100-SXM-80GB"], figures)
    return replace(batch, time_s=exact * np.exp(NOISE * rng.standard_normal(n)))


def test_known_figures_come_back_within_two_deviations_nineteen_times_in_twenty() -> None:
    inside: dict[str, int] = {}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        true = OpFigures(
            eff_compute=rng.uniform(0.5, 0.95), eff_memory=rng.uniform(0.6, 0.95),
            start_s=rng.uniform(2, 8) * MICRO, wave_frac=rng.uniform(0.1, 0.9),
            half_depth=rng.uniform(20, 200),
        )  # fmt: skip
        fit = op_model.fit_kernels([gemm_batch(rng, true)], GPUS["A100-SXM-80GB"])
        assert fit
        (share,) = fit.eff["burst"].values()
        off = {
            "eff_compute 0": math.log(share / true.eff_compute),
            "eff_memory": math.log(fit.shared.eff_memory / true.eff_memory),
            "start_s": math.log(fit.shared.start_s / true.start_s),
            "half_depth": math.log(fit.shared.half_depth / true.half_depth),
            "wave_frac": fit.shared.wave_frac - true.wave_frac,
        }
        for name, error in off.items():
            inside[name] = inside.get(name, 0) + (abs(error) < 2 * fit.sd_log[name])
        # The deviations are small ones, or the check above could not fail.
        assert fit.sd_log["eff_compute 0"] < 0.02 and fit.sd_log["eff_memory"] < 0.05
        assert fit.resid_sd_log == pytest.approx(NOISE, rel=0.25)
    assert min(inside["eff_compute 0"], inside["eff_memory"], inside["start_s"]) >= 19
    # These two bend the model most: their deviations are those of its tangent.
    assert min(inside["half_depth"], inside["wave_frac"]) >= 17


def test_contractions_deeper_than_a_layer_tell_nothing_of_fp32_products_with_weights() -> None:
    def share(cls: str) -> float:
        layers = gemm_batch(np.random.default_rng(5), OpFigures(0.7, 0.75, 3 * MICRO), cls=cls)
        deep = replace(layers, k=np.full(len(layers), 50_272.0), time_s=3 * layers.time_s)
        fit = op_model.fit_kernels([layers.join([deep])], GPUS["A100-SXM-80GB"])
        assert fit
        (found,) = fit.eff["burst"].values()
        return found

    assert share("gemm_simt32") == pytest.approx(0.7, rel=0.02)
    assert share("gemm_tensor16") < 0.6  # matrix units: nothing is left out


def test_what_small_fp32_products_lose_is_not_laid_on_the_host() -> None:
    def start_s(cls: str) -> float:
        slow = gemm_batch(np.random.default_rng(6), OpFigures(0.7, 0.75, 60 * MICRO), cls=cls)
        fit = op_model.fit_kernels([replace(slow, eager=True)], GPUS["A100-SXM-80GB"])
        assert fit
        return fit.shared.start_s

    # Elementwise ops of the same eager loop start within 23 us on every host of the sweep.
    assert start_s("gemm_simt32") <= 23.1 * MICRO and start_s("bmm_simt32") <= 23.1 * MICRO
    assert start_s("gemm_tensor16") == pytest.approx(60 * MICRO, rel=0.15)


def test_sources_share_the_device_and_keep_their_own_efficiency() -> None:
    rng = np.random.default_rng(4)
    true = OpFigures(0.8, 0.75, 3 * MICRO, 0.3, 60.0)
    slower = replace(true, eff_compute=0.7)
    batches = [
        gemm_batch(rng, true),
        gemm_batch(rng, slower, source="vidur/mlp.csv", clock="profiled"),
    ]
    fit = op_model.fit_kernels(batches, GPUS["A100-SXM-80GB"])
    assert fit
    assert fit.eff["burst"]["AIC/a100/x/1 linear"] == pytest.approx(0.8, rel=0.02)
    assert fit.eff["profiled"]["vidur/mlp.csv linear"] == pytest.approx(0.7, rel=0.02)
    ratios = clocks.clock_ratios({"gemm_tensor16": {"A100-SXM-80GB": fit}})["tensor"]
    assert ratios.of("profiled", "A100-SXM-80GB") == pytest.approx(0.8 / 0.7, rel=0.03)
    assert ratios.of("profiled", "A40") == pytest.approx(0.8 / 0.7, rel=0.03)  # pooled


def test_long_loops_on_two_machines_are_averaged_and_their_distance_is_the_spread() -> None:
    loops = {"sustained": {"B200-SXM": 1.0, "GB200": 1.2}, "derived": {"B200-SXM": 1.44}}
    found = clocks.ClockRatios(loops).section()["sustained_over_burst"]["by_gpu"]  # type: ignore[arg-type]
    assert found["B200-SXM"]["value"] == pytest.approx(1.2)  # sqrt(1.0 x 1.44)
    assert found["B200-SXM"]["sd_log"] == pytest.approx(np.log(1.2), rel=0.05)
    assert (found["GB200"]["value"], found["GB200"]["sd_log"]) == (1.2, 0.05)


def test_a_device_in_shared_loops_alone_is_as_far_from_each_of_the_others_as_there() -> None:
    """Bursts of 1,000 and 1,100; loops in which it is as fast as one that lost 1.25 times."""
    looped = clocks.looped_tflop_per_s()
    timed = {"sustained": {"B200-SXM": 1.25}}
    burst = {"B200-SXM": 1000.0, "B300-SXM": 1100.0, "GB200": 1200.0}
    found = clocks.ClockRatios(timed, burst_flop_per_s=burst).section()  # type: ignore[arg-type]
    by_gpu = found["sustained_over_burst"]["by_gpu"]
    of_b200 = 1000.0 / by_gpu["B200-SXM"]["value"]
    for gpu in ("B300-SXM", "GB200"):
        share = looped[gpu] / looped["B200-SXM"]
        assert burst[gpu] / by_gpu[gpu]["value"] == pytest.approx(of_b200 * share, rel=0.005)
    alone = clocks.ClockRatios({"sustained": {}}, burst_flop_per_s=burst).section()
    assert "by_gpu" not in alone["sustained_over_burst"]  # nothing to compare with


def test_attention_of_a_simulators_table_is_of_forward_passes_in_long_loops() -> None:
    """Forward at 0.6 of the peak and backward at 0.5, at clocks 1.2 times below a burst's."""
    shares = {"SimuMax/x.json attention": 0.6, "SimuMax/x.json attention_bwd": 0.5}
    fit = op_model.KernelFit(OpFigures(0.6, 0.5, 12 * MICRO), {"derived": shares}, {}, 0.1, 24)
    ratios = clocks.ClockRatios({"sustained": {"B200-SXM": 1.2}})
    found = op_fit._found(fit, "B200-SXM", ratios, attention=True)
    assert found.value == pytest.approx(0.6 * 1.2)


def test_a_tile_of_attention_costs_the_same_time_on_devices_with_few_rows() -> None:
    """In keys it is what products of one SM do meanwhile: B200 2250/148, A100 312/108."""
    depth = {
        g: op_fit._held("attention", GPUS[g])["half_depth"] for g in ("B200-SXM", "A100-SXM-80GB")
    }
    assert depth["B200-SXM"] / depth["A100-SXM-80GB"] == pytest.approx(5.26, rel=0.01)
    assert depth["A100-SXM-80GB"] == pytest.approx(61, rel=0.01)  # as its 2,680 rows were fitted
    assert "half_depth" not in op_fit.HELD["attention"]


def test_the_family_left_out_tells_nothing() -> None:
    rng = np.random.default_rng(5)
    batches = [
        gemm_batch(rng, OpFigures(eff, 0.75, 3 * MICRO), gpu=name, source=f"AIC/{name}/x/1")
        for name, eff in (("A100-SXM-80GB", 0.9), ("H100-SXM-80GB", 0.6))
    ]
    fits = op_fit.fit_ops(batches)
    whole = op_fit.profile_from(fits)["compute_efficiency"]["gemm_tensor16"]
    without = op_fit.profile_from(fits, {"Hopper"})["compute_efficiency"]["gemm_tensor16"]
    assert {"A100-SXM-80GB", "H100-SXM-80GB"} <= whole["by_gpu"].keys()
    assert "H100-SXM-80GB" not in without["by_gpu"] and "Hopper" not in without["by_family"]
    assert without["pooled"]["value"] == without["by_gpu"]["A100-SXM-80GB"]["value"]


def test_figures_fitted_apart_are_those_of_their_table_and_of_no_family(tmp_path: Path) -> None:
    # Milliseconds of TensorRT-LLM's products on GB300 (m, n, k), which no table here has.
    timed = {
        "bf16": {(8192, 8192, 8192): 0.5886, (4096, 12288, 4096): 0.2163},
        "fp8": {(8192, 8192, 8192): 0.4031, (4096, 12288, 4096): 0.1459},
        "fp8_block": {(8192, 8192, 8192): 0.3403, (4096, 12288, 4096): 0.1228},
    }  # fmt: skip
    head = "gpu,dtype,op,m,n,k,batch,layout,time_us,timing,power_w,kernel,source"
    rows = [
        f"GB300,{dtype},linear,{m},{n},{k},1,TN,{1e3 * ms},graph_burst,,x,AIC/gb300/trtllm/1"
        for dtype, shapes in timed.items() for (m, n, k), ms in shapes.items()
    ]  # fmt: skip
    (table := tmp_path / "gemm.csv").write_text("\n".join([head, *rows]) + "\n")
    profile, gpu = load_profile(), GPUS["GB300"]
    for batch in read_op_rows(table).items:
        own = profile.class_figures(batch.cls, gpu)
        figures = OpFigures(own.share.value, own.memory, own.start_s, own.wave_frac, own.half_depth)
        assert own.level == "own"
        assert op_time_s(batch, gpu, figures) == pytest.approx(batch.time_s, rel=0.1)
    # They tell nothing of GB300's relatives, and nothing where their family is left out.
    shapes = gemm_batch(np.random.default_rng(5), OpFigures(0.7, 0.75, MICRO), gpu="B200-SXM")
    fits = op_fit.fit_ops([shapes])
    table16 = op_fit.profile_from(fits)["compute_efficiency"]["gemm_tensor16"]
    assert {"B200-SXM", "GB300"} <= table16["by_gpu"].keys()
    assert table16["by_family"]["Blackwell"]["value"] == table16["by_gpu"]["B200-SXM"]["value"]
    left_out = op_fit.profile_from(fits, {"Blackwell"})["compute_efficiency"]
    assert "GB300" not in left_out.get("gemm_tensor16", {}).get("by_gpu", {})


def test_memory_class_takes_its_share_from_beyond_the_cache() -> None:
    rng = np.random.default_rng(6)
    like = gemm_batch(rng, OpFigures(0.8, 0.75, MICRO), n=600)
    n_bytes = 10 ** rng.uniform(5, 9.5, 600)
    # The host's 40 us hide under long kernels: it is 15 us of the device that these start with.
    device = 15 * MICRO + n_bytes / (0.85 * GPUS["A100-SXM-80GB"].memory_bw.value)
    exact = (device**4 + (40 * MICRO) ** 4) ** 0.25
    batch = replace(
        like, form="memory", cls="elementwise", eager=True, flop=0 * n_bytes, n_bytes=n_bytes,
        large=n_bytes >= 32e6, time_s=exact * np.exp(NOISE * rng.standard_normal(600)),
    )  # fmt: skip
    fit = op_model.fit_memory_class([batch], GPUS["A100-SXM-80GB"])
    assert fit and fit.eager
    assert fit.eff_memory == pytest.approx(0.85, rel=0.02)
    assert fit.start_s == pytest.approx(15 * MICRO, rel=0.15)
    assert fit.floor_s == pytest.approx(40 * MICRO, rel=0.05)


def test_a_norms_rows_and_second_reading_are_not_laid_on_its_share() -> None:
    """700 clocks a row on 108 SMs at 1.41 GHz; rows of 4 to 23 KB begin to be read twice."""
    rng = np.random.default_rng(7)
    gpu = GPUS["A100-SXM-80GB"]
    like = gemm_batch(rng, OpFigures(0.8, 0.75, MICRO), n=600)
    rows, cols = (np.round(10 ** rng.uniform(*of, 600)) for of in ((3, 5.5), (2, 4.2)))
    n_bytes = 8.0 * rows * cols
    over = 8.0 * cols * 1728 / (40 * MIB)
    moved = n_bytes + 4.0 * rows * cols * np.clip(over - 0.6, 0.0, 1.0)
    busy = np.maximum(moved / (0.85 * gpu.memory_bw.value), rows * 700 / (108 * 1.41e9))
    batch = replace(
        like, form="memory", cls="norm", eager=True, flop=0 * rows, n_bytes=n_bytes, m=rows,
        reread_bytes=n_bytes / 2, large=n_bytes >= 32e6,
        time_s=(15 * MICRO + busy) * np.exp(NOISE * rng.standard_normal(600)),
    )  # fmt: skip
    fit = op_model.fit_memory_class([batch], gpu)
    assert fit and fit.eff_memory == pytest.approx(0.85, rel=0.02)
    assert fit.row_clocks == pytest.approx(700, rel=0.03)
    assert fit.start_s == pytest.approx(15 * MICRO, rel=0.1)


def test_power_term_recovered_where_power_made_the_data() -> None:
    base = GPUS["A100-SXM-80GB"]
    # watts, nm, GHz, lanes of a quarter SM; a warp that fills 32 issues 64 FMAs of 69 instructions
    made = {f"G{i}": row for i, row in enumerate((
        (75.0, 12.0, 1.5, 16), (150.0, 7.0, 1.2, 32), (220.0, 7.0, 1.8, 32),
        (300.0, 12.0, 1.5, 32), (400.0, 4.0, 2.5, 16), (600.0, 4.0, 2.0, 16),
    ))}  # fmt: skip
    peak = 300 * TERA
    gpus = {
        name: base.model_copy(update={
            "tdp": base.tdp.model_copy(update={"value": watts}), "process_nm": nm,
            "boost_clock": base.boost_clock.model_copy(update={"value": ghz * GIGA}),
            "peak_flop_per_s": {"fp32": base.tdp.model_copy(update={"value": peak})},
            "sm_count": base.sm_count.model_copy(
                update={"value": peak / (2 * 4 * lanes * ghz * GIGA)}
            ),
        })
        for name, (watts, nm, ghz, lanes) in made.items()
    }  # fmt: skip

    def family(name: str) -> str:
        return f"family{int(name[1:]) % 3}"

    eff = {
        name: 0.85 * (64 / 69 if lanes == 32 else 1.0) * float(power_limited_frac(
            watts, peak, 1.6e-12 * (nm / 16) ** 0.8 * (ghz / 1.5) ** 0.5
        ))
        for name, (watts, nm, ghz, lanes) in made.items()
    }  # fmt: skip
    fit = clocks.fit_power(eff, gpus, "simt", family)
    assert fit.unlimited == pytest.approx(0.85, rel=1e-3)
    assert fit.limit_j_per_flop == pytest.approx(1.6e-12, rel=1e-3)
    assert clocks.rms_log(fit.left_out) < 0.01
    assert clocks.rms_log(fit.left_out) < clocks.rms_log(clocks.constant_left_out(eff, family))


def test_both_classes_of_fp32_products_tell_of_one_cap() -> None:
    """Made by one law, each class at its level, one device off: both come back."""
    limit = 2e-11
    names = ("P100-PCIE-16GB", "V100-PCIE-32GB", "T4", "A100-PCIE-40GB", "L4", "MI210")
    level = {"gemm_simt32": 0.85, "bmm_simt32": 0.95}
    compute: dict[str, Any] = {}
    for cls, share in level.items():
        by_gpu = {g: {"value": share * open_frac(GPUS[g], "simt", limit), "n": 200} for g in names}
        if cls == "gemm_simt32":
            by_gpu["P100-PCIE-16GB"]["value"] *= 0.97
        families = {pooling.family_of(g): {"value": 0.5} for g in names}
        compute[cls] = {"pooled": {"value": 0.5}, "by_family": families, "by_gpu": by_gpu}
    op_fit._power(compute)
    for cls, share in level.items():
        pooled = compute[cls]["pooled"]
        assert pooled["value"] == pytest.approx(share, rel=0.02)
        assert pooled["limit_j_per_flop"] == pytest.approx(limit, rel=0.05)
    # The levels, unlike the law, know nothing of the one that is off.
    apart = compute["bmm_simt32"]["pooled"]["value"] / compute["gemm_simt32"]["pooled"]["value"]
    assert apart == pytest.approx(0.95 / 0.85, rel=2e-3)


def test_fp32_products_of_activations_are_a_class(tmp_path: Path) -> None:
    path = tmp_path / "gemm.csv"
    rows = [
        f"A100-SXM-80GB,{dtype},{op},64,64,64,8,10,eager_event_min5of25,x"
        for dtype in ("fp32", "bf16")
        for op in ("linear", "bmm")
    ]
    path.write_text("gpu,dtype,op,m,n,k,batch,time_us,timing,source\n" + "\n".join(rows) + "\n")
    got = {(b.dtype, b.op): (b.cls, b.peak_flop_per_s) for b in read_op_rows(path).items}
    assert {key: cls for key, (cls, _) in got.items()} == {
        ("fp32", "linear"): "gemm_simt32", ("fp32", "bmm"): "bmm_simt32",
        ("bf16", "linear"): "gemm_tensor16", ("bf16", "bmm"): "gemm_tensor16",
    }  # fmt: skip
    assert got["fp32", "bmm"][1] == got["fp32", "linear"][1]


def test_summary_pools_by_hand() -> None:
    def found(value: float, start: float, wave: float) -> pooling.DeviceFigures:
        return pooling.DeviceFigures(value, ("aic",), 100, {"start": start * MICRO, "wave": wave})

    got = pooling.levels({
        "A100-SXM-80GB": found(0.9, 2, 0.1), "A100-PCIE-80GB": found(0.4, 8, 0.3),
        "H100-SXM-80GB": found(0.5, 3, 0.0), "L40S": found(0.8, 5, 0.4),
    }, 0.1)  # fmt: skip
    assert got["by_gpu"]["L40S"] == {
        "value": 0.8, "sd_log": 0.1, "start": "5 us", "wave": 0.4, "n": 100, "source": "aic"
    }  # fmt: skip
    family = got["by_family"]["Ampere-GA100"]
    assert (family["value"], family["start"], family["wave"]) == (0.6, "4 us", 0.2)
    assert got["pooled"]["value"] == 0.6  # the median of 0.6, 0.5, 0.8
    assert (got["pooled"]["start"], got["pooled"]["wave"]) == ("4 us", 0.2)
    assert got["pooled"]["sd_log"] > got["by_family"]["Hopper"]["sd_log"] > 0.1
    assert "by_kin" not in got
    assert pooling.levels({}, 0.1) == {}


def test_kin_pools_over_its_families_alone() -> None:
    def found(value: float) -> pooling.DeviceFigures:
        return pooling.DeviceFigures(value, ("aic",), 100, {"start": 4 * MICRO})

    got = pooling.levels({
        "A100-SXM-80GB": found(0.9), "A100-PCIE-80GB": found(0.4), "L40S": found(0.54),
        "H100-SXM-80GB": found(0.5), "MI210": found(0.2),
    }, 0.1, matrix_style)  # fmt: skip
    assert set(got["by_kin"]) == {"registers", "async"}  # another vendor's have no style
    # The geometric middle of the A100s' 0.6 and 0.54; Hopper alone.
    assert got["by_kin"]["registers"]["value"] == pytest.approx(0.569, abs=1e-3)
    assert got["by_kin"]["async"]["value"] == 0.5
    assert got["by_kin"]["async"]["sd_log"] == got["pooled"]["sd_log"]


def test_a_burst_slows_as_power_management_answers() -> None:
    """Boost clock at first, what power leaves to the exponent later; A100's power binds less."""
    took = np.array([1e-7, op_model.REFERENCE_S, 1e-3, 1.0])
    clock = {g: op_model.burst_clock(took, GPUS[g]) for g in ("L40S", "A100-SXM-80GB")}
    for gpu, at in clock.items():
        assert at[1] == pytest.approx(1.0) and np.all(np.diff(at) < 0)
        held = held_frac(GPUS[gpu], "tensor", op_model.BURST_LIMIT_J_PER_FLOP)
        assert at[3] / at[0] == pytest.approx(held**op_model.BURST_EXPONENT, rel=1e-3)
    assert clock["L40S"][3] < clock["A100-SXM-80GB"][3]


def test_only_bursts_of_matrix_units_slow_so() -> None:
    figures = OpFigures(0.8, 0.75, 3 * MICRO)
    burst = gemm_batch(np.random.default_rng(2), figures, n=50)
    gpu = GPUS["A100-SXM-80GB"]
    sustained = op_time_s(replace(burst, clock="sustained"), gpu, figures)
    assert np.ptp(np.log(op_time_s(burst, gpu, figures) / sustained)) > 0.01
    vector = replace(burst, cls="gemm_simt32")
    assert np.array_equal(op_time_s(vector, gpu, figures),
                          op_time_s(replace(vector, clock="sustained"), gpu, figures))  # fmt: skip


def test_what_was_not_measured_goes_with_plain_streams() -> None:
    """Norms reach 0.8 and 0.6 of two families' streams: 0.7 of what a stream gives elsewhere.

    T4 keeps its ECC bits in its GDDR: without, its family's norms would reach 0.45 / 0.8.
    """

    def fit(eff: float) -> tuple[op_model.MemoryFit, ...]:
        return (op_model.MemoryFit(eff, MICRO, 20 * MICRO, True, 0.01, 0.02, 500),)

    fits = {
        "elementwise": {"V100-PCIE-32GB": fit(0.9), "T4": fit(0.75)},
        "norm": {"V100-PCIE-32GB": fit(0.72), "T4": fit(0.45)},
    }
    got = op_memory.memory_levels(fits, {"Hopper"})
    assert set(got["norm"]["by_gpu"]) == {"T4", "V100-PCIE-32GB"}
    ratio = math.sqrt(0.8 * 0.6)
    ada = assumed.STREAM_GB_PER_S["L40"] / 864
    assert got["elementwise"]["by_family"]["Ada"]["value"] == pytest.approx(ada, rel=2e-3)
    assert got["norm"]["by_family"]["Ada"]["value"] == pytest.approx(ada * ratio, rel=2e-3)
    assert got["norm"]["by_family"]["Turing"]["value"] == pytest.approx(0.45 / 0.8, rel=2e-3)
    assert got["norm"]["by_gpu"]["T4"]["value"] == pytest.approx(0.45, rel=2e-3)
    assert "Hopper" not in got["elementwise"]["by_family"]  # left out, and so its streams


def test_what_an_op_finds_in_l2_is_not_memory_traffic(tmp_path: Path) -> None:
    """A sum's operand is a third of its bytes; A100 has 40 MiB of L2 (10 and 100 MB, 1 GB)."""
    path = tmp_path / "memory.csv"
    rows = [
        f"A100-SXM-80GB,fp16,{op},1,4096,{n_bytes:.0f},100,{timing},x"
        for timing in ("kernel_profiler_1us_res", "eager_event_min5of25")
        for op in ("add", "norm")
        for n_bytes in (1e7, 1e8, 1e9)
    ]
    path.write_text("gpu,dtype,op,rows,cols,bytes,time_us,timing,source\n" + "\n".join(rows) + "\n")
    got = {(b.op, b.clock): b.n_bytes for b in read_op_rows(path).items}
    left = 0.15 * 40 * MIB
    assert got["add", "profiled"] == pytest.approx([1e7 * 5 / 6, 1e8 - left, 1e9 - left])
    assert got["norm", "profiled"] == pytest.approx([1e7 * 3 / 4, 1e8, 1e9])
    assert list(got["add", "burst"]) == list(got["norm", "burst"]) == [1e7, 1e8, 1e9]


# --- the shipped file --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    data = read_yaml(PROFILE)
    assert isinstance(data, dict)
    return data


def leaves(
    node: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    if isinstance(node, dict):
        if "source" in node:
            yield path, node
        else:
            for key, item in node.items():
                yield from leaves(item, (*path, key))
    elif isinstance(node, list):
        for i, item in enumerate(node):
            yield from leaves(item, (*path, i))


def test_every_leaf_has_a_value_a_spread_and_a_known_source(profile: dict[str, Any]) -> None:
    found = list(leaves({k: v for k, v in profile.items() if k != "sources"}))
    assert len(found) > 200
    for path, leaf in found:
        assert leaf["source"] in profile["sources"], path
        assert 0 <= leaf["sd_log"] < 1, path
        values = [leaf[k] for k in ("value", "bus_frac", "latency", "busbw") if k in leaf]
        assert values, path
        for value in values:
            number = value
            if isinstance(value, str):
                rate = value.endswith("/s")
                number = parse_quantity(value, "bytes_per_s" if rate else "seconds")
            assert number > 0, path
        if leaf["source"] == "assumption" and path[1] != "gemm_tf32":
            assert leaf["note"], path


def test_efficiencies_are_shares(profile: dict[str, Any]) -> None:
    for section in ("compute_efficiency", "memory_efficiency"):
        for kind, levels in profile[section].items():
            assert "pooled" in levels, kind
            top = op_model.CLASS_EFF_MAX.get(kind, curve_fits.EFF_MAX)
            for path, leaf in leaves(levels, (section, kind)):
                assert 0.05 < leaf["value"] <= top + 0.005, path
                assert 0 <= leaf.get("wave", 0.0) <= 1 and 0 < leaf.get("memory", 1.0) <= 1, path


def test_every_class_of_kernel_has_a_memory_efficiency(profile: dict[str, Any]) -> None:
    assert set(profile["memory_efficiency"]) >= {
        "gemm", "conv", "attention", "elementwise", "norm", "softmax", "reduction", "gather", "copy"
    }  # fmt: skip


def test_orders_that_physics_demands(profile: dict[str, Any]) -> None:
    blind = load_profile()
    less, l40s, half_rate = (
        blind.class_figures("gemm_tensor16", GPUS[g]).share.value
        for g in ("A6000ada", "L40S", "RTX4090")
    )
    # The same silicon with less power, and the same generation with half the rate and more power.
    assert less < l40s < half_rate
    memory = profile["memory_efficiency"]
    assert memory["norm"]["pooled"]["value"] < memory["elementwise"]["pooled"]["value"]
    for ratio in ("tensor_sustained_over_burst", "simt_sustained_over_burst"):
        assert profile["clocks"][ratio]["pooled"]["value"] > 1
    assert profile["host"]["kernel_start"]["value"] != profile["host"]["host_issue"]["value"]


def test_the_power_term_is_written_where_it_predicts_better(profile: dict[str, Any]) -> None:
    for cls, test in profile["power"].items():
        errors = test["left_family_out_rms_log"]
        limited = "limit_j_per_flop" in profile["compute_efficiency"][cls]["pooled"]
        assert limited == (errors["power_term"] < errors["constant"])


def test_nothing_of_the_seed_tables_is_in_it() -> None:
    text = PROFILE.read_text(encoding="utf-8").lower()
    for word in ("latte", "mnist", "opensora", "open-sora", "s4000", "resnet"):
        assert word not in text


def test_writer_round_trips(tmp_path: Path) -> None:
    leaf = pooling.figure(0.5, 0.1, "aic", 3, 'a "quoted": note')
    text = yaml_text.to_yaml({"host": {"a": leaf, "b": {2: leaf}, "c": [leaf]}}, {"aic": "x: y"})
    path = tmp_path / "p.yaml"
    path.write_text(text)
    data = read_yaml(path)
    assert data["sources"] == {"aic": "x: y"} and data["name"] == "blind"
    assert data["host"] == {"a": leaf, "b": {2: leaf}, "c": [leaf]}
    assert yaml_text.used_sources({"a": leaf}) == {"aic": assumed.SOURCES["aic"]}


def test_a_device_of_backward_passes_alone_has_their_figure() -> None:
    shares = {"AIC/x attention_bwd": 0.5}
    fit = op_model.KernelFit(OpFigures(0.5, 0.5, 12 * MICRO), {"burst": shares}, {}, 0.1, 4)
    found = op_fit._found(fit, "B200-SXM", clocks.ClockRatios({}), attention=True)
    assert found.value == pytest.approx(0.5)
