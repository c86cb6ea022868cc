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
from simcore.calibrate.experts.rows import ExpertBatch, expert_rows, kept_bytes
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
#: Parameter -> (start, low, high): share of the peak that power allows, share of what memory and
#: the SMs' ports give one after the other, start, share of the loads of operands, weight of the
#: last wave, the instructions' ps of a byte that is moved for rows and for tokens, ps of a choice
#: and of a row, and instructions that scale a sum, for kernels whose vector units do.
BOUNDS: Final[Mapping[str, tuple[float, float, float]]] = {
    "value": (0.8, 0.05, 1.3),
    "memory": (0.8, 0.3, 1.3),
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
#: Weight of a class's deviation from all kernels like it: rows of a class determine some sums of
#: figures only. Families that are left out are 0.2 points further with 2 and 0.4 with 0.1.
_CLASS_PULL: Final = 1.0
#: The least number of rows of a fit.
_LEAST_ROWS: Final = 25
#: Classes of all kernels of a peak, portable or written for their devices, for kernels that no
#: other family has.
_ANY: Final = "any"
_KINDS: Final = (TRITON, "tuned")
_PICO: Final = 1e-12
#: Bytes that an SM takes from L2 in a clock: the unit of the figure ``loaded``.
_LOAD_BYTES: Final = 64.0
#: Lanes of an SM, since Ampere.
_LANES: Final = 128.0
#: Clocks that all SMs of a B200 have in a second, to which instructions of kernels that are written
#: for their devices refer: others take longer by as much as they have fewer.
_CLOCKS_PER_S: Final = 148 * 1.965e9


def _kind_of(batch: ExpertBatch) -> str:
    return TRITON if batch.cls.startswith(TRITON) else "tuned"


def _any_of(batch: ExpertBatch) -> str:
    """The class of all kernels like those of a batch."""
    return f"{_ANY}_{_kind_of(batch)}_{batch.peak}"


def rates_of(figures: Mapping[str, float], batch: ExpertBatch) -> ExpertRates:
    """The rates that figures mean on a batch's device."""
    gpu = GPUS[batch.gpu]
    held = held_frac(gpu, "tensor", BURST_LIMIT_J_PER_FLOP)
    clocks_per_s = gpu.clock_hz * (gpu.sm_count.value if gpu.sm_count else 1.0)
    # A byte passes memory and then an SM's port, and too few are on the way to hide one by the
    # other: products of B200 reach three quarters of its bandwidth, those of L40S all of it.
    memory_s, port_s = 1.0 / gpu.memory_bw.value, 1.0 / (_LOAD_BYTES * clocks_per_s)
    # Chosen by which law one set of figures fits all devices best with: Triton's kernels have the
    # same further time a byte on all of them, before or after their waits for memory.
    portable = batch.cls.startswith(TRITON)
    instruction_s = _PICO * (1.0 if portable else _CLOCKS_PER_S / clocks_per_s)
    return ExpertRates(
        flop_per_s=figures["value"] * held * batch.peak_flop_per_s,
        bytes_per_s=figures["memory"] / (memory_s + port_s),
        start_s=figures["start_us"] * MICRO,
        loaded_bytes_per_s=figures["loaded"] * batch.tile.sharing / port_s,
        scaled_per_s=_LANES * clocks_per_s / figures.get("scaled", BOUNDS["scaled"][0]),
        wave_frac=figures["wave"],
        moved_s_per_byte=figures["moved_ps"] * instruction_s,
        token_s_per_byte=figures["token_ps"] * instruction_s,
        choice_s=figures["choice_ps"] * instruction_s,
        row_s=figures["row_ps"] * instruction_s,
        overlaps=not portable,
        kept_bytes=kept_bytes(batch.gpu),
    )


def time_s(batch: ExpertBatch, figures: Mapping[str, float]) -> Array:
    """Seconds of each layer of a batch [rows]."""
    sms = GPUS[batch.gpu].sm_count
    rates = rates_of(figures, batch)
    return expert_layer_s(batch.work, rates, sms.value if sms else 1.0, batch.tile)


def _fit(
    batches: Sequence[ExpertBatch], pulled_to: Array | None = None, pull: float = _PULL
) -> tuple[Array, float]:
    """(logarithms of the figures, robust sd of ln(measured / fitted) of large layers).

    ``pulled_to``: logarithms of figures from which a deviation counts with the weight ``pull``.
    """
    scaled = any(b.work.scalings.any() for b in batches)
    bounds = [v for k, v in BOUNDS.items() if scaled or k != "scaled"]
    first, low, high = (np.log([b[i] for b in bounds]) for i in range(3))
    if pulled_to is not None:  # scaled sums that no class above has start from BOUNDS
        pulled_to = np.concatenate([pulled_to, first[len(pulled_to) :]])[: len(first)]

    def off(x: Array) -> Array:
        figures = dict(zip(BOUNDS, np.exp(x), strict=False))
        return np.concatenate([np.log(time_s(b, figures) / b.time_s) for b in batches])

    large = np.concatenate([b.large for b in batches])
    weight = np.where(large, 1.0, _SMALL_WEIGHT)

    def residual(x: Array) -> Array:
        own = weight * off(x)
        return own if pulled_to is None else np.concatenate([own, pull * (x - pulled_to)])

    start = np.clip(first if pulled_to is None else pulled_to, low + 1e-6, high - 1e-6)
    x, _ = solve(residual, start, low, high)
    return x, robust_sd(off(x)[large] if large.any() else off(x))


def _pooled(groups: Mapping[str, Sequence[ExpertBatch]]) -> dict[str, tuple[Array, float]]:
    """The fit of each class, pulled to all kernels like it, and these to all of their kind."""
    found: dict[str, tuple[Array, float]] = {}
    for name in sorted(groups, key=lambda n: (n not in _KINDS, not n.startswith(_ANY), n)):
        one = groups[name][0]
        above = [n for n in (_any_of(one), _kind_of(one)) if n in found and n != name]
        if name in _KINDS:
            found[name] = _fit(groups[name])
        else:
            found[name] = _fit(groups[name], found[above[0]][0], _CLASS_PULL)
    return found


def expert_section(
    batches: Iterable[ExpertBatch], without: Collection[str] = ()
) -> dict[str, Profile]:
    """Class -> pooled, by_family and by_gpu figures, without the families ``without``."""
    groups: dict[str, list[ExpertBatch]] = defaultdict(list)
    for batch in batches:
        if len(batch) and batch.peak_flop_per_s and family_of(batch.gpu) not in without:
            names = [_kind_of(batch), batch.cls]
            for name in names + [_any_of(batch)] * (len(batch.tile.rows) > 1):
                groups[name].append(batch)
    groups = {n: of for n, of in groups.items() if sum(map(len, of)) >= _LEAST_ROWS}
    section: dict[str, Profile] = {}
    for cls, (pooled, sd) in sorted(_pooled(groups).items()):
        by_gpu: dict[str, list[ExpertBatch]] = defaultdict(list)
        by_family: dict[str, list[ExpertBatch]] = defaultdict(list)
        for batch in groups[cls]:
            by_gpu[batch.gpu].append(batch)
            by_family[family_of(batch.gpu)].append(batch)
        if cls in _KINDS:
            continue
        section[cls] = {"pooled": _leaf(pooled, sd, len(by_gpu))}
        if cls.startswith(_ANY):
            continue
        for level, parts in (("by_family", by_family), ("by_gpu", by_gpu)):
            found = {n: (_fit(of, pooled), of) for n, of in sorted(parts.items())}
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
