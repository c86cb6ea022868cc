"""A progress bar with the remaining time, on standard error."""

from __future__ import annotations

import sys
from typing import Any

from simcore.calibrate.bench.harness import Progress


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
