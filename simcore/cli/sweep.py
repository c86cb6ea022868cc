"""``simcore sweep``: predicts and ranks every combination of options."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simcore.base.errors import Problems, UnknownName
from simcore.cli.grid import grid_of
from simcore.cli.options import ALLOW_CODE, AS_JSON, WITH, option, takes_job, whole
from simcore.cli.output import complain, write_result

if TYPE_CHECKING:
    from simcore.planning.ranking import Point

INTERRUPTED = 130


@takes_job(axes=True)
def sweep(
    model: Annotated[
        str | None,
        option("--model", "NAME,...", "Model to train (needed), or several.", "model"),
    ] = None,
    gpus: Annotated[
        list[str] | None,
        option("--gpus", "GRID",
               "Clusters (needed): A6000ada:1..64x8, H100:1..64*2x8, 2x8xH100,4x8xH100.",
               "cluster"),
    ] = None,
    micro_batch: Annotated[
        str | None,
        option("--micro-batch", "GRID", "Samples per GPU and micro-step: 1..8, 1..64*2."),
    ] = None,
    batch: Annotated[str | None, option("--batch", "GRID", "Same as --micro-batch.")] = None,
    by: Annotated[
        str | None,
        option("--by", "WHAT",
               "Rank by throughput (default; tokens of language models), per-gpu, step, memory, "
               "tokens or samples.", "ranking"),
    ] = None,
    top: Annotated[str | None, option("--top", "N", "How many to show (default 10).")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE",
                     help="Write every point: .parquet, .csv or .json."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted sweep of this output.")
    ] = False,
    jobs: Annotated[
        str | None, option("--jobs", "N", "Processes that share the work (default 1).")
    ] = None,
    cluster: Annotated[
        str | None,
        option("--cluster", "WHERE",
               "A Dask cluster that does the work: tcp://HOST:8786, local or local:N."),
    ] = None,
    with_: WITH = None,
    as_json: AS_JSON = False,
    allow_code: ALLOW_CODE = False,
    **job: Any,
) -> None:  # fmt: skip
    """Predict every combination and rank those that fit.

    Takes predict's options, each with one value or several: names as a list or all, numbers as 4
    or 1,2,4 or 1..8 or 8..64:8 (steps) or 1..64*2 (doubling). Clusters are TYPE:NODESxGPUS with
    such values, or 4x8xA6000ada; a comma separates clusters. After Ctrl-C or SIGTERM, finished
    points are kept. Exit code 0: something fits, 1: nothing fits, 2: the command is wrong or a
    file cannot be written, 130: stopped.
    """
    from simcore import api
    from simcore.planning.output import output_problems
    from simcore.planning.ranking import SCORES
    from simcore.planning.workers import worker_problems

    problems = Problems()
    grid = grid_of(
        {"model": model, "gpus": gpus, "micro_batch": micro_batch if batch is None else batch,
         **job},
        with_, problems, example="write a grid such as A6000ada:1..64x8",
        allow_code=allow_code,
    )  # fmt: skip
    if batch is not None and micro_batch is not None:
        problems.append("give --batch or --micro-batch, not both: they are the same")
    if resume and output is None:
        problems.append("--resume needs the output file: -o FILE")
    count = whole("top", top, problems)
    processes = whole("jobs", jobs, problems) or 1
    problems += output_problems(output) if output is not None else []
    if by is not None and by not in SCORES:
        problems.append(str(UnknownName("ranking", by, SCORES)))
    where = grid.gpus or ["1x1xA6000ada"]  # so that the axes are checked in any case
    problems.attempt(api.make_space, grid.model or "latte-xl", where, **grid.words)
    problems += worker_problems(processes, cluster)
    problems.stop()
    grid.tell()
    with _stopped_by_sigterm(), ProgressBar(output) as progress:
        result = api.sweep(
            grid.model, grid.gpus, by=by or "throughput", top=count or 10, output=output,
            resume=resume, keep=False, jobs=processes, cluster=cluster, progress=progress,
            say=lambda sentence: complain(f"note: {sentence}"), **grid.words,
        )  # fmt: skip
    write_result(as_json, result.to_dict, lambda: str(result))
    if not result.finished:
        raise typer.Exit(INTERRUPTED)
    if not result.n_fit:
        raise typer.Exit(1)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM (``kill``, schedulers) like Ctrl-C, so that finished points are kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class ProgressBar:
    """A progress bar on standard error with rate, remaining time and the best point; none if piped.

    Points from before a resumption do not count for the rate.
    """

    def __init__(self, output: Path | None = None) -> None:
        self._output = output

    def __enter__(self) -> Callable[[int, int, Point | None], None] | None:
        self._bar: Any = None
        if not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"), BarColumn(bar_width=20),
            TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
            TextColumn("{task.fields[now]}"), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task: Any = None
        return self._show

    def _show(self, done: int, total: int, best: Point | None) -> None:
        if self._task is None:
            self._task = self._bar.add_task("", total=total, completed=done, rate="", now="")
            return
        speed = self._bar.tasks[0].speed
        now = f"best {best.cluster} {best.samples_per_s:,.3g}/s" if best else ""
        if done == total and self._output is not None:
            now = f"writing {self._output.name}"
        self._bar.update(
            self._task, completed=done, rate=f"{speed:,.0f}/s" if speed else "", now=now
        )

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
