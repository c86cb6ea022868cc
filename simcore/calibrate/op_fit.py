"""Fit the shipped ``blind`` profile: the share of its datasheet that each class of op reaches.

    python -m simcore.calibrate.op_fit OPS_DIR GPU_SPECS_CSV -o hardware_db/calibrations/blind.yaml

Reads measured op tables (gemm, conv, memory_bound, attention, collectives, each ``.csv.gz``) and
fits them with the formulas of :mod:`simcore.physics.roofline`, so that the coefficients belong
to those formulas. Every sampling step is seeded: the same tables give the same file. Nothing
here reads a table of whole training steps. Figures that no op table gives stand in ``ASSUMED``
(each with its reason), ``BACKWARD_RATIO``, ``HOST`` and ``HOST_BUSBW``.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.units import GIGA, MEGA, MICRO
from simcore.calibrate.assumed import ASSUMED, BACKWARD_RATIO, HOST
from simcore.calibrate.collective_fits import collectives, host_busbw
from simcore.calibrate.curve_fits import Array, robust_sd
from simcore.calibrate.op_classes import Fits, fit_attention, fit_conv, fit_gemm, fit_memory_class
from simcore.calibrate.op_tables import Gpu, Row, group_rows, read_gpus, read_rows
from simcore.calibrate.pooling import figure, source_sd, summarise
from simcore.calibrate.power import PowerFit, constant_left_out, fit_power, rms_log
from simcore.calibrate.profile_yaml import to_yaml, used_sources
from simcore.physics.roofline import power_limited_frac

Entry: TypeAlias = dict[str, Any]
Profile: TypeAlias = dict[str, Any]
ELEMENTWISE: Final = frozenset(
    {"add", "addu", "mul", "mulu", "div", "divu", "relu", "gelu", "tanh"}
)


def sustained_over_burst(gemm: Iterable[Row]) -> dict[str, tuple[float, float, int]]:
    """GPU -> (median time ratio, robust sd of its log, shapes): seconds-long runs over bursts.

    Only pairs of one framework, of 10 GFLOP and more: kernels long enough to heat the device.
    """
    times: dict[str, dict[tuple[str, ...], list[float]]] = {
        "graph_burst": defaultdict(list), "graph_sustained": defaultdict(list),
    }  # fmt: skip
    for row in gemm:
        kept = times.get(row["timing"])
        if kept is None or row["dtype"] != "bf16" or "/trtllm/" not in row["source"]:
            continue
        if 2.0 * float(row["m"]) * float(row["n"]) * float(row["k"]) < 10 * GIGA:
            continue
        kept[row["gpu"], row["m"], row["n"], row["k"]].append(float(row["time_us"]))
    logs = defaultdict(list)
    for shape, sustained in times["graph_sustained"].items():
        if burst := times["graph_burst"].get(shape):
            logs[shape[0]].append(math.log(float(np.median(sustained)) / float(np.median(burst))))
    return {
        gpu: (math.exp(float(np.median(v))), robust_sd(np.array(v)), len(v))
        for gpu, v in sorted(logs.items())
    }


def backward_over_forward(rows: Iterable[Row]) -> dict[str, Array]:
    """GPU -> ln(backward time / forward time) over attention shapes that have both."""
    times: dict[str, dict[tuple[str, ...], float]] = {"fwd": {}, "bwd": {}}
    for row in rows:
        if row["timing"] == "derived_from_eff" and row["pass"] in times:
            shape = ("gpu", "batch", "heads", "kv_heads", "seq_q", "head_dim", "kernel")
            times[row["pass"]][tuple(row[c] for c in shape)] = float(row["time_us"])
    logs = defaultdict(list)
    for shape_key, bwd in times["bwd"].items():
        if shape_key in times["fwd"]:
            logs[shape_key[0]].append(math.log(bwd / times["fwd"][shape_key]))
    return {gpu: np.array(v) for gpu, v in sorted(logs.items())}


def _steady(row: Row) -> bool:
    """GEMM rows whose times mean what the class says (see the notes in the written file)."""
    return (
        row["timing"] != "graph_sustained"
        and "vllm" not in row["source"]  # weights left uninitialised: too fast
        and not row["op"].startswith("grouped")
        and not (row["gpu"] == "B200-SXM" and row["source"].startswith("SimuMax"))
        and row["gpu"] != "Arc-Pro-B60"  # its only source is vLLM
    )


def _worst_shape(fits: Fits) -> float:
    return float(np.median([f.resid_sd_log for by_tag in fits.values() for f in by_tag.values()]))


def build_profile(ops_dir: Path, specs: Path) -> Profile:
    """Fit every class from the tables in ``ops_dir``; plain data, ready to be written."""
    gpus = read_gpus(specs)
    gemm = list(read_rows(ops_dir / "gemm.csv.gz"))
    compute: Profile = {}
    memory: Profile = {}

    tensor16 = fit_gemm(
        group_rows(gemm, lambda r: r["dtype"] in ("bf16", "fp16") and _steady(r)),
        gpus, lambda g: g.tensor16, 2, 2,
    )  # fmt: skip
    between_sources = source_sd(tensor16, lambda f: f.eff_compute)
    own_sd = max(between_sources, 0.5 * _worst_shape(tensor16))
    compute["gemm_tensor16"] = summarise(tensor16, gpus, lambda f: f.eff_compute, own_sd)
    no_floor = {  # a floor that binds says nothing of memory
        g: {t: f for t, f in by.items() if 0.56 < f.eff_memory < 0.99} for g, by in tensor16.items()
    }
    no_floor = {g: by for g, by in no_floor.items() if by}
    memory["gemm"] = summarise(
        no_floor, gpus, lambda f: f.eff_memory, source_sd(no_floor, lambda f: f.eff_memory)
    )

    tensor8 = fit_gemm(
        group_rows(gemm, lambda r: r["dtype"] == "fp8" and _steady(r)),
        gpus,
        lambda g: g.fp8,
        1,
        2,
        3,
    )
    compute["gemm_tensor8"] = summarise(tensor8, gpus, lambda f: f.eff_compute, own_sd)

    simt32 = fit_gemm(
        group_rows(
            gemm,
            lambda r: r["dtype"] == "fp32" and "_test" in r["source"] and r["gpu"][:2] != "MI",
        ),
        gpus, lambda g: g.fp32, 4, 4,
    )  # fmt: skip
    compute["gemm_simt32"] = summarise(simt32, gpus, lambda f: f.eff_compute, _worst_shape(simt32))
    matrix32 = fit_gemm(
        group_rows(gemm, lambda r: r["dtype"] == "fp32" and r["gpu"][:2] == "MI"),
        gpus, lambda g: 2.0 * g.fp32, 4, 4,
    )  # fmt: skip
    compute["gemm_matrix32"] = summarise(
        matrix32, gpus, lambda f: f.eff_compute, _worst_shape(matrix32)
    )

    conv = fit_conv(group_rows(read_rows(ops_dir / "conv.csv.gz"), lambda _: True), gpus)
    compute["conv_simt32"] = summarise(conv, gpus, lambda f: f.eff_compute, _worst_shape(conv))

    attention_rows = list(read_rows(ops_dir / "attention.csv.gz"))
    attention = fit_attention(
        group_rows(
            attention_rows,
            lambda r: r["pass"] == "fwd" and r["timing"] == "graph_burst"
            and r["gpu"] != "Arc-Pro-B60",
        ),
        gpus,
    )  # fmt: skip
    kernel_sd = max(source_sd(attention, lambda f: f.eff_compute), _worst_shape(attention))
    compute["attention"] = summarise(attention, gpus, lambda f: f.eff_compute, kernel_sd)
    memory["attention"] = summarise(attention, gpus, lambda f: f.eff_memory, kernel_sd)

    memory_rows = list(read_rows(ops_dir / "memory_bound.csv.gz"))
    eager = [r for r in memory_rows if r["source"].startswith("NeuSight")]
    classes: dict[str, Fits] = {}
    for kind, ops in (
        ("elementwise", ELEMENTWISE), ("norm", frozenset({"ln"})),
        ("softmax", frozenset({"softmax"})),
    ):  # fmt: skip
        classes[kind] = fit_memory_class(group_rows(eager, lambda r, ops=ops: r["op"] in ops), gpus)  # type: ignore[misc]
        memory[kind] = summarise(
            classes[kind], gpus, lambda f: f.eff_memory, max(_worst_shape(classes[kind]), 0.03)
        )

    profile: Profile = {"compute_efficiency": compute, "memory_efficiency": memory}
    profile["power"] = _power(compute, gpus)
    for (section, kind, level, key), (value, sd, note) in ASSUMED.items():
        leaf = figure(value, sd, "assumption", note=note)
        place = profile[section].setdefault(kind, {})
        if level == "pooled":
            place["pooled"] = leaf
        else:
            place.setdefault(level, {})[key] = leaf
    compute["gemm_tf32"] = _as_tf32(compute["gemm_tensor16"])

    ratios = backward_over_forward(attention_rows)
    spread = float(np.std([np.median(v) for v in ratios.values()])) if len(ratios) > 1 else 0.1
    everything = np.concatenate(list(ratios.values()))
    backward: Profile = {
        "attention": figure(
            math.exp(float(np.mean([np.median(v) for v in ratios.values()]))),
            math.hypot(spread, 0.5 * robust_sd(everything)), "simumax", everything.size,
            note="flash attention; 2.5 times the FLOP, so the rest is efficiency",
        )
    }  # fmt: skip
    for kind, (value, sd, note) in BACKWARD_RATIO.items():
        backward[kind] = figure(value, sd, "neusight", note=note)
    profile["backward_over_forward_time"] = backward

    profile["clocks"] = _clocks(gemm)
    profile["host"] = _host(tensor16, eager)
    profile["collectives"] = collectives(ops_dir / "collectives.csv.gz", gpus)
    profile["host_busbw"] = host_busbw()
    return profile


def _as_tf32(tensor16: Profile) -> Profile:
    """TF32 has half the rate and about twice the energy a FLOP: the same relative limits."""

    def widen(leaf: Entry) -> Entry:
        return figure(leaf["value"], math.hypot(leaf["sd_log"], 0.08), "assumption")

    copy: Profile = {
        "pooled": widen(tensor16["pooled"])
        | {"note": "no TF32 table: taken as gemm_tensor16, at half its peak and watts a FLOP/s x2"}
    }
    for level in ("by_family", "by_gpu"):
        copy[level] = {k: widen(leaf) for k, leaf in tensor16[level].items()}
    return copy


def _power(compute: Profile, gpus: Mapping[str, Gpu]) -> Profile:
    """Power term of the tensor class, its test against constants, and what follows for Ada."""
    eff = {g: leaf["value"] for g, leaf in compute["gemm_tensor16"]["by_gpu"].items()}
    eff = {g: v for g, v in eff.items() if gpus[g].family != "CDNA"}
    fit = fit_power(eff, gpus, lambda g: g.tensor16)
    simt = {g: leaf["value"] for g, leaf in compute["gemm_simt32"]["by_gpu"].items()}
    fit32 = fit_power(simt, gpus, lambda g: g.fp32)
    # Ada has one measured device; its limit is what makes the curve pass through it.
    l40s = gpus["L40S"]
    share = min(eff["L40S"] / fit.unlimited, 0.999)
    limit = (share**-4 - 1.0) ** 0.25 * l40s.tdp_w / l40s.tensor16
    for name, spec, sd, note in (
        ("A6000ada", gpus["RTX-6000-Ada"], 0.16, "L40S at 300 W instead of 350 W, same silicon"),
        ("L4", gpus["L4"], 0.20, "L40S's watts a FLOP, at 72 W"),
    ):
        scaled = fit.unlimited * float(power_limited_frac(spec.tdp_w, spec.tensor16, limit))
        compute["gemm_tensor16"]["by_gpu"][name] = figure(scaled, sd, "power-fit", note=note)

    def judged(constant: Mapping[str, tuple[float, float]], term: PowerFit) -> Profile:
        return {
            "constant": float(f"{rms_log(constant):.2g}"),
            "power_term": float(f"{rms_log(term.left_out):.2g}"),
        }

    return {
        "gemm_tensor16": {
            "unlimited": figure(fit.unlimited, fit.resid_sd_log, "power-fit", len(eff)),
            "limit_j_per_flop": {
                "pooled": figure(fit.limit_j_per_flop, 0.5, "power-fit", len(eff)),
                "Ada": figure(limit, 0.15, "power-fit", 1, "from L40S alone"),
            },
            "left_family_out_rms_log": judged(constant_left_out(eff, gpus), fit),
        },
        "gemm_simt32": {
            "unlimited": figure(fit32.unlimited, fit32.resid_sd_log, "power-fit", len(simt)),
            "limit_j_per_flop": {
                "pooled": figure(fit32.limit_j_per_flop, 0.5, "power-fit", len(simt))
            },
            "left_family_out_rms_log": judged(constant_left_out(simt, gpus), fit32),
        },
    }


def _clocks(gemm: Iterable[Row]) -> Profile:
    ratios = sustained_over_burst(gemm)
    logs = np.log([r for r, _, _ in ratios.values()])
    within = float(np.median([sd for _, sd, _ in ratios.values()]))
    return {
        "sustained_over_burst": {
            "pooled": figure(
                float(np.exp(logs.mean())), within, "sustained-fit", len(ratios),
                "time ratio at the power cap; devices far below theirs may show none",
            ),
            "by_gpu": {
                g: figure(r, sd, "sustained-fit", n) for g, (r, sd, n) in ratios.items()
            },
        }
    }  # fmt: skip


def _host(tensor16: Fits, eager: Iterable[Row]) -> Profile:
    starts = [
        fit.launch_s
        for by_tag in tensor16.values() for tag, fit in by_tag.items()
        if tag.startswith("AIC") and fit.launch_s > 0.5 * MICRO
    ]  # fmt: skip
    floors = defaultdict(list)
    for row in eager:
        if float(row["bytes"]) < MEGA:
            floors[row["gpu"]].append(float(row["time_us"]))
    floor_us = [float(np.median(v)) for v in floors.values() if len(v) >= 10]
    host: Profile = {
        "kernel_start": figure(
            f"{float(np.median(starts)) / MICRO:.3g} us", float(np.std(np.log(starts))), "aic",
            len(starts), "on the device, inside a CUDA graph",
        )
    }  # fmt: skip
    if floor_us:
        host["eager_event_floor"] = figure(
            f"{float(np.median(floor_us)):.3g} us", float(np.std(np.log(floor_us))), "neusight",
            len(floor_us), "one small eager op between two events, host included",
        )  # fmt: skip
    for name, (value, sd, source, note) in HOST.items():
        host[name] = figure(value, sd, source, note=note)
    return host


def main(argv: Sequence[str] | None = None) -> None:
    """Command line: fit and write the profile."""
    parser = argparse.ArgumentParser(prog="python -m simcore.calibrate.op_fit", description=__doc__)
    parser.add_argument("ops_dir", type=Path, help="folder of the measured op tables (*.csv.gz)")
    parser.add_argument("gpu_specs", type=Path, help="datasheet table (CSV)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    profile = build_profile(args.ops_dir, args.gpu_specs)
    args.output.write_text(to_yaml(profile, used_sources(profile)), encoding="utf-8")


if __name__ == "__main__":
    main()
