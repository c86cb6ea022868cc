"""A fit from the shipped figures moves what its rows determine, and nothing else."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcore.calibrate.bench.store import TABLES, RawRow, Store
from simcore.calibrate.machine.bench_model import CLOCKS, BenchModel
from simcore.calibrate.machine.prior import PriorFit, fit_from_prior
from simcore.calibrate.machine.row_kernels import QUEUED, times_kernels
from simcore.hardware.calibrations import Fitted
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile

GROUP = parse_cluster("1x1xH100").groups[0]
NOISE = 0.03


def row(table: str, at: int, **cells: Any) -> RawRow:
    empty = dict.fromkeys(TABLES[table], "")
    how = {"mode": "alone", "cache": "cold", "timing": "cold_call"}
    text = {k: str(v) for k, v in cells.items()}
    return RawRow(table, {**empty, **how, **text}, 1.0, 0.01, f"{table}:{at}")


def benchmarks() -> list[RawRow]:
    """Products in 16 bit and streams in fp32, from tiny to large."""
    rows = [
        row("gemm", i, dtype="bf16", op=op, m=m, n=n, k=k, batch=1)
        for i, (m, n, k, op) in enumerate(
            (m, n, k, op)
            for m, n, k in ((256, 256, 256), (1024, 1024, 1024), (2048, 2048, 2048),
                            (4096, 4096, 1024), (4096, 4096, 4096), (8192, 8192, 2048))
            for op in ("linear", "linear_dgrad")
        )
    ]  # fmt: skip
    sizes = (256, 1024, 4096, 16384)
    return rows + [
        row("memory_bound", i, dtype="fp32", op=op, rows=n, cols=4096, elements=4096 * n,
            bytes=moved * 4 * 4096 * n)
        for i, (n, (op, moved)) in enumerate(
            (n, o) for n in sizes for o in (("add", 3), ("relu", 2), ("relu_bwd", 3)))
    ]  # fmt: skip


def timed(rows: list[RawRow], truth: dict[str, float], seed: int = 0) -> list[RawRow]:
    """The rows with the times of a device whose rates are exp(``truth``) of the shipped ones."""
    seconds = BenchModel(rows, GROUP, load_profile()).seconds(truth)
    noise = np.exp(np.random.default_rng(seed).normal(0.0, NOISE, len(rows)))
    return [
        RawRow(r.table, r.cells, float(s), r.sd_log, r.where)
        for r, s in zip(rows, seconds * noise, strict=True)
    ]


def convolutions(layout: str) -> list[RawRow]:
    return [
        row("conv", i, dtype="bf16", batch=64, cin=c, cout=c, kernel_size=3, in_hw=hw, stride=1,
            pad=1, groups=1, layout=layout, **{"pass": way})
        for i, (c, hw, way) in enumerate(
            (c, hw, way) for c, hw in ((64, 56), (128, 56), (256, 28), (512, 14))
            for way in ("fwd", "dgrad", "wgrad"))
    ]  # fmt: skip


def test_channels_last_convolutions_determine_the_rate_and_others_bound_it() -> None:
    """All take twice as long: channels-first ones alone could not say of what."""
    truth = {"conv_tensor16": math.log(0.5)}
    last = timed([*benchmarks(), *convolutions("channels_last")], truth)
    found = fit(last).figures["conv_tensor16"]
    assert found.value == pytest.approx(0.5, rel=0.08)
    first = fit(timed([*benchmarks(), *convolutions("nchw")], truth))
    assert "conv_tensor16" not in first.figures and first.turned == 12


def fit(rows: list[RawRow]) -> PriorFit:
    return fit_from_prior(rows, GROUP, load_profile())


def test_rates_come_back_and_unmeasured_ones_stay_as_shipped() -> None:
    truth = {"gemm_tensor16": math.log(0.8), "memory.elementwise": math.log(1.1)}
    found = fit(timed(benchmarks(), truth))
    for key, log in truth.items():
        figure = found.figures[key]
        assert abs(math.log(figure.value) - log) < min(2.0 * figure.sd_log, 0.06), key
    assert not {"conv_tensor16", "attention", "memory.norm"} & set(found.figures)


def queued(rows: list[RawRow]) -> list[RawRow]:
    """The rows as calls in long queues, at the clocks of long training."""
    return [
        RawRow(r.table, {**r.cells, "timing": QUEUED}, r.seconds, r.sd_log, r.where) for r in rows
    ]


def test_a_wrong_row_moves_little() -> None:
    rows = timed(queued(benchmarks()), {})
    at = next(i for i, r in enumerate(rows) if r.cells["m"] == "8192")
    wrong = RawRow("gemm", rows[at].cells, 4.0 * rows[at].seconds, 0.01, rows[at].where)
    found = fit([*rows[:at], wrong, *rows[at + 1 :]])
    assert found.figures["gemm_tensor16"].value == pytest.approx(1.0, abs=0.05)
    assert found.off[wrong.where] == pytest.approx(math.log(4.0), abs=0.15)


def test_bursts_tell_of_long_training_only_as_well_as_the_ratio_of_clocks_is_known() -> None:
    """A device whose clock falls less from a burst on than the shipped ratio says.

    Calls in queues run at the clocks of training, so that the figure and its spread do not change.
    """
    truth = {CLOCKS: -0.5}
    calls = fit(timed(benchmarks(), truth)).figures.get("gemm_tensor16")
    in_queues = fit(timed(queued(benchmarks()), truth)).figures["gemm_tensor16"]
    assert in_queues.value == pytest.approx(1.0, abs=0.03)
    ratio = load_profile().clock_ratio("gemm_tensor16", "sustained", GROUP.gpu)
    assert in_queues.sd_log < ratio.sd_log
    assert calls is None or calls.sd_log > 1.3 * in_queues.sd_log


def test_the_spread_is_of_the_figure_and_not_of_one_shape() -> None:
    """Shapes scatter by a fifth in either table; four times as many determine the figure better."""

    def of(times: int) -> Fitted:
        rows = queued(benchmarks()) * times
        told = timed(rows, {})
        noise = np.exp(np.random.default_rng(1).normal(0.0, 0.2, len(rows)))
        return fit([
            RawRow(r.table, r.cells, r.seconds * float(x), r.sd_log, f"{r.where}:{i}")
            for i, (r, x) in enumerate(zip(told, noise, strict=True))
        ]).figures["memory.elementwise"]  # fmt: skip

    few, many = of(1), of(4)
    assert many.sd_log < 0.7 * few.sd_log < 0.7 * 0.2


def test_unaligned_products_have_a_figure_of_their_own() -> None:
    """Matrix units load their rows a few elements at a time, in other kernels than aligned ones."""
    odd = [
        row("gemm", 100 + i, dtype="bf16", op=op, m=8192, n=n, k=1024, batch=1)
        for i, (n, op) in enumerate((n, o) for n in (30_001, 50_257) for o in (
            "linear", "linear_dgrad", "linear_wgrad"))
    ]  # fmt: skip
    truth = {"gemm_tensor16": math.log(1.1), "gemm_tensor16_unaligned": math.log(0.8)}
    found = fit(timed(queued([*benchmarks(), *odd]), truth)).figures
    for key, log in truth.items():
        assert abs(math.log(found[key].value) - log) < min(2.0 * found[key].sd_log, 0.06), key
    assert "gemm_tensor16_unaligned" not in fit(timed(queued(benchmarks()), {})).figures


def test_gradients_that_waited_for_the_host_do_not_slow_the_device() -> None:
    """Each gradient takes at least 200 us: fitted as they are, streams would be a third slower."""
    rows = [
        RawRow(r.table, r.cells, max(r.seconds, 2e-4), r.sd_log, r.where)
        if r.cells["op"] == "relu_bwd" else r
        for r in timed(benchmarks(), {})
    ]  # fmt: skip
    found = fit(rows)
    assert found.figures["memory.elementwise"].value == pytest.approx(1.0, abs=0.05)
    assert found.host_s["backward"] == pytest.approx(2e-4, rel=0.01)
    assert found.limited["elementwise", "backward"] >= 3


@pytest.fixture(scope="module")
def both_runs() -> tuple[PriorFit, PriorFit]:
    """Fits of two runs of the benchmarks on one H200, minutes apart."""
    tables = os.environ.get("SIMCORE_TABLES", "")
    folder = Path(tables) / "gpu" / "h200-2026-11-26"
    if not tables or not folder.is_dir():
        pytest.skip("SIMCORE_TABLES names no folder with the raw tables of an H200")
    group = parse_cluster("1x1xH200").groups[0]

    def of(name: str) -> PriorFit:
        rows, _ = Store(folder / name).rows()
        return fit_from_prior([r for r in rows if times_kernels(r)], group, load_profile())

    return of("calibrate_raw"), of("selftest_raw")


def test_two_runs_on_one_card_agree_or_say_their_spread(
    both_runs: tuple[PriorFit, PriorFit],
) -> None:
    """Within 5 %, or within the spread (80 %) that both figures state."""
    one, other = both_runs
    shared = one.figures.keys() & other.figures.keys()
    assert len(shared) >= 12
    for key in shared:
        a, b = one.figures[key], other.figures[key]
        told = 1.28 * math.hypot(a.sd_log, b.sd_log)
        assert abs(math.log(a.value / b.value)) <= max(0.05, told), key


def test_what_the_benchmarks_know_for_sure_agrees_within_five_percent(
    both_runs: tuple[PriorFit, PriorFit],
) -> None:
    one, other = both_runs
    for key in ("gemm_tensor16", "gemm_simt32", "gemm_tf32", "memory.elementwise", "memory.copy",
                "memory.gather", "memory.reduction"):  # fmt: skip
        assert one.figures[key].value == pytest.approx(other.figures[key].value, rel=0.05), key


def test_channels_first_convolutions_do_not_speak_for_channels_last(
    both_runs: tuple[PriorFit, PriorFit],
) -> None:
    """The card's rows have channels first alone: on matrix units they take 0.5 to 10 times."""
    for run in both_runs:
        assert run.turned >= 8
        assert not {"conv_tensor16", "conv_tf32"} & set(run.figures)


def test_backward_calls_of_attention_are_known_to_be_the_hosts(
    both_runs: tuple[PriorFit, PriorFit],
) -> None:
    for run in both_runs:
        assert run.limited["attention", "backward"] >= 15
        assert 1e-4 < run.host_s["backward"] < 2.5e-4
