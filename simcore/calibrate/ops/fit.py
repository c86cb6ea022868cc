"""Fits the shipped ``blind`` profile: the share of the datasheet that each class of op reaches.

    python -m simcore.calibrate.ops.fit OPS_DIR -o hardware_db/calibrations/blind.yaml \\
        --cards validate/cards/*/calibration*.raw

It reads measured op tables (gemm, conv, memory_bound, attention, collectives, each ``.csv.gz``)
and fits them with the formulas of :mod:`simcore.physics`, so that the coefficients belong to those
formulas. Every sampling step is seeded: the same tables give the same file. No table of whole
training steps is read. Figures that no op table gives are in ``ASSUMED`` (each with its reason),
``BACKWARD_RATIO`` and ``HOST``.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.calibrate.curve_fits import robust_sd
from simcore.calibrate.ops.assumed import ASSUMED, BACKWARD_RATIO, FITTED_APART, HOST
from simcore.calibrate.ops.card_figures import card_section
from simcore.calibrate.ops.clocks import (
    ClockRatios,
    clock_ratios,
    constant_left_out,
    fit_power,
    median_of_families,
    rms_log,
)
from simcore.calibrate.ops.collective_rows import (
    CollectiveCurve,
    collective_section,
    curve_rows,
    read_collectives,
)
from simcore.calibrate.ops.memory import memory_levels
from simcore.calibrate.ops.model import KernelFit, MemoryFit, fit_kernels, fit_memory_class
from simcore.calibrate.ops.published import add_published
from simcore.calibrate.ops.rows import OpBatch, read_op_rows
from simcore.calibrate.pooling import (
    ENOUGH_ROWS,
    DeviceFigures,
    Levels,
    family_of,
    figure,
    levels,
    mean_log,
)
from simcore.calibrate.tables import collection_of
from simcore.calibrate.yaml_text import to_yaml, used_sources
from simcore.hardware.class_figures import (
    FP32_CLASSES,
    MATRIX_CLASSES,
    POWERED_KIN,
    Clock,
    Unit,
    open_frac,
)
from simcore.hardware.estimates import matrix_style, ramp_depth, ramp_s
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS, GpuSpec
from simcore.timing.rates import attention_width

Profile: TypeAlias = dict[str, Any]
OP_TABLES: Final = ("gemm", "conv", "memory_bound", "attention")

#: Unit -> (classes to which its power limit is fitted together, classes that the limit applies to).
POWERED: Final[Mapping[Unit, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "tensor": (("gemm_tensor16",), MATRIX_CLASSES),
    "simt": (FP32_CLASSES, (*FP32_CLASSES, "conv_simt32")),
}
#: Error of ln(eff) on matrix units if the form of the power law, too, is chosen without the family
#: that is predicted. Six forms compete: a constant, two exponents of the power limit, the base
#: clock, and the means of both.
FORM_SD: Final = 0.13
#: Classes without a specialised kernel; they run kernels that were built for other shapes.
NO_KERNEL_OF_ITS_OWN: Final = ("attention_encoder_odd",)
#: Standard deviation of ln(eff) of a class without any fit.
ALONE_SD: Final = 0.15
#: Assumed standard deviations of logarithms that no rows determine: of the memory efficiency of
#: products and attention between collections; of attention scaled from an inference library's;
#: and of a backward/forward ratio measured on at most one device.
TRAFFIC_SD: Final = {"gemm": 0.06, "attention": 0.2}
CARRIED_SD: Final = 0.15
LONE_RATIO_SD: Final = 0.1
#: Parameters that are not fitted on a device with fewer rows than ENOUGH_ROWS, mostly of one size:
#: these cannot determine the influence of shapes. The values are middles of the devices that were
#: measured in full.
HELD: Final[Mapping[str, Mapping[str, float]]] = {
    "matmul": {"eff_memory": 0.75, "wave_frac": 0.1, "half_depth": 20.0},
    "attention": {"eff_memory": 0.5, "wave_frac": 0.5, "start_s": 12 * MICRO},
}
#: Fixed time of a tile of attention on such a device: that of A100 and L40S, the middle of four.
HELD_RAMP_S: Final = 1.38 * MICRO


@dataclass(frozen=True)
class OpFits:
    """The fits of every class on every device.

    ``kernels`` and ``memory``: class -> device -> fit; ``memory`` has separate fits of eager rows
    and of times on the device. ``backward``: device -> ln(backward time / forward time) of
    attention [shapes]. ``collectives``: measured curves.
    """

    kernels: Mapping[str, Mapping[str, KernelFit]]
    memory: Mapping[str, Mapping[str, tuple[MemoryFit, ...]]]
    backward: Mapping[str, Array]
    collectives: Sequence[CollectiveCurve] = ()


def usable(batch: OpBatch) -> bool:
    """Whether the times of a batch are valid for its class of op."""
    vllm_weights = "vllm" in batch.source and batch.cls.startswith("gemm")
    return not (
        # Uninitialised weights draw less power, so the times are too short. For Arc Pro B60 there
        # is no other source.
        (vllm_weights and batch.gpu != "Arc-Pro-B60")
        or (batch.source.startswith("LLMCompass") and batch.gpu != "MI210")  # eager, 20 rows
    )


def fit_ops(batches: Iterable[OpBatch], collectives: Sequence[CollectiveCurve] = ()) -> OpFits:
    """The fits of every class of kernel on every device of the batches."""
    groups: dict[tuple[str, str], list[OpBatch]] = defaultdict(list)
    batches = list(batches)
    for batch in filter(usable, batches):
        groups[batch.cls, batch.gpu].append(batch)
    kernels: dict[str, dict[str, KernelFit]] = defaultdict(dict)
    memory: dict[str, dict[str, tuple[MemoryFit, ...]]] = defaultdict(dict)
    for (cls, gpu), rows in sorted(groups.items()):
        spec = GPUS[gpu]
        if rows[0].form == "memory":
            found = (
                fit_memory_class([b for b in rows if b.eager == eager], spec)
                for eager in (True, False)
                if any(b.eager == eager for b in rows)
            )
            if fits := tuple(f for f in found if f):
                memory[cls][gpu] = fits
            continue
        width = attention_width(spec) if rows[0].form == "attention" else 0.0
        held = _held(rows[0].form, spec) if sum(map(len, rows)) < ENOUGH_ROWS else None
        fit = fit_kernels(rows, spec, fixed=held, half_width=width)
        if fit:
            kernels[cls][gpu] = fit
    return OpFits(kernels, memory, backward_over_forward(batches), collectives)


def _held(form: str, gpu: GpuSpec) -> Mapping[str, float]:
    """The parameters that are not fitted on a device with few rows, with their values."""
    depth = {"half_depth": ramp_depth(HELD_RAMP_S, gpu)} if form == "attention" else {}
    return {**HELD[form], **depth}


def backward_over_forward(batches: Iterable[OpBatch]) -> dict[str, Array]:
    """GPU -> ln(backward time / forward time) [shapes] of attention shapes that have both."""
    times: dict[str, dict[str, dict[tuple[float, ...], float]]] = {}
    for b in batches:
        if b.form == "attention" and b.clock == "derived":
            shapes = zip(b.m, b.n, b.k, b.groups, b.time_s, strict=True)
            mine = times.setdefault(b.gpu, {}).setdefault(b.op, {})
            mine |= {(m, n, k, g): t for m, n, k, g, t in shapes}
    return {
        gpu: np.log([t / ops["attention"][s] for s, t in ops["attention_bwd"].items()
                     if s in ops["attention"]])
        for gpu, ops in sorted(times.items()) if {"attention", "attention_bwd"} <= ops.keys()
    }  # fmt: skip


def _found(
    fit: KernelFit, gpu: str, ratios: ClockRatios, *, attention: bool = False
) -> DeviceFigures:
    """A device's figures at burst clocks; other clocks are converted with ``ratios``.

    Those of attention are of forward passes; the backward pass has a separate ratio.
    """
    best: tuple[Clock, ...] = ("burst", "profiled", "sustained", "derived")
    clock = next(c for c in best if c in fit.eff)
    by_collection: dict[str, list[float]] = defaultdict(list)
    forward = {s: v for s, v in fit.eff[clock].items() if not s.endswith("_bwd")}
    for source, value in (forward or fit.eff[clock]).items():  # backward only if nothing else
        by_collection[collection_of(source)].append(value)
    value = mean_log(mean_log(v) for v in by_collection.values())
    if clock == "derived":  # a training simulator's kernels were timed in long loops too
        value *= ratios.of("sustained", gpu)
    elif clock != "burst":
        value *= ratios.of(clock, gpu)
    shared = fit.shared
    beside = {
        "memory": shared.eff_memory, "wave": shared.wave_frac, "depth": shared.half_depth,
    }  # fmt: skip
    if attention:
        beside["ramp"] = ramp_s(shared.half_depth, GPUS[gpu])
    if clock != "derived":  # derived times have no small shapes, which determine the start
        beside["start"] = shared.start_s
    if shared.floor_s:
        beside["floor"] = shared.floor_s
    return DeviceFigures(value, tuple(by_collection), fit.n, beside)


def _spread(fits: Mapping[str, KernelFit]) -> float:
    """The standard deviation of ln(eff) of a device: between sources of one GPU.

    It is at least half of the scatter of single shapes.
    """
    if not fits:
        return ALONE_SD
    squares, freedom = 0.0, 0
    for fit in fits.values():
        for by_source in fit.eff.values():
            logs = np.log(list(by_source.values()))
            squares += float(np.sum((logs - logs.mean()) ** 2))
            freedom += len(logs) - 1
    between = math.sqrt(squares / freedom) if freedom else 0.0
    return max(between, 0.5 * float(np.median([f.resid_sd_log for f in fits.values()])))


def profile_from(fits: OpFits, without: Collection[str] = ()) -> Profile:
    """The profile as plain data, ready to be written, without rows of the families ``without``."""
    compute: Profile = {}
    memory: Profile = {}
    ratios = clock_ratios(fits.kernels, without)
    found: dict[str, dict[str, DeviceFigures]] = {}
    for cls, by_gpu in sorted(fits.kernels.items()):
        clocks = ratios["simt" if cls.endswith("32") else "tensor"]
        found[cls] = {
            g: _found(f, g, clocks, attention=_is_attention(cls))
            for g, f in by_gpu.items() if family_of(g) not in without
        }  # fmt: skip
        compute[cls] = levels(found[cls], _spread(by_gpu), _kin(cls))
    for cls in ("attention", "attention_encoder"):
        _from_serving(compute, found, cls, _spread(fits.kernels.get(cls, {})))
    for kind, cls in (("gemm", "gemm_tensor16"), ("attention", "attention")):
        seen = {
            g: DeviceFigures(f.beside["memory"], f.origins, f.n)
            for g, f in found.get(cls, {}).items()
        }
        memory[kind] = levels(seen, TRAFFIC_SD[kind], matrix_style)
    memory |= memory_levels(fits.memory, without)
    for cls in filter(_is_attention, compute):
        _depth_or_ramp(compute[cls])
    profile: Profile = {
        "compute_efficiency": {k: v for k, v in compute.items() if v},
        "memory_efficiency": {k: v for k, v in memory.items() if v},
    }
    profile["power"] = _power(profile["compute_efficiency"])
    for (cls, gpu), (value, n, beside) in FITTED_APART.items():
        if cls in found and family_of(gpu) not in without:
            spread = _spread(fits.kernels[cls])
            leaf = figure(value, spread, "aic", n, "a table of its own", beside=beside)
            compute[cls].setdefault("by_gpu", {})[gpu] = leaf
    add_published(profile["compute_efficiency"])
    for (section, kind, level, key), (value, sd, note) in ASSUMED.items():
        leaf = figure(value, sd, "assumption", note=note)
        place = profile[section].setdefault(kind, {})
        if level == "pooled":
            place["pooled"] = leaf
        elif not (level == "by_family" and key in without):
            place.setdefault(level, {})[key] = leaf
    profile["backward_over_forward_time"] = _backward(fits.backward)
    profile["clocks"] = {
        f"{unit}_{name}": table for unit, r in ratios.items() for name, table in r.section().items()
    }
    profile["host"] = _host(found.get("gemm_tensor16", {}), fits.memory)
    return profile


def collective_profile(fits: OpFits, without: Collection[str] = ()) -> Profile:
    """The collectives inside one node for the profile: pooled fits and measured curves.

    Families in ``without`` are left out.
    """
    return {
        "collectives": collective_section(fits.collectives, without),
        "curves": curve_rows(fits.collectives, without),
    }


def _from_serving(
    compute: Profile, found: Mapping[str, Mapping[str, DeviceFigures]], cls: str, own_sd: float
) -> None:
    """Add the attention class ``cls`` on devices where only an inference library's was measured.

    The ratio of the two classes' shares, from devices that have both, is applied to the others.
    """
    flash, serving = found.get(cls, {}), found.get("attention_serving", {})
    both = [
        math.log(f.value / serving[g].value)
        for g, f in flash.items() if g in serving and f.n >= ENOUGH_ROWS
    ]  # fmt: skip
    if not both:
        return
    ratio = math.exp(float(np.mean(both)))
    fitted = [f for f in flash.values() if f.n >= ENOUGH_ROWS]
    ramp = math.exp(
        float(np.median([math.log(f.beside["ramp"]) for f in fitted or flash.values()]))
    )
    carried = {
        g: DeviceFigures(f.value * ratio, f.origins, f.n,
                 {**f.beside, "depth": ramp_depth(ramp, GPUS[g]), "ramp": ramp})
        for g, f in serving.items() if g not in flash
    }  # fmt: skip
    if carried:
        compute[cls] = levels({**flash, **carried}, max(own_sd, CARRIED_SD), matrix_style)


def _is_attention(cls: str) -> bool:
    return cls.startswith("attention")


def _kin(cls: str) -> Callable[[GpuSpec], str]:
    """A function from a device to the group whose figures it shares in a class.

    For kernels on matrix units the group is the style of the matrix instructions; otherwise "".
    """
    if cls in MATRIX_CLASSES or (_is_attention(cls) and cls not in NO_KERNEL_OF_ITS_OWN):
        return matrix_style
    return lambda _: ""


def _depth_or_ramp(table: Levels) -> None:
    """Keep one of two equivalent parameters of attention: ``depth`` by GPU, ``ramp`` elsewhere.

    ``ramp`` is the fixed time of a tile, which carries over to other devices; ``depth`` is that
    time as a number of keys.
    """
    for place, entries in table.items():
        for leaf in [entries] if place == "pooled" else entries.values():
            leaf.pop("ramp" if place == "by_gpu" else "depth", None)


def _power(compute: Profile) -> Profile:
    """Make pooled figures follow the power-limited clock where that predicts families better.

    Returns the errors of the power law and of a constant, each family predicted from the others.
    A device has one clock under a load of matrix units, so the limit fitted to 16-bit products
    applies to every class on them. Vector units also have one limit, but classes differ in how
    close they come to it (P100 0.70 with weights transposed, 0.94 batched). So both classes
    determine the limit with equal weight, and each has its own level.
    """
    section: Profile = {}
    for unit, (fitted_to, classes) in POWERED.items():
        by_gpu: dict[str, list[float]] = defaultdict(list)
        for cls in fitted_to:
            for g, leaf in compute.get(cls, {}).get("by_gpu", {}).items():
                if leaf["n"] >= ENOUGH_ROWS:
                    by_gpu[g].append(leaf["value"])
        eff = {g: mean_log(v) if len(v) > 1 else v[0] for g, v in by_gpu.items()}
        if len({family_of(g) for g in eff}) < 4:
            continue
        fit = fit_power(eff, {g: GPUS[g] for g in eff}, unit)
        left = rms_log(fit.left_out)
        constant = rms_log(constant_left_out(eff))
        section[fitted_to[0]] = {
            "left_family_out_rms_log": {
                "constant": float(f"{constant:.2g}"), "power_term": float(f"{left:.2g}"),
            }
        }  # fmt: skip
        if left >= constant:
            continue
        for cls in (c for c in classes if c in compute):
            table = compute[cls]
            limit = float(f"{fit.limit_j_per_flop:.3g}")
            unlimited = figure(fit.unlimited, max(left, FORM_SD), "power-fit", len(eff))
            for kin, leaf in (("", table["pooled"]), *table.get("by_kin", {}).items()):
                at_full = {
                    g: one["value"] / open_frac(GPUS[g], unit, limit)
                    for g, one in table["by_gpu"].items() if kin in ("", _kin(cls)(GPUS[g]))
                }  # fmt: skip
                leaf |= unlimited if cls in fitted_to else {}
                if fitted_to != (cls,):
                    leaf["value"] = round(median_of_families(at_full), 3)
            table["pooled"]["limit_j_per_flop"] = limit
            _mark_held(table, unit, limit)
        if unit == "tensor":
            _attention_held(compute, limit)
    return section


def _attention_held(compute: Profile, limit: float) -> None:
    """Make attention with warp-level matrix instructions follow the clock of products.

    That is the clock that the power limit allows (``hardware.class_figures``).
    """
    for cls in filter(_is_attention, compute):
        table = compute[cls]
        leaf = table.get("by_kin", {}).get(POWERED_KIN)
        if leaf is None:
            continue
        mine = {g: one["value"] for g, one in table["by_gpu"].items()
                if matrix_style(GPUS[g]) == POWERED_KIN}  # fmt: skip
        at_full = {g: v / open_frac(GPUS[g], "tensor", limit) for g, v in mine.items()}
        leaf |= {"value": round(median_of_families(at_full), 3), "limit_j_per_flop": limit}
        _mark_held({**table, "by_gpu": mine}, "tensor", limit)


def _mark_held(table: Levels, unit: Unit, limit: float) -> None:
    """Add ``held`` to each family's figure: the share of the peak that its power limit allows.

    It is the geometric mean over the family's measured devices.
    """
    by_family: dict[str, list[float]] = defaultdict(list)
    for gpu in table["by_gpu"]:
        by_family[family_of(gpu)].append(open_frac(GPUS[gpu], unit, limit))
    for family, shares in by_family.items():
        table["by_family"][family]["held"] = float(f"{mean_log(shares):.3g}")


def _backward(ratios: Mapping[str, Array]) -> Profile:
    backward: Profile = {}
    if ratios:
        middle = [np.median(v) for v in ratios.values()]
        spread = float(np.std(middle)) if len(ratios) > 1 else LONE_RATIO_SD
        everything = np.concatenate(list(ratios.values()))
        backward["attention"] = figure(
            math.exp(float(np.mean(middle))),
            math.hypot(spread, 0.5 * robust_sd(everything)), "simumax", everything.size,
            note="flash attention; 2.5 times the FLOP, so the rest is efficiency",
        )  # fmt: skip
    for kind, (value, sd, note) in BACKWARD_RATIO.items():
        backward[kind] = figure(value, sd, "neusight", note=note)
    return backward


def _host(
    tensor16: Mapping[str, DeviceFigures], memory: Mapping[str, Mapping[str, tuple[MemoryFit, ...]]]
) -> Profile:
    starts = [f.beside["start"] for f in tensor16.values()
              if "aic" in f.origins and f.beside.get("start", 0.0) > 0.5 * MICRO]  # fmt: skip
    floors = [f.floor_s for m in memory.get("elementwise", {}).values() for f in m if f.eager]
    host: Profile = {}
    if starts:
        host["kernel_start"] = figure(
            f"{float(np.median(starts)) / MICRO:.3g} us", robust_sd(np.log(starts)), "aic",
            len(starts), "on the device, inside a CUDA graph",
        )  # fmt: skip
    if floors:
        host["eager_event_floor"] = figure(
            f"{float(np.median(floors)) / MICRO:.3g} us", float(np.std(np.log(floors))), "neusight",
            len(floors), "one small eager op between two events, host included",
        )  # fmt: skip
    for name, (value, sd, source, note) in HOST.items():
        host[name] = figure(value, sd, source, note=note)
    return host


def read_fits(ops_dir: Path) -> OpFits:
    """The fits of every class from the tables in the folder ``ops_dir``."""
    batches = [b for name in OP_TABLES for b in read_op_rows(ops_dir / f"{name}.csv.gz").items]
    found = read_collectives(ops_dir / "collectives.csv.gz").items
    return fit_ops(batches, [c for c in found if isinstance(c, CollectiveCurve)])


def main(argv: Sequence[str] | None = None) -> None:
    """The command line: fit the profile and write it and ``collectives.yaml`` to one folder."""
    parser = argparse.ArgumentParser(
        prog="python -m simcore.calibrate.ops.fit", description=__doc__
    )
    parser.add_argument("ops_dir", type=Path, help="folder of the measured op tables (*.csv.gz)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    raw = "raw tables of simcore calibrate, a folder for each machine"
    parser.add_argument("--cards", type=Path, nargs="*", default=[], metavar="RAW_DIR", help=raw)
    args = parser.parse_args(argv)
    fits = read_fits(args.ops_dir)
    profile = profile_from(fits)
    _write(args.output, "blind", profile)
    if args.cards:
        tables = replace(load_profile(), efficiency_file=args.output, _seen={})
        _write(args.output, "blind", profile | {"cards": card_section(args.cards, tables)})
    _write(args.output.with_name("collectives.yaml"), "collectives", collective_profile(fits))


def _write(path: Path, name: str, profile: Profile) -> None:
    path.write_text(to_yaml(profile, used_sources(profile), name), encoding="utf-8")


if __name__ == "__main__":
    main()
