"""One model's engine and the requests on their way through it.

DESIGN. A request takes one of two roads. While a slot is free and nobody is ahead, it goes out as one
`Submit(start=True)`: one message there, events back. Otherwise the engine first checks it without giving it
a slot, so that a bad request is told so even by a busy server; then it takes a free slot, or a place in the
queue, or is refused because the queue is full. While there is no engine, requests are parked in the order
they came. How many may be in each of these places is bounded.

GUARANTEES. A slot that becomes free goes to the next in the queue in the same turn of the loop. An engine's
death ends every request it knew of; parked ones wait for the next engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from turbospark_cli.errors import EngineUnavailable, QueueFull, TurbosparkError
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.connection import EngineConnection
from turbospark_cli.runtime.generation import Generation, Place
from turbospark_cli.runtime.observer import Observer, Stats
from turbospark_cli.runtime.process import ENGINE_COMMAND
from turbospark_cli.runtime.queue import AdmissionQueue, Pace
from turbospark_cli.runtime.supervisor import EngineSupervisor, Policy, State

# PERF: with fast requests every freed slot moves the whole queue up; telling all of them each time would
# cost more than the requests themselves.
_POSITIONS_EVERY = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """What one model accepts beyond its slots."""

    max_queue_depth: int = 64  # requests
    queue_timeout: float = 120.0  # seconds until a request must have a slot


class Instance:
    """Implements `generation.Host` towards its requests and `supervisor.Listener` towards its engine."""

    def __init__(
        self,
        load: channel.Load,
        limits: Limits,
        observer: Observer,
        *,
        policy: Policy,
        command: Sequence[str] = ENGINE_COMMAND,
    ) -> None:
        self.model = load.model_id
        self.observer = observer
        self.supervisor = EngineSupervisor(load, self, policy=policy, command=command)
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._queue: AdmissionQueue[Generation] = AdmissionQueue(load.max_batch, limits.max_queue_depth)
        self._pace = Pace()
        self._parked: dict[Generation, None] = {}
        self._checking = 0
        self._connection: EngineConnection | None = None
        self._publishing: asyncio.TimerHandle | None = None

    @property
    def stats(self) -> Stats:
        waiting = len(self._parked) + self._checking + len(self._queue)
        return Stats(self.model, self._queue.running, waiting, self.supervisor.restarts)

    async def stop(self) -> None:
        """Ends what is open and the engine."""
        self.fail_all(EngineUnavailable("The server is stopping."))
        if self._publishing is not None:
            self._publishing.cancel()
        await self.supervisor.stop()

    def fail_all(self, error: TurbosparkError) -> None:
        """Ends every request, wherever it is, with `error`."""
        for generation in self._open():
            self._end(generation, error)

    def _open(self) -> list[Generation]:
        known = self._connection.sinks.values() if self._connection is not None else ()
        return [*self._parked, *(sink for sink in known if isinstance(sink, Generation))]

    # generation.Host

    def admit(self, generation: Generation) -> None:
        """Raises QueueFull, EngineUnavailable, or InvalidRequest for what no message can carry."""
        if self._connection is not None:
            self._submit(generation, self._connection)
            return
        state = self.supervisor.state
        if state is State.STOPPING:
            raise EngineUnavailable("The server is stopping.")
        if state is State.FAILED:
            raise self._failed()
        if len(self._parked) >= self._most_unchecked:
            raise self._full()
        generation.place = Place.PARKED
        self._parked[generation] = None
        self._arm(generation)

    @property
    def _most_unchecked(self) -> int:
        """As many as could run and wait together."""
        return self._queue.slots + self._queue.max_depth

    def _submit(self, generation: Generation, connection: EngineConnection) -> None:
        if not self._checking and self._queue.take_slot():
            generation.place = Place.RUNNING
            self._disarm(generation)
            generation.sequence = connection.submit(generation, generation.request, start=True)
            return
        if self._checking >= self._most_unchecked:
            raise self._full()
        generation.sequence = connection.submit(generation, generation.request, start=False)
        generation.place = Place.CHECKING
        self._checking += 1
        self._arm(generation)

    def checked(self, generation: Generation) -> None:
        """The engine has accepted it: it takes a slot, or a place in the queue, or is refused."""
        if generation.place is not Place.CHECKING:
            return
        self._checking -= 1
        generation.place = Place.NOWHERE
        if self._queue.take_slot():
            self._start(generation)
        elif self._queue.full:
            self._end(generation, self._full())
        else:
            generation.place = Place.WAITING
            generation.queued(self._queue.join(generation))

    def _start(self, generation: Generation) -> None:
        generation.place = Place.RUNNING
        self._disarm(generation)
        if self._connection is not None:
            self._connection.start(generation.sequence)
        generation.enter()

    def released(self, generation: Generation) -> None:
        """It is over: whatever it held is free from now on."""
        if self._connection is not None:
            self._connection.forget(generation.sequence)
        place = generation.place
        if place is Place.RUNNING:
            self._pass_on_slot()
        elif place is Place.WAITING:
            self._queue.leave(generation)
            self._positions_changed()
        elif place is Place.CHECKING:
            self._checking -= 1
        elif place is Place.PARKED:
            del self._parked[generation]
        self._disarm(generation)

    def leave(self, generation: Generation) -> None:
        """Its caller is gone."""
        if self._connection is not None:
            self._connection.drop(generation.sequence)
        self.released(generation)

    def _end(self, generation: Generation, error: TurbosparkError) -> None:
        if self._connection is not None:
            self._connection.drop(generation.sequence)
        generation.fail(error)

    def _pass_on_slot(self) -> None:
        following = self._queue.release_slot()
        if following is not None:
            self._pace.handover(self._loop.time(), waiting=len(self._queue) > 0)
            self._start(following)
            self._positions_changed()

    # Waiting: how long, and where

    def _arm(self, generation: Generation) -> None:
        if generation.deadline is None:
            generation.deadline = self._loop.call_later(self._limits.queue_timeout, self._expire, generation)

    def _disarm(self, generation: Generation) -> None:
        if generation.deadline is not None:
            generation.deadline.cancel()
            generation.deadline = None

    def _expire(self, generation: Generation) -> None:
        limit = self._limits.queue_timeout
        if generation.place is Place.PARKED:
            message = f"The model was not ready within {limit:g} s; try again later."
            error = EngineUnavailable(message, retry_after=self.supervisor.retry_after)
        else:
            message = f"The model was too busy to start this request within {limit:g} s; try again later."
            error = EngineUnavailable(message, retry_after=self._pace.retry_after(len(self._queue)))
        self._end(generation, error)

    def _positions_changed(self) -> None:
        if self._publishing is None and len(self._queue):
            self._publishing = self._loop.call_later(_POSITIONS_EVERY, self._publish)

    def _publish(self) -> None:
        self._publishing = None
        for position, generation in self._queue.positions():
            generation.queued(position)

    def _full(self) -> QueueFull:
        message = "Too many requests are waiting for this model; try again later."
        return QueueFull(message, retry_after=self._pace.retry_after(len(self._queue)))

    # supervisor.Listener

    def engine_ready(self, connection: EngineConnection) -> None:
        self._connection = connection
        parked, self._parked = self._parked, {}
        for generation in parked:
            generation.place = Place.NOWHERE
            try:
                self._submit(generation, connection)
            except TurbosparkError as error:
                generation.fail(error)

    def engine_lost(self, connection: EngineConnection) -> None:
        if self._connection is None:
            return  # it died before it was ready: nobody is with it
        lost = [sink for sink in connection.sinks.values() if isinstance(sink, Generation)]
        self._connection = None
        retry_after = self.supervisor.retry_after
        # Those with a slot come last: the slots they give back must find nobody waiting.
        for generation in sorted(lost, key=lambda each: each.place is Place.RUNNING):
            running = generation.place is Place.RUNNING
            doing = "while it was answering" if running else "before this request was started"
            message = f"The engine ended unexpectedly {doing}; a new one is being started."
            generation.fail(EngineUnavailable(message, retry_after=retry_after))

    def engine_restarting(self) -> None:
        self.observer.engine_restarted(self.model)

    def engine_failed(self) -> None:
        for generation in list(self._parked):
            generation.fail(self._failed())

    def _failed(self) -> EngineUnavailable:
        reason = self.supervisor.reason or f"The engine of {self.model} has failed."
        return EngineUnavailable(reason, retry_after=self.supervisor.retry_after)
