"""Starts the server, by default on the loopback address."""

from __future__ import annotations

import gc
import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from simcore.base.errors import UsageError
from simcore.serve.app import Workers, create_app
from simcore.serve.guard import RATE
from simcore.serve.worker import LONG_BYTES, LONG_S, MOST_LONG, MOST_QUICK, Processes
from simcore.validate.processes import default_jobs

#: Names under which this machine reaches itself.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_BACKLOG = 128
#: A connection is closed when it had no whole request for ``IDLE_S``, or when one that was
#: begun is not answered, or its answer not read, after ``ANSWER_S`` [s].
IDLE_S, ANSWER_S = 10, 120
_LOOK_S = 2.0
#: How long requests may still take when the server is told to end (SIGTERM, Ctrl-C).
_END_S = 2


def serve(
    host: str,
    port: int,
    *,
    names: Sequence[str] = (),
    rate: int = RATE,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until interrupted.

    host, port  address to listen on
    names       further host names of this server
    rate        cost units per second and client
    say         called with messages, such as the address when the server listens

    Raises UsageError where the address cannot be used.
    """
    gc.enable()  # cli.main disables it, for processes that end after one answer
    opened = _listen(host, port)
    bound = opened.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    hosts = tuple(dict.fromkeys((*LOOPBACK, shown.lower(), *(n.lower() for n in names))))
    if not is_loopback(host) and not names:
        hosts = ()  # the names that other machines will use are not known
        say(f"warning: other machines can connect to {host}, and there is no access control")
    workers = None
    if os.name == "posix":
        quick = Processes(at_once=min(default_jobs(), MOST_QUICK))
        workers = Workers(quick, Processes(), Processes(MOST_LONG, LONG_S, LONG_BYTES))
    config = uvicorn.Config(
        create_app(hosts=hosts, rate=rate, workers=workers),
        http=_Patient,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=_END_S,
    )
    say(f"simcore serve: http://{shown}:{bound}/ (API: /docs; Ctrl-C ends)")
    try:
        uvicorn.Server(config).run(sockets=[opened])
    finally:
        if workers is not None:
            workers.close()


class _Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed when its client sends no request, or does not read the answer.

    uvicorn itself waits without end for the rest of a request that was begun.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._waited_s = self._answering_s = 0.0
        self._last = self.cycle
        self._next_look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def _next_look(self) -> None:
        self._look = self.loop.call_later(_LOOK_S, self._close_if_stuck)

    def _close_if_stuck(self) -> None:
        another, self._last = self.cycle is not self._last, self.cycle  # one for each request
        answering = self.cycle is not None and not self.cycle.response_complete
        self._waited_s = 0.0 if answering or another else self._waited_s + _LOOK_S
        self._answering_s = self._answering_s + _LOOK_S if answering and not another else 0.0
        if self._waited_s > IDLE_S or self._answering_s > ANSWER_S:
            self.transport.abort()
        else:
            self._next_look()


def is_loopback(host: str) -> bool:
    """Whether ``host`` is an address that only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; opened first, so that errors appear at once."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        opened = socket.socket(family, kind, proto)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)  # clients that connect before the server is ready wait
    except (OSError, UnicodeError) as err:
        why = getattr(err, "strerror", None) or "no such address"
        raise UsageError(f"cannot listen on {host} port {port}: {why}") from None
    return opened
