"""One request through the runtime: its events, its errors, and what leaving does from every place."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.conftest import StartRuntime
from tests.runtime.harness import FOREVER, Client, endless, only_instance, request, send, until
from turbospark_cli.errors import (
    ContextLengthExceeded,
    EngineUnavailable,
    InvalidRequest,
    QueueFull,
    TurbosparkError,
)
from turbospark_cli.runtime.events import Failed, Finished, Queued, Started, TextDelta, Usage
from turbospark_cli.runtime.generation import Place
from turbospark_cli.runtime.instance import Limits
from turbospark_cli.runtime.requests import GenerationRequest, TextPrompt
from turbospark_cli.runtime.runtime import Runtime


def load(runtime: Runtime) -> tuple[int, int]:
    """(running, waiting)"""
    (stats,) = runtime.stats()
    return stats.running, stats.waiting


async def test_events_in_order(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime()
    client = await send(runtime, request(tokens=3, prompt_tokens=5)).done()
    ending = Finished("stop", Usage(5, 3))
    assert client.events == [Started(5), TextDelta("1 "), TextDelta("2 "), TextDelta("3 "), ending]
    assert client.generation.prompt_tokens == 5
    assert load(runtime) == (0, 0)


async def test_a_slow_reader_gets_all_at_once(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime()
    async with runtime.generate(request(tokens=20, interval=0.001)) as generation:
        await until(lambda: generation.place is Place.ENDED)
        (events,) = [events async for events in generation]
    assert [type(event) for event in events] == [Started] + [TextDelta] * 20 + [Finished]


async def test_a_cancelled_iteration_loses_nothing(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime()
    text = ""
    async with runtime.generate(request(tokens=30, interval=0.003)) as generation:
        while generation.place is not Place.ENDED:
            try:
                events = await asyncio.wait_for(anext(generation), 0.001)
            except TimeoutError:
                continue
            text += "".join(event.text for event in events if isinstance(event, TextDelta))
        async for events in generation:
            text += "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "".join(f"{n} " for n in range(1, 31))


async def test_the_engine_refuses_a_request(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime()
    client = await send(runtime, request(refuse="too long")).done()
    assert isinstance(client.error, ContextLengthExceeded)
    assert (client.error.message, client.error.param) == ("too long", "messages")
    assert load(runtime) == (0, 0)


async def test_a_request_that_cannot_be_encoded(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    broken = GenerationRequest("m", TextPrompt("\ud800"))
    for _ in range(2):
        assert isinstance((await send(runtime, broken).done()).error, InvalidRequest)
    busy = await send(runtime).at(Place.RUNNING)
    assert isinstance((await send(runtime, broken).done()).error, InvalidRequest)
    assert load(runtime) == (1, 0)
    await busy.leave()


async def test_a_freed_slot_goes_to_the_next_in_line(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=2)
    running = [await send(runtime).at(Place.RUNNING) for _ in range(2)]
    waiting = [await send(runtime, request(tokens=2)).at(Place.WAITING) for _ in range(3)]
    assert load(runtime) == (2, 3)
    assert [client.events for client in waiting] == [[Queued(1)], [Queued(2)], [Queued(3)]]
    await running[0].leave()
    for client in waiting:
        await client.done()
        assert client.text == "1 2 "
    first, second, third = ([e for e in c.events if isinstance(e, Started | TextDelta)] for c in waiting)
    assert first == second == third
    await running[1].leave()
    assert load(runtime) == (0, 0)


async def test_positions_are_told_as_they_change(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    running = await send(runtime).at(Place.RUNNING)
    first, second, third = [await send(runtime).at(Place.WAITING) for _ in range(3)]
    await second.leave()
    await until(lambda: third.events == [Queued(3), Queued(2)])
    assert first.events == [Queued(1)]
    await running.leave()
    await first.at(Place.RUNNING)
    await until(lambda: third.events == [Queued(3), Queued(2), Queued(1)])
    runtime.fail_all(EngineUnavailable("enough"))


async def test_a_full_queue(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1, limits=Limits(max_queue_depth=2))
    running = await send(runtime).at(Place.RUNNING)
    waiting = [await send(runtime).at(Place.WAITING) for _ in range(2)]
    refused = await send(runtime).done()
    assert isinstance(refused.error, QueueFull)
    assert refused.error.retry_after is not None
    assert refused.error.retry_after >= 1
    # A bad request is told so, however busy the server is.
    bad = await send(runtime, request(refuse="too long")).done()
    assert isinstance(bad.error, ContextLengthExceeded)
    # Whoever leaves makes room at once.
    await waiting[0].leave()
    await send(runtime, request(tokens=1)).at(Place.WAITING)
    assert load(runtime) == (1, 2)
    await running.leave()


async def test_no_queue(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1, limits=Limits(max_queue_depth=0))
    running = await send(runtime).at(Place.RUNNING)
    assert isinstance((await send(runtime).done()).error, QueueFull)
    await running.leave()
    assert (await send(runtime, request(tokens=1)).done()).text == "1 "


async def test_checks_are_bounded_too(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1, limits=Limits(max_queue_depth=2))
    await send(runtime, request(tokens=FOREVER, hang_at=1)).at(Place.RUNNING)
    checking = [await send(runtime).at(Place.CHECKING) for _ in range(3)]
    refused = await send(runtime).done()
    assert isinstance(refused.error, QueueFull)
    await checking[0].leave()
    await send(runtime).at(Place.CHECKING)


async def test_nobody_overtakes_those_being_checked(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    running = await send(runtime).at(Place.RUNNING)
    early = send(runtime)
    await asyncio.sleep(0)
    running.task.cancel()
    await asyncio.sleep(0)
    late = send(runtime)  # the slot is free, but somebody is ahead
    await early.at(Place.RUNNING)
    assert late.generation.place is not Place.RUNNING
    await early.leave()
    await late.at(Place.RUNNING)
    await late.leave()


async def test_the_queue_timeout(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1, limits=Limits(queue_timeout=0.1))
    running = await send(runtime).at(Place.RUNNING)
    late = await send(runtime).done()
    assert late.error is None
    assert isinstance(late.events[0], Queued)
    (failed,) = late.endings
    assert isinstance(failed, Failed)
    assert failed.code == "engine_unavailable"
    assert failed.retry_after is not None
    assert load(runtime) == (1, 0)
    # A running request has no such limit.
    await running.at(Place.RUNNING)
    assert running.generation.deadline is None
    await running.leave()


async def test_the_queue_timeout_before_the_check(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1, limits=Limits(queue_timeout=0.1))
    await send(runtime, request(tokens=FOREVER, hang_at=1)).at(Place.RUNNING)
    error = (await send(runtime).done()).error
    assert isinstance(error, EngineUnavailable)
    assert error.retry_after is not None
    assert load(runtime) == (1, 0)


async def test_a_slot_in_time_ends_the_queue_timeout(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    running = await send(runtime).at(Place.RUNNING)
    late = await send(runtime).at(Place.WAITING)
    timer = late.generation.deadline
    assert timer is not None
    await running.leave()
    await late.at(Place.RUNNING)
    assert timer.cancelled()
    await late.leave()


async def leave_from(runtime: Runtime, place: Place) -> None:
    client: Client = await send(runtime).at(place)
    await client.leave()
    assert client.generation.place is Place.ENDED
    assert client.generation.deadline is None


async def test_leaving_while_running(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime()
    await leave_from(runtime, Place.RUNNING)
    assert load(runtime) == (0, 0)
    assert (await send(runtime, request(tokens=1)).done()).text == "1 "


async def test_leaving_while_waiting(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    running = await send(runtime).at(Place.RUNNING)
    await leave_from(runtime, Place.WAITING)
    assert load(runtime) == (1, 0)
    await running.leave()


async def test_leaving_while_being_checked(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    await send(runtime, request(tokens=FOREVER, hang_at=1)).at(Place.RUNNING)
    await leave_from(runtime, Place.CHECKING)
    assert load(runtime) == (1, 0)


async def test_leaving_while_there_is_no_engine(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(wait=False, load_seconds=0.2)
    await leave_from(runtime, Place.PARKED)
    assert load(runtime) == (0, 0)


async def test_a_thousand_clients_vanish(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=300, limits=Limits(max_queue_depth=700))
    clients = [send(runtime) for _ in range(1000)]
    await until(lambda: sum(c.generation.place is Place.RUNNING for c in clients) == 300)
    await until(lambda: sum(c.generation.place is Place.WAITING for c in clients) == 700)
    for client in clients:
        client.task.cancel()
    await asyncio.wait([client.task for client in clients])
    assert load(runtime) == (0, 0)
    connection = only_instance(runtime)._connection
    assert connection is not None
    assert not connection.sinks
    assert (await send(runtime, request(tokens=2)).done()).text == "1 2 "


async def test_many_requests_over_few_slots(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=3, limits=Limits(max_queue_depth=200))
    clients = [send(runtime, request(tokens=1 + n % 4)) for n in range(200)]
    for n, client in enumerate(clients):
        await client.done()
        assert client.text == "".join(f"{token} " for token in range(1, 2 + n % 4))
        assert len(client.endings) == 1
        assert client.events[-1] is client.endings[0]
    assert load(runtime) == (0, 0)


async def test_failing_all(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    running = await send(runtime).at(Place.RUNNING)
    await until(lambda: bool(running.events))
    waiting = await send(runtime).at(Place.WAITING)
    runtime.fail_all(EngineUnavailable("The server is stopping."))
    for client in (running, waiting):
        assert (await client.done()).endings == [Failed("engine_unavailable", "The server is stopping.")]
        assert client.events[-1] is client.endings[0]
    assert load(runtime) == (0, 0)


async def test_requests_wait_for_the_first_engine(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(wait=False, slots=1, limits=Limits(max_queue_depth=1), load_seconds=0.3)
    assert runtime.health().state == "loading"
    clients = [await send(runtime, request(tokens=2)).at(Place.PARKED) for _ in range(2)]
    assert isinstance((await send(runtime).done()).error, QueueFull)
    for client in clients:
        assert (await client.done()).text == "1 2 "
    assert runtime.health().state == "ok"


async def test_the_queue_timeout_holds_without_an_engine(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(wait=False, load_seconds=5, limits=Limits(queue_timeout=0.1))
    error = (await send(runtime).done()).error
    assert isinstance(error, EngineUnavailable)
    assert error.retry_after is not None


class Notes:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.ttft: list[float] = []
        self.ends: list[tuple[str, int, int]] = []
        self.restarts = 0

    def first_token(self, model: str, seconds: float) -> None:
        self.ttft.append(seconds)

    def ended(self, model: str, outcome: str, prompt_tokens: int, completion_tokens: int) -> None:
        self.ends.append((outcome, prompt_tokens, completion_tokens))

    def engine_restarted(self, model: str) -> None:
        self.restarts += 1


async def test_the_observer_hears_of_every_request_once(start_runtime: StartRuntime) -> None:
    notes = Notes()
    runtime = await start_runtime(observer=notes, slots=1, limits=Limits(max_queue_depth=0))
    await send(runtime, request(tokens=4, prompt_tokens=6)).done()
    await send(runtime, request(refuse="too long")).done()
    running = await send(runtime, request(tokens=FOREVER, interval=0.005, prompt_tokens=2)).at(Place.RUNNING)
    await until(lambda: len(notes.ttft) == 2)
    await send(runtime).done()
    await running.leave()
    assert notes.ends == [
        ("stop", 6, 4),
        ("context_length_exceeded", 0, 0),
        ("queue_full", 0, 0),
        ("aborted", 2, 0),
    ]
    assert len(notes.ttft) == 2
    assert all(0 < seconds < 30 for seconds in notes.ttft)


async def test_an_unentered_generation_costs_nothing(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime()
    runtime.generate(endless())
    assert load(runtime) == (0, 0)


async def test_an_error_in_the_block_ends_the_sequence(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime()
    with pytest.raises(TurbosparkError, match="mine"):
        async with runtime.generate(endless()):
            raise TurbosparkError("mine")
    assert load(runtime) == (0, 0)
