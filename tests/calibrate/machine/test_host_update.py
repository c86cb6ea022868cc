"""The rate of an optimizer's update from made-up benchmarks whose rates are known."""

from __future__ import annotations

import pytest

from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.machine.host import UPDATE, with_update
from simcore.hardware.calibrations import Fitted
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS

H100 = GPUS["H100-SXM-80GB"]
#: Parameters of the benchmark, and bytes a second that the update moves.
NUMEL, RATE = 640e6, 2.4e12
#: fp32 elements of a parameter in the benchmark's column and in PyTorch's source: gradient, weight
#: and two moments read, three written; eight kernels on lists (programs_db/optimizers/adamw.yaml).
STATED, MOVED = {"fused": 7, "foreach": 16}, {"fused": 7, "foreach": 20}


def row(impl: str, seconds: float = 0.0) -> RawRow:
    n_bytes = 4.0 * STATED[impl] * NUMEL
    cells = {"op": f"adamw-{impl}", "count": "40", "bytes": str(n_bytes)}
    took_s = seconds or 4.0 * MOVED[impl] * NUMEL / RATE
    return RawRow("host", cells, took_s, 0.01, impl)


def test_either_implementation_gives_its_bytes_a_second() -> None:
    shipped = load_profile().memory_efficiency("update", H100).value * H100.memory_bw.value
    for rows in ([row("fused")], [row("foreach")], [row("fused"), row("foreach")]):
        found = with_update({}, rows, H100, load_profile())[UPDATE]
        assert found.value == pytest.approx(RATE / shipped)
        assert found.rows == len(rows)


def test_it_comes_on_top_of_what_elementwise_kernels_were_found_to_reach() -> None:
    half = {"memory.elementwise": Fitted(value=0.5, sd_log=0.02)}
    alone, over = (with_update(f, [row("fused")], H100, load_profile()) for f in ({}, half))
    assert over[UPDATE].value == pytest.approx(2.0 * alone[UPDATE].value)
    assert over["memory.elementwise"] is half["memory.elementwise"]


def test_a_step_that_the_host_limits_tells_nothing() -> None:
    slow = row("fused", seconds=3.0 * 4.0 * 7 * NUMEL / H100.memory_bw.value)
    assert with_update({}, [slow], H100, load_profile()) == {}
