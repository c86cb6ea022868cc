"""A measured step compared with its prediction, term by term."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from simcore.answer.kinds import collective_seconds, compute_shares, device_timeline
from simcore.answer.result import Prediction
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.record import dataclass
from simcore.base.untrusted import rows_of
from simcore.hardware.spec import GPUS
from simcore.measurements.kineto.breakdown import COMPUTE_KINDS, Breakdown, Window, take_apart
from simcore.measurements.kineto.kinds import Kind
from simcore.measurements.kineto.trace import PHASE_OF_TERM, Trace, Work
from simcore.request.resolved import Request
from simcore.step.graph import Timeline
from simcore.validate.formats.project import USUAL_COLUMNS, option_columns

#: Terms that add up to the step, in the order in which they are shown.
TERMS: Final = (
    "forward", "backward", "untold", "optimizer", "communication_exposed", "input_copy",
    "loader", "host",
)  # fmt: skip
#: Share of the step below which a difference is not reported.
_NOTABLE_FRAC: Final = 0.01


@dataclass(frozen=True)
class RankStep:
    """The trace of one rank, and its step."""

    trace: Trace
    step: Breakdown


def predicted_terms(request: Request, p: Prediction) -> dict[str, float]:
    """A predicted step in the terms of a trace [s]; they add up to the step.

    The predicted timeline is divided like a measured one, so that exposed communication, and
    compute slowed by a collective, mean the same on both sides (``time_s`` counts everything that
    communication costs as communication). What host and loader add to the device's own time is
    theirs. A job with a layout has no such timeline: its terms are those of ``time_s``, with the
    pipeline bubble as exposed communication.
    """
    timeline = device_timeline(request)
    if timeline is None:
        return _cut_terms(p)
    work = _work_of(timeline)
    end = max(w.end_s for w in work)
    parts = take_apart(work, (), [Window("step", 0.0, end)])[0].parts
    accumulated = parts["untold"]  # micro-steps before the last: forward and backward as in it
    forward, backward = parts["forward"], parts["backward"]
    share = forward / (forward + backward) if forward + backward else 0.0
    parts |= {
        "untold": 0.0,
        "forward": forward + share * accumulated,
        "backward": backward + (1.0 - share) * accumulated,
        "loader": p.time_s["loader"],
    }
    idle = parts["host"]  # rounding, or waits for other kinds of ranks
    parts["communication_exposed"] += idle
    parts["host"] = max(p.step_time_s.value - end - parts["loader"], 0.0)
    return parts


def _cut_terms(p: Prediction) -> dict[str, float]:
    t = p.time_s
    forward = t["forward"] + t["frozen_networks"]
    return {
        "forward": forward,
        "backward": t["compute"] - forward,
        "untold": 0.0,
        "optimizer": t["optimizer"] + t["ema"],
        "communication_exposed": t["communication_exposed"] + t.get("pipeline_bubble", 0.0),
        "input_copy": t["input_copy"] + t["offload"],
        "loader": t["loader"],
        "host": t["host"],
    }


def _work_of(timeline: Timeline) -> list[Work]:
    """Tasks of the first kind of rank as device work."""
    found = []
    for i, task in enumerate(timeline.graph.tasks):
        start, end = float(timeline.start_s[i, 0]), float(timeline.finish_s[i, 0])
        other = task.stream.startswith("compute ") and task.stream != "compute 0"
        if task.stream == "host" or other or end <= start:
            continue
        kind: Kind = (
            "memory_bound" if task.stream.startswith("compute")
            else "copy" if task.stream in ("copy", "host cpu") else "collective"
        )  # fmt: skip
        phase = PHASE_OF_TERM.get(task.term, "untold")
        found.append(Work(task.name, kind, "", phase, start, end, start, ""))
    return found


class _Predicted(NamedTuple):
    """A predicted step [s], with the same names as a measured one."""

    head: dict[str, Any]
    terms: dict[str, float]
    kinds: dict[str, float]
    collectives: dict[str, float]


def _predicted(request: Request, p: Prediction) -> _Predicted:
    terms, interval = predicted_terms(request, p), p.step_time_s
    compute = terms["forward"] + terms["backward"]
    kinds = {k: v * compute for k, v in compute_shares(request).items()}
    counted = p.time_s["communication_exposed"] + p.time_s.get("pipeline_bubble", 0.0)
    head = {
        "model": p.model_full_name, "cluster": p.cluster, "strategy": p.strategy,
        "precision": p.precision, "micro_batch": p.micro_batch, "grad_accum": p.grad_accum,
        "profile": interval.origin, "assumptions": list(p.assumptions),
        "defaults": list(p.defaults), "low_s": interval.low, "high_s": interval.high,
        "comm_hidden_s": p.time_s["communication_hidden"] + counted
        - terms["communication_exposed"],
    }  # fmt: skip
    kinds["optimizer"] = terms["optimizer"]
    return _Predicted(head, terms, kinds, collective_seconds(request, p))


def explained(
    ranks: Sequence[RankStep], predicted_job: tuple[Request, Prediction] | None
) -> dict[str, Any]:
    """The contract of ``simcore explain-trace --json``; without a job predictions are None.

    Values are seconds of a step, the mean over the ranks. ``terms`` add up to the step; ``kinds``:
    device time of compute; ``collectives``: all their time and its exposed part. ``differences``:
    terms by how much they explain of the step's error, the largest first.
    """
    steps = [r.step for r in ranks]
    measured = _mean([s.step_s for s in steps])
    parts = {k: _mean([s.parts[k] for s in steps]) for k in TERMS}
    kinds = {k: _mean([s.kinds.get(k, 0.0) for s in steps])
             for k in dict.fromkeys(k for s in steps for k in s.kinds)}  # fmt: skip
    ops = dict.fromkeys(op for s in steps for op in s.collectives)
    comm = {op: tuple(_mean([s.collectives.get(op, (0.0, 0.0))[i] for s in steps]) for i in (0, 1))
            for op in ops}  # fmt: skip
    nothing = _Predicted({}, {}, {}, {})
    head, predicted, predicted_kinds, predicted_comm = (
        _predicted(*predicted_job) if predicted_job else nothing
    )
    return {
        "trace": {
            "files": [r.trace.path.name for r in ranks],
            "device": ranks[0].trace.device or "host",
            "steps": steps[0].n_steps,
            "found_by": steps[0].how,
            "kernels_a_step": _mean([s.n_kernels for s in steps]),
            "problems": [x for r in ranks for x in r.trace.problems],
            "notes": _notes(ranks, predicted_job[1]) if predicted_job else [],
        },
        "prediction": head or None,
        "step": _pair(measured, predicted_job[1].step_time_s.value if predicted_job else None),
        "terms": {k: _pair(parts[k], predicted.get(k) if predicted_job else None) for k in TERMS
                  if parts[k] or predicted.get(k)},
        "kinds": {k: _pair(kinds.get(k, 0.0), predicted_kinds.get(k) if predicted_job else None)
                  for k in (*COMPUTE_KINDS, "optimizer")
                  if kinds and (kinds.get(k) or predicted_kinds.get(k))},
        "collectives": {
            op: {**_pair(comm.get(op, (0.0,))[0],
                         predicted_comm.get(op) if predicted_comm else None),
                 "exposed_s": comm.get(op, (0.0, 0.0))[1]}
            for op in dict.fromkeys((*comm, *predicted_comm))
        },
        "differences": _differences(parts, predicted, measured) if predicted_job else [],
        "ranks": [
            {"file": r.trace.path.name, "rank": r.trace.rank, "step_s": r.step.step_s,
             "terms": r.step.parts} for r in ranks
        ],
        "kernels": [
            {"name": name, "kind": kind, "seconds": s} for name, kind, s in steps[0].slowest
        ],
    }  # fmt: skip


def _notes(ranks: Sequence[RankStep], p: Prediction) -> list[str]:
    """Where the trace is of another job than the prediction, by what it says of itself."""
    found, trace = [], ranks[0].trace
    if trace.world_size not in (None, p.n_gpus):
        found.append(f"the trace is of {trace.world_size} ranks, the prediction of {p.n_gpus}")
    types = [c.gpu for c in p.rank_classes]
    try:
        named = GPUS[trace.device].name if trace.device else ""
    except UnknownName:
        named = ""
    if named and named not in types:
        found.append(f"the trace is of {named}, the prediction of {', '.join(types)}")
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _pair(measured: float, predicted: float | None) -> dict[str, float | None]:
    ratio = measured / predicted if predicted else None
    return {"measured_s": measured, "predicted_s": predicted, "ratio": ratio}


def _differences(
    parts: Mapping[str, float], predicted: Mapping[str, float], step_s: float
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"term": k, "seconds": parts[k] - predicted[k]} for k in TERMS]
    notable = [d for d in found if abs(d["seconds"]) > _NOTABLE_FRAC * step_s]
    return sorted(notable, key=lambda d: -abs(d["seconds"]))


_FIXED = ("id", "model", "gpus")
_MEASURED = ("step_time_s", "note")
#: Options that the prediction's cluster and batch already give, or that no run has.
_SETTLED = ("calibration", "global_batch", "nnodes", "nproc_per_node")
#: Values taken from the prediction that the step is compared with.
_PREDICTED = ("micro_batch", "grad_accum", "strategy", "precision")


def add_row(path: Path, found: Mapping[str, Any], model: str, words: Mapping[str, Any]) -> None:
    """Append the measured step of ``found`` to a table, which is created if it does not exist.

    Raises InvalidConfig where the table lacks a column, or an option has no column in any table.
    """
    given = {k: v for k, v in words.items() if v is not None and k not in _SETTLED}
    without = [f"--{k.replace('_', '-')}" for k in given if k not in option_columns()]
    if without:
        raise InvalidConfig(
            [f"--row: a table of measured steps has no column for {', '.join(without)}"]
        )
    more = [k for k in given if k not in USUAL_COLUMNS]
    rows: list[list[str]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(rows_of(csv.reader(file), path))
    columns = rows[0] if rows else [*_FIXED, *USUAL_COLUMNS, *more, *_MEASURED]
    needed = [*_FIXED, *_PREDICTED, *given, _MEASURED[0]]
    if lacking := [c for c in dict.fromkeys(needed) if c not in columns]:
        raise InvalidConfig([f"--row: {path.name} has no column {', '.join(lacking)}: add it"])
    at = columns.index("id")
    known = {row[at] for row in rows}
    name = Path(found["trace"]["files"][0]).name.partition(".")[0]
    chosen, n = name, 2
    while chosen in known:
        chosen, n = f"{name}-{n}", n + 1
    predicted = found["prediction"]
    cells = {
        "id": chosen, "model": model, "gpus": predicted["cluster"],
        **{k: _text(v) for k, v in given.items()},
        "micro_batch": str(predicted["micro_batch"]), "grad_accum": str(predicted["grad_accum"]),
        "strategy": predicted["strategy"], "precision": predicted["precision"],
        "step_time_s": f"{found['step']['measured_s']:.6g}",
        "note": f"trace, {found['trace']['found_by']}",
    }  # fmt: skip
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not rows:
            writer.writerow(columns)
        writer.writerow([cells.get(c, "") for c in columns])


def _text(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
