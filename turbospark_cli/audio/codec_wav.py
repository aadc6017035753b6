"""Uncompressed wav from a stream that cannot seek, such as the output of ffmpeg, sox or arecord."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from turbospark_cli.errors import UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

_EXTENSIBLE: Final = 0xFFFE  # the format's tag comes later in the chunk
_PCM: Final = 1
_FLOAT: Final = 3
_UNTIL_THE_END: Final = 0x7FFF_0000  # bytes; programs that do not know the length write this or more, or 0
_LONGEST_HEADER: Final = 2**20  # bytes before the sound
_BLOCK: Final = 2**18  # bytes that are read at a time


class NotPlainWav(Exception):
    """The stream holds something else; `consumed` is what was read of it."""

    def __init__(self, consumed: bytes) -> None:
        super().__init__()
        self.consumed = consumed


class WavStream:
    """A stream that stands at its first sample."""

    seconds: float | None = None

    def __init__(self, stream: BinaryIO, name: str) -> None:
        """Read the header. Raises NotPlainWav."""
        self._stream = stream
        self._name = name
        self._consumed = b""
        head = self._take(12)
        if head[:4] not in (b"RIFF", b"RF64") or head[8:12] != b"WAVE":
            raise NotPlainWav(self._consumed)
        tag, self._channels, self.rate, self._frame, bits, self._left = self._header()
        self._bytes = bits // 8
        known = (_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)
        if (tag, bits) not in known or not 0 < self._channels == self._frame // self._bytes:
            raise NotPlainWav(self._consumed)
        self._is_float = tag == _FLOAT
        if self._left is not None and self.rate:
            self.seconds = self._left / self._frame / self.rate
        self._consumed = b""

    def _header(self) -> tuple[int, int, int, int, int, int | None]:
        """Tag, channels, rate, bytes of a frame, bits of a sample, and the bytes of sound where known."""
        facts: tuple[int, int, int, int, int] | None = None
        while True:
            chunk, size = struct.unpack("<4sI", self._take(8))
            if chunk == b"data":
                if facts is None:
                    raise NotPlainWav(self._consumed)
                return (*facts, size if 0 < size < _UNTIL_THE_END else None)
            body = self._take(size + size % 2)
            if chunk == b"fmt " and size >= 16:
                tag, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", body[:16])
                if tag == _EXTENSIBLE and size >= 26:
                    (tag,) = struct.unpack("<H", body[24:26])
                facts = tag, channels, rate, frame, bits

    def _take(self, count: int) -> bytes:
        """Exactly `count` bytes of the header."""
        if len(self._consumed) + count > _LONGEST_HEADER:
            raise NotPlainWav(self._consumed)
        taken = self._stream.read(count)
        self._consumed += taken
        if len(taken) < count:
            raise NotPlainWav(self._consumed)
        return taken

    def blocks(self, start: float) -> Iterator[Sound]:
        """Mono blocks from `start` seconds on."""
        skip = round(start * self.rate) * self._frame
        for data in self._pieces():
            if skip >= len(data):
                skip -= len(data)
                continue
            samples = self._samples(data[skip:])
            skip = 0
            yield samples.reshape(-1, self._channels).mean(axis=1, dtype=samples.dtype)
        if skip:
            raise UnreadableAudio(f"{self._name} ends before --start.")

    def _pieces(self) -> Iterator[bytes]:
        """Whole frames, as they arrive."""
        rest = b""
        while self._left is None or self._left > 0:
            wanted = _BLOCK if self._left is None else min(_BLOCK, self._left)
            # NOTE: read1 returns what is there, so that a slow stream is heard in time.
            arrived = (
                self._stream.read1(wanted) if hasattr(self._stream, "read1") else self._stream.read(wanted)
            )
            if not arrived:
                return
            if self._left is not None:
                self._left -= len(arrived)
            rest += arrived
            whole = len(rest) - len(rest) % self._frame
            if whole:
                yield rest[:whole]
                rest = rest[whole:]

    def _samples(self, data: bytes) -> Any:
        import numpy as np

        if self._is_float:
            return np.frombuffer(data, f"<f{self._bytes}").astype(np.float32)
        if self._bytes == 1:
            return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
        if self._bytes == 3:
            widened = np.zeros((len(data) // 3, 4), np.uint8)
            widened[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            return widened.view("<i4")[:, 0].astype(np.float32) / 2**31
        return np.frombuffer(data, f"<i{self._bytes}").astype(np.float32) / 2 ** (8 * self._bytes - 1)

    def close(self) -> None:
        """Nothing is held: the stream is the caller's."""
