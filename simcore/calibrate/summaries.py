"""Calibrations in words: what was measured, how well it fits, where it went; the blind profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from simcore.base.database import read_yaml, search_roots
from simcore.base.units import PERCENT, format_seconds
from simcore.calibrate.machine.record import Machine
from simcore.calibrate.pooling import family_of
from simcore.calibrate.yaml_text import profile_data
from simcore.hardware.calibrations import Calibration
from simcore.hardware.profile import load_profile

#: Below this share of the machine others are not worth a word.
DISTURBED_FRAC = 0.05


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * PERCENT:.0f} %"


def machine_data(
    record: Calibration, machine: Machine, notes: Sequence[str], files: Sequence[Path]
) -> dict[str, Any]:
    """A machine's profile as plain data, with how to use it and what its user should know."""
    return {
        **profile_data(record),
        "warning": record.warning,
        "cluster": f"1x{machine.ranks}x{machine.gpu.name}",
        "new_record": machine.new,
        "notes": [*notes, *record.notes],
        "written": [str(f) for f in files],
    }


def render_summary(found: dict[str, Any]) -> str:
    """The answer of ``simcore calibrate``, also of one that fits raw tables again."""
    lines = [
        *_measured(found),
        *found["notes"],
        "",
        "written: " + ", ".join(found["written"]),
        f"{found_by(found['written'])}simcore predict --model ... --gpus {found['cluster']} "
        f"--calibration {found['written'][0]}",
    ]  # fmt: skip
    return render_calibration(found) + "\n".join(lines) + "\n"


def _measured(found: dict[str, Any]) -> list[str]:
    """How many benchmarks ran, as a line; no line where none was to run."""
    if (cases := found.get("cases")) is None:
        return []
    said = f"{cases['measured']} benchmarks measured"
    said += f", {cases['kept']} kept" if cases["kept"] else ""
    said += f", {cases['left']} not reached (--resume goes on)" if cases["left"] else ""
    if found["disturbed_frac"] > DISTURBED_FRAC:
        said += f"; others disturbed {_percent(found['disturbed_frac'])} of the calls"
    return [said]


def found_by(written: Sequence[str]) -> str:
    """What a shell must set to find records of hardware that were written elsewhere."""
    root = Path(written[0]).parent.resolve()
    records = any("hardware_db" in Path(file).parts for file in written)
    return f"SIMCORE_DB={root} " if records and root not in search_roots() else ""


def render_calibration(found: dict[str, Any]) -> str:
    """A calibration: what it is from, every figure with its spread, range and error."""
    warning = [found["warning"], ""] if found.get("warning") else []
    lines = [*warning, f"{found['name']}: {found['origin']}", f"{found['rows']} rows"]
    if conditions := found.get("conditions"):
        lines.append(", ".join(f"{k} {v}" for k, v in conditions.items()))
    lines += ["", f"{'figure':<26}{'value':>10}{'sd':>7}{'rows':>6}{'left out':>10}  range"]
    own = found.get("measured") or {}
    for section in ("compute_efficiency", "memory_efficiency"):
        for key, f in own.get(section, {}).items():
            lines.append(_line(f"{section.split('_', 1)[0]} {key}", _percent(f["value"]), f))
    for section in ("compute", "memory"):
        for key, f in own.get(f"{section}_over_blind", {}).items():
            lines.append(_line(f"x {section} {key}", f"{f['value']:.3g}", f))
    if "start_over_blind" in own:
        f = own["start_over_blind"]
        lines.append(_line("x kernel start", f"{f['value']:.3g}", f))
    for key in ("kernel_start", "host_issue", "context"):
        if key in own:
            lines.append(_line(key.replace("_", " "), own[key]["value"], own[key]))
    for c in own.get("contention", ()):
        for what in ("compute", "memory"):
            lines.append(_line(f"{what}, {c['ranks']} ranks", _percent(c[what]["value"]), c[what]))
    if "link" in own:
        link = own["link"]
        lines.append(_line("link", _percent(link["efficiency"]["value"]), link["efficiency"]))
        lines.append(_line("hop", link["hop"]["value"], link["hop"]))
    for what, f in own.get("overlap", {}).items():
        lines.append(_line(what.replace("_", " "), f"+{_percent(f['value'])}", f))
    if kernels := own.get("kernels"):
        lines.append(f"{'kernels timed by shape':<26}{len(kernels):>10}")
    for f in own.get("updates", ()):
        what = f"{f['numel']:.3g} parameters, {f['optimizer']}"
        lines.append(_line("update over figures", f"{f['over_figures']:.3g}", {**f, "note": what}))
    if "step_over_kernels" in own:
        f = own["step_over_kernels"]
        lines.append(_line("step over its kernels", f"{f['value']:.3g}", f))
    for k in found["knobs"]:
        where = " ".join(k[p] for p in ("gpu", "node", "link", "workload") if k.get(p))
        lines.append(_line(f"x {k['knob']}", f"{k['value']:.3g}", {**k, "note": where}))
    lines += ["", "x: measured rate over that of the shipped profile"] * bool(
        own.get("compute_over_blind")
    )
    residual = found.get("residual_sd_log")
    factor = found.get("residual_over_blind", 1.0)
    told = (
        f"{factor:.2f} of that of blind steps" if residual is None else f"{_percent(residual)} (sd)"
    )
    lines += [
        "",
        "sd: standard deviation of the logarithm; left out: mean error on rows not fitted",
    ]
    if "checked" in found:
        lines += _checked(found["checked"])
    elif (error := found.get("leave_one_out_mape_frac")) is not None:
        lines.append(f"a step not fitted: {_percent(error)} mean error")
    lines.append(f"residual {told}, in every interval")
    return "\n".join(lines) + "\n"


def _checked(steps: Sequence[dict[str, Any]]) -> list[str]:
    """The table of steps that a fit had not seen: measured, blind and calibrated, and the means."""
    lines = ["", f"{'step not seen by the fit':<26}{'batch':>7}{'bound':>8}{'measured':>10}"
             f"{'blind':>9}{'calibrated':>12}"]  # fmt: skip
    sums = [0.0, 0.0]
    for s in steps:
        errors = [s[k] / s["measured_s"] - 1.0 for k in ("blind_s", "calibrated_s")]
        sums = [a + abs(e) for a, e in zip(sums, errors, strict=True)]
        name = s["net"] if s["ranks"] == 1 else f"{s['net']}, {s['ranks']} ranks"
        lines.append(f"{name:<26}{s['batch']:>7}{s['bound']:>8}{_ms(s['measured_s']):>10}"
                     f"{errors[0] * PERCENT:>+7.0f} %{errors[1] * PERCENT:>+10.0f} %")  # fmt: skip
    blind, calibrated = (_percent(x / len(steps)) for x in sums)
    lines.append(f"mean error of {len(steps)} steps: blind {blind}, calibrated {calibrated}")
    return lines


def render_selftest(found: dict[str, Any]) -> str:
    """The table of ``simcore selftest`` and its verdict."""
    lines = [
        ", ".join(f"{k} {v}" for k, v in found["conditions"].items()),
        "",
        f"{'network':<13}{'batch':>6}{'ranks':>6}  {'strategy':<9}{'predicted':>10}"
        f"{'80 % interval':>20}{'measured':>10}{'stated':>10}{'error':>8}",
    ]
    for r in found["rows"]:
        head = f"{r['net']:<13}{r['batch']:>6}{r['ranks']:>6}  {r['kind']:<9}"
        middle = f"{_ms(r['predicted_s']):>10}{_ms(r['low_s']) + ' to ' + _ms(r['high_s']):>20}"
        if "note" in r:
            lines.append(f"{head}{middle}  {r['note']}")
            continue
        error = f"{r['error_frac'] * PERCENT:+.0f} %"
        mark = "" if r["inside"] else " outside"
        mark += "" if r["counted"] else " (not counted)"
        if r["disturbed_frac"] > DISTURBED_FRAC:
            mark += f" (others {_percent(r['disturbed_frac'])})"
        stated_s = r.get("stated_s", r["measured_s"])
        lines.append(f"{head}{middle}{_ms(r['measured_s']):>10}{_ms(stated_s):>10}{error:>8}{mark}")
    lines += [
        "",
        f"median error {_percent(found['median_error_frac'])}, {found['inside']} of "
        f"{found['steps']} inside their interval: "
        + ("holds" if found["holds"] else "DOES NOT HOLD (8 % and 7 of 8)"),
        f"{found['seconds']['all']:.0f} s: {found['seconds']['calibrate']:.0f} s calibration, "
        f"{found['seconds']['predict']:.0f} s prediction, the rest training",
        *([found["drift"]] if found.get("drift") else []),
        *([found["busy"]] if found.get("busy") else found["calibration_notes"]),
    ]
    return "\n".join(lines) + "\n"


def _ms(seconds: float) -> str:
    return format_seconds(seconds)


def _line(label: str, value: str, f: dict[str, Any]) -> str:
    return (
        f"{label:<26}{value:>10}{f['sd_log']:>7.2f}{f.get('rows', ''):>6}"
        f"{_percent(f.get('leave_one_out_mape_frac')):>10}  {f.get('valid', f.get('note', ''))}"
    ).rstrip()


#: Section of the profile's file -> the datasheet figure that its values are shares of.
SECTIONS: Final[Mapping[str, str]] = {
    "compute_efficiency": "peak", "memory_efficiency": "bandwidth",
}  # fmt: skip
_ALL: Final = "all others"


def blind_data() -> dict[str, Any]:
    """The profile's sources and, by class, a figure for each family and for all others.

    ``devices`` are the GPUs that a family's figure was measured on; empty if the figure is an
    assumption or comes from a source that names no device.
    """
    data = read_yaml(load_profile("blind").efficiency_file)
    figures = [
        figure
        for section, of in SECTIONS.items()
        for cls, table in data[section].items()
        for figure in _figures(cls, of, table)
    ]
    return {"name": "blind", "sources": data["sources"], "figures": figures}


def _figures(cls: str, of: str, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    devices: dict[str, list[str]] = defaultdict(list)
    for gpu in table.get("by_gpu", {}):
        devices[family_of(gpu)].append(gpu)
    copied = ("value", "sd_log", "source")
    return [
        {"class": cls, "share_of": of, "family": family, "devices": sorted(devices[family]),
         "of_what_power_leaves": "limit_j_per_flop" in leaf, **{k: leaf[k] for k in copied}}
        for family, leaf in (*table.get("by_family", {}).items(), (_ALL, table["pooled"]))
    ]  # fmt: skip


def render_blind(found: Mapping[str, Any]) -> str:
    """The output of ``simcore show calibration blind`` from :func:`blind_data`."""
    lines = [
        "blind: shares of their datasheets that devices reach, without measurements of your own.",
        "A device takes its own figure, else its family's, else that of all; sd of its logarithm.",
    ]  # fmt: skip
    last, share = "", ""
    for f in found["figures"]:
        if f["share_of"] != share:
            share = f["share_of"]
            head = f"share of {share}"
            lines += ["", f"{head:<22}{'family':<17}{'share':>6}{'sd':>6}  from"]
        origin = ", ".join(f["devices"]) or f["source"]
        origin += ", of the peak at its power limit" if f["of_what_power_leaves"] else ""
        name = "" if f["class"] == last else f["class"]
        last = f["class"]
        lines.append(
            f"{name:<22}{f['family']:<17}{f['value'] * PERCENT:>4.0f} %{f['sd_log']:>6.2f}  "
            f"{origin}"
        )
    lines += ["", *(f"{key}: {text}" for key, text in found["sources"].items() if "+" not in key)]
    return "\n".join(lines) + "\n"
