"""A sweep in 80 columns: the leading points, what they share, why the others fell out."""

from __future__ import annotations

from collections.abc import Sequence

from simcore.base.units import GIGA, format_seconds
from simcore.engine.training_library import AUTO, assumed_of
from simcore.planning.ranking import Point
from simcore.planning.sweep import SweepResult
from simcore.report.formatting import WIDTH, counted, figure, gigabytes, percent, wrapped
from simcore.report.sentences import more
from simcore.report.tables import table
from simcore.report.text_of import text_of

#: A text column is not cut below this.
_SHORTEST = 12
#: Points of the front that the text shows.
_OF_FRONT = 6


@text_of.register
def render_sweep(result: SweepResult) -> str:
    """The whole answer as text."""
    lines = [*_head(result), ""]
    if result.best:
        lines += [*point_tables(result), ""]
    else:
        lines += ["No point fits." if result.n_evaluated else "No point is valid.", ""]
    if told := advice(result):
        lines += [*(x for label, s in told for x in wrapped(f"{label}: {s}", WIDTH)), ""]
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
    """What is faster than the first though no point of the space; what makes the nearest fit."""
    faster = [f"{f.change} ({figure(f.samples_per_s)}/s, {more(f.gain_frac)})" for f in r.faster]
    if faster:
        return [("faster than the first, and not in this sweep", "; ".join(faster))]
    p = r.nearest
    if p is None:
        return []
    how = ", ".join([p.cluster, *words_of(p), f"batch {p.micro_batch}x{p.grad_accum}"])
    need = f"{gigabytes(p.needed_bytes)} of {gigabytes(p.capacity_bytes)} GB a GPU"
    fixes = "; ".join(r.fixes) or "nothing that was tried"
    told = [
        ("nearest", f"{how}, needs {need}"),
        ("what makes it fit (samples/s then)", fixes),
    ]
    if r.why_none:
        told.append(("no number of these GPUs was found; nearest", r.why_none))
    if r.instead:
        label = "another kind of training, of adapters, fits on these GPUs (samples/s)"
        told.append((label, "; ".join(r.instead)))
    return told


def point_tables(r: SweepResult) -> list[str]:
    """The best and, of several points, the front; what all have in common stands above them."""
    spread = _spread(r.front)
    shown = [*r.best, *spread]
    networks = {p.network for p in shown} - {""}
    words = [words_of(p, named=len(networks) > 1) for p in shown]
    shared = [w for w in words[0] if all(w in other for other in words)]
    models = {p.form.model for p in shown}
    rows = [
        [
            p.cluster,
            " ".join([*([p.form.model] if len(models) > 1 else []),
                      *(w for w in own if w not in shared)]),
            f"{p.micro_batch}x{p.grad_accum}",
            format_seconds(p.step_time_s),
            figure(p.samples_per_s),
            figure(p.samples_per_s_per_gpu),
            figure(p.memory_bytes / GIGA),
        ]
        for p, own in zip(shown, words, strict=True)
    ]  # fmt: skip
    one = networks if len(networks) == 1 else ()
    same = [*(models if len(models) == 1 else ()), *shared, *one]
    top = wrapped(f"all: {', '.join(same)}; rc recompute; batch micro-batch x accumulation", WIDTH)
    header = ["", "cluster", "how", "batch", "step", "samples/s", "per GPU", "GB/GPU"]
    n = len(r.best)
    lines = [*top, *_fitted(header, [[str(i + 1), *row] for i, row in enumerate(rows[:n])])]
    if len(spread) > 1:
        spent = _SPENT[r.front_of]
        some = f" ({len(spread)} of {len(r.front)})" if len(spread) < len(r.front) else ""
        lines += ["", f"the front{some}: nothing that fits is as fast with {spent}"]
        lines += _fitted(header, [["", *row] for row in rows[n:]])
    return lines


#: How the text says that a point spends no more of the front's column.
_SPENT = {"n_gpus": "as few GPUs", "memory_bytes": "as little memory"}


def _spread(points: Sequence[Point]) -> list[Point]:
    """Some points of a long front, the first and the last among them."""
    last = len(points) - 1
    return [
        points[i] for i in sorted({round(i * last / (_OF_FRONT - 1)) for i in range(_OF_FRONT)})
    ]


def _fitted(header: list[str], rows: list[list[str]]) -> list[str]:
    """A table of 80 columns: without what follows from the rest, then with shorter texts."""
    empty = [i for i in range(len(header)) if not any(row[i] for row in rows)]
    widths = {1: WIDTH, 2: WIDTH}
    while True:
        keep = [i for i in range(len(header)) if i not in empty]
        right = [n for n, i in enumerate(keep) if i not in (1, 2)]
        cells = [[_cut(r[i], widths.get(i, WIDTH)) for i in keep] for r in rows]
        lines = table([header[i] for i in keep], cells, right=right).splitlines()
        over = max(map(len, lines)) - WIDTH
        if over <= 0:
            return lines
        longest = {i: min(widths[i], max(len(r[i]) for r in rows)) for i in widths}
        if 6 not in empty:
            empty.append(6)  # throughput of one GPU
            continue
        column = max(longest, key=lambda i: longest[i])
        if longest[column] <= _SHORTEST:
            return [line[:WIDTH] for line in lines]
        widths[column] = max(_SHORTEST, longest[column] - over)


def words_of(p: Point, *, named: bool = True) -> list[str]:
    """How a point is run; its network is ``named`` where several are shown."""
    f = p.form
    found = [f.strategy, *str(f.layout).split(), f"rc-{f.recompute}", f.precision]
    if f.offload != "none":
        found.append(f"offload {f.offload}")
    if f.seq_len is not None:
        found.append(f"seq {f.seq_len}")
    network = p.network if named else ""
    said = set(str(f.layout).split())  # "schedule zb-1p" is "zb-1p" there
    more = [w for w in f.more.split(", ") if w.partition(" ")[2] not in said]
    return [*found, f.optimizer, *filter(None, [*more, network])]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def reasons(invalid: dict[str, int], n_points: int, most: int = 8) -> list[str]:
    """Why points fell out, with counts, the most frequent first."""
    if not invalid:
        return []
    lines = [f"fell out, of {n_points:,}:"]
    shown = list(invalid.items())[:most]
    width = len(f"{shown[0][1]:,}")
    for reason, n in shown:
        parts = wrapped(reason, WIDTH - width - 4)
        lines.append(f"  {n:>{width},}  {parts[0]}")
        lines += [" " * (width + 4) + p for p in parts[1:]]
    left = sum(list(invalid.values())[most:])
    if left:
        lines.append(f"  {left:,}  for {len(invalid) - most} other reasons")
    return lines


def _output(r: SweepResult) -> list[str]:
    if r.finished:
        return ["", f"{counted(r.n_evaluated, 'point')} in {r.output}"]
    if not r.n_done:
        return ["", f"stopped before a point was done: nothing was added to {r.output}.parts"]
    return ["", f"what is done is kept in {r.output}.parts: the same command with --resume goes on"]
