"""Start the server: on loopback unless told otherwise."""

from __future__ import annotations

import gc
import ipaddress
import socket
from collections.abc import Callable, Sequence

import uvicorn

from simcore.base.errors import UsageError
from simcore.serve.app import create_app
from simcore.serve.guard import RATE

#: Names of this machine for itself.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_BACKLOG = 128


def serve(
    host: str,
    port: int,
    *,
    names: Sequence[str] = (),
    rate: int = RATE,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Answer until interrupted. ``names`` are further host names of this server.

    ``say`` is told the address once it is listened on. Raises UsageError where that cannot be.
    """
    gc.enable()  # the command line switches it off: there, one answer is all
    opened = _listen(host, port)
    bound = opened.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    hosts = tuple(dict.fromkeys((*LOOPBACK, shown.lower(), *(n.lower() for n in names))))
    if not is_loopback(host) and not names:
        hosts = ()  # nobody said under which name others will ask
        say(f"warning: {host} lets others in, and nobody is asked who they are")
    app = create_app(hosts=hosts, rate=rate)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=10,
        limit_concurrency=None,
    )
    say(f"simcore serve: http://{shown}:{bound}/ (API: /docs; Ctrl-C ends)")
    uvicorn.Server(config).run(sockets=[opened])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket, before anything else costs time."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        opened = socket.socket(family, kind, proto)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)  # who comes before the first prediction is done waits for it
    except (OSError, UnicodeError) as err:
        why = getattr(err, "strerror", None) or "no such address"
        raise UsageError(f"cannot listen on {host} port {port}: {why}") from None
    return opened
