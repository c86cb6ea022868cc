"""A pipeline's trace: arrows that meet, nothing that overlaps, memory beside it."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from simcore import api
from simcore.report.trace import to_trace

JOB: dict[str, Any] = {"micro_batch": 1, "grad_accum": 8, "seq_len": 4096, "strategy": "zero1"}


@pytest.fixture(scope="module", params=[{"tp": 4, "pp": 4}, {"tp": 2, "pp": 2, "vpp": 4},
                                        {"pp": 4, "schedule": "zb-2p"},
                                        {"tp": 4, "pp": 2, "overlap": "grads,params"},
                                        {"tp": 4, "pp": 4, "strategy": "zero3"}])  # fmt: skip
def traced(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = api.predict("llama3-8b", "2x8xH100", keep_timeline=True, **(JOB | request.param))
    return request.param, json.loads(json.dumps(to_trace(answer)))


def test_one_process_a_stage_and_nothing_overlaps(
    traced: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    layout, trace = traced
    rows = defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            rows[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    assert {pid for pid, _ in rows} == set(range(layout["pp"]))
    for slices in rows.values():
        slices.sort()
        assert all(b[0] >= a[1] - 2e-3 for a, b in pairwise(slices))


def test_arrows_join_a_stage_to_its_neighbour(
    traced: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    layout, trace = traced
    ends: dict[int, dict[str, Any]] = defaultdict(dict)
    for e in trace["traceEvents"]:
        if e["ph"] in "sf":
            ends[e["id"]][e["ph"]] = e
    places = layout["pp"] * layout.get("vpp", 1)
    assert len(ends) == 2 * 8 * (places - 1)
    for pair in ends.values():
        assert pair["s"]["ts"] <= pair["f"]["ts"]
        assert (pair["s"]["pid"] - pair["f"]["pid"]) % layout["pp"] in (1, layout["pp"] - 1)


def test_memory_rises_and_returns(traced: tuple[dict[str, Any], dict[str, Any]]) -> None:
    layout, trace = traced
    for stage in range(layout["pp"]):
        held = [e["args"]["GB"] for e in trace["traceEvents"]
                if e["ph"] == "C" and e["pid"] == stage]  # fmt: skip
        assert max(held) > held[-1] == min(held)
