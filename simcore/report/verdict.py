"""The output of ``simcore validate`` as text: errors by group, single rows, predicted blanks."""

from __future__ import annotations

from typing import Any

from simcore.base.units import GIGA, format_seconds
from simcore.report.formatting import figure, percent, share
from simcore.report.tables import table

_FIGURES = ("mape_frac", "median_abs_frac", "median_bias_frac", "p90_abs_frac", "coverage80_frac")
#: The number of reasons for skipped rows that the text lists.
SKIPS_SHOWN = 12
_HEAD = ("n", "MAPE", "median", "bias", "P90", "in 80 %")


def scores_of(label: str, scores: dict[str, Any]) -> list[list[str]]:
    """One table row per quantity that has measured rows: their number and the errors."""
    return [
        [label, quantity.replace("_", " "), f"{score['n']:,}", *(share(score[k]) for k in _FIGURES)]
        for quantity, score in scores.items()
        if isinstance(score, dict) and score.get("n") and "mape_frac" in score
    ]


def value_of(quantity: str, value: float | None) -> str:
    """The value of a measured quantity with its unit; "-" without one."""
    if value is None:
        return "-"
    if "memory" in quantity:
        return f"{value / GIGA:.2f} GB"
    return format_seconds(value) if "time" in quantity else figure(value)


def _rows(result: dict[str, Any], worst: int | None) -> list[list[str]]:
    shown = [r for r in result["per_row"] if r.get("error_frac") is not None]
    if worst is not None:
        shown = sorted(shown, key=lambda r: -abs(r["error_frac"]))[:worst]
    suspects = {
        **{r["id"]: r["flag"] for r in shown if r.get("flag")},
        **result.get("suspects", {}),
    }
    cells = []
    for r in shown:
        quantity = r["quantity"]
        values = [value_of(quantity, r.get(k)) for k in ("predicted", "low", "high", "measured")]
        mark = "flagged" if r["id"] in suspects else ""
        called = " ".join(filter(None, (quantity.replace("_", " "), r.get("counts"))))
        cells.append([r["id"], called, *values,
                      percent(r["error_frac"], signed=True), mark])  # fmt: skip
    return cells


def _filled(rows: list[dict[str, Any]]) -> str:
    cells = [
        [
            r["id"],
            r["gpus"],
            r["strategy"],
            str(r["micro_batch"]),
            format_seconds(r["step_time_s"]["value"]),
            f"{format_seconds(r['step_time_s']['low'])} to "
            f"{format_seconds(r['step_time_s']['high'])}",
            figure(r["samples_per_s"]),
            f"{r['memory_device_bytes'] / GIGA:.1f} GB" + ("" if r["fits"] else " NO"),
        ]
        for r in rows
    ]
    head = ["not measured", "GPUs", "strategy", "batch", "step", "80 %", "samples/s", "memory"]
    return table(head, cells, right=(3, 4, 6, 7))


def _fitting(fits: dict[str, Any]) -> list[str]:
    """How well "fits in memory" is predicted; empty if no run of the table was out of memory."""
    if not fits.get("out_of_memory"):
        return []
    lines = [f"{share(fits['out_of_memory_found_frac'])} of {fits['out_of_memory']} rows out of "
             "memory are predicted not to fit"]  # fmt: skip
    if fits["ran"]:
        lines.append(f"{share(fits['fits_recall_frac'])} of {fits['ran']} rows that ran are "
                     "predicted to fit")  # fmt: skip
    return ["", *lines]


def _order(ranks: dict[str, Any]) -> list[str]:
    """How well the order of configurations is predicted; empty if the table has no families.

    A family is the rows of one model and cluster that differ in other settings.
    """
    if not ranks.get("families"):
        return []
    lines = [
        "",
        f"rank correlation within {ranks['families']} families (one model and cluster, "
        f"{ranks['rows']} rows): mean {ranks['weighted_mean']:.2f}, median {ranks['median']:.2f}",
    ]
    # Measurements of one configuration scatter, so even an exact prediction stays below 1.
    joined, best = ranks.get("configurations") or {}, ranks.get("repeatable")
    if best:
        lines.append(
            f"repeats joined ({joined['rows']} configurations): mean "
            f"{joined['weighted_mean']:.2f}, median {joined['median']:.2f}; an exact prediction "
            f"would reach {best['weighted_mean']:.2f}, {best['median']:.2f}"
        )
    sound = ranks.get("without_flagged") or {}
    if sound.get("families") and sound["rows"] < ranks["rows"]:
        lines.append(
            f"without flagged rows ({sound['rows']} rows): mean {sound['weighted_mean']:.2f}, "
            f"median {sound['median']:.2f}"
        )
    if pairs := [p for p in ranks.get("pairs") or () if p["n"]]:
        shares = ", ".join(
            f"{p['right_frac']:.0%} of {p['n']}"
            + (f" at least {p['apart_frac']:.0%} apart" if p["apart_frac"] else "")
            for p in pairs
        )
        lines.append(f"pairs of them in the measured order: {shares}")
    own = ranks.get("table_families") or {}
    if own.get("families"):
        lines.append(
            f"within {own['families']} families as the table names them ({own['rows']} rows): mean "
            f"{own['weighted_mean']:.2f}, median {own['median']:.2f}"
        )
    return lines


def _few_rows(calibration: dict[str, Any]) -> list[str]:
    """A calibration on few rows: how its error varies with the rows drawn, and what they identify.

    A parameter is identified if the rows narrow its spread clearly below that of its prior.
    """
    if not calibration:
        return []
    lines = [""]
    if draws := calibration.get("draws"):
        error, inside = draws["mape_frac"], draws["coverage80_frac"]
        lines += [
            f"{draws['n']} draws: MAPE {percent(error['median'])} (median; 80 % between "
            f"{percent(error['p10'])} and {percent(error['p90'])}),",
            f"inside 80 %: {percent(inside['median'])} (median; {percent(inside['least'])} to "
            f"{percent(inside['most'])}); the figures above are of the draw of median error",
            "",
        ]
    kinds = dict.fromkeys(k["parameter"] for k in calibration["identified"])
    cells = []
    for kind in kinds:
        fitted = [k for k in calibration["identified"] if k["parameter"] == kind]
        values = [k["value"] for k in fitted if k["identified"]]
        unit = " s" if kind in ("step", "micro-step") else ""
        times = "" if unit else "x "
        span = f"{times}{min(values):.2g} to {times}{max(values):.2g}{unit}" if values else "-"
        cells.append([kind, str(len(fitted)), str(len(values)), span])
    head = ["fitted, by source and GPU", "n", "identified", "between"]
    return [*lines, table(head, cells, right=(1, 2))]


def render_verdict(result: dict[str, Any], worst: int | None = None) -> str:
    """The result of ``api.validate`` as text; ``worst`` is the number of rows shown, worst first.

    Without ``worst`` all rows are shown in their order.
    """
    mode = result.get("mode", "blind")
    noun = "row" if result["rows"] == 1 else "rows"
    lines = [f"{result['rows']} {noun}, {result['simulated']} predicted ({mode})"]
    lines += [f"  skipped {n}: {why}" for why, n in result["skipped"].items()]
    quantities = {
        k: v for k, v in result.items() if isinstance(v, dict) and {"n", "mape_frac"} <= v.keys()
    }
    rows = scores_of("all", quantities)
    if result["simulated"] and not rows and not result.get("filled"):
        lines += [
            "no row says what was measured (step_time_s, samples_per_s, tokens_per_s, ...):",
            "--fill predicts what the table leaves blank",
        ]
    rows += scores_of("without flagged", result.get("without_flagged") or {})
    if parameters := result.get("by_parameters"):
        rows += scores_of("multipliers alone", parameters)
    if blind := result.get("blind"):
        rows += scores_of("blind", {k: blind[k] for k in quantities if k in blind})
    if len(peaks := result.get("peak_memory_by_count") or {}) > 1:
        rows += scores_of("all", {f"peak memory {k}": s for k, s in peaks.items()})
    for column, groups in (result.get("groups") or {}).items():
        for name, scores in groups.items():
            rows += scores_of(f"{column} {name}", scores)
    lines += ["", table(["rows", "", *_HEAD], rows, right=range(2, 8))]
    if width := (result.get("step_time") or {}).get("width80_ratio"):
        lines.append(f"80 % intervals of step times: {width:.2f} times from low to high (median)")
    lines += _fitting(result.get("fits") or {})
    lines += _order(result.get("rank_correlation") or {})
    lines += _few_rows(result.get("calibration") or {})
    if cells := _rows(result, worst):
        head = ["row", "", "predicted", "low", "high", "measured", "error", ""]
        lines += ["", table(head, cells, right=range(2, 7))]
    lines += [f"flagged {name}: {why}" for name, why in (result.get("suspects") or {}).items()]
    if fit := result.get("fit"):
        cells = [[p["parameter"], f"{p['value']:.3g}", f"{p['sd_log']:.2g}"] for p in fit]
        lines += ["", table(["fitted", "multiplier", "sd of ln"], cells, right=(1, 2))]
    if filled := result.get("filled"):
        lines += ["", _filled(filled)]
    return "\n".join(lines) + "\n"


def _ops_summary(lines: list[dict[str, Any]]) -> str:
    cells = [
        [
            " ".join(filter(None, (f["class"], f["dtype"]))), f["profile"], str(f["gpus"]),
            str(f["n"]), share(f["mape_frac"]), share(f["median_bias_frac"]),
        ]
        for f in lines
    ]  # fmt: skip
    head = ["mean over GPUs", "figures", "GPUs", "n", "MAPE", "bias"]
    return table(head, cells, right=range(2, 6))


def render_ops(result: dict[str, Any], worst: int | None) -> str:
    """The errors of the op models as text: by class, then by kind, then by GPU, op and dtype.

    ``worst`` is the number of the last groups shown, worst first; None shows all.
    """
    refit = f" (fitted anew without the {result['refit']} judged)" if result.get("refit") else ""
    lines = [f"{result['rows']} rows, {result['simulated']} predicted{refit}"]
    skipped = list(result["skipped"].items())
    lines += [f"  skipped {n}: {why}" for why, n in skipped[:SKIPS_SHOWN]]
    if len(skipped) > SKIPS_SHOWN:
        lines.append(f"  and {len(skipped) - SKIPS_SHOWN} more reasons: --json has them all")
    lines += ["", _ops_summary(result["summary"])]
    figures = ("mape_frac", "median_bias_frac", "p90_abs_frac")
    head = ["", "n", "MAPE", "bias", "P90", "large", "MAPE", "bias", "P90"]
    for part in ("kinds", "groups"):
        groups = sorted(result[part].items())
        if part == "groups" and worst is not None:
            groups = sorted(groups, key=lambda g: -g[1]["mape_frac"])[:worst]
        rows = [
            [
                name if scores["profile"] == "own" or part == "kinds" else f"{name} *",
                *(
                    cell
                    for score in (scores, scores["large"])
                    for cell in (f"{score['n']:,}", *(share(score[k]) for k in figures))
                ),
            ]
            for name, scores in groups
        ]
        lines += ["", table(head, rows, right=range(1, 9))]
    lines += ["", "* blind: with the figures of the device's family or of all GPUs"]
    return "\n".join(lines) + "\n"
