"""Where the server computes: processes, each of which ends a request that takes too long.

A process handles one request at a time, within bounds of time and memory that the system keeps. So
no request can hold up the page, the other processes or the end of the server.
"""

from __future__ import annotations

import errno
import logging
import multiprocessing
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from simcore.base.errors import SimcoreError, UsageError
from simcore.base.units import MIB

T = TypeVar("T")

#: Most requests that wait for the processes of predictions, and for that of longer answers.
MOST_WAITING, MOST_LONG = 24, 4
#: Most processes of predictions: one for each processor, up to this number.
MOST_QUICK = 4
#: Longest time of a prediction, and of a trace, a report or a search [s].
LIMIT_S, LONG_S = 5.0, 20.0
#: Most memory that the two may allocate beyond what a process has before its first request. A
#: report needs 60 MB, the first trace of a model of timm or torchvision 300 MB.
MOST_BYTES, LONG_BYTES = 192 * MIB, 512 * MIB
#: How long the answer to a client that is gone may still take before its process is ended [s].
_GONE_S = 1.0
#: Pause before a request is computed again: what the system ends is not gone at once [s].
_PAUSE_S = 0.1
#: The module that a new process has loaded already: processes are forked from one that has.
_LOADED = "simcore.serve.warm"
_LOG = logging.getLogger("uvicorn.error")


class TooBusyError(Exception):
    """The machine cannot compute the request at present; the text says why."""


class _EndedError(Exception):
    """The process ended while it computed; the argument is its exit code."""


class Worker(Protocol):
    """What handles requests, in turn."""

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """``work(*args)``. Raises TooBusyError, and UsageError for a request that is too large."""

    def close(self) -> None:
        """End it, with whatever it is doing."""


class _Queue:
    """Lets ``at_once`` requests in, in their order; at most ``most_waiting`` are in or wait."""

    def __init__(self, most_waiting: int, at_once: int = 1) -> None:
        self._turn: anyio.CapacityLimiter | None = None
        self._waiting, self._most, self._at_once = 0, most_waiting, at_once

    async def __aenter__(self) -> None:
        if self._turn is None:  # created here, since it belongs to the running event loop
            self._turn = anyio.CapacityLimiter(self._at_once)
        if self._waiting >= self._most:
            raise TooBusyError("too many requests are waiting")
        self._waiting += 1
        try:
            await self._turn.acquire()
        except BaseException:
            self._waiting -= 1
            raise

    async def __aexit__(self, *_error: object) -> None:
        assert self._turn is not None
        self._turn.release()
        self._waiting -= 1


class Thread:
    """A thread of this process, for tests; it bounds neither time nor memory."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._queue = _Queue(most_waiting)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """``work(*args)``. Raises TooBusyError."""
        async with self._queue:
            return await anyio.to_thread.run_sync(partial(work, *args))

    def close(self) -> None:
        """Nothing to end."""


class Processes:
    """Processes of their own, each of which is begun anew when it had to be ended.

    limit_s     longest time of a request
    most_bytes  most memory that the requests of a process allocate
    at_once     number of processes; each handles one request at a time
    """

    def __init__(
        self,
        most_waiting: int = MOST_WAITING,
        limit_s: float = LIMIT_S,
        most_bytes: float = MOST_BYTES,
        at_once: int = 1,
    ) -> None:
        self._queue = _Queue(most_waiting, at_once)
        self._processes = [_Process(limit_s, int(most_bytes)) for _ in range(at_once)]
        self._free = list(self._processes)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """``work(*args)``; both must be such that pickle can send them.

        Raises TooBusyError, UsageError beyond the bounds, and what ``work`` raises.
        """
        async with self._queue:
            process = self._free.pop()  # the one that was used last: its caches are warm
            try:
                return await process.run(work, *args)
            finally:
                self._free.append(process)

    def close(self) -> None:
        """End the processes, with whatever they are doing."""
        for process in self._processes:
            process.close()


class _Process:
    """One process, for one request at a time.

    What fails otherwise than by an error of simcore is computed once more in a fresh process: the
    system may have ended the one before, or its caches filled the memory that it may have.
    """

    def __init__(self, limit_s: float, most_bytes: int) -> None:
        self._bounds = (limit_s, most_bytes)
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """``work(*args)``, as in ``Processes``."""
        for attempt in (1, 2):
            fresh = not self._alive()
            failed, found = await self._tried(work, args)
            if not failed:
                return found
            if isinstance(found, SimcoreError):
                raise found
            self.close()
            if attempt == 2 or (fresh and isinstance(found, MemoryError)):
                break
            _LOG.warning("a request is computed again in a fresh process: %r", found)
            await anyio.sleep(_PAUSE_S)
        if found.args == (-signal.SIGKILL,):
            raise TooBusyError("the system ended the process that computed this")
        if isinstance(found, MemoryError | _EndedError):  # a library without memory may end it
            raise UsageError("this needs more memory than a request to the page may take")
        raise found

    async def _tried(self, work: Callable[..., Any], args: Any) -> tuple[bool, Any]:
        """(Whether ``work`` failed, its result or error)."""
        try:
            connection = self._connected()
            connection.send((work, args))
        except (EOFError, OSError) as err:
            return True, TooBusyError(f"the server has no process for this ({err})")
        try:
            await anyio.wait_readable(connection)
        except BaseException:  # the client is gone, or the server ends
            await self._finish_or_end(connection)
            raise
        try:
            failed, found = connection.recv()
        except (EOFError, OSError):
            return True, self._why_ended()
        return failed, found

    def close(self) -> None:
        """End the process, with whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def _alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def _connected(self) -> Connection:
        """The connection to the process, which is begun if there is none.

        Raises OSError and EOFError where the system gives none.
        """
        if self._connection is None or not self._alive():
            self.close()
            methods = multiprocessing.get_all_start_methods()
            how = "forkserver" if "forkserver" in methods else "spawn"
            context = multiprocessing.get_context(how)
            context.set_forkserver_preload([_LOADED])
            self._connection, other = context.Pipe()
            with other:
                process = context.Process(target=_handle, args=(other, *self._bounds), daemon=True)  # type: ignore[attr-defined]
                process.start()
            self._process = process
        return self._connection

    async def _finish_or_end(self, connection: Connection) -> None:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_GONE_S) as waited:
                await anyio.wait_readable(connection)
            if waited.cancelled_caught:
                self.close()
                return
            try:
                connection.recv_bytes()
            except (EOFError, OSError):
                self.close()

    def _why_ended(self) -> Exception:
        process = self._process
        assert process is not None
        process.join(_GONE_S)
        code = process.exitcode
        self.close()
        if code == -signal.SIGALRM:
            return UsageError(
                f"this takes longer than the {self._bounds[0]:g} s that a request to the page may: "
                "`simcore predict` on the command line has no limit"
            )
        return _EndedError(code)


def _handle(connection: Connection, limit_s: float, most_bytes: int) -> None:
    """Handle requests until the server ends; the system ends one that takes ``limit_s``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _bound_memory(most_bytes)
    while True:
        try:
            raw = connection.recv_bytes()
        except (EOFError, OSError):
            return
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        reply = _reply(raw)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        connection.send_bytes(reply)


def _reply(raw: bytes) -> bytes:
    """(Whether it failed, the result or error) of a request, both as pickle writes them."""
    try:
        work, args = ForkingPickler.loads(raw)
        return bytes(ForkingPickler.dumps((False, work(*args))))
    except Exception as err:
        failed = MemoryError() if _short_of_memory(err) else err
    try:
        return bytes(ForkingPickler.dumps((True, failed)))
    except Exception:  # not every library's error can be sent
        return bytes(ForkingPickler.dumps((True, RuntimeError(repr(failed)))))


def _short_of_memory(err: BaseException | None) -> bool:
    """Whether an error, or one during whose handling it was raised, is of missing memory.

    Without memory the interpreter may raise SystemError, and fail to load an installed library.
    """
    while err is not None:
        library = isinstance(err, ImportError) and not isinstance(err, ModuleNotFoundError)
        told = isinstance(err, OSError) and err.errno == errno.ENOMEM
        if library or told or isinstance(err, MemoryError | SystemError):
            return True
        err = err.__context__
    return False


def _bound_memory(most_bytes: int) -> None:
    """Limit what this process can allocate beyond what it has, where the system tells that."""
    import resource  # POSIX alone has it

    statm = Path("/proc/self/statm")
    if statm.exists():
        pages = int(statm.read_text(encoding="ascii").split()[5])  # data and stack
        most = pages * resource.getpagesize() + most_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
