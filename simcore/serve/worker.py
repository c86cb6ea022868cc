"""Where the server computes: processes, each of which ends a request that takes too long.

A process handles one request at a time, within bounds of time and memory that the system keeps. So
no request can hold up the page, the other processes or the end of the server.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from simcore.base.errors import UsageError
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
#: The module that a new process has loaded already: processes are forked from one that has.
_LOADED = "simcore.serve.warm"


class TooBusyError(Exception):
    """Too many requests are waiting already."""


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
            raise TooBusyError
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
    """One process, for one request at a time."""

    def __init__(self, limit_s: float, most_bytes: int) -> None:
        self._bounds = (limit_s, most_bytes)
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """``work(*args)``, as in ``Processes``."""
        connection = self._connected()
        connection.send((work, args))
        try:
            await anyio.wait_readable(connection)
        except BaseException:  # the client is gone, or the server ends
            await self._finish_or_end(connection)
            raise
        try:
            failed, found = connection.recv()
        except EOFError:
            raise self._why_ended() from None
        if failed:
            raise found
        result: T = found
        return result

    def close(self) -> None:
        """End the process, with whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or self._process is None or not self._process.is_alive():
            self.close()
            methods = multiprocessing.get_all_start_methods()
            how = "forkserver" if "forkserver" in methods else "spawn"
            context = multiprocessing.get_context(how)
            context.set_forkserver_preload([_LOADED])
            self._connection, other = context.Pipe()
            process = context.Process(target=_handle, args=(other, *self._bounds), daemon=True)  # type: ignore[attr-defined]
            process.start()
            other.close()
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
                connection.recv()
            except EOFError:
                self.close()

    def _why_ended(self) -> Exception:
        process = self._process
        assert process is not None
        process.join()
        code = process.exitcode
        self.close()
        if code == -signal.SIGALRM:
            return UsageError(
                f"this takes longer than the {self._bounds[0]:g} s that a request to the page may: "
                "`simcore predict` on the command line has no limit"
            )
        return RuntimeError(f"the process that computed this ended with code {code}")


def _handle(connection: Connection, limit_s: float, most_bytes: int) -> None:
    """Handle requests until the server ends; the system ends one that takes ``limit_s``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _bound_memory(most_bytes)
    while True:
        try:
            work, args = connection.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            reply = (False, work(*args))
        except MemoryError:
            reply = (True, UsageError("this needs more memory than a request to the page may take"))
        except Exception as err:
            reply = (True, err)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        connection.send(reply)


def _bound_memory(most_bytes: int) -> None:
    """Limit what this process can allocate beyond what it has, where the system tells that."""
    import resource  # POSIX alone has it

    statm = Path("/proc/self/statm")
    if statm.exists():
        pages = int(statm.read_text(encoding="ascii").split()[5])  # data and stack
        most = pages * resource.getpagesize() + most_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
