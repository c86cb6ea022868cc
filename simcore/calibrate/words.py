"""A calibration in words: what was measured, how well it fits, where it went."""

from __future__ import annotations

from typing import Any

from simcore.base.units import PERCENT


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * PERCENT:.0f} %"


def render_summary(found: dict[str, Any]) -> str:
    """The answer of ``simcore calibrate``."""
    cases = found["cases"]
    lines = [
        f"{found['name']}: {found['origin']}",
        f"{cases['measured']} benchmarks measured"
        + (f", {cases['kept']} kept" if cases["kept"] else "")
        + (f", {cases['left']} not reached (--resume)" if cases["left"] else "")
        + f"; others disturbed {_percent(found['disturbed_frac'])} of the calls",
        "",
        f"{'figure':<26}{'value':>10}{'sd':>7}{'rows':>6}{'left out':>10}  range",
    ]
    own = found["measured"]
    for section in ("compute_efficiency", "memory_efficiency"):
        for key, f in own[section].items():
            label = f"{section.split('_', 1)[0]} {key}"
            lines.append(_line(label, _percent(f["value"]), f))
    for key in ("kernel_start", "host_issue"):
        if key in own:
            lines.append(_line(key.replace("_", " "), own[key]["value"], own[key]))
    for c in own.get("contention", ()):
        for what in ("compute", "memory"):
            lines.append(_line(f"{what}, {c['ranks']} ranks", _percent(c[what]["value"]), c[what]))
    if "link" in own:
        lines.append(_line("link", _percent(own["link"]["efficiency"]["value"]),
                           own["link"]["efficiency"]))  # fmt: skip
        lines.append(_line("hop", own["link"]["hop"]["value"], own["link"]["hop"]))
    for what, f in own.get("overlap", {}).items():
        lines.append(_line(what.replace("_", " "), f"+{_percent(f['value'])}", f))
    for k in found["knobs"]:
        lines.append(_line(f"steps: {k['knob']}", f"x {k['value']:.3g}", k))
    lines += [
        "",
        f"a step of a network not measured: within {_percent(found.get('leave_one_out_mape_frac'))}"
        f" (mean), residual {_percent(found['residual_sd_log'])} (sd)",
        *found["notes"],
        "",
        "written: " + ", ".join(found["written"]),
        f"simcore predict --model ... --gpus {found['cluster']} --calibration "
        f"{found['written'][0]}",
    ]
    return "\n".join(lines) + "\n"


def _line(label: str, value: str, f: dict[str, Any]) -> str:
    return (
        f"{label:<26}{value:>10}{f['sd_log']:>7.2f}{f.get('rows', ''):>6}"
        f"{_percent(f.get('leave_one_out_mape_frac')):>10}  {f.get('valid', f.get('note', ''))}"
    ).rstrip()
