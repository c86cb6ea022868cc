"""The JSON report of nccl-tests (``-J FILE``, version 2.16 and later; src/util.cu)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcore.base.errors import DataError
from simcore.base.units import MIB
from simcore.measurements.nccl_runs import (
    PROGRAMS,
    Device,
    NcclFile,
    Row,
    Side,
    run_of,
    side_of,
)


def is_nccl_json(text: str) -> bool:
    """Whether a text begins like a JSON report of nccl-tests."""
    head = text[:MIB]
    return head.lstrip().startswith("{") and '"nccl_version"' in head and '"start_time"' in head


def read_nccl_json(path: Path, text: str, op: str = "") -> NcclFile:
    """The run of one JSON report; a row's ``line`` is the number of its result, from 1.

    ``op``: the collective, where the report does not name it. Raises DataError for a text that is
    cut short or that another program wrote.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as err:
        problem = f"is cut short or is not JSON: {err.msg}"
        raise DataError(problem, file=path, line=err.lineno) from None
    if not isinstance(data, Mapping) or not isinstance(data.get("results"), list):
        raise DataError("is not a report of nccl-tests: it has no results", file=path)
    config = data.get("config") or {}
    devices = _devices(config)
    each = int(config.get("nthreads") or 1) * int(config.get("ngpus") or 1)
    # The report lists only the first device of each process; ranks and host of the rest follow.
    ranks = [Device(d.rank + i, d.host, d.name) for d in devices for i in range(each)]
    rows: list[Row] = []
    problems: list[str] = []
    for number, raw in enumerate(data["results"], start=1):
        row = _row(raw, number)
        if isinstance(row, str):
            problems.append(f"{path.name}:{number}: {row} (in the results)")
        else:
            rows.append(row)
    name, version = _program(data.get("args") or []) or op, str(data.get("nccl_version", ""))
    valid, wrong = run_of(path.name, 1, name, ranks, rows, version)
    if valid is None and not problems and not wrong:
        raise DataError("holds no result of nccl-tests", file=path)
    return NcclFile((valid,) if valid else (), (*problems, *wrong))


def _devices(config: Mapping[str, Any]) -> list[Device]:
    return [
        Device(int(d["rank"]), str(d["hostname"]), str(d["device_info"]).strip())
        for d in config.get("devices") or ()
        if {"rank", "hostname", "device_info"} <= d.keys()
    ]


def _program(args: list[Any]) -> str:
    """The collective of the program in ``args[0]``; empty where it is unknown."""
    names = (re.sub(r"_perf(_mpi)?$", "", str(a).rpartition("/")[2]) for a in args[:1])
    return next((PROGRAMS[n] for n in names if n in PROGRAMS), "")


def _row(raw: Mapping[str, Any], line: int) -> Row | str:
    """One result of the report; a sentence where it is invalid."""
    sides: list[Side | None] = []
    for key in ("out_of_place", "in_place"):
        cells = raw.get(key)
        if cells is None:
            sides.append(None)
            continue
        if "cpu_time" in cells:
            return "times are host times (-C 1): measure without -C 1"
        time, algbw, busbw, wrong = (
            "" if (cell := cells.get(c)) is None else str(cell)
            for c in ("time", "alg_bw", "bus_bw", "nwrong")
        )
        side = side_of(time, algbw, busbw, wrong)
        if isinstance(side, str):
            return side
        sides.append(side)
    try:
        size = float(raw["size"])
    except (KeyError, TypeError, ValueError):
        return "has no size"
    return Row(size, str(raw.get("type", "")), str(raw.get("redop", "")),
               str(raw.get("root", "")).strip(), sides[0], sides[1], line)  # fmt: skip
