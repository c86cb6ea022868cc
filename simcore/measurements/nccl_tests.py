"""Parser of what nccl-tests (``all_reduce_perf`` ...) print, and of their JSON reports.

The reports are those of ``-J FILE`` (version 2.16 and later; src/util.cu).

A log may hold several runs, lines of NCCL_DEBUG between them, and the prefixes of ``srun --label``
and ``mpirun --tag-output``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simcore.base.errors import DataError
from simcore.base.units import MIB
from simcore.measurements.nccl_runs import (
    PROGRAMS,
    Device,
    NcclFile,
    NcclRun,
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
        row = _row_of_report(raw, number)
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


def _row_of_report(raw: Mapping[str, Any], line: int) -> Row | str:
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


_LABEL: Final = re.compile(r"^(?:\[\d+,\d+\]<std\w+>:|\d{1,5}: )\s?")
#: A rank in front of a line, as MPICH's mpiexec -l and others write it. Such launchers tag what is
#: written at a time, and the program writes a row in parts, so that it stands within lines too.
_TAG: Final = re.compile(r"^\[\d{1,5}\]")
_START: Final = re.compile(r"^\s*nThread\s+\d+\s+nGpus\s+\d+\s+minBytes")
_RANK: Final = re.compile(
    r"^\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+"
    r"\[[0-9a-fA-Fx:.]+\]\s+(\S.*?)\s*$"
)
_HEAD: Final = re.compile(r"^\s*size\s+count\s+(?:\([^)]*\)\s+)?type\b.*\balgbw\b")
_PROGRAM: Final = re.compile(rf"(?<![A-Za-z])({'|'.join(sorted(PROGRAMS, key=len, reverse=True))})"
                             r"_perf(?:_mpi)?\b")  # fmt: skip
_VERSION: Final = re.compile(r"NCCL version ([\d.]+)|nccl-library=(\d+)")
_ROW: Final = re.compile(r"^\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+(\S.*?)\s*$")
#: Words in a timestamp column (-T): a date and a time.
_STAMP_TOKENS: Final = 2
#: Columns of one result: time, algbw, busbw, #wrong (in older versions: error).
_SIDE: Final = 4
#: Greatest difference from the right result that versions with a column "error", which has it,
#: count as right (nccl-tests before 2.12, src/common.cu, DeltaMaxValue; fp16 had 0.05 first).
_MOST_ERROR: Final = {"half": 5e-2, "bfloat16": 5e-2, "float": 1e-5, "double": 1e-12}


def is_nccl_tests(text: str) -> bool:
    """Whether a text is output of nccl-tests, by its first line or its table's header."""
    return any(
        _START.match(line) or _HEAD.match(line)
        for line in (_bare(raw) for raw in text.splitlines() if "nThread" in raw or "algbw" in raw)
    )


def _bare(line: str) -> str:
    """A line without the launcher's prefix and comment marks."""
    if (tag := _TAG.match(line)) is not None:
        line = line.replace(tag[0], "")
    return _LABEL.sub("", line).lstrip("#> \t") if line else line


@dataclass
class _Open:
    """A run whose lines are being read."""

    line: int = 1
    op: str = ""
    devices: list[Device] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    version: str = ""


def read_nccl_tests(path: Path, text: str, op: str = "") -> NcclFile:
    """The runs of a log, or of one JSON report.

    ``op``: the collective, where the file does not name it. ``problems`` of the result lists the
    invalid rows: NaN, zero or negative time, shifted columns, a size listed twice, a line cut
    short, wrong results. Raises DataError for a file without any run.
    """
    if text.lstrip().startswith("{"):
        return read_nccl_json(path, text, op)
    runs: list[NcclRun] = []
    problems: list[str] = []
    for run, bad_lines in _runs(path, text.splitlines()):
        problems += bad_lines
        # with MPI only the device list shows the number of ranks
        valid, wrong = run_of(path.name, run.line, run.op or op, run.devices, run.rows, run.version)
        problems += wrong
        if valid is not None:
            runs.append(valid)
    if not runs and not problems:
        raise DataError("holds no row of nccl-tests", file=path)
    return NcclFile(tuple(runs), tuple(problems))


def _runs(path: Path, lines: list[str]) -> Iterator[tuple[_Open, list[str]]]:
    """Each run in the log, unchecked, with a sentence for each line that could not be read."""
    run, problems, named = _Open(), list[str](), ""
    for number, raw in enumerate(lines, start=1):
        line = _bare(raw)
        if (match := _PROGRAM.search(raw)) is not None:
            named = PROGRAMS[match[1]]
        if (match := _START.match(line)) is not None:
            if run.rows or problems:
                yield run, problems
                run, problems = _Open(version=run.version), []
            run.line, run.op = number, named
        elif (match := _RANK.match(line)) is not None:
            run.devices.append(Device(int(match[1]), match[2], match[3]))
        elif _HEAD.match(line):
            if run.rows and run.columns:  # no first line of a run: a shortened log
                yield run, problems
                run, problems = _Open(number, devices=run.devices, version=run.version), []
            run.columns, run.op = line.split(), run.op or named
        elif (match := _VERSION.search(line)) is not None:
            run.version = match[1] or match[2]
        elif run.columns and (match := _ROW.match(line)) is not None:
            row = _row_of_line(match, run.columns, number)
            if isinstance(row, str):
                problems.append(f"{path.name}:{number}: {row}")
            elif row is not None:
                run.rows.append(row)
        elif run.columns and re.match(r"^\s*\d+\s+\d+\b", line):
            problems.append(f"{path.name}:{number}: the line is cut short")
    if run.rows or problems:
        yield run, problems


def _n_wrong(error: str, dtype: str) -> str:
    """The cell of wrong results that a cell of the greatest difference stands for."""
    try:
        return "0" if float(error) <= _MOST_ERROR.get(dtype, 0.0) else error
    except ValueError:
        return error


def _row_of_line(match: re.Match[str], columns: list[str], line: int) -> Row | str | None:
    """A line of the table; a sentence where it is invalid."""
    at = [i for i, c in enumerate(columns) if c in ("time", "cputime")]
    if "cputime" in columns:
        return "times are host times (-C 1): measure without -C 1"
    stamped = "timestamp" in columns
    width = len(columns) - at[0] - stamped
    words = match[4].split()
    if stamped:
        words = words[:-_STAMP_TOKENS]
    named = len(words) - width
    most = at[0] - 3  # redop and root, if this version prints them
    if named < 0 or named > max(most, 2):
        return f"has {len(words) + 3} columns, not {len(columns) - stamped}: cut short or shifted?"
    numbers = words[named:]
    sides: list[Side | None] = []
    for first in at:
        time_us, algbw, busbw, wrong = numbers[first - at[0] : first - at[0] + _SIDE]
        n_wrong = _n_wrong(wrong, match[3]) if "error" in columns else wrong
        side = side_of(time_us, algbw, busbw, n_wrong)
        if isinstance(side, str):
            return side
        sides.append(side)
    label = [*words[:named], "", ""]
    return Row(
        n_bytes=float(match[1]), dtype=match[3], redop=label[0], root=label[1],
        out_of_place=sides[0], in_place=sides[1] if len(sides) > 1 else None, line=line,
    )  # fmt: skip
