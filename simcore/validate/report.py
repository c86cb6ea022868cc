"""The validation report, from measured tables and texts on what the model cannot explain.

python -m simcore.validate.report validate/tables/*.csv > validate/REPORT.md
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from simcore.base.database import read_yaml
from simcore.base.errors import SimcoreError
from simcore.base.units import GIGA, PERCENT, format_seconds
from simcore.validate.calibrated import Calibrated, calibrate_and_judge
from simcore.validate.fill import filled_rows
from simcore.validate.formats.published import FORMAT as PUBLISHED
from simcore.validate.formats.row_rules import corpora_folder
from simcore.validate.judge import Verdict, judge
from simcore.validate.metrics import QUANTITIES, Score, Scored
from simcore.validate.ranking import Order
from simcore.validate.report_sections import (
    INFERRED_TITLE,
    LOOP_TITLE,
    closed_loop,
    inferred,
    markdown_table,
)
from simcore.validate.table import Table, read_table
from simcore.validate.unnamed import by_program, unnamed

_HEAD = """# Validation report

Written by `python -m simcore.validate.report validate/tables/*.csv
$SIMCORE_TABLES/steps/{ddp,llm,llm_fits_or_not}.csv validate/held_out/*.csv
validate/selftest/*.json > validate/REPORT.md`; change the tables or the words in
`validate/corpora/report.yaml`, not this file.

**Blind** predictions know datasheets and op benchmarks of other jobs, and none of the rows below.
**Calibrated** ones come from a maximum a posteriori fit of a few physical parameters (sustained
compute and memory traffic, link bandwidths, loading rate, host rate; for runs of unknown length
the amount of work) to the other rows of the same table: every row is predicted by a fit that has
not seen its configuration (leave-one-out). Rows that contradict others are flagged, predicted and
shown, but teach no fit. Errors are (predicted - measured) / measured; intervals hold 80 %.

The first figures of a large table are what a user gets who describes the job and names its program;
those without the name, and with every word that its source says, stand beside them.

The blind interval is widened by a residual that depends on what the job is (docs/interval.md), set
so that 80 % of the rows of the two large tables lie inside. It moves no prediction, but their last
column is no test of the interval; that of the seeds' tables and of the held-out one is. The test of
the widths is `python -m validate.residuals`, which leaves one source after another out of their
fit; docs/model.md ("Uncertainty") has its result.
"""


def _percent(value: float | None, digits: int = 1, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value * PERCENT:{'+' if signed else ''}.{digits}f} %"


def _score_row(name: str, score: Score) -> list[str]:
    return [
        name,
        str(score.n),
        _percent(score.mape_frac),
        _percent(score.median_abs_frac),
        _percent(score.median_bias_frac, signed=True),
        _percent(score.p90_abs_frac),
        _percent(score.coverage80_frac, 0),
    ]


def _summary(blind: Verdict, calibrated: Calibrated) -> str:
    rows = []
    for quantity in QUANTITIES:
        for mode, verdict in (("blind", blind), ("leave-one-out", calibrated.verdict)):
            score = verdict.score(quantity, flagged=False)
            if score.n and not (mode == "leave-one-out" and "memory" in quantity):
                rows.append(_score_row(f"{quantity.replace('_', ' ')}, {mode}", score))
    head = ["quantity", "n", "MAPE", "median", "bias", "P90", "in 80 %"]
    return markdown_table(head, rows) if rows else "No row of this table has a measurement.\n"


def _value(s: Scored, value: float) -> str:
    if "memory" in s.quantity:
        return f"{value / GIGA:.2f} GB"
    return f"{value:.3g} x" if s.quantity == "speedup" else format_seconds(value)


def _rows(blind: Verdict, calibrated: Calibrated) -> str:
    fitted = {(s.id, s.quantity, s.measured): s for s in calibrated.verdict.scored}
    shown = []
    cases = {j.case.id: j.case for j in (*calibrated.verdict.judged, *blind.judged)}
    keys = {(s.id, s.quantity, s.measured): s for s in blind.scored} | {}
    for key in dict.fromkeys([*keys, *fitted]):
        before, after = keys.get(key), fitted.get(key)
        s = after or before
        assert s is not None
        case = cases[s.id]
        shown.append(
            [
                s.id + (" (flagged)" if s.flag else ""),
                f"{case.model_name} {case.gpus}"
                + (f" b{b}" if (b := case.options.get("micro_batch")) else ""),
                s.quantity.replace("_", " "),
                _value(s, s.measured),
                f"{_value(before, before.predicted)} ({_percent(before.error_frac, signed=True)})"
                if before
                else "-",
                f"{_value(after, after.predicted)} ({_percent(after.error_frac, signed=True)})"
                if after and "memory" not in s.quantity
                else "-",
                f"{_value(s, s.low)} to {_value(s, s.high)}",
            ]
        )
    head = ["row", "run", "quantity", "measured", "blind", "leave-one-out", "80 % interval"]
    return markdown_table(head, shown) if shown else ""


def _fit(calibrated: Calibrated) -> str:
    fit = calibrated.fit
    rows = [
        [p.name, f"{fit.values[p.name]:.3g}", f"{fit.sd_log[p.name]:.2f}", f"{p.prior_sd_log:.2f}"]
        for p in fit.parameters
    ]
    if not rows:
        return ""
    intro = (
        "Fit on all rows: multipliers on the blind profile. A spread near its prior means that the "
        "rows say nothing about the parameter.\n\n"
    )
    return intro + markdown_table(["parameter", "value", "sd of log", "prior sd"], rows)


def _filled(table: Table, calibrated: Calibrated) -> str:
    rows = []
    for row in filled_rows([table], calibrated.profile_for):
        name = f"{row['model']} {row['gpus']} {row['strategy']}"
        if "error" in row:
            rows.append([str(row["id"]), name, str(row["error"]), "", "", "", "", ""])
            continue
        step = row["step_time_s"]
        assert isinstance(step, dict)
        memory, epoch, run = row["memory_device_bytes"], row["epoch_s"], row["run_1000_steps_s"]
        assert isinstance(memory, float) and isinstance(run, float)
        rows.append(
            [
                str(row["id"]),
                f"{name} b{row['micro_batch']}",
                format_seconds(step["value"]),
                f"{format_seconds(step['low'])} to {format_seconds(step['high'])}",
                f"{row['samples_per_s']:.4g}",
                f"{memory / GIGA:.2f} GB" + ("" if row["fits"] else " does not fit"),
                format_seconds(epoch) if isinstance(epoch, float) else "-",
                format_seconds(run),
            ]
        )
    head = ["cell", "run", "step", "80 %", "samples/s", "memory", "epoch", "1,000 steps"]
    return markdown_table(head, rows) if rows else ""


#: Tables with more rows, and tables that nothing is fitted to, are summarised by the values of a
#: column instead of row by row.
_LARGE_ROWS = 100
_GROUP_COLUMNS = ("source", "family")
_WORST = 10


def _large(table: Table) -> str:
    """Scores of a large table, by source, with the largest errors and the rows left out."""
    blind = judge([table])
    rows = [
        _score_row(f"{quantity.replace('_', ' ')}{said}", score)
        for said, verdict in _by_what_is_said(table, blind)
        for quantity in QUANTITIES
        if (score := verdict.score(quantity, flagged=False)).n
    ]
    head = ["blind", "n", "MAPE", "median", "bias", "P90", "in 80 %"]
    parts = [f"{table.n_rows} rows, {len(blind.judged)} predicted.\n"]
    if rows:
        parts.append(markdown_table(head, rows))
    parts += _fitting(blind.fits())
    columns = set(table.cases[0].columns) if table.cases else set()
    column = next((c for c in _GROUP_COLUMNS if c in columns), None)
    if column is not None:
        found = blind.groups(column)
        shown = [
            [*_score_row(value, scores["step_time"])[:5],
             str(scores["peak_memory"].n), _percent(scores["peak_memory"].mape_frac)]
            for value, scores in found.items()
            if scores["step_time"].n or scores["peak_memory"].n
        ]  # fmt: skip
        if shown:
            parts.append(
                markdown_table([column, "n", "MAPE", "median", "bias", "memory n", "MAPE"], shown)
            )
    timed = [s for s in blind.scored if s.quantity == "step_time" and not s.flag]
    worst = sorted(timed, key=lambda s: -abs(s.error_frac))[:_WORST]
    if worst:
        parts.append(
            markdown_table(
                ["furthest off", "measured", "predicted", "error"],
                [[s.id, _value(s, s.measured), _value(s, s.predicted),
                  _percent(s.error_frac, signed=True)] for s in worst],
            )
        )  # fmt: skip
    parts += _order(blind.order())
    reasons = Counter(reason for _, reason in blind.skipped)
    if reasons:
        parts.append(
            markdown_table(
                ["rows left out", "why"], [[str(n), why] for why, n in reasons.most_common(12)]
            )
        )
    return "\n".join(parts)


def _by_what_is_said(table: Table, blind: Verdict) -> list[tuple[str, Verdict]]:
    """Verdicts by what a user says of a row's program, of which the first is what one gets.

    ``blind``: with everything that the table's source says.
    """
    if not any(case.program for case in table.cases):
        return [("", blind)]
    return [
        (", by its program's name and release", judge([table.changed(by_program)])),
        (", without any name", judge([table.changed(unnamed)])),
        (", with every word of its source", blind),
    ]


def _fitting(fits: Mapping[str, float | int | None]) -> list[str]:
    """A line on predicted fits of jobs that ran and jobs that failed; none without such rows."""
    shares = [
        f"of {fits[n]:,} that {what} {_percent(share, 0)} are predicted {so} fit"
        for n, what, key, so in (
            ("out_of_memory", "ran out of memory", "out_of_memory_found_frac", "not to"),
            ("ran", "ran", "fits_recall_frac", "to"),
        )
        if (share := fits[key]) is not None
    ]
    return [f"Configurations: {'; '.join(shares)}.\n"] if shares else []


def _order(order: Order) -> list[str]:
    """Rank correlation within families, in one line; none where no family has an order."""
    rows, joined, exact = order.of_rows, order.of_configurations, order.repeatable
    if rows.weighted_mean is None or joined.weighted_mean is None:
        return []
    text = (
        "Order of steps of one model on one cluster: rank correlation "
        f"{rows.weighted_mean:.2f} over {rows.rows} rows, {joined.weighted_mean:.2f} over "
        f"{joined.rows} configurations (repeats joined)"
    )
    if exact is not None:
        text += f"; exact but for the repeats' scatter: {exact.weighted_mean:.2f}"
    return [text + ".\n"]


def remarks() -> dict[str, dict[str, str]]:
    """The ``title`` of each table, and its ``remarks`` where it has some."""
    return read_yaml(corpora_folder() / "report.yaml")


def report(paths: Sequence[Path]) -> str:
    """The whole report as Markdown, from tables (.csv) and runs of the selftest (.json)."""
    parts, said = [_HEAD], remarks()
    runs = [p for p in paths if p.suffix == ".json"]
    for path in paths:
        if path in runs:
            continue
        table = read_table(path)
        own = said.get(path.stem, {})
        parts.append(f"## {own.get('title', path.stem)}\n")
        if table.n_rows > _LARGE_ROWS or table.format == PUBLISHED.name:
            if words := own.get("remarks"):
                parts.append(words.strip() + "\n")
            parts.append(_large(table))
            continue
        blind, calibrated = judge([table]), calibrate_and_judge([table])
        parts.append(_summary(blind, calibrated))
        if words := own.get("remarks"):
            parts.append(words.strip() + "\n")
        for contradicted, why in calibrated.suspects.items():
            parts.append(f"Flagged: {contradicted}: {why}.\n")
        parts.append(_rows(blind, calibrated))
        parts.append(_fit(calibrated))
        if filled := _filled(table, calibrated):
            parts.append(f"### Cells nobody measured: {path.stem}\n")
            parts.append(filled)
    parts += [f"## {INFERRED_TITLE}\n", inferred()]
    if runs:
        parts += [f"## {LOOP_TITLE}\n", closed_loop(runs)]
    return "\n".join(p for p in parts if p)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", type=Path, help="measured tables and closed loops")
    try:
        sys.stdout.write(report(parser.parse_args().tables))
    except SimcoreError as err:
        parser.error(str(err))
