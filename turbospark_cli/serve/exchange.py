"""One HTTP request and its answer, as the guard and the adapters share it.

GUARANTEES. The body is read whole, within a size and a time. Once `watch()` was called, a client that
leaves cancels the request's task, whatever it waits for; a loop that never waits looks at `gone`.
What an adapter has entered through `enter()` is left when the request ends, however it ends.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from turbospark_cli.errors import InvalidRequest, PayloadTooLarge
from turbospark_cli.serve import clocks
from turbospark_cli.serve.asgi import Event, Header, Receive, Scope, Send

SCOPE_KEY: Final = "turbospark.exchange"  # where the adapters find the exchange
MAX_JSON_BODY: Final = 8 * 1024 * 1024  # bytes
_MAX_DRAIN: Final = 1024 * 1024 * 1024  # bytes of a refused body that are read and dropped
_DRAIN_TIMEOUT_S: Final = 10.0

_FIRST_EVENT: Final[Event] = {"type": "http.request", "body": b"", "more_body": False}
_EXIT: Final = (None, None, None)

_numbers = itertools.count(1)
_prefix = f"req-{secrets.token_hex(6)}-"

Entered = TypeVar("Entered")


class Exchange:
    """Made by the guard for each request; ends with `finish()`."""

    __slots__ = (
        "_extra",
        "_leave",
        "_receive",
        "_send",
        "_task",
        "_watched",
        "body",
        "close",
        "ended",
        "gone",
        "id",
        "late",
        "scope",
        "started",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = f"{_prefix}{next(_numbers)}"
        self.scope = scope
        self.body = b""
        self.status = 0  # 0: no answer has begun
        self.started = 0.0  # time.perf_counter() at its arrival
        self.gone = False  # the client has left
        self.late = False  # its body did not come in time
        self.ended = False  # the last byte of the answer was handed over
        self.close = False  # ask the client to open a new connection next time
        self._extra: list[Header] | None = None
        self._receive = receive
        self._send = send
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._watched: asyncio.Future[Event] | None = None
        self._leave: list[AbstractAsyncContextManager[Any]] | None = None

    # The answer.

    def add_header(self, name: bytes, value: bytes) -> None:
        """A header that the answer carries, whoever writes it."""
        if self._extra is None:
            self._extra = []
        self._extra.append((name, value))

    def send(self, event: Event) -> Awaitable[None]:
        """ASGI `send`; completes the headers. PERF: not a coroutine, so that it costs no frame."""
        if event["type"] == "http.response.start":
            self.status = event["status"]
            number = self.id.encode()
            headers: list[Header] = event["headers"]
            headers += (b"x-request-id", number), (b"request-id", number)
            if self._extra is not None:
                headers += self._extra
            if self.close and self.scope["http_version"] != "2":
                headers.append((b"connection", b"close"))
        elif not event.get("more_body"):
            self.ended = True
        return self._send(event)

    async def answer(self, status: int, body: bytes, headers: list[Header]) -> None:
        """A whole answer at once."""
        length = (b"content-length", str(len(body)).encode())
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self.send({"type": "http.response.body", "body": body})

    # The body.

    async def first_event(self) -> Event:
        """ASGI `receive` for the application, which finds the body here instead."""
        return _FIRST_EVENT

    async def read_body(self, declared: int | None, clock: clocks.BodyClock) -> None:
        """Reads the body into `body`; `declared` is its content-length, None when it is not known.

        Raises PayloadTooLarge, and InvalidRequest for one that does not arrive in time. Sets `gone` when
        the client leaves first.
        """
        if declared is not None and declared > MAX_JSON_BODY:
            raise _too_large()
        clock.add(self)
        try:
            event = await self._receive()
            body: bytes = event.get("body", b"")
            if event.get("more_body") and len(body) != declared:
                event, body = await self._collect(body, declared)
        except asyncio.CancelledError:
            if not self.late or self._task is None:
                raise
            self._task.uncancel()
            self.close = True
            seconds = f"{clocks.BODY_TIMEOUT_S:.0f}"
            raise InvalidRequest(f"The request body did not arrive within {seconds} seconds.") from None
        finally:
            clock.discard(self)
        if event["type"] == "http.disconnect":
            self.gone = True
        self.body = body

    async def _collect(self, first: bytes, declared: int | None) -> tuple[Event, bytes]:
        """The rest of a body that comes in pieces: the last event, and all bytes."""
        parts = [first]
        size = len(first)
        while True:
            event = await self._receive()
            part = event.get("body", b"")
            size += len(part)
            if size > MAX_JSON_BODY:
                raise _too_large()
            parts.append(part)
            if event["type"] != "http.request" or not event.get("more_body") or size == declared:
                return event, b"".join(parts)

    def expire(self) -> None:
        """Gives up on the body."""
        self.late = True
        if self._task is not None:
            self._task.cancel()

    async def drain(self) -> None:
        """Reads and drops what is still coming of a refused body.

        A client that is still sending would otherwise see its connection reset before it reads the answer.
        """
        size = 0
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                while size < _MAX_DRAIN:
                    event = await self._receive()
                    if event["type"] != "http.request" or not event.get("more_body"):
                        return
                    size += len(event.get("body", b""))
        except TimeoutError:
            return

    # The client's presence.

    def watch(self) -> None:
        """From now on the request's task is cancelled when the client leaves.

        PERF: the server's awaitable is a future already, so no task is made for this.
        """
        watched = asyncio.ensure_future(self._receive())
        self._watched = watched
        watched.add_done_callback(self._heard)

    def _heard(self, future: asyncio.Future[Event]) -> None:
        if self._watched is not future or future.cancelled():
            return
        if future.exception() is None and future.result()["type"] == "http.request":
            self.watch()  # the end of the body, or bytes that nobody asked for
            return
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    async def enter(self, manager: AbstractAsyncContextManager[Entered]) -> Entered:
        """Enters `manager`, to be left at the end of the request, also of one that never entered it."""
        if self._leave is None:
            self._leave = []
        entered = await manager.__aenter__()
        self._leave.append(manager)
        return entered

    async def finish(self) -> None:
        """Stops watching and leaves what was entered, last first."""
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.remove_done_callback(self._heard)
            if not watched.done():
                watched.cancel()
        self._task = None
        # PERF: no cycle through the scope, or each request's objects would wait for the collector.
        self.scope.pop(SCOPE_KEY, None)
        while self._leave:
            await self._leave.pop().__aexit__(*_EXIT)


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is larger than {MAX_JSON_BODY // (1024 * 1024)} MiB.")
