"""A progress bar with the time that is left, on standard error."""

from __future__ import annotations

import sys
from typing import Any

from simcore.calibrate.bench.harness import Progress, Silent


class Bar:
    """rich's bar on a terminal; a line at each tenth elsewhere."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._total = 0
        self._told = -1

    def start(self, total: int, budget_s: float) -> None:
        """``total`` cases in at most ``budget_s``."""
        self._total = max(total, 1)
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.completed}/{task.total}"), BarColumn(24),
            TextColumn("{task.fields[left]} left  {task.description}"),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._progress.start()
        self._task = self._progress.add_task("", total=self._total, left="")

    def step(self, what: str, done: int, left_s: float) -> None:
        """A case begins."""
        minutes, seconds = divmod(max(0, int(left_s)), 60)
        left = f"{minutes}:{seconds:02d}"
        if self._progress is not None:
            self._progress.update(self._task, completed=done, left=left, description=what[:44])
            return
        tenth = 10 * done // self._total
        if tenth > self._told:
            self._told = tenth
            sys.stderr.write(f"{done}/{self._total} benchmarks, at most {left} left: {what}\n")
            sys.stderr.flush()

    def end(self, done: int, total: int) -> None:
        """No more cases."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        sys.stderr.write(f"{done} of {total} benchmarks measured\n")
        sys.stderr.flush()


def bar(*, quiet: bool) -> Progress:
    """A bar, or nothing."""
    return Silent() if quiet else Bar()
