"""Measurements at one speed of the device, by hand-computed pulses and on a simulated drift."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from simcore.calibrate.bench.store import PULSES, RawRow
from simcore.calibrate.machine.one_speed import (
    at_one_speed,
    drift_note,
    reference_of,
    shares_of_step,
    slowdown,
    stated_s,
)
from simcore.calibrate.machine.record import Facts, Machine, record_of
from simcore.calibrate.machine.steps import request_for
from simcore.calibrate.training import NETS
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile


def row(
    table: str, seconds: float, pulse_us: dict[str, float] | None = None, op: str = "",
    mode: str = "alone",
) -> RawRow:  # fmt: skip
    cells = {PULSES[kind]: str(us) for kind, us in (pulse_us or {}).items()}
    return RawRow(table, {"mode": mode, "op": op, **cells}, seconds, 0.01, f"{table}:{op}")


def test_rows_without_pulses_stay_as_they_are() -> None:
    """Raw tables of an earlier release."""
    rows = [row("gemm", 1.0), row("memory_bound", 2.0, op="add"), row("steps", 3.0)]
    assert at_one_speed(rows) == rows
    assert reference_of(rows) == {}
    assert drift_note(rows) == ""


def test_a_machine_that_does_not_drift_gives_the_same_figures() -> None:
    pulse = {"compute": 1000.0, "memory": 4000.0}
    rows = [row("gemm", 1.0, pulse), row("host", 2.0, pulse, "eager"), row("steps", 3.0, pulse)]
    assert [r.seconds for r in at_one_speed(rows)] == [1.0, 2.0, 3.0]
    assert drift_note(at_one_speed(rows)) == ""


CALM = {"compute": 1000.0, "memory": 4000.0}
#: Beside half of the rows products take 1.5 times as long, and copies 1.5^3 times.
SLOW = {"compute": 1500.0, "memory": 13500.0}
OPS = (("gemm", ""), ("conv", ""), ("attention", ""), ("memory_bound", "add"),
       ("host", "eager-linear-module"), ("host", "adamw-fused"), ("host", "disk-read"))  # fmt: skip


def test_all_that_runs_on_a_processor_follows_the_mean_of_both_kinds() -> None:
    """1.5^0.5 x 1.5^1.5 = 2.25; the drive follows nothing."""
    calm = [row(table, 1.0, CALM, op) for table, op in OPS] + [row("gemm", 1.0, CALM, "more")]
    slow = [row(table, 1.0, SLOW, op) for table, op in OPS]
    found = at_one_speed([*calm, *slow])
    assert [r.seconds for r in found[:8]] == [1.0] * 8
    assert [r.seconds for r in found[8:]] == pytest.approx([1 / 2.25] * 6 + [1.0])
    assert "compute from 1.00 to 1.50 times" in drift_note(found)


def test_on_a_gpu_each_table_follows_its_own_kind() -> None:
    calm, slow = CALM | {"host": 10.0}, SLOW | {"host": 20.0}
    rows = [row(table, 1.0, calm, op) for table, op in (*OPS, ("collectives", ""))]
    rows += [row(table, 1.0, slow, op) for table, op in (*OPS[:6], ("collectives", ""))]
    found = at_one_speed(rows)
    assert [r.seconds for r in found[:8]] == [1.0] * 8
    of_compute, of_memory = 1 / 1.5, 1 / 1.5**3
    assert [r.seconds for r in found[8:]] == pytest.approx(
        [*[of_compute] * 3, of_memory, 1 / 2, of_memory, 1.0]
    )


def test_ranks_at_once_have_a_reference_of_their_own() -> None:
    alone, together = {"memory": 1000.0}, {"memory": 3000.0}
    rows = [row("memory_bound", 1.0, alone, "a"),
            row("memory_bound", 3.0, together, "a", "together")]  # fmt: skip
    assert [r.seconds for r in at_one_speed(rows)] == [1.0, 3.0]
    reference = reference_of(rows)
    assert reference["alone"] == pytest.approx({"memory": 1e-3})
    assert reference["together"] == pytest.approx({"memory": 3e-3})


def test_shares_weigh_the_kinds() -> None:
    """2^0.75 x 0.5^0.25 = 2^0.5."""
    found = slowdown({"compute": 2.0, "memory": 0.5}, {"compute": 0.75, "memory": 0.25})
    assert found == pytest.approx(math.sqrt(2.0))
    assert slowdown({}, {"compute": 1.0}) == 1.0


@pytest.fixture(scope="module")
def found() -> Machine:
    """A processor of two ranks."""
    facts = Facts(
        name="this-host", kind="cpu", device="AMD EPYC", source="a test", ranks=2, cores=2,
        memory_bytes=8e9, host_bytes=16e9, flop_per_s={"fp32": 8e10}, bytes_per_s=2e10,
        host_bytes_per_s=2e10, bus_bytes_per_s=3e9, disk_read_bytes_per_s=0.0,
        disk_write_bytes_per_s=0.0,
    )  # fmt: skip
    return record_of(facts)


@pytest.mark.parametrize(("ranks", "kind"), [(1, "single"), (2, "ddp")])
def test_a_processor_of_twice_the_time_takes_a_step_of_twice_the_time(
    found: Machine, ranks: int, kind: str
) -> None:
    request = request_for(NETS["mlp"], 256, kind, found, ranks, load_profile())
    assert sum(shares_of_step(request).values()) == pytest.approx(1.0)
    step = replace(row("steps", 0.5), slower={"compute": 2.0, "memory": 2.0})
    assert stated_s(step, request) == pytest.approx(0.25)
    assert stated_s(row("steps", 0.5), request) == 0.5


def test_a_gpu_and_its_host_are_apart() -> None:
    """Where the device limits the step, a host of half the speed hardly changes it."""
    group = parse_cluster("1x1xH100-SXM-80GB").groups[0]
    large = request_for(
        NETS["transformer"], 256, "single", Machine(group.gpu, group.node, 1, new=False), 1,
        load_profile(),
    )  # fmt: skip
    shares = shares_of_step(large)
    assert sum(shares.values()) <= 1.0 + 1e-6
    assert shares["host"] < 0.1 < shares["compute"]
