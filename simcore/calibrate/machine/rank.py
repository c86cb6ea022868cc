"""The process of one rank of a calibration or selftest: its options, progress bar and output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.calibrate.bench.case import World
from simcore.calibrate.bench.harness import Progress
from simcore.calibrate.bench.ranks import Ranks, local_rank, world_size
from simcore.calibrate.machine.run import (
    THIS_MACHINE,
    Calibrated,
    CalibrationOptions,
    DeviceKind,
    calibrate_rank,
    needed_torch,
)


class Bar(Progress):
    """A bar of the library rich on a terminal; elsewhere one line per tenth of the cases."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._total = 0
        self._last_tenth = -1

    def start(self, total: int, budget_s: float) -> None:
        """Show the bar for ``total`` cases."""
        self._total = max(total, 1)
        if not sys.stderr.isatty():
            return
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.TextColumn("{task.completed}/{task.total}"), progress.BarColumn(24),
            progress.TextColumn("{task.fields[left]} left  {task.description}"),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._progress.start()
        self._task = self._progress.add_task("", total=self._total, left="")

    def step(self, what: str, done: int, left_s: float) -> None:
        """Show that the case ``what`` begins; ``done`` cases are done, ``left_s`` seconds left."""
        minutes, seconds = divmod(max(0, int(left_s)), 60)
        left = f"{minutes}:{seconds:02d}"
        if self._progress is not None:
            self._progress.update(self._task, completed=done, left=left, description=what[:44])
            return
        tenth = 10 * done // self._total
        if tenth > self._last_tenth:
            self._last_tenth = tenth
            sys.stderr.write(f"{done}/{self._total} benchmarks, at most {left} left: {what}\n")
            sys.stderr.flush()

    def end(self, done: int, total: int) -> None:
        """Remove the bar and print how many of ``total`` cases were measured."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        sys.stderr.write(f"{done} of {total} benchmarks measured\n")
        sys.stderr.flush()


def bar(*, quiet: bool) -> Progress:
    """A progress bar, or one that shows nothing if ``quiet``."""
    return Progress() if quiet else Bar()


#: Exit code after an interrupt.
INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simcore.calibrate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("-o", "--output", type=Path, default=Path(f"{THIS_MACHINE}.yaml"))
    parser.add_argument("--name", default=THIS_MACHINE)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--bad-rows", choices=("refuse", "skip"), default="refuse")
    parser.add_argument("--families")
    parser.add_argument("--selftest", action="store_true")
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--result", type=Path, help="write the answer here as JSON")
    parser.add_argument("--quiet", action="store_true")
    return parser


def _options(words: argparse.Namespace) -> CalibrationOptions:
    device: DeviceKind = words.device or ("cuda" if needed_torch().cuda.is_available() else "cpu")
    families = tuple(words.families.split(",")) if words.families else None
    return CalibrationOptions(
        words.output, device, words.name, words.minutes, words.resume, words.bad_rows, families
    )


def main(argv: Sequence[str]) -> int:
    """Run one rank and return the exit code. Only rank 0 prints the result."""
    words = _parser().parse_args(argv)
    try:
        options = _options(words)
        several = world_size() > 1
        backend = "gloo" if options.device == "cpu" else "cpu:gloo,cuda:nccl"
        if options.device == "cuda" and several:
            needed_torch().cuda.set_device(local_rank())
        world: World = Ranks.join(backend) if several else World()
        try:
            answer = _work(words, options, world)
        finally:
            if several:
                Ranks.leave()
    except SimcoreError as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    if answer is not None and words.result is not None:
        words.result.write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _work(
    words: argparse.Namespace, options: CalibrationOptions, world: World
) -> dict[str, Any] | None:
    progress = bar(quiet=words.quiet or world.rank != 0)
    if words.selftest:
        from simcore.calibrate.machine.selftest import selftest_rank

        return selftest_rank(options, words.calibration, world, progress)
    made = calibrate_rank(options, world, progress)
    if made is None:
        return None
    answer = summary(made)
    if words.result is None:
        from simcore.calibrate.summaries import render_summary

        sys.stdout.write(render_summary(answer))
    return answer


def summary(made: Calibrated) -> dict[str, Any]:
    """The result of a calibration as plain data: the profile, counts of cases, files written."""
    from simcore.calibrate.summaries import machine_data

    o = made.outcome
    return {
        **machine_data(made.record, made.machine, made.notes, made.files),
        "cases": {"measured": o.done, "kept": o.skipped, "left": o.left, "failed": o.failed},
        "disturbed_frac": o.disturbed_frac,
    }
