"""What the tests of the runtime share: a runtime over the fake engine, and clients of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbospark_cli.errors import TurbosparkError
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.events import Event, Failed, Finished, TextDelta
from turbospark_cli.runtime.generation import Generation, Place
from turbospark_cli.runtime.instance import Instance
from turbospark_cli.runtime.requests import GenerationRequest, TextPrompt
from turbospark_cli.runtime.runtime import Attachment, Runtime

FAKE_ENGINE = (sys.executable, "-P", str(Path(__file__).with_name("fake_engine.py")))
MODEL = "fake"
DEADLINE = 30.0  # seconds; only a broken runtime reaches it
FOREVER = 1_000_000  # tokens
SLOW = 0.005  # seconds per token: long enough to act in between


def attachment(*, slots: int = 4, **switches: Any) -> Attachment:
    """The fake engine with these switches for the whole process."""
    return Attachment(channel.Load("scripted", MODEL, "", json.dumps(switches), max_batch=slots))


def request(model: str = MODEL, **switches: Any) -> GenerationRequest:
    """A request with these switches for its sequence."""
    return GenerationRequest(model, TextPrompt(json.dumps(switches)))


def endless() -> GenerationRequest:
    return request(tokens=FOREVER, interval=SLOW)


async def until(condition: Callable[[], bool]) -> None:
    """Returns when `condition` holds; fails the test if that takes longer than any working runtime would."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - the conditions are facts about other processes too
            await asyncio.sleep(0.002)


@dataclass
class Client:
    """A request in a task of its own, and what came of it."""

    generation: Generation
    events: list[Event] = field(default_factory=list)
    error: TurbosparkError | None = None
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self.generation:
                async for events in self.generation:
                    self.events += events
        except TurbosparkError as error:
            self.error = error

    async def done(self) -> Client:
        async with asyncio.timeout(DEADLINE):
            await self.task
        return self

    async def at(self, place: Place) -> Client:
        """Waits until the request is there."""
        await until(lambda: self.generation.place is place or self.task.done())
        assert self.generation.place is place, self.error
        return self

    async def leave(self) -> None:
        """The client hangs up."""
        self.task.cancel()
        await asyncio.wait({self.task})

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def endings(self) -> list[Event]:
        return [event for event in self.events if isinstance(event, Finished | Failed)]


def send(runtime: Runtime, what: GenerationRequest | None = None) -> Client:
    """Starts a client; one that never stops by itself unless `what` says otherwise."""
    return Client(runtime.generate(what or endless()))


def only_instance(runtime: Runtime) -> Instance:
    """The instance behind a runtime's single model."""
    (attached,) = runtime._registry.models
    return attached.instance


def engine_pid(runtime: Runtime) -> int:
    process = only_instance(runtime).supervisor.process
    assert process is not None
    return process.pid


def alive(pid: int) -> bool:
    """Whether such a process exists; a zombie does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def runs(pid: int) -> bool:
    """Whether it exists and is no zombie: an orphan stays one where the first process reaps nobody."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        state = stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return not stat.parent.parent.joinpath("self").exists() and alive(pid)
    return state != "Z"
