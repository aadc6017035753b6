"""Messages between the server and one engine process, and their framing.

DESIGN. A socketpair carries frames: a 4-byte big-endian length, then one msgpack message. The engine
sends one `Step` per scheduler step with the events of all its sequences; each side writes everything it
has queued in one call. Sequence ids are chosen by the server and never reused on one channel.

    server → engine: Load, then any of Submit, Start, Abort, Ping
    engine → server: Ready or LoadFailed, then any of Prepared, Step, Pong

`Submit(start=False)` renders, tokenizes and checks a request without taking a slot; it is answered by
`Prepared` or by a `Step` that holds `Failed`. `Start` lets it run. `Submit(start=True)` does both and skips
`Prepared`. After `Abort` nothing more is said of that sequence. Either end may vanish at any byte: the
engine exits by itself, the server reports `EngineUnavailable`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec
from msgspec import Struct

from turbospark_cli.runtime.events import Event
from turbospark_cli.runtime.requests import GenerationRequest

MAX_FRAME: Final = 256 * 1024 * 1024  # a longer one means that the stream is not ours or is corrupt
_HEADER: Final = 4


class Load(Struct, frozen=True, tag="load", omit_defaults=True):
    """What this engine process shall be, sent once, first."""

    kind: Literal["text", "scripted"]
    model_id: str
    path: str  # install folder; for `scripted` a folder that holds tokenizer.json
    script: str | None = None  # scripted only: the script file
    max_batch: int = 16


class Submit(Struct, frozen=True, tag="submit"):
    id: int
    request: GenerationRequest
    start: bool


class Start(Struct, frozen=True, tag="start"):
    id: int


class Abort(Struct, frozen=True, tag="abort"):
    id: int


class Ping(Struct, frozen=True, tag="ping"):
    """Answered by the loop that runs the model, between two steps."""

    number: int


class EngineInfo(Struct, frozen=True, omit_defaults=True):
    """What a loaded engine knows about itself."""

    context_length: int  # tokens
    vocab_size: int  # logit width
    device: str  # "metal", "cuda" or "cpu"
    detail: str  # for people: device and BLAS
    weights_bytes: int = 0


class Ready(Struct, frozen=True, tag="ready"):
    info: EngineInfo


class LoadFailed(Struct, frozen=True, tag="load_failed"):
    """Loading was refused for a reason that a retry will not change."""

    code: str
    message: str


class Prepared(Struct, frozen=True, tag="prepared"):
    id: int
    prompt_tokens: int


class Step(Struct, frozen=True, tag="step"):
    """Events in the order they happened: (sequence id, event)."""

    events: tuple[tuple[int, Event], ...]


class Pong(Struct, frozen=True, tag="pong"):
    number: int


ToEngine = Load | Submit | Start | Abort | Ping
ToServer = Ready | LoadFailed | Prepared | Step | Pong

_encoder = msgspec.msgpack.Encoder()
to_engine: Final = msgspec.msgpack.Decoder(ToEngine)
to_server: Final = msgspec.msgpack.Decoder(ToServer)


def frame(messages: Iterable[ToEngine | ToServer]) -> bytes:
    """All messages as one run of bytes, ready for a single write."""
    parts: list[bytes] = []
    for message in messages:
        body = _encoder.encode(message)
        parts.append(len(body).to_bytes(_HEADER, "big"))
        parts.append(body)
    return b"".join(parts)


class Deframer:
    """Cuts a byte stream into message bodies; holds at most one unfinished frame."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes, in order.

        Raises ValueError when a length is over MAX_FRAME: the stream cannot be read any further.
        """
        pending = self._pending
        pending += data
        bodies: list[bytes] = []
        start = 0
        while len(pending) - start >= _HEADER:
            length = int.from_bytes(pending[start : start + _HEADER], "big")
            if length > MAX_FRAME:
                raise ValueError(f"frame of {length} bytes")
            end = start + _HEADER + length
            if len(pending) < end:
                break
            bodies.append(bytes(pending[start + _HEADER : end]))
            start = end
        del pending[:start]
        return bodies
