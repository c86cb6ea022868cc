"""A measured step, read from a profiler trace, and its prediction as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.base.units import MILLI
from simcore.report.formatting import figure, percent, wrapped
from simcore.report.tables import table

_LABELS: Final = {
    "forward": "forward", "backward": "backward", "untold": "compute, phase unknown",
    "optimizer": "optimizer", "communication_exposed": "comm. exposed",
    "input_copy": "copies to and from host", "loader": "data loading",
    "host": "host: nothing runs", "gemm": "matrix products", "conv": "convolutions",
    "attention": "attention", "memory_bound": "memory-bound",
}  # fmt: skip
_WIDTH: Final = 78
#: Kernels, and problems of the trace, that the text lists at most.
_KERNELS: Final = 5
#: From this ratio of measured to predicted on, the ratio is written without decimals.
_FAR: Final = 10.0
#: Characters of a kernel's name that are shown.
_NAME: Final = 52


def label(term: str) -> str:
    """The name of a term of the step as text."""
    return _LABELS.get(term, term.replace("_", "-"))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{figure(value / MILLI)} ms"


def _ratio(pair: Mapping[str, Any]) -> str:
    ratio = pair["ratio"]
    if ratio is None:
        return "-"
    return f"x {ratio:.2f}" if ratio < _FAR else f"x {ratio:.0f}"


def render_explained(found: Mapping[str, Any]) -> str:
    """The result of ``api.explain_trace`` as text of 80 columns."""
    trace, predicted, step = found["trace"], found["prediction"], found["step"]
    ranks = f", {len(trace['files'])} ranks" if len(trace["files"]) > 1 else ""
    lines = wrapped(
        f"{trace['files'][0]}{ranks}: {trace['device']}, {trace['steps']} step"
        f"{'s' if trace['steps'] > 1 else ''} ({trace['found_by']}), "
        f"{trace['kernels_a_step']:.0f} kernels and copies a step", _WIDTH,
    )  # fmt: skip
    lines += [f"left out: {x}" for x in trace["problems"][:_KERNELS]]
    if predicted:
        lines += wrapped(
            f"predicted: {predicted['model']} on {predicted['cluster']}, {predicted['strategy']}, "
            f"{predicted['precision']}, micro-batch {predicted['micro_batch']} x accum "
            f"{predicted['grad_accum']}; {predicted['profile']}", _WIDTH,
        )  # fmt: skip
    lines += [f"note: {x}" for x in trace["notes"]]
    lines += ["", _table("where the step goes", found["terms"], step, step["measured_s"])]
    if predicted:
        inside = predicted["low_s"] <= step["measured_s"] <= predicted["high_s"]
        lines.append(
            f"the step measured lies {'inside' if inside else 'outside'} the predicted 80 %: "
            f"{_ms(predicted['low_s'])} to {_ms(predicted['high_s'])}"
        )
    if found["kinds"]:
        lines += ["", _table("device time of compute", found["kinds"], None, step["measured_s"])]
    if found["collectives"]:
        lines += ["", _collectives(found["collectives"])]
        if predicted:
            lines.append(f"predicted to be hidden under compute: {_ms(predicted['comm_hidden_s'])}")
    if predicted:
        lines += ["", *_differences(found)]
    elif found["kernels"]:
        cells = [[k["name"][:_NAME], label(k["kind"]), _ms(k["seconds"])]
                 for k in found["kernels"][:_KERNELS]]  # fmt: skip
        lines += ["", table(["longest kernels", "", "a step"], cells, right=(2,))]
    lines += _ranks(found)
    return "\n".join(lines) + "\n"


def _table(
    title: str, rows: Mapping[str, Any], total: Mapping[str, Any] | None, step_s: float
) -> str:
    cells = [
        [label(k), _ms(v["measured_s"]), percent(v["measured_s"] / step_s), _ms(v["predicted_s"]),
         _ratio(v)] for k, v in rows.items()
    ]  # fmt: skip
    if total is not None:
        cells.append(["step", _ms(total["measured_s"]), "", _ms(total["predicted_s"]),
                      _ratio(total)])  # fmt: skip
    head = [title, "measured", "of step", "predicted", "ratio"]
    known = total is None or total["predicted_s"] is not None
    if not known or all(v["predicted_s"] is None for v in rows.values()):
        head, cells = head[:3], [row[:3] for row in cells]
    return table(head, cells, right=range(1, len(head)))


def _collectives(rows: Mapping[str, Any]) -> str:
    cells = [
        [label(op), _ms(v["measured_s"]), _ms(v["exposed_s"]), _ms(v["predicted_s"]), _ratio(v)]
        for op, v in rows.items()
    ]
    head = ["collectives (waits for others too)", "measured", "exposed", "predicted", "ratio"]
    if all(v["predicted_s"] is None for v in rows.values()):
        head, cells = head[:3], [row[:3] for row in cells]
    return table(head, cells, right=range(1, len(head)))


def _differences(found: Mapping[str, Any]) -> list[str]:
    step = found["step"]
    off = step["measured_s"] - step["predicted_s"]
    way = "slower" if off > 0 else "faster"
    first = (
        f"measured is {_ms(abs(off))} ({percent(abs(off) / step['predicted_s'])}) {way} "
        "than predicted"
    )
    parts = [f"{label(d['term'])} {'+' if d['seconds'] > 0 else '-'}{_ms(abs(d['seconds']))}"
             for d in found["differences"]]  # fmt: skip
    return wrapped(f"{first}: {', '.join(parts)}" if parts else first, _WIDTH)


def _ranks(found: Mapping[str, Any]) -> list[str]:
    if len(found["ranks"]) < 2:
        return []
    cells = [
        [str(r["file"]), _ms(r["step_s"]),
         _ms(sum(r["terms"][k] for k in ("forward", "backward", "untold"))),
         _ms(r["terms"]["communication_exposed"]), _ms(r["terms"]["host"])]
        for r in found["ranks"]
    ]  # fmt: skip
    head = ["rank", "step", "compute", "comm. exposed", "host"]
    return ["", table(head, cells, right=range(1, 5))]
