"""wav, flac, mp3, ogg, opus and more through libsndfile."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from turbospark_cli.errors import UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

_BLOCK: Final = 2**16  # samples of all channels that are decoded at a time
_SHORTEST_REST: Final = 4096  # bytes; fewer are a tag or a broken frame
_LONGEST: Final = 30 * 24 * 3600.0  # seconds; a header that says more does not know


class NotThisFormat(Exception):
    """A decoder does not know what is in a file; the text says why."""


class SoundFileDecoder:
    """One open file. `seconds` is its length, or None when its header does not say."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Read the header of an open file, which stays the caller's to close. Raises NotThisFormat."""
        import soundfile

        self._descriptor = descriptor
        self._name = name
        try:
            # SAFETY: by descriptor, since a name's ending would choose the format.
            with _quiet_library():
                self._file: Any = soundfile.SoundFile(descriptor, closefd=False)
        except (soundfile.LibsndfileError, TypeError, ValueError) as error:
            raise NotThisFormat(_reason(error)) from error
        self.rate: int = self._file.samplerate
        seconds = self._file.frames / max(self.rate, 1)
        self.seconds = seconds if seconds < _LONGEST else None

    def blocks(self, start: float) -> Iterator[Sound]:
        """Mono blocks from `start` seconds on. Raises UnreadableAudio where the file is damaged."""
        import soundfile

        done = min(round(start * self.rate), self._file.frames)
        try:
            if done:
                self._file.seek(done)
            for block in self._all_frames():
                yield block
                done += len(block)
        except soundfile.LibsndfileError as error:
            raise UnreadableAudio(
                f"{self._name} is damaged after {done / self.rate:.1f} seconds: {_reason(error)}."
            ) from error

    def _all_frames(self) -> Iterator[Sound]:
        yield from _mono(self._file)
        if self._file.format != "MP3":
            return
        # An mp3 may go on behind the end that its header names: several were joined, or it was written to
        # a pipe. libsndfile would stop there, so what is left is read as a file of its own.
        rest = _Rest(self._descriptor, os.lseek(self._descriptor, 0, os.SEEK_CUR))
        while (part := rest.open(self.rate)) is not None:
            with part:
                yield from _mono(part)

    def close(self) -> None:
        self._file.close()


def _mono(file: Any) -> Iterator[Sound]:
    size = max(_BLOCK // file.channels, 1)
    while len(frames := file.read(size, dtype="float32", always_2d=True)):
        yield frames.mean(axis=1)


class _Rest(io.RawIOBase):
    """The end of an open file, from `begin` on, as a file of its own."""

    def __init__(self, descriptor: int, begin: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._begin = begin
        self._at = 0

    def open(self, rate: int) -> Any:
        """What lies behind that which was read so far; None when nothing does that sounds alike."""
        import soundfile

        self._begin, self._at = self._begin + self._at, 0
        if self._size() < _SHORTEST_REST:
            return None
        try:
            with _quiet_library():
                part = soundfile.SoundFile(self)
        except soundfile.LibsndfileError:
            return None
        return part if part.samplerate == rate and part.format == "MP3" and part.frames else None

    def _size(self) -> int:
        return max(os.fstat(self._descriptor).st_size - self._begin, 0)

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._descriptor, len(buffer), self._begin + self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size()}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Without what libsndfile's mp3 reader has to say about headers, which it writes to stderr by itself."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    try:
        with open(os.devnull, "wb") as sink:  # noqa: PTH123
            os.dup2(sink.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _reason(error: Exception) -> str:
    """What libsndfile says, without the name of the file in front."""
    return str(getattr(error, "error_string", error)).rstrip(".")
