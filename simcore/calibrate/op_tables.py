"""Reading the measured op tables and the datasheet table that the fits start from."""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from simcore.base.units import GIGA, TERA
from simcore.calibrate.curve_fits import Array

Row: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the fit needs of a datasheet."""

    name: str
    family: str
    sm_count: float
    fp32: float
    tensor16: float
    fp8: float
    bw_bytes_per_s: float
    link_bytes_per_s: float
    tdp_w: float


def family_of(name: str, arch: str) -> str:
    """Architecture family. GA100 and GB100 differ from the graphics chips of their generation."""
    if arch == "Ampere":
        return "Ampere-GA100" if name.startswith(("A100", "A800", "A30")) else "Ampere"
    if arch.startswith("Blackwell"):
        return "Blackwell-GB202" if name.startswith("RTX") else "Blackwell"
    return "CDNA" if arch.startswith("CDNA") else arch


def read_gpus(path: Path) -> dict[str, Gpu]:
    """The datasheet table (``gpu_specs.csv``), dense peaks."""

    def number(row: Row, *columns: str) -> float:
        return next((float(row[c]) for c in columns if row[c]), math.nan)

    gpus = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            gpus[row["gpu"]] = Gpu(
                row["gpu"],
                family_of(row["gpu"], row["arch"]),
                number(row, "sm_or_cu"),
                number(row, "fp32_tflops") * TERA,
                number(row, "bf16_tflops", "fp16_tflops") * TERA,
                number(row, "fp8_tflops") * TERA,
                number(row, "mem_bw_gbs") * GIGA,
                number(row, "scaleup_gbs_bidir") * GIGA / 2,
                number(row, "tdp_w"),
            )
    return gpus


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of a gzipped CSV table."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def column(rows: Sequence[Row], name: str) -> Array:
    return np.array([float(r[name]) for r in rows])


def collection_of(source: str) -> str:
    """The table's source column to a key of SOURCES."""
    return {"AIC": "aic", "aiconfigurator": "aic"}.get(
        source.split("/")[0].split()[0], source.split("/")[0].split()[0].lower()
    )


Groups: TypeAlias = dict[tuple[str, str], list[Row]]


def group_rows(rows: Iterable[Row], keep: Callable[[Row], bool]) -> Groups:
    """Rows by (gpu, source tag); framework versions of one collection are separate tags."""
    groups: Groups = defaultdict(list)
    for row in rows:
        if keep(row):
            source = row["source"]
            tag = source if source.startswith("AIC") else collection_of(source)
            groups[row["gpu"], tag.removesuffix("/encoder")].append(row)
    return groups
