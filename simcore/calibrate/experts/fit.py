"""Fits ``experts.yaml``: what kernels of expert layers reach, by class, family and device.

    python -m simcore.calibrate.experts.fit moe.csv.gz -o hardware_db/calibrations/experts.yaml

The formula is that of ``physics.expert_layer``; the compute share is one of the peak that the power
cap allows (``class_figures.held_frac``). A class is a kernel and a dtype. All devices of a class
are fitted together; a family and a device then deviate as far as their own rows ask for.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from simcore.base.arrays import Array
from simcore.base.database import read_yaml, shipped_root
from simcore.base.units import MICRO
from simcore.calibrate.curve_fits import robust_sd, solve
from simcore.calibrate.experts.rows import ExpertBatch, expert_rows
from simcore.calibrate.experts.tiles import TRITON
from simcore.calibrate.ops.model import BURST_LIMIT_J_PER_FLOP
from simcore.calibrate.pooling import family_of
from simcore.calibrate.tables import read_table
from simcore.calibrate.yaml_text import to_yaml, used_sources
from simcore.hardware.class_figures import held_frac
from simcore.hardware.estimates import Level, pick
from simcore.hardware.spec import GPUS
from simcore.physics.expert_layer import ExpertRates, expert_layer_s

Profile = dict[str, Any]
#: Parameter -> (start, low, high): share of the peak that power allows, share of the bandwidth,
#: start, share of the loads of operands, weight of the last wave, the instructions' ps of a byte
#: that is moved for rows and for tokens, ps of a choice and of a row, and instructions that scale a
#: sum, for kernels whose vector units do.
BOUNDS: Final[Mapping[str, tuple[float, float, float]]] = {
    "value": (0.8, 0.05, 1.3),
    "memory": (0.8, 0.3, 1.1),
    "start_us": (40.0, 3.0, 300.0),
    "loaded": (0.5, 0.05, 2.0),
    "wave": (0.3, 1e-3, 1.0),
    "moved_ps": (0.2, 0.01, 3.0),
    "token_ps": (0.2, 0.01, 10.0),
    "choice_ps": (30.0, 1.0, 5000.0),
    "row_ps": (300.0, 1.0, 10000.0),
    "scaled": (4.0, 0.5, 40.0),
}
#: Weight of a residual of a small layer, and of a deviation from the figures of all devices. Shapes
#: that are left out are 1.4 % nearer with 0.1 than with 0.3, and no nearer with 0.03.
_SMALL_WEIGHT, _PULL = 0.35, 0.1
#: The least number of rows of a fit.
_LEAST_ROWS: Final = 25
#: Classes of all kernels of a peak, portable or written for their devices, for kernels that no
#: other family has.
_ANY: Final = "any"
_PICO: Final = 1e-12
#: Bytes of operands that an SM loads in a clock: the unit of the figure ``loaded``.
_LOAD_BYTES: Final = 64.0
#: Lanes of an SM, since Ampere.
_LANES: Final = 128.0
#: The family whose SMs multiply in pairs that share operands (PTX ISA, tcgen05, cta_group::2).
_PAIRED: Final = "Blackwell"
#: Clocks that all SMs of a B200 have in a second, to which instructions of kernels that are written
#: for their devices refer: others take longer by as much as they have fewer.
_CLOCKS_PER_S: Final = 148 * 1.965e9


def _any_of(batch: ExpertBatch) -> str:
    """The class of all kernels like those of a batch."""
    kind = TRITON if batch.cls.startswith(TRITON) else "tuned"
    return f"{_ANY}_{kind}_{batch.peak}"


def _load_bytes_per_s(batch: ExpertBatch) -> float:
    """What a device's processors load at ``_LOAD_BYTES``; on pairs of SMs each load serves both."""
    gpu = GPUS[batch.gpu]
    alone = batch.cls.startswith(TRITON) or len(batch.tile.rows) == 1
    paired = family_of(batch.gpu) == _PAIRED and not alone
    sms = gpu.sm_count.value if gpu.sm_count else 1.0
    return sms * _LOAD_BYTES * gpu.clock_hz * (2.0 if paired else 1.0)


def rates_of(figures: Mapping[str, float], batch: ExpertBatch) -> ExpertRates:
    """The rates that figures mean on a batch's device."""
    gpu = GPUS[batch.gpu]
    held = held_frac(gpu, "tensor", BURST_LIMIT_J_PER_FLOP)
    clocks_per_s = gpu.clock_hz * (gpu.sm_count.value if gpu.sm_count else 1.0)
    # Chosen by which law one set of figures fits all devices best with: Triton's kernels have the
    # same further time a byte on all of them, before or after their waits for memory.
    portable = batch.cls.startswith(TRITON)
    instruction_s = _PICO * (1.0 if portable else _CLOCKS_PER_S / clocks_per_s)
    return ExpertRates(
        flop_per_s=figures["value"] * held * batch.peak_flop_per_s,
        bytes_per_s=figures["memory"] * gpu.memory_bw.value,
        start_s=figures["start_us"] * MICRO,
        loaded_bytes_per_s=figures["loaded"] * _load_bytes_per_s(batch),
        scaled_per_s=_LANES * clocks_per_s / figures.get("scaled", BOUNDS["scaled"][0]),
        wave_frac=figures["wave"],
        moved_s_per_byte=figures["moved_ps"] * instruction_s,
        token_s_per_byte=figures["token_ps"] * instruction_s,
        choice_s=figures["choice_ps"] * instruction_s,
        row_s=figures["row_ps"] * instruction_s,
        overlaps=not portable,
    )


def time_s(batch: ExpertBatch, figures: Mapping[str, float]) -> Array:
    """Seconds of each layer of a batch [rows]."""
    sms = GPUS[batch.gpu].sm_count
    rates = rates_of(figures, batch)
    return expert_layer_s(batch.work, rates, sms.value if sms else 1.0, batch.tile)


def _fit(batches: Sequence[ExpertBatch], pulled_to: Array | None = None) -> tuple[Array, float]:
    """(logarithms of the figures, robust sd of ln(measured / fitted) of large layers)."""

    scaled = any(b.work.scalings.any() for b in batches)
    bounds = [v for k, v in BOUNDS.items() if scaled or k != "scaled"]
    first, low, high = (np.log([b[i] for b in bounds]) for i in range(3))

    def off(x: Array) -> Array:
        figures = dict(zip(BOUNDS, np.exp(x), strict=False))
        return np.concatenate([np.log(time_s(b, figures) / b.time_s) for b in batches])

    large = np.concatenate([b.large for b in batches])
    weight = np.where(large, 1.0, _SMALL_WEIGHT)

    def residual(x: Array) -> Array:
        own = weight * off(x)
        return own if pulled_to is None else np.concatenate([own, _PULL * (x - pulled_to)])

    start = np.clip(first if pulled_to is None else pulled_to, low + 1e-6, high - 1e-6)
    x, _ = solve(residual, start, low, high)
    return x, robust_sd(off(x)[large] if large.any() else off(x))


def expert_section(
    batches: Iterable[ExpertBatch], without: Collection[str] = ()
) -> dict[str, Profile]:
    """Class -> pooled, by_family and by_gpu figures, without the families ``without``."""
    by_class: dict[str, dict[str, list[ExpertBatch]]] = defaultdict(lambda: defaultdict(list))
    for batch in batches:
        if len(batch) and batch.peak_flop_per_s and family_of(batch.gpu) not in without:
            by_class[batch.cls][batch.gpu].append(batch)
            if len(batch.tile.rows) > 1:
                by_class[_any_of(batch)][batch.gpu].append(batch)
    section: dict[str, Profile] = {}
    for cls, by_gpu in sorted(by_class.items()):
        everything = [b for of in by_gpu.values() for b in of]
        if sum(map(len, everything)) < _LEAST_ROWS:
            continue
        pooled, sd = _fit(everything)
        section[cls] = {"pooled": _leaf(pooled, sd, len(by_gpu))}
        if cls.startswith(_ANY):
            continue
        by_family: dict[str, list[ExpertBatch]] = defaultdict(list)
        for gpu, of in by_gpu.items():
            by_family[family_of(gpu)] += of
        for level, groups in (("by_family", by_family), ("by_gpu", by_gpu)):
            found = {n: (_fit(of, pooled), of) for n, of in sorted(groups.items())}
            section[cls][level] = {
                n: _leaf(x, sd, sum(map(len, of)) if level == "by_gpu" else len(
                    {b.gpu for b in of})) for n, ((x, sd), of) in found.items()
            }  # fmt: skip
    return section


def _leaf(x: Array, sd: float, n: int) -> Profile:
    figures = {k: float(f"{v:.3g}") for k, v in zip(BOUNDS, np.exp(x), strict=False)}
    value = figures.pop("value")
    return {"value": value, "sd_log": float(f"{sd:.2g}"), **figures, "n": n, "source": "aic"}


def figures_of(section: Mapping[str, Any], batch: ExpertBatch) -> tuple[Mapping[str, float], Level]:
    """(figures of a batch in ``expert_layers``, which devices they were measured on).

    A class that was not measured takes the figures of all kernels like it. Raises KeyError where
    there are none.
    """
    table = section.get(batch.cls) or section.get(_any_of(batch))
    if table is None:
        raise KeyError(f"expert layers in {batch.dtype}: none was measured")
    figures, _, level = pick(table, GPUS[batch.gpu])
    return figures, level


@lru_cache(maxsize=1)
def shipped_experts() -> Mapping[str, Any]:
    """Class -> figures by device, by family and for all, as simcore ships them."""
    path = shipped_root() / "hardware_db" / "calibrations" / "experts.yaml"
    section: Mapping[str, Any] = read_yaml(path)["expert_layers"]
    return section


def main(argv: Sequence[str] | None = None) -> None:
    """The command line: fit one table and write the file."""
    parser = argparse.ArgumentParser(prog="python -m simcore.calibrate.experts.fit")
    parser.add_argument("table", type=Path, help="measured expert layers (moe.csv.gz)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    section = {"expert_layers": expert_section(expert_rows(read_table(args.table)).items)}
    args.output.write_text(to_yaml(section, used_sources(section), "experts"), encoding="utf-8")


if __name__ == "__main__":
    main()
