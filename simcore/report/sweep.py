"""A sweep as text of 80 columns: the best points, the front, and why points are not valid."""

from __future__ import annotations

from collections.abc import Sequence

from simcore.base.units import GIGA, format_seconds
from simcore.planning.ranking import Point
from simcore.planning.sweep import SweepResult
from simcore.report.formatting import WIDTH, counted, figure, gigabytes, percent, wrapped
from simcore.report.front_chart import front_chart
from simcore.report.sentences import more
from simcore.report.tables import fitted
from simcore.report.text_of import text_of
from simcore.request.training_library import AUTO, assumed_of

#: The number of points of the Pareto front that the text shows.
_OF_FRONT = 6


@text_of.register
def render_sweep(result: SweepResult) -> str:
    """The whole sweep as text of 80 columns."""
    lines = [*_head(result), ""]
    if result.best:
        lines += [*point_tables(result), ""]
    else:
        lines += ["No point fits." if result.n_evaluated else "No point is valid.", ""]
    if hints := advice(result):
        lines += [*(x for label, s in hints for x in wrapped(f"{label}: {s}", WIDTH)), ""]
    lines += reasons(result.invalid, result.n_done)
    if result.output is not None:
        lines += _output(result)
    return "\n".join(lines).rstrip() + "\n"


def _head(r: SweepResult) -> list[str]:
    new = r.n_done - r.n_before
    speed = [f"{figure(new / r.seconds)}/s"] if new and r.seconds > 0 else []
    before = [f"{r.n_before:,} of them from before"] if r.n_before else []
    how = f" ({', '.join(speed + before)})" if speed or before else ""
    text = (
        f"{counted(r.n_done, 'point')} in {format_seconds(r.seconds)}{how}: "
        f"{r.n_fit:,} fitting, "
        f"{r.n_evaluated - r.n_fit:,} too large, {r.n_done - r.n_evaluated:,} not valid"
    )
    if not r.finished:
        text = f"STOPPED at {percent(r.n_done / max(r.n_points, 1))} of {r.n_points:,}. {text}"
    lines = wrapped(text, WIDTH)
    if r.space is not None and dict(r.space.fixed).get("software") == AUTO:
        lines += wrapped(assumed_of(), WIDTH)
    return lines


def advice(r: SweepResult) -> list[tuple[str, str]]:
    """(label, text) of advice beyond the points of the sweep.

    Either changes outside the sweep that are faster than its best point; or, if no point fits,
    the nearest point and what makes it fit.
    """
    faster = [f"{f.change} ({figure(f.samples_per_s)}/s, {more(f.gain_frac)})" for f in r.faster]
    if faster:
        return [("faster than the first, and not in this sweep", "; ".join(faster))]
    p = r.nearest
    if p is None:
        return []
    how = ", ".join([p.cluster, *words_of(p), f"batch {p.micro_batch}x{p.grad_accum}"])
    need = f"{gigabytes(p.needed_bytes)} of {gigabytes(p.capacity_bytes)} GB a GPU"
    fixes = "; ".join(r.fixes) or "nothing that was tried"
    hints = [
        ("nearest", f"{how}, needs {need}"),
        ("what makes it fit (samples/s then)", fixes),
    ]
    if r.why_none:
        hints.append(("no number of these GPUs that fits was found; nearest", r.why_none))
    if r.instead:
        label = "training adapters, another kind of training, fits on these GPUs (samples/s)"
        hints.append((label, "; ".join(r.instead)))
    return hints


def point_tables(r: SweepResult) -> list[str]:
    """The lines of a table of the best points and, if it has several points, one of the front.

    A line above them lists the settings that all shown points have in common.
    """
    spread = _spread(r.front)
    shown = [*r.best, *spread]
    networks = {p.network for p in shown} - {""}
    words = [words_of(p, named=len(networks) > 1) for p in shown]
    shared = [w for w in words[0] if all(w in other for other in words)]
    models = {p.form.model for p in shown}
    text = all(p.form.tokens_per_sample for p in shown) and r.ranked_by != "samples"
    rows = [
        [
            p.cluster,
            " ".join([*([p.form.model] if len(models) > 1 else []),
                      *(w for w in settings if w not in shared)]),
            f"{p.micro_batch}x{p.grad_accum}",
            format_seconds(p.step_time_s),
            figure(p.work_per_s if text else p.samples_per_s),
            figure((p.work_per_s if text else p.samples_per_s) / p.n_gpus),
            figure(p.memory_bytes / GIGA),
        ]
        for p, settings in zip(shown, words, strict=True)
    ]  # fmt: skip
    one = networks if len(networks) == 1 else ()
    same = [*(models if len(models) == 1 else ()), *shared, *one]
    top = wrapped(f"all: {', '.join(same)}; rc recompute; batch micro-batch x accumulation", WIDTH)
    header = ["", "cluster", "how", "batch", "step", f"{'tokens' if text else 'samples'}/s",
              "per GPU", "GB/GPU"]  # fmt: skip
    n = len(r.best)
    lines = [*top, *_fitted(header, [[str(i + 1), *row] for i, row in enumerate(rows[:n])])]
    if len(spread) > 1:
        spent = _SPENT[r.front_of]
        some = f" ({len(spread)} of {len(r.front)})" if len(spread) < len(r.front) else ""
        lines += ["", f"Pareto front{some}: no other point that fits is as fast with {spent}"]
        lines += _fitted(header, [["", *row] for row in rows[n:]])
        if drawn := _drawn(r, text):
            lines += ["", *drawn]
    return lines


def _drawn(r: SweepResult, text: bool) -> list[str]:
    """The front as a chart of throughput over GPUs, or over memory."""
    by_gpus = r.front_of == "n_gpus"
    points = [
        (float(p.n_gpus) if by_gpus else p.memory_bytes,
         p.work_per_s if text else p.samples_per_s) for p in r.front
    ]  # fmt: skip
    unit = "tokens/s" if text else "samples/s"
    return front_chart(
        points,
        lambda x: f"{x:,.0f} GPUs" if by_gpus else f"{gigabytes(x)} GB a GPU",
        lambda y: f"{figure(y)} {unit}",
    )


#: The phrase for "no more of the resource" by the resource of the Pareto front.
_SPENT = {"n_gpus": "as few GPUs", "memory_bytes": "as little memory"}


def _spread(points: Sequence[Point]) -> list[Point]:
    """At most ``_OF_FRONT`` points of a front, evenly spread, with the first and the last."""
    last = len(points) - 1
    return [
        points[i] for i in sorted({round(i * last / (_OF_FRONT - 1)) for i in range(_OF_FRONT)})
    ]


def _fitted(header: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table of points; if it is too wide, the throughput per GPU goes first."""
    return fitted(header, rows, WIDTH, texts={1: WIDTH, 2: WIDTH}, spare=(6,))


def words_of(p: Point, *, named: bool = True) -> list[str]:
    """The settings of a point as short texts; with ``named`` its network too."""
    f = p.form
    settings = [f.strategy, *str(f.layout).split(), f"rc-{f.recompute}", f.precision]
    if f.offload != "none":
        settings.append(f"offload {f.offload}")
    if f.seq_len is not None:
        settings.append(f"seq {f.seq_len}")
    network = p.network if named else ""
    in_layout = set(str(f.layout).split())  # the layout writes "schedule zb-1p" as "zb-1p"
    more = [w for w in f.more.split(", ") if w.partition(" ")[2] not in in_layout]
    return [*settings, f.optimizer, *filter(None, [*more, network])]


def reasons(invalid: dict[str, int], n_points: int, most: int = 8) -> list[str]:
    """Lines with the reasons why points are not valid and their counts, in the given order.

    ``most`` reasons are listed; a last line counts the points of the others.
    """
    if not invalid:
        return []
    lines = [f"left out, of {n_points:,} points:"]
    shown = list(invalid.items())[:most]
    width = len(f"{shown[0][1]:,}")
    for reason, n in shown:
        parts = wrapped(reason, WIDTH - width - 4)
        lines.append(f"  {n:>{width},}  {parts[0]}")
        lines += [" " * (width + 4) + p for p in parts[1:]]
    others = sum(list(invalid.values())[most:])
    if others:
        lines.append(f"  {others:,}  for {len(invalid) - most} other reasons")
    return lines


def _output(r: SweepResult) -> list[str]:
    if r.finished:
        return ["", f"{counted(r.n_evaluated, 'point')} in {r.output}"]
    if not r.n_done:
        return ["", f"stopped before a point was finished: {r.output}.parts has nothing new"]
    return [
        "",
        f"finished points are in {r.output}.parts: repeat the command with --resume to continue",
    ]
