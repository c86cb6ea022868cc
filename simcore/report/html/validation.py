"""The page of ``simcore validate --html``: errors, scatter plots, rows with the largest errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simcore import __version__
from simcore.report.formatting import percent
from simcore.report.html import render
from simcore.report.html.document import Document
from simcore.report.html.parts import Section, picture
from simcore.report.plots import require_matplotlib
from simcore.report.tables import Table
from simcore.report.verdict import scores_of, value_of

#: The number of rows that the page lists, those with the largest errors.
_WORST = 25
_HEAD = ("", "quantity", "n", "MAPE", "median", "bias", "P90", "inside 80 %")


def validation_page(result: dict[str, Any], files: Sequence[str]) -> str:
    """The result of ``api.validate`` as one self-contained HTML page.

    ``files`` are the names of the measured tables. Raises UsageError if jinja2 or matplotlib is
    not installed.
    """
    require_matplotlib()
    names = ", ".join(files)
    page = Document(
        title=f"Predicted against measured: {names}",
        made=(
            f"simcore {__version__}; {result['simulated']:,} of {result['rows']:,} rows; "
            f"{result.get('mode', 'blind')}.",
            "Errors are of prediction against measurement; blind and calibrated ones are separate.",
        ),
        command=f"simcore validate {' '.join(files)}",
        cards=(),
        sections=_sections(result),
    )
    return render("page.html.j2", document=page)


def _sections(result: dict[str, Any]) -> list[Section]:
    sections = [Section("scores", "Errors", label="Errors", tables=(_scores(result),))]
    scatter = picture("measured", result, "predicted against measured, by source of the rows")
    errors = picture("errors", result, "errors of the step time and coverage of the interval")
    sections.append(Section("plots", "Rows", label="Rows", pictures=(scatter, errors)))
    if (blind := result.get("blind")) and blind.get("per_row"):
        before = picture("measured", blind, "the same rows blind")
        sections.append(Section("blind", "Blind", label="Blind", pictures=(before,)))
    for column, groups in (result.get("groups") or {}).items():
        rows = [row for name, scores in groups.items() for row in scores_of(name, scores)]
        table = Table(f"by {column}", _HEAD, rows, (2, 3, 4, 5, 6, 7))
        heading = f"By {column}"
        sections.append(Section(f"by-{column}", heading, label=heading, tables=(table,)))
    worst = _worst(result)
    sections.append(Section("worst", "Largest errors", label="Largest errors", tables=(worst,)))
    flagged = [f"{name}: {why}" for name, why in (result.get("suspects") or {}).items()]
    if flagged:
        sections.append(Section("flagged", "Flagged", label="Flagged", items=flagged))
    skipped = [f"{n} rows: {why}" for why, n in result["skipped"].items()]
    if skipped:
        sections.append(Section("skipped", "Not predicted", label="Not predicted", items=skipped))
    return sections


def _scores(result: dict[str, Any]) -> Table:
    parts: list[tuple[str, dict[str, Any]]] = [
        ("all", result),
        ("without flagged", result.get("without_flagged") or {}),
        ("multipliers alone", result.get("by_parameters") or {}),
        ("blind", result.get("blind") or {}),
    ]
    rows = [row for label, scores in parts for row in scores_of(label, scores)]
    return Table("errors of the step time, speed-up and memory", _HEAD, rows,
                 (2, 3, 4, 5, 6, 7))  # fmt: skip


def _worst(result: dict[str, Any]) -> Table:
    ranked = sorted(result["per_row"], key=lambda r: -abs(r["error_frac"]))[:_WORST]
    rows = [
        [r["id"], r["quantity"].replace("_", " "),
         *(value_of(r["quantity"], r[k]) for k in ("predicted", "low", "high", "measured")),
         percent(r["error_frac"], signed=True)]
        for r in ranked
    ]  # fmt: skip
    head = ("row", "quantity", "predicted", "low", "high", "measured", "error")
    caption = f"the {len(rows)} rows with the largest errors"
    return Table(caption, head, rows, (2, 3, 4, 5, 6))
