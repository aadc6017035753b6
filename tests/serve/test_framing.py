from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from turbospark_cli.errors import EngineUnavailable, QueueFull, TurbosparkError
from turbospark_cli.runtime.events import Event, Failed, Finished, Queued, Started, TextDelta, Usage
from turbospark_cli.serve import framing
from turbospark_cli.serve.exchange import Exchange
from turbospark_cli.serve.framing import KEEP_ALIVE, Opening, stream

END = Finished("stop", Usage(1, 1))


class Source:
    """A generation whose batches a test hands over one by one."""

    def __init__(self, refusal: TurbosparkError | None = None) -> None:
        self.queue: asyncio.Queue[list[Event] | None] = asyncio.Queue()
        self.refusal = refusal
        self.entered = self.left = 0

    def say(self, *events: Event) -> None:
        self.queue.put_nowait(list(events))

    async def __aenter__(self) -> AsyncIterator[list[Event]]:
        if self.refusal is not None:
            await self.queue.get()
            raise self.refusal
        self.entered += 1
        return self._batches()

    async def __aexit__(self, *_: object) -> None:
        self.left += 1

    async def _batches(self) -> AsyncIterator[list[Event]]:
        while (batch := await self.queue.get()) is not None:
            yield batch
            if any(isinstance(event, Finished | Failed) for event in batch):
                return


class Plain:
    """An encoder that names the events."""

    def encode(self, events: list[Event]) -> bytes:
        return " ".join(type(event).__name__ for event in events).encode() + b";"

    def failed(self, error: TurbosparkError) -> bytes:
        return f"error:{error.code};".encode()


def exchange_to(sent: list[bytes]) -> Exchange:
    async def send(event: dict[str, Any]) -> None:
        sent.append(event.get("body", b""))

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing is read here")

    return Exchange({"type": "http", "http_version": "1.1"}, receive, send)


async def collect(exchange: Exchange, opening: Opening) -> list[bytes]:
    return [chunk async for chunk in stream(exchange, opening, Plain())]


async def test_places_in_the_queue_are_no_reason_to_begin() -> None:
    source = Source()
    exchange = exchange_to([])
    opening = await exchange.enter(Opening(source))
    source.say(Queued(2))
    source.say(Queued(1), Started(3), TextDelta("a"))
    source.say(END)
    await opening.wait()
    assert await collect(exchange, opening) == [b"Started TextDelta;", b"Finished;"]
    await exchange.finish()
    assert (source.entered, source.left) == (1, 1)


@pytest.mark.parametrize("refusal", [QueueFull("full"), None])
async def test_an_early_refusal_is_raised(refusal: QueueFull | None) -> None:
    source = Source(refusal)
    exchange = exchange_to([])
    opening = await exchange.enter(Opening(source))
    source.say(Failed("engine_unavailable", "dead", None, 3))
    with pytest.raises(QueueFull if refusal else EngineUnavailable) as caught:
        await opening.wait()
    assert caught.value.retry_after == (None if refusal else 3)
    await exchange.finish()
    assert source.left == source.entered


async def test_headers_go_out_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "HEADERS_AFTER_S", 0.01)
    source = Source()
    exchange = exchange_to([])
    opening = await exchange.enter(Opening(source))
    await opening.wait()
    chunks = stream(exchange, opening, Plain())
    assert await anext(chunks) == KEEP_ALIVE
    source.say(Failed("queue_full", "too late for a status"))
    assert [chunk async for chunk in chunks] == [b"Failed;"]
    await exchange.finish()


async def test_a_late_refusal_is_an_error_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "HEADERS_AFTER_S", 0.01)
    source = Source(QueueFull("full"))
    exchange = exchange_to([])
    opening = await exchange.enter(Opening(source))
    await opening.wait()
    assert not opening.is_open
    source.say()
    chunks = await collect(exchange, opening)
    assert [chunk for chunk in chunks if chunk != KEEP_ALIVE] == [b"error:queue_full;"]
    await exchange.finish()


async def test_a_bug_in_the_middle_is_an_error_frame(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Plain):
        def encode(self, events: list[Event]) -> bytes:
            raise ValueError("a bug")

    source = Source()
    exchange = exchange_to([])
    opening = await exchange.enter(Opening(source))
    source.say(Started(1))
    await opening.wait()
    assert [chunk async for chunk in stream(exchange, opening, Broken())] == [b"error:internal_error;"]
    assert "the stream failed" in caplog.text
    await exchange.finish()


async def test_quiet_streams_beat_and_busy_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "BEAT_S", 0.01)
    enough = asyncio.Event()

    class Sent(list[bytes]):
        def append(self, chunk: bytes) -> None:
            super().append(chunk)
            if len(self) == 3:
                enough.set()

    sent = Sent()
    source = Source()
    exchange = exchange_to(sent)
    opening = await exchange.enter(Opening(source))
    source.say(Started(1))
    await opening.wait()
    chunks = stream(exchange, opening, Plain())
    await anext(chunks)
    following = asyncio.ensure_future(anext(chunks))
    async with asyncio.timeout(30):
        await enough.wait()
    source.say(END)
    await following
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)
    assert set(sent) == {KEEP_ALIVE}
    beats = len(sent)
    await asyncio.sleep(0.05)
    assert len(sent) == beats
    await exchange.finish()


async def test_leaving_before_the_first_event_leaves_the_generation() -> None:
    source = Source()
    exchange = exchange_to([])
    await exchange.enter(Opening(source))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await exchange.finish()
    assert (source.entered, source.left) == (1, 1)


async def test_a_stream_that_never_waits_ends_when_its_client_has_left() -> None:
    source = Source()
    exchange = exchange_to([])
    opening = await exchange.enter(Opening(source))
    for _ in range(100):
        source.say(TextDelta("x"))
    await opening.wait()
    exchange.gone = True
    assert len(await collect(exchange, opening)) == 1
    await exchange.finish()
    assert source.left == 1
