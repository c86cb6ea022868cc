"""Which mutants the tests notice, without starting the tests anew for each.

All tests are imported once; every file of tests then runs in a fork, which notes the functions that
each test enters. A mutant inside a function becomes its code in a further fork, which runs the
tests that enter it, the quickest first, then the others of the same files: a file that never enters
it cannot notice. A mutant of what runs at import (a constant, a default) is imported in a fork of a
process that has no module of simcore yet, but all that tests import beside it, and runs all tests
that mirror its module: the quickest that enter the module first, for these notice most, and file by
file the others. What a test reaches only in a process that it starts itself is not mutated there.
"""

from __future__ import annotations

import cProfile
import gc
import inspect
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

#: The repository that this file is part of, of which ``root`` is a copy.
HERE = Path(__file__).resolve().parents[1]
#: A function: the file that it stands in, below the root, and its first line.
Place = tuple[str, int]
#: Processor seconds of a test: so many, what its file needs unmutated (what its tests share may be
#: set up anew), and so many times what it needs itself. A loop without end is soon told from work.
_LIMIT_S, _LIMIT_RATIO = 20.0, 5.0
#: Seconds of the clock for a processor second, on a machine that others use too.
_CLOCK_RATIO = 20.0


@dataclass(frozen=True, slots=True)
class Change:
    """A mutated module: its file below the root, its texts, and the paths of its tests."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """What a test enters, the processor seconds that it takes, and those that it may take."""

    test: str
    seconds: float
    limit_s: float
    places: frozenset[Place]


#: Gets a change's number, the outcome, and how many tests enter the changed function.
Hear = Callable[[int, str, int], None]


def judge(changes: Sequence[Change], root: Path, jobs: int, hear: Hear) -> None:
    """Run the tests for each change and tell ``hear`` the outcome as soon as it is known.

    Outcomes are "noticed", "survived", "too long" and "crashed" (pytest itself ended). ``root`` is
    a copy of the repository. Raises RuntimeError where a test fails without a mutant.
    """
    os.chdir(root)
    sys.path[:] = [str(root), *(p for p in sys.path if p and Path(p).resolve() != HERE)]
    os.environ["PYTHONPATH"] = str(root)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # What tests use beside simcore, imported once for all forks.
    import hypothesis  # noqa: F401
    import torch  # noqa: F401

    at_import: list[tuple[int, dict[str, float]]] = []
    beside: list[str] = []
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with os.fdopen(writing, "w", encoding="utf-8") as answers:
            _exit_after(lambda: _judge_collected(changes, root, jobs, answers))
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answers:
        for line in answers:
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(answer["error"])
            if "beside" in answer:
                beside = answer["beside"]
            elif answer["outcome"] == "at import":
                at_import.append((answer["number"], answer["limits"]))
            else:
                hear(answer["number"], answer["outcome"], answer["entering"])
    os.waitpid(process, 0)
    if at_import:
        _import_beside(beside)
    tasks = [
        partial(_passes_imported, changes[number], root, limits) for number, limits in at_import
    ]
    whole = [_LIMIT_RATIO * _LIMIT_S + sum(limits.values()) for _, limits in at_import]
    for task, passed in _forks(tasks, jobs, whole):
        number, limits = at_import[task]
        hear(number, _OUTCOMES[passed], len(limits))


#: By whether the tests pass; None: they were stopped.
_OUTCOMES = {True: "survived", False: "noticed", None: "too long", "crashed": "crashed"}


class _Loop:
    """A pytest plugin that hands the collected tests to ``work`` instead of running them."""

    def __init__(self, work: Callable[[_Loop, list[pytest.Item]], object]) -> None:
        self.work, self.failed, self.error = work, False, ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Called by pytest once the tests are collected."""
        self.failed = bool(session.testsfailed)
        if not self.failed:
            try:
                self.work(self, list(session.items))
            except Exception:
                self.failed, self.error = True, traceback.format_exc()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        self.failed = self.failed or report.failed

    def passes(self, items: Sequence[pytest.Item], limits_s: Mapping[str, float]) -> bool:
        """Whether every test passes; stops at the first that does not.

        ``limits_s``: processor seconds of each test, after which this process is ended.
        """
        for n, item in enumerate(items):
            after = items[n + 1] if n + 1 < len(items) else None
            most = int(time.process_time() + limits_s.get(item.nodeid, _LIMIT_S)) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
            item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                break
        return not self.failed


def _pytest(loop: _Loop, paths: Sequence[str]) -> bool:
    """Collect the tests of ``paths`` for ``loop``; whether that went well."""
    arguments = ["-q", "-s", "-n", "0", "-p", "no:cacheprovider", "--timeout", "0",
                 "-m", "not long", *paths]  # fmt: skip
    return pytest.main(arguments, plugins=[loop]) in (0, 5) and not loop.failed


# ---------------------------------------------------------------- tests that are imported once


def _judge_collected(changes: Sequence[Change], root: Path, jobs: int, answers: Any) -> None:
    """Judge the changes inside functions; say in which order tests judge the others."""

    def say(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    at_import = _Entered(root)
    for file in sorted({change.file for change in changes}):  # modules that few tests import
        import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))

    def work(loop: _Loop, items: list[pytest.Item]) -> None:
        imported = at_import.end()
        say(beside=_beside(root))
        gc.unfreeze()
        reaches = _reaches(loop, items, root, jobs)
        functions = _live_functions(root)
        live = {file for file, _ in functions}
        tasks, numbers, entering, limits = [], [], [], []
        for number, change in enumerate(changes):
            mirrored = [
                (item, reach)
                for item in items
                if _is_below(item.nodeid, change.tests) and (reach := reaches.get(item.nodeid))
            ]
            places = _changed(change, imported)
            if change.file not in live:
                places = None
            order = _in_order(mirrored, places, change.file)
            enter = sum(bool(reach.places & (places or set())) for _, reach in order)
            if places is None:
                say(number=number, outcome="at import", limits=_limits(order))
                continue
            numbers.append(number)
            entering.append(enter)
            limits.append(_LIMIT_S + sum(reach.limit_s for _, reach in order))
            tasks.append(partial(_passes_changed, loop, change, order, functions))
        for task, passed in _forks(tasks, jobs, limits):
            say(number=numbers[task], outcome=_OUTCOMES[passed], entering=entering[task])

    loop = _Loop(work)
    if not _pytest(loop, sorted({path for change in changes for path in change.tests})):
        say(error=loop.error or "pytest cannot collect the tests")


def _beside(root: Path) -> list[str]:
    """The modules that tests import beside the repository's own."""
    return [
        name
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) and not Path(file).is_relative_to(root)
    ]


def _import_beside(names: Sequence[str]) -> None:
    """Import modules once for all forks; what needs more than an import stays for the tests."""
    for name in names:
        with suppress(Exception):
            import_module(name)


def _is_below(test: str, paths: Sequence[str]) -> bool:
    file = test.partition("::")[0]
    return any(file == path or file.startswith(path + "/") for path in paths)


def _in_order(
    mirrored: list[tuple[pytest.Item, Reach]], places: set[Place] | None, file: str
) -> list[tuple[pytest.Item, Reach]]:
    """The tests of a change, those that enter it first, and of these the quickest first.

    The others follow file by file, the quickest file first. Of changes at import (``places`` is
    None) all tests may notice; first those that enter the module.
    """

    def enters(reach: Reach) -> bool:
        if places is None:
            return any(name == file for name, _ in reach.places)
        return bool(reach.places & places)

    first = sorted((one for one in mirrored if enters(one[1])), key=lambda one: one[1].seconds)
    files: dict[Path, float] = defaultdict(float)
    for item, reach in mirrored if places is None else first:
        files[item.path] += reach.seconds
    others = [one for one in mirrored if not enters(one[1]) and one[0].path in files]
    return first + sorted(others, key=lambda one: (files[one[0].path], one[0].path))


def _limits(order: Sequence[tuple[pytest.Item, Reach]]) -> dict[str, float]:
    """The processor seconds that each test may take, in the order of the tests."""
    return {reach.test: reach.limit_s for _, reach in order}


def _reaches(loop: _Loop, items: list[pytest.Item], root: Path, jobs: int) -> dict[str, Reach]:
    """What each test enters, each file of tests in its own fork. Raises where a test fails."""
    files = defaultdict(list)
    for item in items:
        files[item.path].append(item)

    def run(of_file: list[pytest.Item]) -> list[tuple[str, float, list[Place]]] | str:
        found = []
        for item, after in zip(of_file, [*of_file[1:], None], strict=True):
            began, entered = time.process_time(), _Entered(root)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
            places = sorted(entered.end())
            found.append((item.nodeid, time.process_time() - began, places))
            if loop.failed:
                return item.nodeid
        return found

    tasks = [(lambda of_file=of_file: run(of_file)) for of_file in files.values()]
    reaches = {}
    for task, found in _forks(tasks, jobs, [1e4] * len(tasks)):
        if found is None or isinstance(found, str):
            raise RuntimeError(f"{found or list(files)[task]} fails without a mutant")
        of_file = _LIMIT_S + sum(seconds for _, seconds, _ in found)
        for test, seconds, places in found:
            limit_s = of_file + _LIMIT_RATIO * seconds
            entered = frozenset((file, line) for file, line in places)
            reaches[test] = Reach(test, seconds, limit_s, entered)
    return reaches


class _Entered:
    """Collects the functions of simcore that this thread enters."""

    def __init__(self, root: Path) -> None:
        self._inside, self._skip = str(root / "simcore") + os.sep, len(str(root)) + 1
        self._profile = cProfile.Profile(subcalls=False, builtins=False)
        self._profile.enable()

    def end(self) -> set[Place]:
        """Stop, and return where the functions are written."""
        self._profile.disable()
        codes = [entry.code for entry in self._profile.getstats()]
        return {
            (code.co_filename[self._skip :], code.co_firstlineno)
            for code in codes
            if isinstance(code, CodeType) and code.co_filename.startswith(self._inside)
        }


# ---------------------------------------------------------------- the code of a change


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that are nested in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _by_name(text: str, file: str) -> dict[tuple[str, int], list[CodeType]]:
    found = defaultdict(list)
    for code in _codes(compile(text, file, "exec")):
        found[code.co_qualname, code.co_firstlineno].append(code)
    return found


def _content(code: CodeType) -> tuple[object, ...]:
    """What a code object computes, apart from code nested in it and from places in the text."""
    constants = [None if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_exceptiontable, constants)  # fmt: skip


def _changed(change: Change, imported: set[Place]) -> set[Place] | None:
    """The functions whose own code changes; None where what changes is seen at import."""
    before = _by_name(change.before, change.file)
    try:
        after = _by_name(change.after, change.file)
    except SyntaxError:  # a mutant that cannot be imported
        return None
    if before.keys() != after.keys():
        return None
    places = set()
    for key, codes in before.items():
        changed = [_content(code) for code in codes] != [_content(code) for code in after[key]]
        apart = len(codes) == 1 or "<lambda>" not in key[0]
        if changed and not (apart and codes[0].co_flags & inspect.CO_OPTIMIZED):
            return None
        if changed:
            places.add((change.file, key[1]))
    return None if places & imported else places


def _live_functions(root: Path) -> dict[Place, list[FunctionType]]:
    """All functions of simcore that exist, by where they are written."""
    inside, skip = str(root / "simcore") + os.sep, len(str(root)) + 1
    found = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(inside):
            code = thing.__code__
            found[code.co_filename[skip:], code.co_firstlineno].append(thing)
    return found


def _put_in(change: Change, functions: dict[Place, list[FunctionType]]) -> None:
    """Give every live function of the changed module the changed code."""
    for (name, line), codes in _by_name(change.after, change.file).items():
        for function in functions.get((change.file, line), ()):
            if function.__code__.co_qualname == name and len(codes) == 1:
                function.__code__ = codes[0]


def _passes_changed(
    loop: _Loop,
    change: Change,
    order: Sequence[tuple[pytest.Item, Reach]],
    functions: dict[Place, list[FunctionType]],
) -> bool:
    """Whether the tests pass with the changed code in the functions that exist."""
    _put_in(change, functions)
    return loop.passes([item for item, _ in order], _limits(order))


def _passes_imported(change: Change, root: Path, limits_s: Mapping[str, float]) -> bool:
    """Whether the tests pass where the changed module is imported in place of its file.

    ``limits_s``: the processor seconds of each test, in the order in which they run.
    """
    path, plain = str(root / change.file), SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if loader.get_filename(name) == path:
            return compile(change.after, path, "exec", dont_inherit=True)
        return plain(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    place = {test: n for n, test in enumerate(limits_s)}

    def work(loop: _Loop, items: list[pytest.Item]) -> None:
        loop.passes(sorted(items, key=lambda item: place.get(item.nodeid, len(place))), limits_s)

    return _pytest(_Loop(work), change.tests)


# ---------------------------------------------------------------- forks


def _forks(
    tasks: Sequence[Callable[[], Any]], jobs: int, limits_s: Sequence[float]
) -> Iterator[tuple[int, Any]]:
    """Number and result of each task, which runs in a fork; None for one that did not end.

    "crashed" is the result of one that ended without. ``limits_s`` are processor seconds.
    """
    running: dict[int, tuple[int, float]] = {}
    waiting = list(range(len(tasks)))[::-1]
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop()
                process = os.fork()
                if not process:
                    os.setpgid(0, 0)
                    answer = Path(folder, str(task))
                    _exit_after(partial(_to_file, tasks[task], answer, limits_s[task]))
                running[process] = task, time.monotonic() + _CLOCK_RATIO * limits_s[task]
            time.sleep(0.02)
            for process, (task, end) in list(running.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if not ended and time.monotonic() < end:
                    continue
                with suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)
                if not ended:
                    os.waitpid(process, 0)
                del running[process]
                answer = Path(folder, str(task))
                crashed = "crashed" if ended and os.WIFEXITED(status) else None
                yield task, json.loads(answer.read_text()) if answer.exists() else crashed


def _to_file(task: Callable[[], Any], answer: Path, limit_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory(dir=answer.parent) as temporary:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        result = task()
        written = answer.with_suffix(".part")
        written.write_text(json.dumps(result))
        written.rename(answer)


def _exit_after(work: Callable[[], object]) -> None:
    """Run the work of a fork and end it, without what ends the process it came from."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
