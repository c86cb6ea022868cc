"""Checks every request before it is handled: host, origin, cost and size; cancels it when its
client is gone.

Every page in a browser can send requests to a local server. So the Host header must be a name of
this server (against DNS rebinding), and a request of a page to the API must come from this server's
own page: every one of them computes. The library ``limits`` counts rates.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from simcore.base.units import MIB
from simcore.serve.uploads import MOST_BYTES

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

API = "/api/"
#: Cost units per second and client; a prediction costs one.
RATE = 120
#: Cost units of requests that take longer than a prediction.
COSTS = {
    "/api/v1/scaling": 4,
    "/api/v1/memory": 4,
    "/api/v1/trace": 8,
    "/api/v1/report": 60,
    "/api/v1/plan": 60,
    "/api/v1/sweep": 60,
    "/api/v1/uploads": 8,
}
#: Cost units of a request that searches for the most that fits or the best division, or that first
#: traces a model of a library; and how its query shows that it does.
SEARCH = 8
_SEARCHES = re.compile(r"=(?:max|auto)(?:&|$)|model=(?:timm|torchvision)(?::|%3a)", re.IGNORECASE)
#: A too large request is read and dropped up to this size, so that the sender receives the refusal.
DRAINED_BYTES = 64 * MIB
#: Content security policy: nothing from other servers, no inline scripts or styles, no frames.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def refusal(status: int, message: str, **headers: str) -> JSONResponse:
    """A response with one message, in the same JSON format as all problems."""
    body = {"problems": [{"field": "", "message": message}]}
    return JSONResponse(body, status_code=status, headers=headers or None)


class Guard:
    """ASGI middleware that checks requests.

    ``hosts``: names of this server, empty for any; ``rate``: cost units per second and client.
    """

    def __init__(self, app: App, *, hosts: tuple[str, ...], rate: int = RATE) -> None:
        self.app, self.hosts = app, hosts
        self._item = RateLimitItemPerSecond(rate)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on to the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if refused is not None:
            await refused(scope, receive, sent)
            return
        body = await _body(headers, receive)
        if body is None:
            answer = refusal(413, f"a request may be {MOST_BYTES:,} bytes long, not more")
            await answer(scope, receive, sent)
            return
        await _while_connected(self.app, scope, body, receive, sent)

    def _refused(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "")
        if self.hosts and _name(host) not in self.hosts:
            return refusal(400, "this server does not have that host name")
        if scope["path"].startswith(API):
            origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
            foreign = origin is not None and origin.partition("://")[2] != host
            if foreign or site not in ("none", "same-origin"):
                return refusal(403, "a page of another site may not do that")
            client = (scope.get("client") or ("", 0))[0]
            cost = cost_of(scope["path"], scope.get("query_string", b"").decode("latin-1"))
            if not self._limiter.hit(self._item, client, cost=cost):
                return busy("too many requests in a second")
        return None


def cost_of(path: str, query: str) -> int:
    """Cost units of a request, known before anything is computed."""
    return COSTS.get(path, 1) * (SEARCH if _SEARCHES.search(query) else 1)


def busy(why: str) -> JSONResponse:
    """A response of status 429, with the advice to try again in a second."""
    return refusal(429, f"{why}: try again in a second", **{"Retry-After": "1"})


def _name(host: str) -> str:
    """The Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """The body of a request, or None where it is too large; such a body is read and dropped."""
    if not headers.get("content-length") and not headers.get("transfer-encoding"):
        return b""
    stated = headers.get("content-length", "0")
    total = int(stated) if stated.isdecimal() else 0
    keep, seen = total <= MOST_BYTES, 0
    chunks: list[bytes] = []
    while seen <= DRAINED_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunk = message.get("body", b"")
        seen += len(chunk)
        keep = keep and seen <= MOST_BYTES
        chunks = [*chunks, chunk] if keep else []
        if not message.get("more_body"):
            break
    return b"".join(chunks) if keep else None


async def _while_connected(
    app: App, scope: Scope, body: bytes, receive: Receive, send: Send
) -> None:
    """Let ``app`` handle a request whose body was read, and cancel it when the client is gone."""
    gone = anyio.Event()
    given = False

    async def replayed() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await app(scope, replayed, send)
        group.cancel_scope.cancel()
