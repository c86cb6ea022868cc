"""Efficiency profiles: whose figure is taken, what calibration multiplies."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import DataError, UnknownName
from simcore.hardware.calibrations import Knob
from simcore.hardware.class_figures import (
    Clock,
    ecc_frac,
    held_frac,
    issue_frac,
    open_frac,
    sustained_over_burst,
)
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.estimates import Estimate, families_of, kins_of, ramp_depth, ramp_s
from simcore.hardware.profile import Profile, load_profile
from simcore.hardware.spec import GPUS, PeakName
from simcore.physics.fill import conv_fill
from simcore.strategy.precision import PRECISIONS

TOY = """\
name: toy
sources: {t: a test}
compute_efficiency:
  gemm_tensor16: &gemm
    pooled: {value: 0.5, sd_log: 0.3, source: t}
    by_family:
      Hopper: {value: 0.8, sd_log: 0.1, source: t}
      half-rate: {value: 0.7, sd_log: 0.1, source: t}
      Ada: {value: 0.6, sd_log: 0.1, source: t}
    by_gpu:
      A100-SXM-80GB: {value: 0.9, sd_log: 0.1, source: t}
  gemm_simt32: *gemm
memory_efficiency:
  elementwise:
    pooled: {value: 0.5, sd_log: 0.1, source: t}
clocks:
  tensor_sustained_over_burst:
    pooled: {value: 1.25, sd_log: 0.4, source: t}
  simt_sustained_over_burst:
    pooled: {value: 1.0, sd_log: 0.0, source: t}
    by_gpu:
      V100-SXM-32GB: {value: 1.6, sd_log: 0.0, source: t}
host:
  kernel_start: {value: 2 us, sd_log: 0.1, source: t}
  host_issue: {value: 8 us, sd_log: 0.2, source: t}
"""


def leaf(value: Any) -> dict[str, Any]:
    return {"value": value, "sd_log": 0.1, "source": "t"}


@pytest.fixture
def toy(tmp_path: Path) -> Profile:
    """Figures that tell by their value where they come from."""
    file = tmp_path / "toy.yaml"
    file.write_text(TOY, encoding="utf-8")
    return Profile(
        name="toy",
        origin="test",
        efficiency_file=file,
        runtime={"route_efficiency": {"nvlink": leaf(0.8), "network_tcp": leaf(0.6)}},
    )


def test_fp32_products_of_activations_have_a_class_where_a_profile_knows_it(
    toy: Profile, tmp_path: Path
) -> None:
    v100 = GPUS["V100-SXM-32GB"]

    def share(profile: Profile, kind: str, peak: PeakName) -> float:
        return profile.compute_efficiency(kind, peak, v100, sustained=False).value

    assert share(toy, "bmm", "fp32") == share(toy, "gemm", "fp32")
    assert toy.class_figures("bmm_simt32", v100) == toy.class_figures("gemm_simt32", v100)
    file = tmp_path / "apart.yaml"
    apart = "  bmm_simt32:\n    pooled: {value: 0.6, sd_log: 0.1, wave: 1, source: t}\n"
    file.write_text(TOY.replace("memory_efficiency:", f"{apart}memory_efficiency:"), "utf-8")
    told = Profile(name="told", origin="test", efficiency_file=file, runtime={})
    assert (share(told, "bmm", "fp32"), share(told, "gemm", "fp32")) == (0.6, 0.5)
    assert share(told, "bmm", "fp16") == share(told, "gemm", "fp16")
    assert told.kernel_shape("bmm", "fp32", v100)[0] == 1.0
    assert told.clock_ratio("bmm_simt32", "sustained", v100).value == 1.6  # as other fp32 products


def test_softmax_of_short_rows_is_that_of_all_where_no_figure_is_its_own(
    toy: Profile, tmp_path: Path
) -> None:
    a100 = GPUS["A100-SXM-80GB"]
    more = "  softmax:\n    pooled: {value: 0.4, sd_log: 0.1, source: t}\n"
    file = tmp_path / "softmax.yaml"
    file.write_text(TOY.replace("clocks:", f"{more}clocks:"), encoding="utf-8")
    one = Profile(name="one", origin="test", efficiency_file=file, runtime={})
    assert one.memory_efficiency("softmax_short", a100).value == 0.4
    shipped = load_profile()
    short, long = (shipped.memory_efficiency(k, a100) for k in ("softmax_short", "softmax"))
    assert short.value > long.value


@pytest.mark.parametrize(
    ("gpu", "value", "says"),
    [
        ("A100-SXM-80GB", 0.9, "A100-SXM-80GB"),
        ("H100-SXM-80GB", 0.8, "family Hopper"),
        ("RTX4090", 0.7, "family half-rate"),  # before its architecture, Ada
        ("L40S", 0.6, "family Ada"),
        ("T4", 0.5, "all GPUs"),
    ],
)
def test_own_then_family_then_pooled(toy: Profile, gpu: str, value: float, says: str) -> None:
    found = toy.compute_efficiency("gemm", "fp32", GPUS[gpu])
    assert found.value == pytest.approx(value)
    assert found.source.startswith(says)


def test_the_clock_that_a_vendor_rates_machines_at_is_what_long_runs_hold() -> None:
    """A100 modules, whatever their memory: 1,410 over 1,305 MHz; boards in PCIe by their power."""
    profile = load_profile()
    for name in ("A100-SXM-80GB", "A100-SXM-40GB"):
        found = profile.clock_ratio("gemm_tensor16", "sustained", GPUS[name])
        assert found.value == pytest.approx(1410 / 1305)
        assert "rated" in found.source
    board = profile.clock_ratio("gemm_tensor16", "sustained", GPUS["A100-PCIE-80GB"])
    assert board.value > 1410 / 1305
    assert board.source == "by its power"


def test_tensor_cores_run_at_sustained_clocks_unless_half_rate(toy: Profile) -> None:
    full = toy.compute_efficiency(
        "gemm", "fp16", GPUS["A100-SXM-80GB"].model_copy(update={"sustained_clock": None})
    )
    assert full.value == pytest.approx(0.9 / 1.25)
    assert full.sd_log == pytest.approx(hypot(0.1, 0.4))
    half = toy.compute_efficiency("gemm", "fp16", GPUS["RTX4090"])
    assert (half.value, half.sd_log) == (0.7, 0.1)
    vector = toy.compute_efficiency("gemm", "fp32", GPUS["V100-SXM-32GB"])
    assert vector.value == pytest.approx(0.5 / 1.6)  # vector units have a ratio of their own


@pytest.mark.parametrize(
    ("gpu", "families"),
    [
        ("RTX4090", ("half-rate", "Ada")),
        ("RTX3090", ("half-rate", "Ampere")),
        ("A6000ada", ("Ada",)),
        ("A100-PCIE-80GB", ("Ampere-GA100",)),
        ("A40", ("Ampere",)),
        ("H100-SXM-80GB", ("Hopper",)),
        ("B200-SXM", ("Blackwell",)),
        ("V100-SXM-32GB", ("Volta",)),
    ],
)
def test_families(gpu: str, families: tuple[str, ...]) -> None:
    assert families_of(GPUS[gpu]) == families


LIMITED = """\
    pooled: {value: 0.8, sd_log: 0.3, limit_j_per_flop: 2.0e-12, source: t}
    by_family:
      Hopper: {value: 0.6, held: 0.75, sd_log: 0.1, source: t}
    by_gpu:
      A100-SXM-80GB: {value: 0.9, sd_log: 0.1, memory: 0.7, start: 3 us, wave: 0.2, depth: 40,
        source: t}
"""


def test_power_scales_what_other_devices_reach(tmp_path: Path) -> None:
    """Energy of a FLOP goes with nm^0.8 and clock^0.5; a relative's share holds at its power."""
    start = TOY.index("    pooled")
    file = tmp_path / "toy.yaml"
    file.write_text(TOY[:start] + LIMITED + TOY[TOY.index("  gemm_simt32") :], encoding="utf-8")
    profile = Profile(name="p", origin="t", efficiency_file=file, runtime={})

    def held(watts: float, peak: float, nm: float, base_ghz: float, boost_ghz: float) -> float:
        needed = 2e-12 * (nm / 16) ** 0.8 * (boost_ghz / 1.5) ** 0.5 * peak / watts
        return float(((1 + needed**4) ** (-1 / 12) * (base_ghz / boost_ghz) ** 0.5) ** 0.5)

    v100 = profile.class_figures("gemm_tensor16", GPUS["V100-SXM-32GB"])
    assert (v100.level, v100.share.sd_log) == ("pooled", 0.3)
    assert v100.share.value == pytest.approx(0.8 * held(300, 125e12, 12, 1.29, 1.53), rel=1e-3)
    h100 = profile.class_figures("gemm_tensor16", GPUS["H100-PCIE-80GB"])
    peak = GPUS["H100-PCIE-80GB"].peak("bf16")
    assert peak and h100.level == "family"
    assert h100.share.value == pytest.approx(0.6 * held(350, peak, 4, 1.095, 1.755) / 0.75)
    own = profile.class_figures("gemm_tensor16", GPUS["A100-SXM-80GB"])
    assert (own.level, own.share.value, own.memory, own.start_s, own.wave_frac, own.half_depth) == (
        "own", 0.9, 0.7, pytest.approx(3e-6), 0.2, 40.0)  # fmt: skip
    with pytest.raises(KeyError, match="no figures for gemm_tensor4"):
        profile.class_figures("gemm_tensor4", GPUS["A100-SXM-80GB"])


WARP_WISE = """\
  attention:
    pooled: {value: 0.7, sd_log: 0.2, source: t}
    by_kin:
      registers: {value: 0.8, sd_log: 0.2, limit_j_per_flop: 3.0e-12, source: t}
      async: {value: 0.75, sd_log: 0.2, source: t}
    by_family:
      Ada: {value: 0.5, sd_log: 0.2, held: 0.7, source: t}
    by_gpu:
      A100-SXM-80GB: {value: 0.66, sd_log: 0.2, source: t}
"""


def test_attention_of_warp_wise_kernels_holds_what_power_leaves(tmp_path: Path) -> None:
    """As products do; asynchronous ones leave matrix units idle behind their exponentials."""
    file = tmp_path / "toy.yaml"
    file.write_text(TOY.replace("memory_efficiency:", f"{WARP_WISE}memory_efficiency:"), "utf-8")
    profile = Profile(name="p", origin="t", efficiency_file=file, runtime={})

    def share(name: str) -> float:
        return profile.class_figures("attention", GPUS[name]).share.value

    held = {g: held_frac(GPUS[g], "tensor", 3e-12) for g in ("L4", "V100-SXM-32GB")}
    assert share("V100-SXM-32GB") == pytest.approx(0.8 * held["V100-SXM-32GB"])
    assert share("L4") == pytest.approx(0.5 * held["L4"] / 0.7)
    assert (share("H100-SXM-80GB"), share("A100-SXM-80GB"), share("MI300X")) == (0.75, 0.66, 0.7)


def test_knobs_multiply_where_they_apply(toy: Profile) -> None:
    knobs = (
        Knob(knob="compute", value=0.5, sd_log=0.01),
        Knob(knob="compute", value=0.8, sd_log=0.02, gpu="T4"),
        Knob(knob="memory", value=2.0, sd_log=0.03, gpu="H100-SXM-80GB"),
        Knob(knob="host", value=4.0, sd_log=0.04),
        Knob(knob="intra", value=0.9, sd_log=0.05, node="dgx-a100"),
        Knob(knob="inter", value=0.7, sd_log=0.06, link="eth-10"),
    )
    fitted = toy.with_knobs(knobs, "mine", "fitted", 0.07)
    t4, a100 = GPUS["T4"], GPUS["A100-SXM-80GB"]
    assert fitted.compute_efficiency("gemm", "fp32", t4).value == pytest.approx(0.5 * 0.5 * 0.8)
    assert fitted.compute_efficiency("gemm", "fp32", a100).value == pytest.approx(0.9 * 0.5)
    assert fitted.compute_efficiency("gemm", "fp32", a100).sd_log == 0.01
    assert fitted.memory_efficiency("elementwise", a100).value == 0.5
    assert fitted.memory_efficiency("elementwise", GPUS["H100-SXM-80GB"]).value == 1.0
    assert fitted.host_issue_s(t4).value == pytest.approx(2e-6)  # four times as fast
    assert fitted.route_efficiency("nvlink", node="dgx-a100").value == pytest.approx(0.72)
    assert fitted.route_efficiency("nvlink", node="dgx-2").value == 0.8
    assert fitted.route_efficiency("network_tcp", link="eth-10").value == pytest.approx(0.42)
    assert fitted.route_efficiency("network_tcp", link="eth-1").value == 0.6
    assert fitted.residual is not None
    assert fitted.residual.value == 0.07
    assert "mine" in fitted.compute_efficiency("gemm", "fp32", t4).source
    assert toy.compute_efficiency("gemm", "fp32", t4).value == 0.5


def test_no_link_loses_nothing(toy: Profile) -> None:
    assert toy.route_efficiency("none") == Estimate(1.0, 0.0, "no link")


@pytest.mark.parametrize("name", GPUS.names())
def test_the_shipped_profile_answers_for_every_gpu(name: str) -> None:
    profile, gpu = load_profile(), GPUS[name]
    asked = {p for name in PRECISIONS for p in (PRECISIONS[name].peak, "fp32")}
    for peak in asked & set(gpu.peak_flop_per_s):
        for kind in ("gemm", "conv", "attention"):
            found = profile.compute_efficiency(kind, peak, gpu)
            # No product exceeds the units that run it: fp32 of CDNA has matrix units of its own.
            top = (gpu.fp32_product_peak or 0.0) / (gpu.peak("fp32") or 1.0)
            assert 0.1 < found.value < (top if peak == "fp32" else 1.0) * 1.2, (kind, peak)
            assert 0 < found.sd_log < 1
    for kind in ("elementwise", "norm", "softmax", "gemm", "gather", "copy", "reduction"):
        assert 0.1 < profile.memory_efficiency(kind, gpu).value < 1.1
    assert 1e-6 < profile.host_issue_s(gpu).value < 1e-4
    has_context = gpu.architecture != "TPU"  # its runtime's part is not offered to programs
    assert has_context * 1e8 < profile.cuda_context_bytes(gpu).value < 2e9


@lru_cache(maxsize=1)
def whole_file() -> Any:
    return read_yaml(shipped_root() / "hardware_db/calibrations/blind.yaml")


@pytest.mark.parametrize("name", GPUS.names())
def test_reading_part_of_the_file_loses_nothing(name: str) -> None:
    """Only a device's own lines are parsed: they must say what the whole file says.

    A relative's stream, beside the device's own error correction; times its card's benchmarks.
    """
    gpu, whole = GPUS[name], whole_file()
    for kind, table in whole["memory_efficiency"].items():
        entry = table["pooled"]
        for kin in kins_of(gpu):
            entry = table.get("by_kin", {}).get(kin, entry)
        for family in reversed(families_of(gpu)):
            entry = table.get("by_family", {}).get(family, entry)
        own = table.get("by_gpu", {}).get(name)
        left = 1.0 if own or kind in ("gemm", "attention") else ecc_frac(gpu)
        entry = own or entry
        cards = whole["cards"].get(f"memory.{kind}", {"by_gpu": {}})["by_gpu"]
        card = cards.get(name, {"value": 1.0, "sd_log": entry["sd_log"]})
        found = load_profile().memory_efficiency(kind, gpu)
        assert found.value == entry["value"] * left * card["value"]
        assert found.sd_log == card["sd_log"]


def test_less_is_known_of_what_was_never_measured() -> None:
    """A pooled figure is no surer than a GPU's own."""
    profile = load_profile()
    own, pooled = (profile.memory_efficiency("elementwise", GPUS[g])
                   for g in ("A100-SXM-80GB", "Gaudi3"))  # fmt: skip
    assert own.sd_log <= pooled.sd_log


def test_fp32_products_of_cdna_are_shares_of_its_matrix_units() -> None:
    profile = load_profile()
    share = profile.class_figures("gemm_simt32", GPUS["MI210"]).share.value
    found = profile.compute_efficiency("gemm", "fp32", GPUS["MI210"], sustained=False)
    assert found.value == pytest.approx(share * 45.3 / 22.6)
    same = profile.compute_efficiency("gemm", "fp32", GPUS["MI300X"], sustained=False)
    assert same.value < 1.0  # 163.4 TFLOP/s on either kind of unit


def test_derived_times_are_sustained_where_no_burst_tells() -> None:
    profile, alone, paired = load_profile(), GPUS["A100-PCIE-80GB"], GPUS["B200-SXM"]
    for gpu, cls in ((alone, "gemm_tensor16"), (alone, "attention"), (paired, "attention")):
        asked = profile.clock_ratio(cls, "derived", gpu).value
        assert asked == profile.clock_ratio(cls, "sustained", gpu).value > 1.0
    both = profile.clock_ratio("gemm_tensor16", "derived", paired).value
    assert both > profile.clock_ratio("gemm_tensor16", "sustained", paired).value


def test_spread_names_every_knob() -> None:
    peaks: tuple[tuple[PeakName, PeakName], ...] = (("tf32", "tf32"),)
    spread = load_profile().knob_spread(parse_cluster("2x8xA6000ada"), peaks, "latte-xl", 0.0)
    assert set(spread) == {"compute", "memory", "host", "intra", "inter", "loader", "overlap"}
    assert all(0 < s < 1 for s in spread.values())
    alone = load_profile().knob_spread(parse_cluster("1x1xA6000ada"), peaks, "latte-xl", 0.0)
    assert alone["intra"] == alone["inter"] == 0.0


def test_a_mixed_cluster_has_the_spread_of_its_slowest_gpus_in_any_order() -> None:
    """T4 computes and moves bytes more slowly than H100, and its figures are less certain."""

    def of(gpus: str, order: slice = slice(None)) -> dict[str, float]:
        cluster = parse_cluster(gpus)
        cluster = replace(cluster, groups=cluster.groups[order])
        peaks: tuple[tuple[PeakName, PeakName], ...] = (("fp16", "fp16"),) * len(cluster.groups)
        return dict(load_profile().knob_spread(cluster, peaks, "gpt2", 0.0))

    slow, fast = of("8xT4"), of("8xH100")
    for knob in ("compute", "memory"):
        assert slow[knob] != fast[knob]
        for order in (slice(None), slice(None, None, -1)):
            assert of("8xT4+8xH100", order)[knob] == slow[knob]


def test_blind_is_the_default_and_is_loaded_once() -> None:
    assert load_profile() is load_profile()
    assert load_profile("blind").name == "blind"


def test_unknown_calibrations(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="calibration 'seedz'"):
        load_profile("seedz")
    with pytest.raises(DataError, match="no such calibration file"):
        load_profile(str(tmp_path / "missing.yaml"))


def test_a_calibration_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\norigin: my runs\nrows: 3\nresidual_sd_log: 0.05\n"
        "knobs:\n  - {knob: compute, value: 0.5, sd_log: 0.1}\n",
        encoding="utf-8",
    )
    mine, blind = load_profile(str(file)), load_profile()
    gpu = GPUS["A6000ada"]
    assert mine.compute_efficiency("gemm", "tf32", gpu).value == pytest.approx(
        0.5 * blind.compute_efficiency("gemm", "tf32", gpu).value
    )
    file.write_text(file.read_text() + "colour: red\n", encoding="utf-8")
    with pytest.raises(DataError, match="colour"):
        load_profile(str(file))


def test_a_changed_calibration_is_read_again(tmp_path: Path) -> None:
    """Also through the whole prediction, and though the new file is as long as the old one."""
    import simcore

    mine = tmp_path / "mine.yaml"

    def step_s(factor: str) -> float:
        mine.write_text(
            "name: mine\norigin: my own runs\nrows: 1\nresidual_sd_log: 0.1\n"
            f"knobs:\n- {{knob: compute, value: {factor}, sd_log: 0.1}}\n"
        )
        found = simcore.predict(model="llama3-8b", gpus="1x8xH100", calibration=str(mine))
        return found.step_time_s.value

    slow = step_s("0.5")
    assert step_s("2.0") < 0.6 * slow
    same = load_profile(str(mine))
    assert load_profile(str(mine)) is same


def test_power_leaves_matrix_units_the_mean_of_cap_and_base_clock() -> None:
    gpu = GPUS["L40S"]
    # 350 W over 362.05 TFLOP/s against a limit of as much at 4 nm and 2.52 GHz: the cap's edge.
    edge = 350.0 / 362.05e12 / ((4 / 16) ** 0.8 * (2.52 / 1.5) ** 0.5)
    cap, clock = 2 ** (-0.25 / 3), (1110 / 2520) ** 0.5
    assert held_frac(gpu, "tensor", edge) == pytest.approx((cap * clock) ** 0.5)
    # Vector units: the cap alone, 91.6 TFLOP/s.
    edge = 350.0 / 91.6e12 / ((4 / 16) ** 0.8 * (2.52 / 1.5) ** 0.5)
    assert held_frac(gpu, "simt", edge) == pytest.approx(2**-0.25)
    assert held_frac(gpu.model_copy(update={"tdp": None}), "tensor", edge) == 1.0


@pytest.mark.parametrize(
    ("name", "lanes"),
    [("V100-SXM-32GB", 16), ("T4", 16), ("A100-SXM-80GB", 16), ("A40", 32), ("L4", 32),
     ("RTX4090", 32), ("H100-SXM-80GB", 32), ("B200-SXM", 32)],
)  # fmt: skip
def test_loads_take_slots_from_fp32_products_where_one_instruction_fills_the_lanes(
    name: str, lanes: int
) -> None:
    """Lanes a quarter of an SM by NVIDIA's whitepapers; warps have 32 threads."""
    gpu = GPUS[name]
    expected = 1.0 if lanes == 16 else 64 / (64 + 4 + 1)
    assert issue_frac(gpu) == pytest.approx(expected)
    assert open_frac(gpu, "simt", 1e-11) == pytest.approx(held_frac(gpu, "simt", 1e-11) * expected)
    assert open_frac(gpu, "tensor", 1e-11) == held_frac(gpu, "tensor", 1e-11)


@pytest.mark.parametrize("name", ["P100-PCIE-16GB", "P4", "MI210", "Arc-Pro-B60"])
def test_devices_that_issue_two_at_once_or_of_other_vendors_lose_no_slots(name: str) -> None:
    assert issue_frac(GPUS[name]) == 1.0


@pytest.mark.parametrize(
    ("name", "measured"),
    [("A100-SXM-80GB", 1.11), ("H100-SXM-80GB", 1.15), ("B200-SXM", 1.15), ("GB200", 1.19)],
)
def test_clocks_fall_as_far_as_power_binds(name: str, measured: float) -> None:
    """Devices timed both ways keep their own ratio; the law that others take is near it.

    B200 was timed in long loops on two machines, of which the second is slower.
    """
    gpu, limit = GPUS[name], 3.3e-12
    law = sustained_over_burst(gpu, limit)
    assert law == pytest.approx(measured, rel=0.045)
    assert law == pytest.approx(held_frac(gpu, "tensor", limit) ** -0.74)
    assert sustained_over_burst(gpu.model_copy(update={"tdp": None}), limit) is None
    rated = gpu.sustained_clock is not None  # A100's pair of tables stays that of profiled kernels
    clock: Clock = "profiled" if rated else "sustained"
    own = load_profile().clock_ratio("gemm_tensor16", clock, gpu).value
    assert own == (1.29 if name == "B200-SXM" else measured)


def test_a_device_timed_in_bursts_alone_slows_as_its_power_says() -> None:
    gpu = GPUS["H100-PCIe-80GB"]
    found = load_profile().clock_ratio("gemm_tensor16", "sustained", gpu)
    assert found.value == sustained_over_burst(gpu, 3.3e-12)
    assert found.source == "by its power"


def test_rates_timed_in_long_queues_are_known_at_the_clocks_of_training() -> None:
    """The ratio of clocks adds to the spread of rates in bursts; cards are timed in long queues."""
    profile = load_profile()
    for name, on_card in (("H200-SXM", True), ("H100-SXM-80GB", False)):
        gpu = GPUS[name]
        burst = profile.compute_efficiency("gemm", "bf16", gpu, sustained=False)
        held = profile.compute_efficiency("gemm", "bf16", gpu)
        clocks = profile.clock_ratio("gemm_tensor16", "sustained", gpu)
        assert held.value == pytest.approx(burst.value / clocks.value)
        added = 0.0 if on_card else clocks.sd_log
        assert held.sd_log == pytest.approx(hypot(burst.sd_log, added))


def test_unaligned_products_have_what_cards_found_of_them() -> None:
    profile = load_profile()
    for name, same in (("H200-SXM", False), ("H100-SXM-80GB", True)):
        full, few = (
            profile.compute_efficiency("gemm", "bf16", GPUS[name], unaligned=u).value
            for u in (False, True)
        )
        assert (few == full) is same and few <= full


def test_fixed_time_of_a_tile_is_more_keys_on_a_faster_sm() -> None:
    slow, fast = GPUS["A100-SXM-80GB"], GPUS["B200-SXM"]
    # 312 TFLOP/s over 108 SMs: 5 us are 14.44 MFLOP, at 65,536 a key.
    assert ramp_depth(5e-6, slow) == pytest.approx(220.4, abs=0.1)
    assert ramp_depth(5e-6, fast) / ramp_depth(5e-6, slow) == pytest.approx(
        (2250 / 148) / (312 / 108)
    )
    assert ramp_s(ramp_depth(5e-6, fast), fast) == pytest.approx(5e-6)


def test_unmeasured_device_takes_its_kin_before_all() -> None:
    profile = load_profile()
    turing = profile.class_figures("attention", GPUS["TITAN-RTX"])
    other = profile.class_figures("attention", GPUS["MI300X"])
    assert "registers" in turing.share.source and turing.level == "pooled"
    assert "all GPUs" in other.share.source


#: Side of the image, channels in and out.
VGG_16 = [
    (224, 3, 64), (224, 64, 64), (112, 64, 128), (112, 128, 128), (56, 128, 256), (56, 256, 256),
    (56, 256, 256), (28, 256, 512), *[(28, 512, 512)] * 2, *[(14, 512, 512)] * 3,
]  # fmt: skip


@pytest.mark.parametrize("gpu", ["V100-SXM-16GB", "A100-SXM-80GB", "RTX2080Ti"])
def test_winograd_does_more_than_the_units_could(gpu: str) -> None:
    """VGG-16 at 16 images took a V100 83.5 ms forward and backward in fp32: 17.8 TFLOP/s of direct
    convolutions on units of 15.7 (u39kun/deep-learning-benchmark), pools included."""
    profile, device = load_profile(), GPUS[gpu]
    fast = profile.compute_efficiency("conv_winograd", "fp32", device)
    assert 16 * 3 * 30.96e9 / 83.5e-3 > 15.7e12
    assert device.sm_count
    peak, moved = device.peak("fp32") or 0.0, profile.memory_efficiency("conv_winograd", device)
    rate, shape = peak * fast.value, profile.kernel_shape("conv_winograd", "fp32", device)
    flop = np.array([2 * 9 * 16 * side**2 * a * b for side, a, b in VGG_16])
    side, inner, outer = np.array(VGG_16, dtype=float).T
    fill = conv_fill(side**2, 16.0, inner, outer, device.sm_count.value, *shape,
                     rate / (device.memory_bw.value * moved.value))  # fmt: skip
    assert 17.8 / 15.7 < flop.sum() / (flop / (rate * fill)).sum() / peak < 4  # F(4x4, 3x3) saves 4
    assert profile.compute_efficiency("conv", "fp32", device).value < 1.0
    # On matrix units nothing of it is known, and CDNA's are quicker in fp32 too.
    for kind_of, peak in ((device, "fp16"), (GPUS["MI210"], "fp32"), (GPUS["MI210"], "fp16")):
        one = profile.compute_efficiency("conv_winograd", peak, kind_of)  # type: ignore[arg-type]
        assert one == profile.compute_efficiency("conv", peak, kind_of)  # type: ignore[arg-type]
    assert profile.memory_efficiency("conv_winograd", device) == profile.memory_efficiency(
        "conv", device
    )
