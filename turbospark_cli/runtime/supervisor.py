"""Keeps one engine alive: starts it, watches it, replaces it when it dies.

    LOADING ──ready──▶ READY ──death──▶ RESTARTING ──ready──▶ READY
       └──────┴── too many deaths, or a refusal to load ──▶ FAILED ──cool-down or load()──▶ LOADING
    any ──stop()──▶ STOPPING

GUARANTEES. A death in any form (killed, aborted, exited, garbage on the socket, silence) is told to the
listener once, before anything is heard of the next engine. No process outlives `stop()`.
Knows nothing of requests: those belong to the listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from turbospark_cli.runtime import channel
from turbospark_cli.runtime.connection import Control, EngineConnection
from turbospark_cli.runtime.process import ENGINE_COMMAND, EngineProcess, describe_exit
from turbospark_cli.runtime.pulse import Pulse, PulseLimits

_log = logging.getLogger(__name__)

_FIRST_RETRY: Final = 5  # seconds; a guess until one load has been timed
_LONGEST_RETRY: Final = 60


class State(enum.Enum):
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Policy:
    """When an engine is given up, and for how long. Seconds."""

    pulse: PulseLimits = field(default_factory=PulseLimits)
    deaths: int = 3  # this many deaths ...
    window: float = 60.0  # ... within this time: failed
    cooldown: float = 60.0  # then tried again after this
    stop_grace: float = 1.0  # to exit by itself at a stop
    reap_limit: float = 10.0  # to disappear after a kill; then the next engine starts regardless


class Listener(Protocol):
    """Who uses the engine. Called on the event loop."""

    def engine_ready(self, connection: EngineConnection) -> None: ...

    def engine_lost(self, connection: EngineConnection) -> None: ...

    def engine_failed(self) -> None: ...

    def engine_restarting(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Death:
    reason: str  # a clause: "was killed by SIGSEGV"
    final: bool  # trying again would not help


class EngineSupervisor:
    """One engine, over all its lives. Public attributes are to be read only."""

    def __init__(
        self,
        load: channel.Load,
        listener: Listener,
        *,
        policy: Policy,
        command: Sequence[str] = ENGINE_COMMAND,
    ) -> None:
        self.load_message = load
        self.state = State.LOADING
        self.reason: str | None = None  # why it failed: a sentence that a client may see
        self.info: channel.EngineInfo | None = None
        self.restarts = 0
        self.process: EngineProcess | None = None
        self._listener = listener
        self._policy = policy
        self._command = command
        self._settled = asyncio.Event()  # ready, failed or stopping: nothing to wait for
        self._retry = asyncio.Event()
        self._deaths: deque[float] = deque(maxlen=policy.deaths)
        self._failed_until = 0.0
        self._load_seconds: float | None = None
        self._connection: EngineConnection | None = None
        self._refusal: str | None = None
        self._pulse: Pulse | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the first engine; returns at once."""
        self._task = asyncio.create_task(self._supervise(), name=f"engine {self.load_message.model_id}")

    def load(self) -> None:
        """Tries again now if the engine has failed; nothing otherwise."""
        self._retry.set()

    async def settled(self) -> None:
        """Returns when the engine is ready, or failed, or stopping."""
        await self._settled.wait()

    async def stop(self) -> None:
        """Ends the engine and waits until it is gone. May be called twice."""
        self._change(State.STOPPING)
        self._retry.set()
        if self._connection is not None:
            self._connection.close()
        if self._task is not None:
            await asyncio.shield(self._task)

    @property
    def stalled(self) -> bool:
        """The process lives, but the loop that runs the model does not answer."""
        return self._pulse is not None and self._pulse.stalled

    @property
    def retry_after(self) -> int:
        """Whole seconds after which a refused client should come back."""
        if self.state is State.FAILED:
            left = self._failed_until - asyncio.get_running_loop().time()
        else:
            left = self._load_seconds if self._load_seconds is not None else _FIRST_RETRY
        return max(1, min(_LONGEST_RETRY, math.ceil(left)))

    def _is_stopping(self) -> bool:
        return self.state is State.STOPPING

    def _change(self, state: State, reason: str | None = None) -> None:
        if not self._is_stopping():
            self.state = state
            self.reason = reason
        if self.state in (State.LOADING, State.RESTARTING):
            self._settled.clear()
        else:
            self._settled.set()

    async def _supervise(self) -> None:
        while not self._is_stopping():
            death = await self._live()
            if self._is_stopping():
                return
            if death.final or self._too_many_deaths():
                await self._fail(death)
            else:
                self.restarts += 1
                self._listener.engine_restarting()

    def _too_many_deaths(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._deaths.append(now)
        return len(self._deaths) == self._policy.deaths and now - self._deaths[0] <= self._policy.window

    async def _fail(self, death: _Death) -> None:
        """Reports the failure and returns when it is time for another try."""
        name, policy = self.load_message.model_id, self._policy
        loop = asyncio.get_running_loop()
        self._deaths.clear()
        self._retry.clear()
        if death.final:
            pause, reason = None, f"The model {name} cannot be loaded: {death.reason}"
        else:
            pause = policy.cooldown
            times = f"{policy.deaths} times within {policy.window:.0f} s"
            reason = f"The engine of {name} ended {times}; the last one {death.reason}."
        self._failed_until = loop.time() + (pause or _LONGEST_RETRY)
        self._change(State.FAILED, reason)
        _log.error("%s", reason)
        self._listener.engine_failed()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._retry.wait(), pause)
        self._change(State.LOADING)

    async def _live(self) -> _Death:
        """One process from its start until it is gone."""
        loop = asyncio.get_running_loop()
        self._refusal = None
        lost: asyncio.Future[str] = loop.create_future()
        try:
            process = await EngineProcess.spawn(self._command)
        except OSError as error:
            return _Death(f"could not be started ({error.strerror})", final=False)
        self.process = process
        try:
            connection = await self._connect(process, lost, loop.time())
            ends: tuple[asyncio.Future[Any], ...] = (lost, process.exited)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            # The socket closes with the process; what it said before it died is read first.
            await asyncio.wait({lost}, timeout=self._policy.stop_grace)
            connection.close()
            code = await self._bury(process, connection)
        finally:
            process.close()
            if self._connection is not None:
                self._connection.close()
            self.process = self._pulse = self._connection = None
        return self._verdict(process, lost.result() if code is None else describe_exit(code))

    def _verdict(self, process: EngineProcess, reason: str) -> _Death:
        if self._refusal is not None:
            return _Death(self._refusal, final=True)
        if not self._is_stopping():
            name = self.load_message.model_id
            _log.warning("the engine of %s (pid %d) is gone: %s", name, process.pid, reason)
            _log.debug("its last output:\n%s", "\n".join(process.last_lines))
        return _Death(reason, final=False)

    async def _connect(
        self, process: EngineProcess, lost: asyncio.Future[str], started: float
    ) -> EngineConnection:
        loop = asyncio.get_running_loop()

        def on_control(message: Control) -> None:
            self._hear(message, connection, loop.time() - started)

        def on_lost(reason: str) -> None:
            self._lose(connection)
            lost.set_result(reason)

        connection = EngineConnection(on_control, on_lost)
        self._connection = connection
        await loop.create_unix_connection(lambda: connection, sock=process.socket)
        connection.send(self.load_message)
        if self._is_stopping():
            connection.close()
        return connection

    def _hear(self, message: Control, connection: EngineConnection, age: float) -> None:
        if type(message) is channel.Ready and self._pulse is None:
            self.info = message.info
            self._load_seconds = age
            self._pulse = Pulse(connection, self._policy.pulse)
            self._change(State.READY)
            _log.info("engine of %s is ready after %.1f s", self.load_message.model_id, age)
            self._listener.engine_ready(connection)
        elif type(message) is channel.LoadFailed:
            self._refusal = message.message
            connection.close()

    def _lose(self, connection: EngineConnection) -> None:
        if self._pulse is not None:
            self._pulse.stop()
        if self.state is State.READY:
            self._change(State.RESTARTING)
        self._listener.engine_lost(connection)

    async def _bury(self, process: EngineProcess, connection: EngineConnection) -> int | None:
        """Returns when the process is gone: its return code, or None if it had to be killed."""
        if not connection.condemned:
            code = await process.wait(self._policy.stop_grace)
            if code is not None:
                return code
        process.kill()
        await process.wait(self._policy.reap_limit)
        return None
