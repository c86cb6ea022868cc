"""The folder of an unfinished sweep: part files while it runs, one output file when it is done.

The points of ``sweep.parquet`` are collected in the folder ``sweep.parquet.parts``. It holds part
files, each of which states its sweep and its range of points, and ``sweep.json``, the request. A
resumed sweep evaluates the points that no valid part holds. Only one part is in memory at a time.
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

#: A part is written after this many valid points, points of any kind, or seconds since the last
#: part; a killed sweep loses no more than that.
PART_POINTS, PART_OF_ALL, PART_S = 100_000, 10_000_000, 10.0

#: File of the request; file that marks the output as complete, so that the folder can be removed.
_ASKED, _FINISHED = "sweep.json", "finished"
_PARTS = "part-*.part"
#: Most unusable parts, or missing ranges, that a message lists.
_NAMED = 3

#: Called with a message (one sentence) for the user.
Say = Callable[[str], None]


def warn(sentence: str) -> None:
    """Issue a Python warning."""
    warnings.warn(sentence, stacklevel=2)


class Store:
    """The parts of one sweep on disk, while this process runs the sweep.

    ``finished``: whether the output file is complete. Call ``suspend`` or ``finish`` at the end.
    Raises UsageError where another process uses the folder or it holds parts of another sweep,
    DataError where the disk cannot be written.
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
                self.folder.rmdir()  # fails, as it should, where the folder is not empty
            raise

    @property
    def clusters(self) -> tuple[ClusterSpec, ...]:
        """The clusters to which the batches' ``cluster`` is an index."""
        return self._evaluator.space.clusters

    @property
    def gaps(self) -> list[Span]:
        """Ranges of pieces that no part on disk holds, in order."""
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
        """Message about where the parts are and how to resume; empty where there are no parts."""
        if not self._parts:
            return ""
        return f"finished points are in {self.folder}: repeat the command with --resume to continue"

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
        """Add the next batch of a gap, and write a part when it is large enough."""
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
        """Write the pending batches as a part. Raises DataError where the disk refuses them."""
        if not self._pending:
            return
        pieces = self._first, self._first + len(self._pending)
        points = self._points(pieces[0])[0], self._points(pieces[1] - 1)[1]
        with self._writing():
            part = write_part(self.folder, self._sweep, pieces, points, self._pending)
        self._pending = []
        self._parts = sorted({*self._parts, part})

    def suspend(self) -> None:
        """Write the pending batches and release the folder, so that the sweep can be resumed.

        A folder without parts is removed. Raises DataError where the disk cannot be written, unless
        an earlier call raised it.
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
        """Write the output file from all parts, and remove the parts.

        Raises DataError where a part is missing or damaged, or the disk cannot be written; an
        output file from before is then unchanged.
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
        """The range of points of a piece."""
        before = self._evaluator.points_before
        return before(number), before(number + 1)

    def _open(self, resume: bool) -> None:
        """Start the sweep, or resume it with the parts in the folder."""
        if strangers := sorted(f.name for f in self.folder.iterdir() if not _is_own(f)):
            raise UsageError(
                f"folder {self.folder.name} holds files that are not from a sweep of this version"
                f" of simcore ({_some(strangers)}): move them away, or give another -o"
            )
        for file in self.folder.glob(f"*{PARTIAL}"):
            file.unlink()
        if (self.folder / _FINISHED).exists() and self.path.exists():
            self._empty()  # the finished sweep was killed while it removed the parts
        files = sorted(self.folder.glob(_PARTS))
        if files and not resume:
            raise UsageError(
                f"{self.folder.name} holds an unfinished sweep: "
                "continue it with --resume, or remove the folder"
            )
        if not files and resume:
            if self.path.exists():
                self._empty()
                raise UsageError(
                    f"nothing to resume: {self.path.name} is complete, "
                    "and there is no unfinished sweep"
                )
            self._say(f"{self.folder.name} holds no points: the sweep starts from the beginning")
        if files:
            self._take(files)
        write_text(self.folder / _ASKED, json.dumps(self._asked, indent=1) + "\n")

    def _take(self, files: list[Path]) -> None:
        """Use the valid parts of this sweep; report the others, and remove them.

        Raises UsageError, and changes nothing, where the folder belongs to another sweep.
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
                f"{self.folder.name} belongs to another sweep{differing}: "
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
        findings = []
        if wrong:
            findings.append(_some([f"{file.name} {what}" for file, what in sorted(wrong.items())]))
        if inner:
            findings.append(self._missing(inner))
        if findings:
            self._say(
                f"{self.folder.name}: {'; '.join(findings)}: missing points are computed again"
            )

    def _missing(self, gaps: list[Span]) -> str:
        """Message about the missing points, counted from 1."""
        spans = [(self._points(a)[0] + 1, self._points(b - 1)[1]) for a, b in gaps]
        n = self._evaluator.points_before(len(self._evaluator))
        return f"no part holds points {_some([f'{a:,} to {b:,}' for a, b in spans])} of {n:,}"

    def _differences(self) -> list[str] | None:
        """Names of the options and contents in which the folder's sweep differs from this one; None
        where its request cannot be read.
        """
        try:
            there = json.loads((self.folder / _ASKED).read_text("utf-8"))
            if not isinstance(there, dict):
                return None
        except (OSError, ValueError):
            return None
        return [k for k in {**self._asked, **there} if there.get(k) != self._asked.get(k)]

    def _empty(self) -> None:
        """Remove the files that this module wrote, the mark of a finished sweep last.

        Raises OSError.
        """
        own = [f for f in self.folder.iterdir() if _is_own(f) and f.name != LOCK]
        for file in sorted(own, key=lambda f: f.name == _FINISHED):
            if not file.name.startswith("."):
                file.unlink()

    def _clear(self) -> None:
        """Remove the folder, or say that it cannot be removed."""
        try:
            self._empty()
            self._lock.release()
            self.folder.rmdir()
        except OSError as err:
            self._say(f"{self.folder} cannot be removed ({err.strerror or err})")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an OSError into a DataError of one sentence."""
        try:
            yield
        except OSError as err:
            self._failed = True
            full = err.errno in (errno.ENOSPC, errno.EDQUOT)
            why = "no space is left on the disk" if full else err.strerror or str(err)
            after = f"; {self.going_on}" if self.going_on else ""
            raise DataError(f"cannot be written: {why}{after}", file=self.path) from None


def _is_own(file: Path) -> bool:
    """Whether a file of the folder may stay: written by this module, or hidden (by the system)."""
    named = file.name in (_ASKED, _FINISHED, LOCK) or file.name.startswith(".")
    return named or file.match(_PARTS) or file.name.endswith(PARTIAL)


def _some(texts: list[str]) -> str:
    """Text that lists the first few texts and the number of the others."""
    more = f" and {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore further Ctrl-C while the last part is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
