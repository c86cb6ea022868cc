"""Logs as nccl-tests prints them (src/util.cu: the same widths), of times that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

PROGRAMS = {"all_to_all": "alltoall", "send_recv": "sendrecv"}
FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
H100 = "NVIDIA H100 80GB HBM3"
HEAD = """\
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
"""  # noqa: E501


def seven(value: float) -> str:
    """``getFloatStr(value, 7)``: two decimals, fewer where they do not fit."""
    for digits in (2, 1, 0):
        if len(text := f"{value:7.{digits}f}") <= 7:
            return text
    return f"{value:7.1e}"


def bus_factor(op: str, n: int) -> float:
    return FACTORS[op] * (n - 1) / n if op in FACTORS else 1.0


def cells(op: str, n_bytes: int, seconds: float, ranks: int) -> str:
    algbw = n_bytes / seconds / 1e9
    return (f"  {seven(seconds * 1e6)}  {algbw:6.2f}  {algbw * bus_factor(op, ranks):6.2f}"
            f"  {0:6g}")  # fmt: skip


def nccl_log(
    time_s: Callable[[int], float],
    sizes: Sequence[int],
    *,
    op: str = "all_reduce",
    hosts: int = 1,
    per_host: int = 8,
    gpu: str = H100,
    named: bool = True,
    listed: bool = True,
    dtype: str = "float",
    in_place_factor: float = 1.0,
) -> str:
    """A log of one run. ``named``: prints the program; ``listed``: prints the devices."""
    ranks, program = hosts * per_host, f"{PROGRAMS.get(op, op)}_perf"
    redop = "sum" if op in ("all_reduce", "reduce_scatter", "reduce") else "none"
    root = 0 if op in ("broadcast", "reduce") else -1
    lines = [f"# Collective test starting: {program}\n"] if named else []
    lines.append(
        f"# nThread 1 nGpus {per_host} minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) "
        "warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0\n#\n"
        "# Using devices\n"
    )
    for rank in range(ranks if listed else 0):
        host, device = divmod(rank, per_host)
        lines.append(f"#  Rank {rank:2d} Group  0 Pid {1000 + rank:6d} on {f'node-{host}':>10} "
                     f"device {device:2d} [0000:{16 + device:02x}:00] {gpu}\n")  # fmt: skip
    lines += ["NCCL version 2.27.3+cuda12.9\n", HEAD]
    for size in sizes:
        lines.append(
            f"{size:12d}  {size // 4:12d}  {dtype:>8}  {redop:>6}  {root:6d}"
            + cells(op, size, time_s(size), ranks)
            + cells(op, size, time_s(size) * in_place_factor, ranks)
            + "\n"
        )
    lines += ["# Out of bounds values : 0 OK\n", "# Avg bus bandwidth    : 1.0 \n#\n"]
    return "".join(lines)


def nccl_report(time_s: Callable[[int], float], sizes: Sequence[int], *, per_host: int = 8) -> str:
    """The JSON report of an all-reduce in one process of ``per_host`` devices, as -J writes it."""

    def side(size: int) -> dict[str, Any]:
        algbw = size / time_s(size) / 1e9
        return {"time": time_s(size) * 1e6, "alg_bw": algbw,
                "bus_bw": algbw * bus_factor("all_reduce", per_host), "nwrong": 0.0}  # fmt: skip

    return json.dumps({
        "version": 2, "start_time": "2026-11-20 10:00:00", "args": ["./build/all_reduce_perf"],
        "env": [], "nccl_version": 22703,
        "config": {
            "nthreads": 1, "ngpus": per_host, "graph": 0,
            "devices": [{"rank": 0, "group": 0, "pid": 7, "hostname": "node-0", "device": 0,
                         "device_hex": "0000:19:00", "device_info": H100}],
        },
        "results": [
            {"size": s, "count": s // 4, "type": "float", "redop": "sum", "root": "    -1",
             "out_of_place": side(s), "in_place": side(s), "actual_iterations": 20,
             "experiment_name": "all_reduce"} for s in sizes
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
    })  # fmt: skip
