"""Refits from raw tables, conditions kept beside them, and what a profile says of itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from simcore import api
from simcore.base.errors import DataError
from simcore.calibrate.bench.case import Case, Measured
from simcore.calibrate.bench.launch import EAGER_KERNELS
from simcore.calibrate.bench.store import Store
from simcore.calibrate.machine import check
from simcore.calibrate.machine.check import CARRIED_SD, check_steps, launches_net
from simcore.calibrate.machine.profile import read_conditions, refit, write_conditions
from simcore.calibrate.machine.record import Machine
from simcore.calibrate.yaml_text import write_profile
from simcore.cli.main import run
from simcore.hardware.calibrations import Calibration, CheckedStep, calibration_named
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from tests.calibrate.machine.test_prior import benchmarks, timed


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw tables of an H100 whose 16-bit products reach 0.8 of the shipped rate."""
    folder = tmp_path_factory.mktemp("refit") / "box.raw"
    store = Store(folder)
    for r in timed(benchmarks(), {"gemm_tensor16": math.log(0.8)}):
        named = ("dtype", "op", "m", "n", "k", "batch", "rows", "cols", "elements", "bytes")
        columns = {"gpu": "H100-SXM-80GB", **{k: r.cells[k] for k in named if r.cells.get(k)}}
        case = Case("", r.table, columns, lambda _: lambda: None, cold=True)
        store.add(Measured(case, r.seconds, r.sd_log, 20, 0.0), 1)
    return folder


def test_a_refit_needs_the_raw_tables_alone(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = raw.with_name("again.yaml")
    assert run(["calibrate", "--refit", str(raw), "-o", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured"]["compute_over_blind"]["gemm_tensor16"]["value"] == pytest.approx(
        0.8, abs=0.06
    )
    assert any("does not say when" in note for note in found["notes"])
    assert any("whether the profile helps is not known" in note for note in found["notes"])
    # A prediction with it is slower by what products lost, and by nothing else.
    gpu, mine, blind = GPUS["H100"], load_profile(str(output)), load_profile()
    rates = [p.compute_efficiency("gemm", "bf16", gpu).value for p in (mine, blind)]
    assert rates[0] / rates[1] == pytest.approx(0.8, abs=0.06)
    assert mine.compute_efficiency("attention", "bf16", gpu) == blind.compute_efficiency(
        "attention", "bf16", gpu
    )
    other = GPUS["A100-SXM-80GB"]
    assert mine.compute_efficiency("gemm", "bf16", other) == blind.compute_efficiency(
        "gemm", "bf16", other
    )
    assert run(["calibrate", "--refit", str(raw), "-o", str(output)]) == 0
    assert "x compute gemm_tensor16" in capsys.readouterr().out


def test_a_plot_shows_the_rows_beside_what_the_profile_says(raw: Path) -> None:
    path = raw.with_suffix(".yaml")
    refit(raw, path)
    found = {c.title: c for c in api.calibration_curves(str(path))}
    assert set(found) == {"gemm", "memory-bound"}
    products = found["gemm"]
    assert len(products.work) == 12
    large = products.work > 1e-5 * products.work.max()
    assert products.fitted[large] == pytest.approx(products.measured[large], rel=0.15)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--refit", "nowhere.raw"], "needs the folder of a calibration's raw tables"),
        (["--refit", "x.raw", "--minutes", "2"], "--refit measures nothing"),
        (["--refit", "x.raw", "-o", "x.json"], "a calibration is a .yaml file"),
    ],
)
def test_mistakes(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *words]) == 2
    assert said in capfd.readouterr().err


def test_conditions_are_kept_beside_the_tables(raw: Path, tmp_path: Path) -> None:
    assert read_conditions(tmp_path) == ({}, {})
    write_conditions(tmp_path, {"torch": "2.11.0", "date": "2026-11-26"}, {"context": 7})
    assert read_conditions(tmp_path) == ({"torch": "2.11.0", "date": "2026-11-26"}, {"context": 7})
    (tmp_path / "conditions.json").write_text("[1]")
    with pytest.raises(DataError, match="is not what"):
        read_conditions(tmp_path)
    write_conditions(raw, {"torch": "2.11.0", "date": "2026-11-26"}, {"context": 500 << 20})
    made, _ = refit(raw, raw.with_name("told.yaml"))
    assert made.record.origin == "benchmarks of H100-SXM-80GB, 2026-11-26, torch 2.11.0"
    assert made.record.measured is not None and made.record.measured.context is not None
    gpu = GPUS["H100"]
    told = load_profile(str(raw.with_name("told.yaml"))).cuda_context_bytes(gpu)
    assert told.value == pytest.approx(500 * 2**20, rel=1e-3)


def step(blind_s: float, calibrated_s: float) -> CheckedStep:
    return CheckedStep(
        net="reference_dense", batch=8, bound="device", measured_s=1.0, blind_s=blind_s,
        calibrated_s=calibrated_s,
    )  # fmt: skip


def test_a_profile_that_does_not_help_says_so_on_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    base = Calibration(name="mine", origin="x", rows=1, knobs=())
    for worse in (True, False):
        record = base.model_copy(
            update={"checked": (step(0.9, 0.7) if worse else step(0.7, 0.9), step(1.1, 1.1))}
        )
        write_profile(path, record)
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# WORSE THAN BLIND: 2 steps") == worse
        assert calibration_named(str(path)).checked == record.checked
    assert "20.0% off with this calibration and 10.0% without it" in base.model_copy(
        update={"checked": (step(0.9, 0.7), step(1.1, 1.1))}
    ).warning  # fmt: skip


def test_launches_are_counted_as_autograd_issues_them() -> None:
    """32 layers: product, ReLU; gradients of ReLU, input, weight, bias, and two sums; one sum."""
    kernels = [k for b in launches_net().instances() for op in b.ops for k in (*op.fwd, *op.bwd)]
    assert sum(k.launches for k in kernels) == EAGER_KERNELS == 257


def test_a_host_that_is_slow_moves_the_host_and_no_figure_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Launches take twice as long as predicted; tiny networks say a part of that of programs.

    Of two independent normal causes each takes the share of its variance: here that of hosts and
    that of tiny networks.
    """
    group = parse_cluster("1x1xH100").groups[0]
    found = Machine(group.gpu, group.node, 1, new=False)
    profile = load_profile()
    request = check._launches(found, profile)
    from simcore.answer.predict import predict
    from simcore.calibrate.bench.store import TABLES, RawRow

    blind_s = predict(request).step_time_s.value
    cells = {**dict.fromkeys(TABLES["host"], ""), "op": "eager", "mode": "alone"}
    checked = check_steps([RawRow("host", cells, 2.0 * blind_s, 0.01, "host:2")], found, profile)
    (knob,) = checked.knobs
    assert (knob.knob, knob.gpu) == ("host", found.gpu.name)
    hosts, tiny = profile.host_issue_s(found.gpu).sd_log ** 2, CARRIED_SD**2
    assert knob.value == pytest.approx(0.5 ** (hosts / (hosts + tiny)), rel=0.03)
    assert knob.sd_log == pytest.approx(math.sqrt(hosts * tiny / (hosts + tiny)), rel=0.15)
    assert not checked.steps and checked.residual_over_blind == 1.0
