"""Server-sent events: when the headers go out, what keeps a quiet stream alive, how it ends.

DESIGN. A stream's headers are held back until its first event or for two seconds, whichever is first, so
that an early refusal is still a real 4xx or 503. After that every fault becomes the protocol's own error
frame, and every stream ends with the protocol's own last frame.

Knows the neutral events, and no protocol: those bring an `Encoder`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, Self

from turbospark_cli.errors import TurbosparkError, by_code
from turbospark_cli.runtime.events import Event, Failed, Queued
from turbospark_cli.serve.exchange import Exchange

CONTENT_TYPE: Final = "text/event-stream; charset=utf-8"
HEADERS: Final = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
KEEP_ALIVE: Final = b": keep-alive\n\n"
HEADERS_AFTER_S = 2.0
BEAT_S = 4.5  # looked at this often, so that a quiet stream says something within twice this time

_log = logging.getLogger(__name__)

Batches = AsyncIterator[list[Event]]


class Encoder(Protocol):
    """Turns the events of one generation into the frames of one protocol."""

    def encode(self, events: list[Event]) -> bytes:
        """The frames of `events`, the last ones included once `Finished` or `Failed` is among them."""

    def failed(self, error: TurbosparkError) -> bytes:
        """The error frame, and what ends the stream after it."""


def error_of(event: Failed) -> TurbosparkError:
    """The exception that a `Failed` event stands for."""
    return by_code(event.code)(event.message, param=event.param, retry_after=event.retry_after)


class Opening:
    """Enters a generation in a task of its own, which the request may stop waiting for.

    As a context manager (see `Exchange.enter`) it leaves the generation, from wherever that is.
    """

    def __init__(self, generation: AbstractAsyncContextManager[Batches]) -> None:
        self._generation = generation
        self._batches: Batches | None = None
        self._task: asyncio.Task[list[Event]] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._open())
        return self

    async def __aexit__(self, *_: object) -> None:
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task is not None and not task.cancelled():
            task.exception()  # looked at, whoever waited for it or not
        if self._batches is not None:
            await self._generation.__aexit__(None, None, None)

    async def _open(self) -> list[Event]:
        """The first events that are more than a place in the queue."""
        self._batches = await self._generation.__aenter__()
        async for batch in self._batches:
            events = [event for event in batch if type(event) is not Queued]
            if events:
                return events
        return []

    async def wait(self) -> None:
        """Returns at the first event, or after HEADERS_AFTER_S. Raises what still is an ordinary error."""
        assert self._task is not None, "entered"  # noqa: S101 (for the type checker)
        await asyncio.wait({self._task}, timeout=HEADERS_AFTER_S)
        if self._task.done():
            events = self._task.result()
            if events and type(events[0]) is Failed:
                raise error_of(events[0])

    async def batches(self) -> Batches:
        """All events, from the first one on. Raises the error of a generation that could not be entered."""
        assert self._task is not None, "entered"  # noqa: S101 (for the type checker)
        yield await self._task
        if self._batches is not None:
            async for batch in self._batches:
                yield batch

    @property
    def is_open(self) -> bool:
        """Whether the first event is here."""
        return self._task is not None and self._task.done()


async def stream(exchange: Exchange, opening: Opening, encoder: Encoder) -> AsyncIterator[bytes]:
    """The body of a server-sent answer, one chunk for each wake of the runtime."""
    heart = Heartbeat(exchange)
    try:
        if not opening.is_open:
            yield KEEP_ALIVE
        async for batch in opening.batches():
            frames = encoder.encode(batch)
            if frames:
                yield frames
                heart.is_quiet = False
            if exchange.gone:  # a stream that is always ready is never interrupted by its cancellation
                return
    except TurbosparkError as error:
        yield encoder.failed(error)
    except Exception:  # noqa: BLE001 (whatever it is, the client must not take it for an end)
        _log.exception("%s: the stream failed", exchange.id)
        yield encoder.failed(TurbosparkError("The server failed to finish this answer."))
    finally:
        heart.stop()


class Heartbeat:
    """Writes a comment when nothing else was written for a while. One timer, no task while data flows."""

    def __init__(self, exchange: Exchange) -> None:
        self.is_quiet = False
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._beat: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(BEAT_S, self._look)

    def stop(self) -> None:
        self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()

    def _look(self) -> None:
        # A beat that is still being written means a slow reader, who needs no other.
        if self.is_quiet and (self._beat is None or self._beat.done()):
            self._beat = self._loop.create_task(self._write())
        self.is_quiet = True
        self._timer = self._loop.call_later(BEAT_S, self._look)

    async def _write(self) -> None:
        try:
            await self._exchange.send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
        except Exception:  # noqa: BLE001 (the client is leaving; the watcher ends the stream)
            self._timer.cancel()
