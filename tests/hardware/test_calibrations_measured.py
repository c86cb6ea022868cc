"""A device's own measured figures in a profile: they answer for it, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.base.errors import InvalidConfig
from simcore.calibrate.machine.record import Facts, record_of, write_record
from simcore.calibrate.yaml_text import profile_data, write_profile
from simcore.hardware.calibrations import (
    Calibration,
    Contention,
    Fitted,
    FittedBytes,
    FittedTime,
    Knob,
    MeasuredDevice,
    MeasuredLink,
    Overlap,
    calibration_named,
)
from simcore.hardware.profile import Profile, profile_of
from simcore.hardware.spec import GPUS, NODES


def fitted(value: float, sd_log: float = 0.05) -> Fitted:
    return Fitted(value=value, sd_log=sd_log, rows=9, valid="1 to 2 GFLOP")


def record(gpu: str = "H100-SXM-80GB", node: str = "dgx-h100") -> Calibration:
    return Calibration(
        name="mine",
        origin="benchmarks of a test",
        rows=12,
        residual_sd_log=0.06,
        leave_one_out_mape_frac=0.05,
        conditions={"date": "2026-11-21", "torch": "2.13.0"},
        knobs=(Knob(knob="compute", value=0.9, sd_log=0.02, gpu=gpu),),
        measured=MeasuredDevice(
            gpu=gpu,
            compute_efficiency={"gemm_tensor16": fitted(0.7), "conv_tensor16": fitted(0.3)},
            memory_efficiency={"norm": fitted(0.5), "update": fitted(0.8)},
            kernel_start=FittedTime(value=3e-6, sd_log=0.1, rows=1),
            host_issue=FittedTime(value=0.0, sd_log=0.0),
            sustained_over_burst=fitted(1.1, 0.01),
            context=FittedBytes(value=600.0 * 2**20, sd_log=0.1),
            contention=(Contention(ranks=4, compute=fitted(0.81), memory=fitted(0.25)),),
            link=MeasuredLink(
                node=node, ranks=4, efficiency=fitted(0.9),
                hop=FittedTime(value=5e-6, sd_log=0.1),
            ),
            overlap=Overlap(compute_slowdown=fitted(0.2), comm_slowdown=fitted(0.4)),
        ),
    )  # fmt: skip


@pytest.fixture
def profile() -> Profile:
    return profile_of(record())


def test_own_figures_answer_for_the_device(profile: Profile) -> None:
    h100 = GPUS["H100-SXM-80GB"]
    burst = profile.compute_efficiency("gemm", "bf16", h100, sustained=False)
    assert burst.value == pytest.approx(0.7 * 0.9)  # times the fitted multiplier
    sustained = profile.compute_efficiency("gemm", "bf16", h100)
    assert sustained.value == pytest.approx(0.7 / 1.1 * 0.9)
    assert "mine" in sustained.source
    assert profile.memory_efficiency("norm", h100).value == 0.5
    assert profile.memory_efficiency("update", h100).value == 0.8
    assert profile.kernel_start_s(h100).value == 3e-6
    assert profile.host_issue_s(h100).value == 0.0
    assert profile.cuda_context_bytes(h100).value == 600.0 * 2**20
    assert profile.overlap_slowdown.value == 0.2
    assert profile.comm_slowdown.value == 0.4
    assert profile.residual is not None
    assert profile.residual.value == 0.06


def test_one_figure_measured_serves_all_kernels_of_its_kind() -> None:
    """Benchmarks of a machine time products of both kinds, and softmax of any rows, as one."""
    h100, mine = GPUS["H100-SXM-80GB"], record()
    assert mine.measured is not None
    timed = mine.measured.model_copy(update={
        "compute_efficiency": {"gemm_simt32": fitted(0.7)},
        "memory_efficiency": {"softmax": fitted(0.5)},
    })  # fmt: skip
    profile = profile_of(mine.model_copy(update={"measured": timed}))
    assert profile.compute_efficiency("bmm", "fp32", h100) == profile.compute_efficiency(
        "gemm", "fp32", h100
    )
    assert profile.memory_efficiency("softmax_short", h100).value == 0.5


def test_convolutions_measured_are_not_a_share_of_products(profile: Profile) -> None:
    h100 = GPUS["H100-SXM-80GB"]
    burst = profile.compute_efficiency("conv", "bf16", h100, sustained=False)
    assert burst.value == pytest.approx(0.3 * 0.9)


def test_other_devices_keep_the_blind_figures(profile: Profile) -> None:
    from simcore.hardware.profile import load_profile

    a100, blind = GPUS["A100-SXM-80GB"], load_profile()
    for kind in ("gemm", "conv"):
        assert (
            profile.compute_efficiency(kind, "bf16", a100).value
            == blind.compute_efficiency(kind, "bf16", a100).value
        )
    assert profile.memory_efficiency("norm", a100) == blind.memory_efficiency("norm", a100)
    assert profile.shared_rate(a100, 8) == (1.0, 1.0)


def test_what_was_not_measured_falls_back(profile: Profile) -> None:
    from simcore.hardware.profile import load_profile

    h100, blind = GPUS["H100-SXM-80GB"], load_profile()
    assert profile.memory_efficiency("softmax", h100) == blind.memory_efficiency("softmax", h100)


def test_ranks_share_a_host_as_measured(profile: Profile) -> None:
    h100 = GPUS["H100-SXM-80GB"]
    assert profile.shared_rate(h100, 1) == (1.0, 1.0)
    assert profile.shared_rate(h100, 4) == pytest.approx((0.81, 0.25))
    assert profile.shared_rate(h100, 2) == pytest.approx((0.9, 0.5))  # half way in logarithms
    assert profile.shared_rate(h100, 64) == pytest.approx((0.81, 0.25))


def test_the_link_answers_for_its_node(profile: Profile) -> None:
    assert profile.route_efficiency("nvlink", node="dgx-h100").value == 0.9
    assert profile.hop_s("dgx-h100", 1.0) == 5e-6
    assert profile.route_efficiency("nvlink", node="dgx-a100").value != 0.9
    assert profile.hop_s("dgx-a100", 1.0) == 1.0


def test_the_file_holds_it_all(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    write_profile(path, record())
    assert profile_data(calibration_named(str(path))) == profile_data(record())


def facts(name: str = "this-box") -> Facts:
    return Facts(
        name=name, kind="cpu", device="AMD EPYC, 1 core a rank", source="best of a test", ranks=2,
        cores=2, memory_bytes=12e9, host_bytes=24e9, flop_per_s={"fp32": 95e9}, bytes_per_s=23e9,
        host_bytes_per_s=30e9, bus_bytes_per_s=1.3e9, disk_read_bytes_per_s=0.0,
        disk_write_bytes_per_s=0.0,
    )  # fmt: skip


def test_a_measured_record_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, found from the folder, marked as measured, and used by a prediction."""
    found = record_of(facts())
    write_record(found, tmp_path)
    monkeypatch.chdir(tmp_path)
    gpu = GPUS["this-box"]
    assert gpu.peak("fp32") == 95e9 and gpu.memory_bw.value == 23e9
    assert gpu.memory_bw.source == "measured" and "best of a test" in gpu.sources["measured"]
    assert gpu.tdp is None and gpu.released is None  # nobody measured them
    assert NODES["this-box"].max_gpus == 2
    assert NODES["this-box"].nvme is None
    from simcore.hardware.cluster import parse_cluster
    from simcore.hardware.paths import cluster_paths

    cluster = parse_cluster("1x2xthis-box")
    assert cluster.groups[0].node.name == "this-box"
    assert cluster_paths(cluster)[0].bw_bytes_per_s == pytest.approx(1.3e9)


def test_a_processor_without_its_profile_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simcore import api

    write_record(record_of(facts()), tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig, match="no figures without a calibration: give --calibration"):
        api.predict("mnist-cnn", "1x2xthis-box", precision="fp32")
