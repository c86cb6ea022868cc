"""``simcore validate``: predictions beside measured rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.cli.output import write
from simcore.cli.values import whole


def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Tables of measured runs (CSV).")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Fit first; errors are leave-one-out.")
    ] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Predict what the tables leave blank too.")
    ] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COL,COL", help="Errors by these columns.")
    ] = None,
    worst: Annotated[
        str | None, typer.Option("--worst", metavar="N", help="The N rows furthest off.")
    ] = None,
) -> None:
    """Predict measured runs and say how far off the predictions are."""
    from simcore.base.errors import InvalidConfig

    problems: list[str] = []
    count = whole("worst", worst, problems)
    problems += [f"no such file: {str(f)!r}" for f in files if not f.is_file()]
    if problems:
        raise InvalidConfig(problems)
    columns = tuple(c.strip() for c in by.split(",") if c.strip()) if by else ()
    result = _run(files, calibrated=calibrated, fill=fill, by=columns)
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(result)))
        return
    write(_render(result, count))


def _run(files: list[Path], **options: Any) -> dict[str, Any]:
    """``api.validate(files, calibrated=, fill=, by=)`` as the JSON contract has it."""
    from simcore import api
    from simcore.base.errors import UsageError

    judge = getattr(api, "validate", None)
    if judge is None:
        raise UsageError("this build of simcore has no validation")
    result: dict[str, Any] = judge(files, **options)
    return result


def _render(result: dict[str, Any], worst: int | None) -> str:
    from simcore.report.tables import table
    from simcore.report.words import percent

    def share(value: float | None) -> str:
        return "-" if value is None else percent(value)

    lines = [f"{result['rows']} rows, {result['simulated']} predicted"]
    lines += [f"  skipped {n}: {why}" for why, n in result["skipped"].items()]
    figures = ("mape_frac", "median_abs_frac", "median_bias_frac", "p90_abs_frac",
               "coverage80_frac")  # fmt: skip
    head = ["", "n", "MAPE", "median", "bias", "P90", "in 80 %"]
    rows = []
    for quantity in ("step_time", "speedup", "peak_memory"):
        found = result.get(quantity) or {}
        rows.append([quantity, str(found.get("n", 0)), *(share(found.get(k)) for k in figures)])
    lines += ["", table(head, rows, right=range(1, 7))]
    shown = [r for r in result["per_row"] if r.get("error_frac") is not None]
    if worst is not None:
        shown = sorted(shown, key=lambda r: -abs(r["error_frac"]))[:worst]
    cells = [
        [str(r["id"]), *(f"{r[k]:.4g}" if r.get(k) is not None else "-"
                         for k in ("predicted", "low", "high", "measured")),
         percent(r["error_frac"], signed=True)]
        for r in shown
    ]  # fmt: skip
    if cells:
        head = ["row", "predicted", "low", "high", "measured", "error"]
        lines += ["", table(head, cells, right=range(1, 6))]
    return "\n".join(lines) + "\n"
