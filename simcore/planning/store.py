"""The folder of an unfinished sweep: parts while it runs, one output file when it is done.

``sweep.parquet`` grows as the folder ``sweep.parquet.parts``: part files that say which points of
which sweep they hold, and ``sweep.json``, what was asked. An interrupted sweep evaluates what no
sound part holds. Memory holds one part.
"""

from __future__ import annotations

import errno
import hashlib
import json
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simcore.base.atomic import PARTIAL, replacing, write_text
from simcore.base.errors import DataError, InvalidConfig, UsageError
from simcore.hardware.cluster import ClusterSpec
from simcore.planning.evaluator import Evaluator
from simcore.planning.folder_lock import LOCK, FolderLock
from simcore.planning.output import output_problems, write_points
from simcore.planning.parts import Part, Span, UnusablePart, part_at, write_part
from simcore.planning.points import Batch

#: Evaluated points that make a part, points of any kind, and seconds since the last part: what a
#: killed sweep loses at most.
PART_POINTS, PART_OF_ALL, PART_S = 100_000, 10_000_000, 10.0

#: What was asked; written after the output file: the folder can go.
_ASKED, _FINISHED = "sweep.json", "finished"
_PARTS = "part-*.part"
#: Unusable parts, or missing ranges, that a sentence names.
_NAMED = 3

#: Is told, in a sentence, what a reader should know.
Say = Callable[[str], None]


def warn(sentence: str) -> None:
    """Tell who uses the library."""
    warnings.warn(sentence, stacklevel=2)


class Store:
    """The parts of one sweep on disk, for as long as this process runs it.

    ``gaps``: the pieces that no sound part holds. ``finished``: the output file is there, whole.
    Raises UsageError where another process, or another sweep's parts, are in the way, DataError
    where the disk cannot be written. ``suspend`` or ``finish`` ends it.
    """

    def __init__(
        self, path: Path, evaluator: Evaluator, *, resume: bool = False, say: Say = warn
    ) -> None:
        if problems := output_problems(path):
            raise InvalidConfig(problems)
        self.path, self._evaluator, self._say = path, evaluator, say
        self.folder = path.with_name(path.name + ".parts")
        self._asked = evaluator.asked()
        text = json.dumps(self._asked, sort_keys=True)
        self._sweep = hashlib.sha256(text.encode()).hexdigest()
        self._parts: list[Part] = []
        self._pending: list[Batch] = []
        self._first = self._rows = 0
        self._since = time.monotonic()
        self._failed = self.finished = False
        with self._writing():
            self._lock = FolderLock(self.folder)
        try:
            with self._writing():
                self._open(resume)
        except BaseException:
            with suppress(OSError):
                self._lock.release()
                self.folder.rmdir()  # where it holds nothing
            raise

    @property
    def clusters(self) -> tuple[ClusterSpec, ...]:
        """The clusters that its batches index."""
        return self._evaluator.space.clusters

    @property
    def gaps(self) -> list[Span]:
        """Pieces that no part on disk holds, in order."""
        found: list[Span] = []
        at = 0
        for part in self._parts:
            if part.pieces[0] > at:
                found.append((at, part.pieces[0]))
            at = part.pieces[1]
        if at < len(self._evaluator):
            found.append((at, len(self._evaluator)))
        return found

    @property
    def going_on(self) -> str:
        """Where the parts are and how to go on; empty where there are none."""
        if not self._parts:
            return ""
        return f"what is done is kept in {self.folder}: the same command with --resume goes on"

    def batches(self) -> Iterator[Batch]:
        """The batches of every part on disk, in order. Raises DataError for a damaged part."""
        for part in self._parts:
            at = part.pieces[0]
            try:
                for batch in part.batches(self._sweep):
                    if self._evaluator.number(batch.unit, batch.piece) != at:
                        raise UnusablePart("holds other points than it says")
                    at += 1
                    yield batch
                if at != part.pieces[1]:
                    raise UnusablePart("holds fewer points than it says")
            except UnusablePart as err:
                raise DataError(f"{err}: --resume computes it again", file=part.file) from None

    def add(self, batch: Batch) -> None:
        """Take in the next batch of a gap; a part is written when there is enough."""
        number = self._evaluator.number(batch.unit, batch.piece)
        if self._pending and number != self._first + len(self._pending):
            self.flush()
        if not self._pending:
            self._first, self._rows, self._since = number, 0, time.monotonic()
        self._pending.append(batch)
        self._rows += len(batch)
        points = self._points(self._first)[0], self._points(number)[1]
        if (
            self._rows >= PART_POINTS
            or points[1] - points[0] >= PART_OF_ALL
            or time.monotonic() - self._since >= PART_S
        ):
            self.flush()

    def flush(self) -> None:
        """Write what is pending as a part. Raises DataError where the disk cannot be written."""
        if not self._pending:
            return
        pieces = self._first, self._first + len(self._pending)
        points = self._points(pieces[0])[0], self._points(pieces[1] - 1)[1]
        with self._writing():
            part = write_part(self.folder, self._sweep, pieces, points, self._pending)
        self._pending = []
        self._parts = sorted({*self._parts, part})

    def suspend(self) -> None:
        """Write what is pending, to go on later; nothing stays of a sweep that has nothing.

        Raises DataError where the disk cannot be written, once.
        """
        with _without_interrupts():
            try:
                if not self._failed and not self.finished:
                    self.flush()
            finally:
                if not self._parts or self.finished:
                    self._clear()
                with suppress(OSError):
                    self._lock.release()

    def finish(self) -> None:
        """Write the output file of all parts, and remove them.

        Raises DataError where a part is missing or damaged, or the disk cannot be written; there
        is no output file then, but for one that was there before.
        """
        self.flush()
        if gaps := self.gaps:
            raise DataError(f"{self._missing(gaps)}: --resume computes them", file=self.folder)
        with self._writing(), replacing(self.path, self.folder) as partial:
            write_points(partial, self.path.suffix.lower(), self.batches(), self.clusters)
        self.finished = True
        with suppress(OSError):
            (self.folder / _FINISHED).touch()
        self.suspend()

    def _points(self, number: int) -> Span:
        """The points of a piece."""
        before = self._evaluator.points_before
        return before(number), before(number + 1)

    def _open(self, resume: bool) -> None:
        """Begin, or go on with the parts that are there."""
        if strangers := sorted(f.name for f in self.folder.iterdir() if not _is_own(f)):
            raise UsageError(
                f"folder {self.folder.name} holds files that are no part of a sweep of this version"
                f" of simcore ({_some(strangers)}): move them away, or give another -o"
            )
        for file in self.folder.glob(f"*{PARTIAL}"):
            file.unlink()
        if (self.folder / _FINISHED).exists() and self.path.exists():
            self._empty()  # its sweep was killed while it did so
        files = sorted(self.folder.glob(_PARTS))
        if files and not resume:
            raise UsageError(
                f"{self.folder.name} holds an unfinished sweep: "
                "go on with --resume, or remove the folder"
            )
        if not files and resume:
            if self.path.exists():
                self._empty()
                raise UsageError(
                    f"nothing to resume: {self.path.name} is there, "
                    "and no unfinished sweep beside it"
                )
            self._say(f"{self.folder.name} holds no points: the sweep starts at its beginning")
        if files:
            self._take(files)
        write_text(self.folder / _ASKED, json.dumps(self._asked, indent=1) + "\n")

    def _take(self, files: list[Path]) -> None:
        """Take the sound parts of this sweep; say what is wrong with the others, remove them.

        Raises UsageError, and touches nothing, where the folder is of another sweep.
        """
        other = self._differences()
        wrong: dict[Path, str] = {}
        foreign = False
        parts: list[Part] = []
        for file in files:
            try:
                parts.append(part_at(file, self._sweep))
            except UnusablePart as err:
                wrong[file] = str(err)
                foreign = foreign or err.foreign
        if other or (other is None and foreign):
            differing = f" (another {_some(other)})" if other else ""
            raise UsageError(
                f"{self.folder.name} is of another sweep{differing}: "
                "give its options, or remove the folder"
            )
        for part in sorted(parts):
            if self._parts and part.pieces[0] < self._parts[-1].pieces[1]:
                wrong[part.file] = f"repeats points of {self._parts[-1].file.name}"
            else:
                self._parts.append(part)
        self._say_what_is_wrong(wrong)
        for file in wrong:
            file.unlink()

    def _say_what_is_wrong(self, wrong: dict[Path, str]) -> None:
        inner = [gap for gap in self.gaps if gap[1] < len(self._evaluator)]
        said = []
        if wrong:
            said.append(_some([f"{file.name} {what}" for file, what in sorted(wrong.items())]))
        if inner:
            said.append(self._missing(inner))
        if said:
            self._say(f"{self.folder.name}: {'; '.join(said)}: what is missing is computed again")

    def _missing(self, gaps: list[Span]) -> str:
        """Which points gaps are, counted from 1."""
        spans = [(self._points(a)[0] + 1, self._points(b - 1)[1]) for a, b in gaps]
        n = self._evaluator.points_before(len(self._evaluator))
        return f"no part holds points {_some([f'{a:,} to {b:,}' for a, b in spans])} of {n:,}"

    def _differences(self) -> list[str] | None:
        """In what the sweep of the folder differs from this one; None where that is not known."""
        try:
            there = json.loads((self.folder / _ASKED).read_text("utf-8"))
            if not isinstance(there, dict):
                return None
        except (OSError, ValueError):
            return None
        return [k for k in {**self._asked, **there} if there.get(k) != self._asked.get(k)]

    def _empty(self) -> None:
        """Remove what this module wrote; last what says that it can go. Raises OSError."""
        own = [f for f in self.folder.iterdir() if _is_own(f) and f.name != LOCK]
        for file in sorted(own, key=lambda f: f.name == _FINISHED):
            if not file.name.startswith("."):
                file.unlink()

    def _clear(self) -> None:
        """Remove the folder."""
        try:
            self._empty()
            self._lock.release()
            self.folder.rmdir()
        except OSError as err:
            self._say(f"{self.folder} cannot be removed ({err.strerror or err})")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns what the disk refuses into one sentence."""
        try:
            yield
        except OSError as err:
            self._failed = True
            full = err.errno in (errno.ENOSPC, errno.EDQUOT)
            why = "no space is left on the disk" if full else err.strerror or str(err)
            after = f"; {self.going_on}" if self.going_on else ""
            raise DataError(f"cannot be written: {why}{after}", file=self.path) from None


def _is_own(file: Path) -> bool:
    """Whether this module wrote a file of the folder; hidden files are the system's."""
    named = file.name in (_ASKED, _FINISHED, LOCK) or file.name.startswith(".")
    return named or file.match(_PARTS) or file.name.endswith(PARTIAL)


def _some(texts: list[str]) -> str:
    """The first few of many."""
    more = f" and {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C, pressed once more while the last part is written, has no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
