"""The fit finds what made the data; the shipped profile is sound and cites itself."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcore.base.database import read_yaml, shipped_root
from simcore.base.units import GIGA, MICRO, TERA, parse_quantity
from simcore.calibrate import (
    assumed,
    curve_fits,
    op_classes,
    op_fit,
    op_tables,
    pooling,
    power,
    profile_yaml,
)
from simcore.physics.roofline import power_limited_frac

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


def test_memory_recovered() -> None:
    rng = np.random.default_rng(3)
    n_bytes = 10 ** rng.uniform(5, 9.5, 800)
    time_s = (20 * MICRO + n_bytes / (0.82 * BANDWIDTH)) * np.exp(NOISE * rng.standard_normal(800))
    fit = curve_fits.fit_memory(n_bytes, time_s, BANDWIDTH)
    assert abs(math.log(fit.eff_memory / 0.82)) < 2 * fit.sd_memory_log < 0.02
    assert fit.launch_s == pytest.approx(20 * MICRO, rel=0.02)


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


def gpu(name: str, family: str, tdp_w: float, tensor16: float) -> op_tables.Gpu:
    return op_tables.Gpu(name, family, SMS, 20 * TERA, tensor16, 0.0, BANDWIDTH, 0.0, tdp_w)


def test_power_term_recovered_where_power_made_the_data() -> None:
    gpus = {
        f"G{i}": gpu(f"G{i}", f"family{i % 3}", watts, 300 * TERA)
        for i, watts in enumerate((75, 150, 220, 300, 400, 600))
    }
    eff = {
        g: 0.85 * float(power_limited_frac(s.tdp_w, s.tensor16, 0.9e-12)) for g, s in gpus.items()
    }
    fit = power.fit_power(eff, gpus, lambda g: g.tensor16)
    assert fit.unlimited == pytest.approx(0.85, rel=1e-3)
    assert fit.limit_j_per_flop == pytest.approx(0.9e-12, rel=1e-3)
    assert power.rms_log(fit.left_out) < 0.01 < power.rms_log(power.constant_left_out(eff, gpus))


def test_summary_pools_by_hand() -> None:
    def fit(eff: float) -> curve_fits.RooflineFit:
        return curve_fits.RooflineFit(eff, 0.8, MICRO, 0.0, 0.0, 0.05, 100)

    gpus = {n: gpu(n, f, 300, PEAK) for n, f in (("A", "x"), ("B", "x"), ("C", "y"), ("D", "z"))}
    fits = {"A": {"aic": fit(0.9), "vidur": fit(0.4)}, "B": {"aic": fit(0.6)},
            "C": {"aic": fit(0.5)}, "D": {"aic": fit(0.8)}}  # fmt: skip
    got = pooling.summarise(fits, gpus, lambda f: f.eff_compute, 0.1)
    assert got["by_gpu"]["A"] == {"value": 0.6, "sd_log": 0.1, "n": 200, "source": "aic+vidur"}
    assert got["by_family"]["x"]["value"] == 0.6  # sqrt(0.9 * 0.4) and 0.6
    assert got["pooled"]["value"] == 0.6  # the median of 0.5, 0.6, 0.8
    assert got["pooled"]["sd_log"] > got["by_family"]["y"]["sd_log"] > 0.1
    spread = pooling.source_sd(fits, lambda f: f.eff_compute)
    assert spread == pytest.approx(math.log(0.9 / 0.4) / math.sqrt(2))


def test_sustained_is_compared_shape_by_shape_within_one_framework() -> None:
    def row(timing: str, m: int, time_us: float, source: str) -> dict[str, str]:
        shape = {"gpu": "G", "dtype": "bf16", "m": str(m), "n": "8192", "k": "8192"}
        return shape | {"timing": timing, "time_us": str(time_us), "source": source}

    rows = [
        row("graph_burst", 4096, 100, "AIC/g/trtllm/1"),
        row("graph_sustained", 4096, 120, "AIC/g/trtllm/2"),
        row("graph_sustained", 4096, 10, "AIC/g/vllm/2"),
        row("graph_sustained", 2048, 90, "AIC/g/trtllm/2"),  # no burst to compare with
        row("graph_burst", 16, 100, "AIC/g/trtllm/1"),  # 2 GFLOP: too short
        row("graph_sustained", 16, 500, "AIC/g/trtllm/2"),
    ]
    ratio, _, n = op_fit.sustained_over_burst(rows)["G"]
    assert (ratio, n) == (pytest.approx(1.2), 1)


def test_gemm_table_to_fit(tmp_path: Path) -> None:
    rows = synthetic_gemm(np.random.default_rng(5), 0.7, 0.8, 3 * MICRO)
    path = tmp_path / "gemm.csv.gz"
    with gzip.open(path, "wt", newline="") as out:
        table = csv.writer(out)
        table.writerow(
            ["gpu", "dtype", "op", "m", "n", "k", "batch", "time_us", "timing", "source"]
        )
        for m, n, k, t in zip(rows["m"], rows["n"], rows["k"], rows["time_s"], strict=True):
            table.writerow(
                ["G", "bf16", "linear", m, n, k, 1, t / MICRO, "graph_burst", "AIC/g/x/1"]
            )
    groups = op_tables.group_rows(op_tables.read_rows(path), lambda r: r["dtype"] == "bf16")
    fits = op_classes.fit_gemm(groups, {"G": gpu("G", "x", 300, PEAK)}, lambda g: g.tensor16, 2, 2)
    assert fits["G"]["AIC/g/x/1"].eff_compute == pytest.approx(0.7, rel=0.02)


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
            for path, leaf in leaves(levels, (section, kind)):
                assert 0.05 < leaf["value"] <= curve_fits.EFF_MAX, path
    for row in profile["collectives"]["fits"]:
        assert 0.01 < row["bus_frac"] < 1.15  # above 1 the switch reduces


def test_every_class_of_kernel_has_a_memory_efficiency(profile: dict[str, Any]) -> None:
    assert set(profile["memory_efficiency"]) == {
        "gemm", "conv", "attention", "elementwise", "norm", "softmax", "reduction", "gather", "copy"
    }  # fmt: skip


def test_tf32_follows_tensor16_and_says_that_it_is_assumed(profile: dict[str, Any]) -> None:
    compute = profile["compute_efficiency"]
    for name, leaf in compute["gemm_tensor16"]["by_gpu"].items():
        twin = compute["gemm_tf32"]["by_gpu"][name]
        assert twin["value"] == leaf["value"]
        assert twin["sd_log"] > leaf["sd_log"] and twin["source"] == "assumption"


def test_orders_that_physics_demands(profile: dict[str, Any]) -> None:
    tensor = profile["compute_efficiency"]["gemm_tensor16"]["by_gpu"]
    # The same silicon with less power, and the same generation with half the rate and more power.
    assert tensor["A6000ada"]["value"] < tensor["L40S"]["value"] < tensor["RTX4090"]["value"]
    memory = profile["memory_efficiency"]
    assert memory["norm"]["pooled"]["value"] < memory["elementwise"]["pooled"]["value"]
    hosts = profile["host_busbw"]["pooled"]
    for ranks in (2, 4, 8):
        rates = [
            parse_quantity(hosts[path][ranks]["value"], "bytes_per_s")
            for path in ("host_memory", "pcie_p2p", "nvlink_pairs")
        ]
        assert rates == sorted(rates)
    assert profile["clocks"]["sustained_over_burst"]["pooled"]["value"] > 1
    assert profile["host"]["kernel_start"]["value"] != profile["host"]["host_issue"]["value"]


def test_nothing_of_the_seed_tables_is_in_it() -> None:
    text = PROFILE.read_text(encoding="utf-8").lower()
    for word in ("latte", "mnist", "opensora", "open-sora", "s4000", "resnet"):
        assert word not in text


def test_writer_round_trips(tmp_path: Path) -> None:
    leaf = pooling.figure(0.5, 0.1, "aic", 3, 'a "quoted": note')
    text = profile_yaml.to_yaml({"host": {"a": leaf, "b": {2: leaf}, "c": [leaf]}}, {"aic": "x: y"})
    path = tmp_path / "p.yaml"
    path.write_text(text)
    data = read_yaml(path)
    assert data["sources"] == {"aic": "x: y"} and data["name"] == "blind"
    assert data["host"] == {"a": leaf, "b": {2: leaf}, "c": [leaf]}
    assert profile_yaml.used_sources({"a": leaf}) == {"aic": assumed.SOURCES["aic"]}
