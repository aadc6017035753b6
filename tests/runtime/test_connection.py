"""The server's end of the socket: one write per turn, dispatch, and every way to lose an engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.runtime.fake_engine import GARBAGE
from tests.runtime.harness import request, until
from turbospark_cli.errors import InvalidRequest
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.connection import Control, EngineConnection
from turbospark_cli.runtime.events import Event, TextDelta
from turbospark_cli.runtime.requests import GenerationRequest, TextPrompt


@dataclass
class Recorder:
    """A sink, and the connection's two callbacks."""

    events: list[Event] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    control: list[Control] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def prepared(self, prompt_tokens: int) -> None:
        self.counted.append(prompt_tokens)

    def feed(self, event: Event) -> None:
        self.events.append(event)


@dataclass
class Link:
    """A connection, its recorder, and the engine's end as a plain socket."""

    connection: EngineConnection
    recorder: Recorder
    engine: socket.socket

    async def read(self) -> list[channel.ToEngine]:
        """What one read of the engine's end yields."""
        data = await asyncio.to_thread(self.engine.recv, 1 << 20)
        return [channel.to_engine.decode(body) for body in channel.Deframer().feed(data)]

    def say(self, *messages: channel.ToServer) -> None:
        self.engine.sendall(channel.frame(messages))


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(30)
    recorder = Recorder()
    connection = EngineConnection(recorder.control.append, recorder.lost.append)
    await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=ours)
    with theirs:
        yield Link(connection, recorder, theirs)
        connection.close()
        await asyncio.sleep(0)


async def test_one_turn_is_one_write(link: Link) -> None:
    first = link.connection.submit(link.recorder, request(), start=True)
    second = link.connection.submit(link.recorder, request(), start=False)
    link.connection.start(second)
    link.connection.drop(first)
    messages = await link.read()
    assert [type(m) for m in messages] == [channel.Submit, channel.Submit, channel.Start, channel.Abort]
    assert first != second


async def test_events_reach_their_sequence_until_it_is_forgotten(link: Link) -> None:
    other = Recorder()
    mine = link.connection.submit(link.recorder, request(), start=True)
    theirs = link.connection.submit(other, request(), start=True)
    one, two, three = TextDelta("1"), TextDelta("2"), TextDelta("3")
    link.say(
        channel.Prepared(theirs, 7), channel.Step(((mine, one), (theirs, two), (mine, three), (99, one)))
    )
    await until(lambda: len(link.recorder.events) == 2)
    assert link.recorder.events == [one, three]
    assert (other.events, other.counted) == ([two], [7])
    link.connection.drop(mine)
    link.say(channel.Step(((mine, one), (theirs, two))))
    await until(lambda: len(other.events) == 2)
    assert len(link.recorder.events) == 2


async def test_frames_cut_anywhere(link: Link) -> None:
    sequence = link.connection.submit(link.recorder, request(), start=True)
    for byte in channel.frame(
        [
            channel.Step(
                (
                    (
                        sequence,
                        TextDelta("é"),
                    ),
                )
            )
        ]
    ):
        link.engine.sendall(bytes([byte]))
        await asyncio.sleep(0)
    await until(lambda: link.recorder.events == [TextDelta("é")])


@pytest.mark.parametrize("garbage", [GARBAGE, b"\xff" * 8, channel.frame([channel.Abort(1)])])
async def test_garbage_condemns_the_engine(link: Link, garbage: bytes) -> None:
    link.connection.submit(link.recorder, request(), start=True)
    link.engine.sendall(garbage)
    await until(lambda: bool(link.recorder.lost))
    assert link.recorder.lost == ["sent bytes that are not a message"]
    assert link.connection.condemned
    assert not link.connection.sinks


async def test_the_end_of_the_stream_is_told_once(link: Link) -> None:
    link.engine.close()
    await until(lambda: bool(link.recorder.lost))
    link.connection.close()
    link.connection.condemn("again")
    assert link.recorder.lost == ["its connection was closed"]
    assert not link.connection.condemned
    link.connection.start(1)  # goes nowhere, and says nothing


async def test_what_was_said_before_the_end_is_heard(link: Link) -> None:
    sequence = link.connection.submit(link.recorder, request(), start=True)
    await link.read()
    link.say(channel.Step(((sequence, TextDelta("last")),)))
    link.engine.close()
    await until(lambda: bool(link.recorder.lost))
    assert link.recorder.events == [TextDelta("last")]


async def test_a_request_that_no_message_can_carry(link: Link) -> None:
    broken = GenerationRequest("m", TextPrompt("\ud800"))
    with pytest.raises(InvalidRequest):
        link.connection.submit(link.recorder, broken, start=True)
    link.connection.submit(link.recorder, request(), start=True)
    assert [type(m) for m in await link.read()] == [channel.Submit]
