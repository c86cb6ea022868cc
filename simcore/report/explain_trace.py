"""A measured step beside its prediction as text: the terms of its trace, what would explain it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.answer.slower import Slower, Suspect
from simcore.base.units import MILLI, format_seconds
from simcore.report.formatting import WIDTH, figure, labelled, percent, wrapped
from simcore.report.tables import table
from simcore.report.terms import HIDDEN, time_label

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


def render_explained(explained: Mapping[str, Any]) -> str:
    """The result of ``api.explain_trace`` as text of 80 columns."""
    trace, predicted, step = explained["trace"], explained["prediction"], explained["step"]
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
    lines += ["", _table("where the step goes", explained["terms"], step, step["measured_s"])]
    if predicted:
        inside = predicted["low_s"] <= step["measured_s"] <= predicted["high_s"]
        lines.append(
            f"the step measured lies {'inside' if inside else 'outside'} the predicted 80 %: "
            f"{_ms(predicted['low_s'])} to {_ms(predicted['high_s'])}"
        )
    if explained["kinds"]:
        lines += [
            "",
            _table("device time of compute", explained["kinds"], None, step["measured_s"]),
        ]
    if explained["collectives"]:
        lines += ["", _collectives(explained["collectives"])]
        if predicted:
            lines.append(f"predicted to be hidden under compute: {_ms(predicted['comm_hidden_s'])}")
    if predicted:
        lines += ["", *_differences(explained)]
    elif explained["kernels"]:
        cells = [[k["name"][:_NAME], label(k["kind"]), _ms(k["seconds"])]
                 for k in explained["kernels"][:_KERNELS]]  # fmt: skip
        lines += ["", table(["longest kernels", "", "a step"], cells, right=(2,))]
    lines += _ranks(explained)
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


def _differences(explained: Mapping[str, Any]) -> list[str]:
    step = explained["step"]
    off = step["measured_s"] - step["predicted_s"]
    way = "slower" if off > 0 else "faster"
    first = (
        f"measured is {_ms(abs(off))} ({percent(abs(off) / step['predicted_s'])}) {way} "
        "than predicted"
    )
    parts = [f"{label(d['term'])} {'+' if d['seconds'] > 0 else '-'}{_ms(abs(d['seconds']))}"
             for d in explained["differences"]]  # fmt: skip
    return wrapped(f"{first}: {', '.join(parts)}" if parts else first, _WIDTH)


def _ranks(explained: Mapping[str, Any]) -> list[str]:
    if len(explained["ranks"]) < 2:
        return []
    cells = [
        [str(r["file"]), _ms(r["step_s"]),
         _ms(sum(r["terms"][k] for k in ("forward", "backward", "untold"))),
         _ms(r["terms"]["communication_exposed"]), _ms(r["terms"]["host"])]
        for r in explained["ranks"]
    ]  # fmt: skip
    head = ["rank", "step", "compute", "comm. exposed", "host"]
    return ["", table(head, cells, right=range(1, 5))]


#: Bounds of the words for likelihood: a normal figure is within 1.28 standard deviations in four
#: cases of five, and beyond 2.58 in one of a hundred.
_LIKELY_SD, _UNLIKELY_SD = 1.28, 2.58
#: What to look at, by resource.
_CHECKS = {
    "compute": "clocks and power limit (nvidia-smi -q -d CLOCK,PERFORMANCE); the precision that "
               "runs",
    "memory": "kernels that are not fused (--compile, --attention, norms of the model)",
    "host": "processor time of the training loop: a profiler, .item() in the loop, other jobs",
    "intra": "nvidia-smi topo -m, NCCL_P2P_DISABLE; NCCL_DEBUG=INFO names the links in use",
    "inter": "nccl-tests between nodes; NCCL_DEBUG=INFO names adapters: all of them, and GDR",
    "loader": "time of next(loader); more workers, or data nearer to the host",
}  # fmt: skip


def render_slower(s: Slower) -> str:
    """The measured and the predicted step, the suspects and what to look at."""
    t = s.predicted
    word = "slower" if s.excess_frac >= 0 else "faster"
    place = "within" if s.is_inside else "outside"
    lines = wrapped(
        f"measured {format_seconds(s.measured_s)}, predicted {format_seconds(t.value)}: "
        f"{percent(abs(s.excess_frac))} {word}, {place} its 80 % interval "
        f"({format_seconds(t.low)} to {format_seconds(t.high)})",
        WIDTH,
    )
    if s.is_inside:
        lines.append("four measurements in five lie in it: nothing has to be wrong")
    rows = [
        [x.resource, "-" if x.rate_frac is None else f"x {figure(x.rate_frac)}", _odds_of(x)]
        for x in s.suspects
    ]
    head = ["would explain it, if it had", "of its rate", "how likely"]
    lines += ["", *table(head, rows, right=(1,)).splitlines(), ""]
    least = min((x.sd for x in s.suspects if x.sd is not None), default=0.0)
    if not s.is_inside and least >= _UNLIKELY_SD:
        lines += labelled(
            "FIRST",
            "no single rate is a likely cause: compare what ran with what was predicted (batch, "
            "sequence, precision, recompute, program; --explain assumed)",
        )
    for x in s.suspects[:3]:
        if x.rate_frac is not None:
            lines += labelled("LOOK AT", f"{x.resource}: {_CHECKS[x.knob]}")
    terms = ", ".join(
        f"{time_label(k)} {format_seconds(v)}" for k, v in s.time_s.items()
        if k not in ("compute", HIDDEN) and v >= 0.005 * t.value
    )  # fmt: skip
    lines += labelled("PREDICTED", terms)
    lines += labelled(
        "THEN",
        "simcore explain-trace TRACE.json --model ... compares a torch.profiler trace",
    )
    return "\n".join(lines) + "\n"


def _odds_of(x: Suspect) -> str:
    """How likely it is that a figure is so far from what is assumed, in words."""
    if x.rate_frac is None:
        return "no: it explains less than this"
    if x.sd is None:
        return "not known"
    word = "likely" if x.sd < _LIKELY_SD else "possible" if x.sd < _UNLIKELY_SD else "unlikely"
    return f"{word}: {x.sd:.1f} standard deviations"
