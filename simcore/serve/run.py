"""Starts the server, by default on the loopback address."""

from __future__ import annotations

import gc
import ipaddress
import socket
from collections.abc import Callable, Sequence

import uvicorn

from simcore.base.errors import UsageError
from simcore.serve.app import create_app
from simcore.serve.guard import RATE

#: Names under which this machine reaches itself.
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
