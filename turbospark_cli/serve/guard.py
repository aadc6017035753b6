"""The ASGI wrapper outside Falcon through which every request passes, `http` and `websocket` alike.

Order: path → Host → Origin → key → body. Falcon sees only what passed all of them, with a canonical path
and its body read; nothing is public but exactly `/health`. A client that leaves cancels the request's task.
Errors are answered in the envelope of the protocol that the path belongs to.

NOTE: an ordinary middleware of Falcon is not enough: it is skipped for WebSockets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol

from turbospark_cli.errors import EngineUnavailable, InvalidRequest, PayloadTooLarge, TurbosparkError
from turbospark_cli.serve.access import Access, canonical_path
from turbospark_cli.serve.asgi import ASGIApp, Header, Receive, Scope, Send
from turbospark_cli.serve.clocks import BodyClock, WatchClock
from turbospark_cli.serve.exchange import SCOPE_KEY, Exchange

PUBLIC_PATH: Final = b"/health"  # the only one that never needs a key, in exactly this form
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 32 * 1024
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SECRET_HEADERS: Final = frozenset({b"authorization", b"x-api-key", b"api-key"})
_PREFLIGHT: Final[list[Header]] = [
    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
    (b"access-control-max-age", b"600"),
]

_log = logging.getLogger(__name__)

ErrorBody = Callable[[str, TurbosparkError], bytes]  # (path, error) -> the protocol's envelope


class Watcher(Protocol):
    """Who is told of every request that is over. `status` 0: the client left before an answer began."""

    def answered(self, exchange: Exchange, path: str, seconds: float) -> None: ...


class _Refused(Exception):
    """Carries nothing: the exchange has been answered already."""


class Guard:
    """Wraps `app`; `paths` are its routes without parameters, also served without their `/v1`."""

    def __init__(
        self, app: ASGIApp, access: Access, error_body: ErrorBody, watcher: Watcher, paths: Iterable[str]
    ) -> None:
        self._app = app
        self._access = access
        self._error_body = error_body
        self._watcher = watcher
        self._paths = {path: path for path in paths}
        for path in list(self._paths):
            if path.startswith("/v1/"):
                self._paths.setdefault(path[3:], path)
        self._bodies = BodyClock()
        self._clients = WatchClock()
        self._open = 0
        self._stopping = False
        self._idle = asyncio.Event()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """One request or WebSocket. PERF: not a coroutine, so that it costs no frame."""
        if scope["type"] == "http":
            return self._http(Exchange(scope, receive, send))
        return self._websocket(scope, receive, send)

    def stop(self) -> None:
        """From now on every new request is answered 503."""
        self._stopping = True

    async def idle(self) -> None:
        """Returns when no request is open; new ones are refused by then."""
        while self._open:
            self._idle.clear()
            await self._idle.wait()

    async def _http(self, exchange: Exchange) -> None:
        exchange.started = time.perf_counter()
        self._open += 1
        path = exchange.scope["path"]
        try:
            path = self._canonical(exchange.scope)
            await self._admit(exchange)
            await self._app(exchange.scope, exchange.first_event, exchange.send)
        except TurbosparkError as error:
            await self._refuse(exchange, path, error)
        except _Refused:
            pass
        except asyncio.CancelledError:
            if not exchange.gone and not self._stopping:
                raise
        except Exception:  # noqa: BLE001 (the outermost frame of a request)
            if exchange.gone:
                return  # writing to a client that has left
            _log.exception("%s: the request failed", exchange.id)
            await self._refuse(exchange, path, TurbosparkError(INTERNAL_ERROR))
        finally:
            self._clients.discard(exchange)
            await exchange.finish()
            self._open -= 1
            if not self._open:
                self._idle.set()
            self._watcher.answered(exchange, path, time.perf_counter() - exchange.started)

    async def _admit(self, exchange: Exchange) -> None:
        """Everything that must be true before the application sees the request."""
        scope = exchange.scope
        method = scope["method"]
        if scope["http_version"] == "1":  # Granian's word for 1.0, which Falcon does not know
            scope["http_version"] = "1.0"
        fields = self._check_headers(scope, exchange)
        if method == "OPTIONS" and b"origin" in fields and b"access-control-request-method" in fields:
            await self._preflight(exchange, fields)
            raise _Refused
        is_public = scope["raw_path"] == PUBLIC_PATH and method in ("GET", "HEAD")
        if not is_public and self._access.needs_key:
            self._access.check_key(fields, scope["client"][0])
        if method in _BODY_METHODS and _has_body(scope, fields):
            length = fields.get(b"content-length", b"")
            await exchange.read_body(int(length) if length.isdigit() else None, self._bodies)
            if exchange.gone:
                await self._answer_broken(exchange)
                raise _Refused
        if self._stopping:
            exchange.close = True
            raise EngineUnavailable("The server is shutting down.", retry_after=1)
        scope[SCOPE_KEY] = exchange
        self._clients.add(exchange)

    def _check_headers(self, scope: Scope, exchange: Exchange | None) -> dict[bytes, bytes]:
        """The headers by name, after the checks of their number, size, Host and Origin."""
        raw: list[Header] = scope["headers"]
        fields = dict(raw)
        if len(raw) > MAX_HEADERS or sum(map(len, fields.values())) > MAX_HEADER_BYTES:
            raise InvalidRequest("The request has too many or too large headers.")
        if len(fields) != len(raw):
            _refuse_doubled(raw)
            self._access.check_host([value for name, value in raw if name == b"host"])
        elif fields.get(b"host") not in self._access.hosts:
            self._access.check_host([fields[b"host"]] if b"host" in fields else [])
        origin = fields.get(b"origin")
        if origin is not None:
            self._access.check_origin(origin, fields[b"host"])
            if exchange is not None:
                exchange.add_header(b"access-control-allow-origin", origin)
                exchange.add_header(b"access-control-expose-headers", b"x-request-id, retry-after")
                exchange.add_header(b"vary", b"origin")
        return fields

    def _canonical(self, scope: Scope) -> str:
        """Puts the canonical path into `scope` and returns it."""
        path: str = scope["path"]
        known = self._paths.get(path)
        if known is None:
            path = canonical_path(path)
            known = self._paths.get(path, path)
            if known.startswith("/models/"):  # the one route whose path has a parameter
                known = "/v1" + known
        scope["path"] = known
        return known

    async def _preflight(self, exchange: Exchange, fields: dict[bytes, bytes]) -> None:
        headers = list(_PREFLIGHT)
        asked = fields.get(b"access-control-request-headers")
        if asked is not None:
            headers.append((b"access-control-allow-headers", asked))
        await exchange.send({"type": "http.response.start", "status": 204, "headers": headers})
        await exchange.send({"type": "http.response.body", "body": b""})

    async def _refuse(self, exchange: Exchange, path: str, error: TurbosparkError) -> None:
        """Answers with the envelope; a response that has begun can only be cut off."""
        if exchange.status or exchange.gone:
            return
        headers: list[Header] = [(b"content-type", b"application/json")]
        if error.retry_after is not None:
            headers.append((b"retry-after", str(error.retry_after).encode()))
        if isinstance(error, PayloadTooLarge):
            exchange.close = True
        await exchange.answer(error.status, self._error_body(path, error), headers)
        if isinstance(error, PayloadTooLarge):
            await exchange.drain()

    async def _answer_broken(self, exchange: Exchange) -> None:
        """A body that broke off: its client has left, or sent chunks that are none and still listens."""
        exchange.close = True
        error = InvalidRequest("The request body broke off, or its chunks cannot be read.")
        body = self._error_body(exchange.scope["path"], error)
        await exchange.answer(error.status, body, [(b"content-type", b"application/json")])

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same rules; a refusal before the handshake is always HTTP 403."""
        try:
            self._canonical(scope)
            fields = self._check_headers(scope, None)
            if self._access.needs_key:
                self._access.check_key(fields, scope["client"][0])
            if self._stopping:
                raise EngineUnavailable("The server is shutting down.")
        except TurbosparkError:
            await send({"type": "websocket.close", "code": 4403})
            return
        await self._app(scope, receive, send)


INTERNAL_ERROR: Final = "The server failed to answer this request; its log says more."


def _has_body(scope: Scope, fields: dict[bytes, bytes]) -> bool:
    """HTTP/1 announces a body; HTTP/2 need not."""
    announced = b"content-length" in fields or b"transfer-encoding" in fields
    return announced or scope["http_version"] == "2"


def _refuse_doubled(raw: list[Header]) -> None:
    """Two of a header that decides something are read differently by different programs."""
    seen: set[Any] = set()
    for name, _ in raw:
        if name in seen and (name in _SECRET_HEADERS or name in (b"content-length", b"origin")):
            raise InvalidRequest("A header that may stand once was sent twice.")
        seen.add(name)
