"""One request on its way through the runtime, as an async context manager and an async iterator.

GUARANTEES. Entering raises whatever can still be an ordinary error answer: an unknown model, a request the
engine refuses, a full queue, an engine that is gone. Once entered, nothing is raised any more: the events
end with exactly one `Finished` or `Failed`. Leaving the block ends the sequence wherever it is.
"""

from __future__ import annotations

import asyncio
import enum
import time
from types import TracebackType
from typing import Protocol, Self

from turbospark_cli.errors import TurbosparkError, by_code
from turbospark_cli.runtime.events import Event, Failed, Finished, Queued, Started, TextDelta
from turbospark_cli.runtime.observer import Observer
from turbospark_cli.runtime.requests import GenerationRequest


class Place(enum.Enum):
    """Where a request is."""

    NOWHERE = enum.auto()  # holds nothing yet, or nothing any more
    PARKED = enum.auto()  # there is no engine yet
    CHECKING = enum.auto()  # the engine looks at it; it has no slot
    WAITING = enum.auto()  # checked, in the queue
    RUNNING = enum.auto()  # has a slot; perhaps not checked yet
    ENDED = enum.auto()


class Host(Protocol):
    """The instance that carries a generation."""

    model: str
    observer: Observer

    def admit(self, generation: Generation) -> None: ...

    def checked(self, generation: Generation) -> None: ...

    def released(self, generation: Generation) -> None:
        """It is over; `generation.place` still says what it held."""

    def leave(self, generation: Generation) -> None:
        """Its caller is gone; `generation.place` still says what it held."""


class Generation:
    """Made by `Runtime.generate`. Each iteration yields everything that happened since the last one.

    Cancelling an iteration loses no event. `prompt_tokens` is 0 until the engine has counted them, which for
    a request that had to queue is before `__aenter__` returns and else by `Started`, its first event.
    """

    __slots__ = (
        "_arrived",
        "_entered",
        "_error",
        "_events",
        "_first_token_seen",
        "_host",
        "_position",
        "_waiter",
        "deadline",
        "place",
        "prompt_tokens",
        "request",
        "sequence",
    )

    def __init__(self, host: Host, request: GenerationRequest) -> None:
        self.request = request
        self.prompt_tokens = 0
        # For the host: where this is, its id on the engine's connection, its queue timeout.
        self.place = Place.NOWHERE
        self.sequence = -1
        self.deadline: asyncio.TimerHandle | None = None
        self._host = host
        self._events: list[Event] = []
        self._entered = False
        self._position = 0
        self._error: TurbosparkError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._first_token_seen = False
        self._arrived = 0.0

    async def __aenter__(self) -> Self:
        self._arrived = time.perf_counter()
        try:
            self._host.admit(self)
            while not self._entered and self._error is None:
                await self._wake()
        except TurbosparkError as error:
            self.fail(error)
        except BaseException:
            self._leave()
            raise
        if self._error is not None:
            raise self._error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        while not self._events:
            if self.place is Place.ENDED:
                raise StopAsyncIteration
            await self._wake()
        events, self._events = self._events, []
        return events

    async def _wake(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _notify(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What the engine says of this sequence (connection.Sink).

    def prepared(self, prompt_tokens: int) -> None:
        """The engine has accepted the request, and holds it until it is told to start."""
        self.prompt_tokens = prompt_tokens
        self._host.checked(self)

    def feed(self, event: Event) -> None:
        """The next event of this sequence."""
        kind = type(event)
        if kind is TextDelta:
            if not self._first_token_seen:
                self._saw_first_token()
        elif type(event) is Failed and not self._entered:
            error = by_code(event.code)
            self.fail(error(event.message, param=event.param, retry_after=event.retry_after))
            return
        elif type(event) is Started:
            self.prompt_tokens = event.prompt_tokens
        elif type(event) is Finished or type(event) is Failed:
            self._end(event)
        self._entered = True
        self._events.append(event)
        self._notify()

    def _saw_first_token(self) -> None:
        self._first_token_seen = True
        self._host.observer.first_token(self._host.model, time.perf_counter() - self._arrived)

    def _end(self, event: Finished | Failed) -> None:
        if isinstance(event, Finished):
            usage = event.usage
            if not self._first_token_seen and usage.completion_tokens:
                self._saw_first_token()
            self._report(event.reason, usage.prompt_tokens, usage.completion_tokens)
        else:
            self._report_unfinished(event.code)
        self._host.released(self)
        self.place = Place.ENDED

    def _report(self, outcome: str, prompt_tokens: int, completion_tokens: int) -> None:
        self._host.observer.ended(self._host.model, outcome, prompt_tokens, completion_tokens)

    def _report_unfinished(self, outcome: str) -> None:
        # A prompt that never had a slot was counted but not read.
        self._report(outcome, self.prompt_tokens if self.place is Place.RUNNING else 0, 0)

    # What the host does with it.

    def queued(self, position: int) -> None:
        """Its place in the queue, or a new one; a position that nobody has read yet is replaced."""
        if position == self._position:
            return
        self._position = position
        if self._events and type(self._events[-1]) is Queued:
            self._events.pop()
        self._events.append(Queued(position))
        self.enter()

    def enter(self) -> None:
        """It has been checked: from now on a fault is an event, not an exception."""
        self._entered = True
        self._notify()

    def fail(self, error: TurbosparkError) -> None:
        """Ends it with `error`: raised by `__aenter__`, or a `Failed` event if that is past."""
        if self.place is Place.ENDED:
            return
        event = Failed(error.code, error.message, error.param, error.retry_after)
        self._end(event)
        if self._entered:
            self._events.append(event)
        else:
            self._error = error
        self._notify()

    def _leave(self) -> None:
        if self.place is not Place.ENDED:
            self._report_unfinished("aborted")
            self._host.leave(self)
            self.place = Place.ENDED
            self._notify()
