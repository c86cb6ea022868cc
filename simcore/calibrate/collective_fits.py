"""Collectives inside one node: fits of measured curves, and bus bandwidths of real hosts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simcore.base.units import MICRO
from simcore.calibrate.assumed import DEVICE_OF, HOST_BUSBW, PCIE_PATH
from simcore.calibrate.curve_fits import fit_collective
from simcore.calibrate.op_tables import Gpu, collection_of, read_rows
from simcore.calibrate.pooling import NOT_FOUND_SD, figure, mean_log


def bus_factor(collective: str, ranks: int) -> float:
    """Bus over algorithm bandwidth (nccl-tests): 2(n-1)/n for all-reduce, (n-1)/n otherwise."""
    return (2.0 if collective == "all_reduce" else 1.0) * (ranks - 1) / ranks


def collectives(path: Path, gpus: Mapping[str, Gpu]) -> dict[str, Any]:
    curves: dict[tuple[str, str, str, int, str], list[tuple[float, float]]] = defaultdict(list)
    rates: dict[tuple[str, str], float] = {}
    for row in read_rows(path):
        if row["nodes"] != "1" or not row["time_us"] or not row["size_bytes"]:
            continue
        ranks, device, link = int(row["gpus"]), row["gpu_type"], row["intra_link"]
        origin = collection_of(row["source"])
        on_pcie = (device, ranks) in PCIE_PATH and ("PCIe" in link)
        if origin == "aic":
            if row["algo"] != "NCCL" or not row["notes"].startswith("half"):
                continue
        elif (origin, device) != ("vtrain", "V100") and not (origin == "vidur" and on_pcie):
            continue
        if row["collective"] == "send_recv" or float(row["size_bytes"]) <= 0:
            continue
        if on_pcie:
            kind, rate = PCIE_PATH[device, ranks]
            name = device if device in gpus else f"{device}-PCIE-80GB"
        else:
            name = DEVICE_OF.get(device, device)
            rate = gpus[name].link_bytes_per_s
            kind = "nvlink_mesh" if device == "V100" else "nvswitch"
        rates[kind, name] = rate
        curves[kind, name, row["collective"], ranks, origin].append(
            (float(row["size_bytes"]), float(row["time_us"]) * MICRO)
        )
    rows, pooled = [], defaultdict(list)
    for (kind, name, op, ranks, origin), points in sorted(curves.items()):
        table = np.array(sorted(points))
        fit = fit_collective(table[:, 0], table[:, 1])
        frac = fit.message_bytes_per_s * bus_factor(op, ranks) / rates[kind, name]
        rows.append({
            "path": kind, "gpu": name, "collective": op, "ranks": ranks,
            "bus_frac": float(f"{frac:.3g}"), "latency": f"{fit.latency_s / MICRO:.3g} us",
            "ramp": float(f"{fit.ramp:.2g}") if fit.ramp > 0.01 else 0.0,
            "sd_log": float(f"{fit.resid_sd_log:.2g}"), "n": fit.n, "source": origin,
        })  # fmt: skip
        pooled[kind, op, ranks].append((frac, fit.latency_s, max(fit.ramp, 0.01)))
    summary: dict[str, Any] = {}
    for (kind, op, ranks), values in sorted(pooled.items()):
        logs = np.log(np.array(values))
        mid = np.exp(np.median(logs, axis=0))
        # One group is no sample of hosts: give it the spread that PCIe hosts show.
        alone = (0.35, 0.35, 0.8) if kind.startswith("pcie") else (0.12, 0.25, 0.4)
        spread = np.std(logs, axis=0, ddof=1) if len(values) > 2 else np.array(alone)
        spread = np.maximum(spread, (0.05, 0.10, 0.2))
        summary.setdefault(kind, {}).setdefault(op, {})[ranks] = {
            "bus_frac": figure(float(mid[0]), float(spread[0]), "pooled", len(values)),
            "latency": figure(
                f"{mid[1] / MICRO:.3g} us", float(spread[1]), "pooled", len(values)
            ),
            "ramp": figure(float(mid[2]), float(spread[2]), "pooled", len(values)),
        }  # fmt: skip
    return {"pooled": summary, "fits": rows}


def host_busbw() -> dict[str, Any]:
    pooled: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    seen: dict[tuple[str, int], list[float]] = defaultdict(list)
    rows = []
    for path, host, ranks, values in HOST_BUSBW:
        value = mean_log(values)
        seen[path, ranks].append(value)
        rows.append({
            "path": path, "host": host, "ranks": ranks, "busbw": f"{value:.3g} GB/s",
            "sd_log": float(f"{max(float(np.std(np.log(values))), 0.1):.2g}"),
            "source": "corpus-ddp",
        })  # fmt: skip
    for (path, ranks), hosts in seen.items():
        spread = float(np.std(np.log(hosts), ddof=1)) if len(hosts) > 1 else NOT_FOUND_SD
        pooled[path][ranks] = figure(
            f"{np.exp(np.median(np.log(hosts))):.3g} GB/s", math.hypot(spread, 0.1),
            "corpus-ddp", len(hosts),
        )  # fmt: skip
    return {"pooled": dict(pooled), "hosts": rows}
