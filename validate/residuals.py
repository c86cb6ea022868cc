"""The residuals of intervals, fitted and tested: ``python -m validate.residuals llm.csv ddp.csv``.

Fits the widths of ``step_residual``, ``memory_residual`` and ``segments_residual`` of
hardware_db/calibrations/runtime.yaml to the blind errors of tables of measured steps, and says
what share of each source lies inside: by these widths, and by widths fitted without that source.
The tables set the widths, so only the second is a test. Central predictions are not touched.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simcore.base.interval import Z80
from simcore.calibrate.spread_fit import Errors, fit_widths
from simcore.engine.memory import loose_bytes
from simcore.engine.residual import PARTS, part_weights
from simcore.engine.resolved import Request
from simcore.hardware.profile import BLIND_ORIGIN, load_profile
from simcore.validate.formats import read_table
from simcore.validate.judge import Judged, judge, peak_of, request_of

#: Parts of the variance of memory, over the square of what comes and goes within a step.
MEMORY_PARTS = ("memory_residual", "memory_residual_eager", "segments_residual")
#: Readings that hold the allocator's segments, and those that hold what lies outside it.
SEGMENTS = ("peak_reserved_bytes", "peak_shown_bytes")
OUTSIDE = ("peak_memory_bytes", "peak_shown_bytes")
READINGS = (
    "peak_memory_bytes", "peak_allocated_bytes", "peak_rank0_allocated_bytes",
    "peak_reserved_bytes", "peak_shown_bytes",
)  # fmt: skip
#: A source with fewer rows has no line of its own.
LEAST_ROWS = 5


@dataclass(frozen=True)
class Row:
    """One error: whose, of which reading, its size, the variance known, and weights of parts."""

    table: str
    source: str
    what: str
    size: float
    known: float
    weights: tuple[float, ...]


def step_rows(judged: Sequence[Judged], requests: Sequence[Request]) -> list[Row]:
    """Errors of ln(step time); known is the spread of the figures, no residual."""
    rows = []
    for j, request in zip(judged, requests, strict=True):
        for s in j.scored:
            if s.quantity == "step_time" and not s.flag and "step_time_s" in j.case.measured:
                sd = math.log(s.high / s.low) / (2.0 * Z80)
                rows.append(Row(*_whose(j), "step", abs(math.log(s.measured / s.predicted)), sd**2,
                                part_weights(request)))  # fmt: skip
    return rows


def memory_rows(judged: Sequence[Judged], requests: Sequence[Request]) -> list[Row]:
    """Errors of memory over what comes and goes; known is the spread outside the allocator."""
    rows = []
    for j, request in zip(judged, requests, strict=True):
        if j.case.flag:
            continue
        scored = [s for s in j.scored if s.quantity == "peak_memory"]
        # in the order in which they are judged
        readings = [k for k in READINGS if k in j.case.measured]
        fullest, memory = peak_of(j.case, request, j.prediction)
        for s, key in zip(scored, readings, strict=True):
            loose = loose_bytes(memory.terms)
            if not loose:
                continue  # the optimizer's step is fullest: what it holds is counted exactly
            half = (memory.high_bytes - memory.device_bytes) / Z80
            outside = max(half**2 - memory.tensors_sd_bytes**2, 0.0) if key in OUTSIDE else 0.0
            eager = fullest.eager_kernels
            of = (not eager, eager, key in SEGMENTS)
            rows.append(Row(*_whose(j), key.removeprefix("peak_").removesuffix("_bytes"),
                            abs(s.measured - s.predicted) / loose, outside / loose**2,
                            tuple(float(w) for w in of)))  # fmt: skip
    return rows


def _whose(j: Judged) -> tuple[str, str]:
    return j.case.table, j.case.columns.get("source") or j.case.table


def errors_of(rows: Sequence[Row]) -> Errors:
    """Rows as arrays."""
    return Errors(
        np.array([r.size for r in rows]),
        np.array([r.known for r in rows]),
        np.array([r.weights for r in rows]),
    )


def fitted(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    """Widths, and shares inside by table and source: fitted with them, and without the source."""
    errors = errors_of(rows)
    sources = np.array([r.source for r in rows])
    widths = fit_widths(errors)
    inside = errors.inside(widths)
    left_out = np.zeros(len(rows), dtype=bool)
    for source in dict.fromkeys(sources):
        mine = sources == source
        if mine.all():
            continue
        without = fit_widths(errors.take(~mine))
        left_out[mine] = errors.take(mine).inside(without)

    def share(of: Any) -> dict[str, float | int]:
        return {"n": int(of.sum()), "inside_frac": float(inside[of].mean()),
                "left_out_frac": float(left_out[of].mean())}  # fmt: skip

    tables = np.array([r.table for r in rows])
    kinds = np.array([f"{r.source}, {r.what}" for r in rows])
    return {
        "widths": dict(zip(names, (float(w) for w in widths), strict=True)),
        "tables": {t: share(tables == t) for t in dict.fromkeys(tables.tolist())},
        "sources": {k: share(kinds == k) for k, n in Counter(kinds.tolist()).most_common()
                    if n >= LEAST_ROWS},
    }  # fmt: skip


def residuals(files: Sequence[Path]) -> dict[str, Any]:
    """Both fits, of all rows of the tables."""
    bare = load_profile().with_knobs((), "blind", BLIND_ORIGIN, 0.0)
    verdict = judge([read_table(f) for f in files], profile_for=lambda _: bare)
    requests = [request_of(j.case, bare) for j in verdict.judged]
    return {
        "step_time": fitted(step_rows(verdict.judged, requests), tuple(PARTS)),
        "memory": fitted(memory_rows(verdict.judged, requests), MEMORY_PARTS),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = residuals(asked.files)
    write = sys.stdout.write
    if asked.json:
        write(json.dumps(found, indent=1) + "\n")
        return
    for what, fit in found.items():
        write(f"\n{what}: " + ", ".join(f"{k} {v:.3f}" for k, v in fit["widths"].items()) + "\n")
        write(f"{'':54}{'rows':>6}{'inside':>9}{'left out':>10}\n")
        for name, s in {**fit["tables"], **fit["sources"]}.items():
            shares = f"{s['inside_frac']:>9.2f}{s['left_out_frac']:>10.2f}"
            write(f"{name:<54.54}{s['n']:>6}{shares}\n")


if __name__ == "__main__":
    main()
