"""The server's end of one engine's socket: frames in, frames out, events to the sequences they belong to.

PERF. Everything sent within one turn of the event loop leaves in a single write; everything an engine
said in one read is dispatched before any waiting task runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

import msgspec

from turbospark_cli.errors import InvalidRequest
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.events import Event
from turbospark_cli.runtime.requests import GenerationRequest

Control = channel.Ready | channel.LoadFailed | channel.Pong

_CLOSED: Final = "its connection was closed"
_GARBAGE: Final = "sent bytes that are not a message"


class Sink(Protocol):
    """Where the engine's words about one sequence go."""

    def prepared(self, prompt_tokens: int) -> None: ...

    def feed(self, event: Event) -> None: ...


class EngineConnection(asyncio.Protocol):
    """One life of an engine, as messages.

    `on_control` gets what concerns the engine as a whole. `on_lost` is called exactly once, when nothing will
    be heard from this engine any more, with a clause that says why ("sent bytes that are not a message").
    """

    def __init__(self, on_control: Callable[[Control], None], on_lost: Callable[[str], None]) -> None:
        self._on_control = on_control
        self._on_lost: Callable[[str], None] | None = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._deframer = channel.Deframer()
        self._outgoing: list[bytes] = []
        self._next_id = 0
        self.sinks: dict[int, Sink] = {}
        self.condemned = False
        self.heard = False  # set by every read; whoever watches for silence clears it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        try:
            messages = [channel.to_server.decode(body) for body in self._deframer.feed(data)]
        except (ValueError, msgspec.MsgspecError):
            self.condemn(_GARBAGE)
            return
        for message in messages:
            if self._on_lost is None:
                return  # an earlier message of this read has ended the connection
            self._dispatch(message)

    def _dispatch(self, message: channel.ToServer) -> None:
        sinks = self.sinks
        if type(message) is channel.Step:
            for sequence, event in message.events:
                # An engine may still speak of a sequence whose Abort is on its way.
                sink = sinks.get(sequence)
                if sink is not None:
                    sink.feed(event)
        elif type(message) is channel.Prepared:
            sink = sinks.get(message.id)
            if sink is not None:
                sink.prepared(message.prompt_tokens)
        else:
            self._on_control(cast("Control", message))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(_CLOSED)

    def close(self) -> None:
        """Ends the connection now, unsent bytes included; `on_lost` is called before this returns."""
        if self._transport is not None:
            self._transport.abort()
        self._lose(_CLOSED)

    def condemn(self, reason: str) -> None:
        """The same for an engine that cannot be trusted to end by itself."""
        if self._on_lost is not None:
            self.condemned = True
            self._lose(reason)
            self.close()

    def _lose(self, reason: str) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            self._outgoing.clear()
            on_lost(reason)
            self.sinks.clear()

    def submit(self, sink: Sink, request: GenerationRequest, *, start: bool) -> int:
        """Sends a request whose events `sink` shall get, and returns its sequence id on this connection.

        Raises InvalidRequest for a value that no message can carry, such as half a surrogate pair.
        """
        sequence = self._next_id
        try:
            self.send(channel.Submit(sequence, request, start))
        except (OverflowError, UnicodeError) as error:
            raise InvalidRequest("The request holds text or a number that cannot be encoded.") from error
        self._next_id = sequence + 1
        self.sinks[sequence] = sink
        return sequence

    def start(self, sequence: int) -> None:
        """Lets a prepared sequence run."""
        self.send(channel.Start(sequence))

    def forget(self, sequence: int) -> None:
        """A sequence has ended: its sink hears nothing more."""
        self.sinks.pop(sequence, None)

    def drop(self, sequence: int) -> None:
        """Ends a sequence wherever it is; its sink hears nothing more."""
        if self.sinks.pop(sequence, None) is not None:
            self.send(channel.Abort(sequence))

    def send(self, message: channel.ToEngine) -> None:
        """Queues `message` for the one write at the end of this turn of the loop."""
        if self._on_lost is None:
            return
        # Encoded here and not in the flush: a message that cannot be encoded is its sender's error only.
        encoded = channel.frame((message,))
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(encoded)

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()
