"""Any file or stream of sound as chunks that a speech model can take: mono, float32, SAMPLE_RATE.

DESIGN. Decoders give mono blocks from a moment on; `Recording` resamples them and ends where it was told to.
Nothing is decoded before it is pulled, and memory does not grow with the length of the sound. libsndfile
goes first; FFmpeg's libraries, where installed, try what it does not know.

GUARANTEES. Chunk by chunk, sample n of a recording is the sound at `start + n / SAMPLE_RATE` seconds of the
file. Whatever a file holds, opening and reading it end in sound or in UnreadableAudio.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from turbospark_cli.audio.codec_resample import resampled
from turbospark_cli.audio.codec_sound import NotThisFormat, SoundFileDecoder
from turbospark_cli.audio.transcript import SAMPLE_RATE
from turbospark_cli.errors import UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

_LOWEST_RATE: Final = 1000  # Hz; outside of these a header lies, and resampling would take any memory
_HIGHEST_RATE: Final = 1_000_000
_PYAV: Final = "pip install 'turbospark[av]'"


class Decoder(Protocol):
    """One open file: `rate` in Hz, and its `seconds` as far as the header says them."""

    rate: int
    seconds: float | None

    def blocks(self, start: float) -> Iterator[Sound]: ...

    def close(self) -> None: ...


class Recording:
    """The sound of one file from `start` to `end` seconds; to be read once."""

    def __init__(self, decoder: Decoder, name: str, start: float = 0.0, end: float | None = None) -> None:
        """Raises UnreadableAudio when there is nothing between `start` and `end`."""
        if not _LOWEST_RATE <= decoder.rate <= _HIGHEST_RATE:
            raise UnreadableAudio(f"{name} claims an impossible sample rate: {decoder.rate} Hz.")
        if decoder.seconds is not None and start and start >= decoder.seconds:
            raise UnreadableAudio(f"{name} ends after {decoder.seconds:.1f} seconds, before --start.")
        self.name = name
        self.start = start
        self._decoder = decoder
        self._end = end

    @property
    def seconds(self) -> float | None:
        """How long the sound is, from `start` to its end, where that is known."""
        ends = [each for each in (self._decoder.seconds, self._end) if each is not None]
        return min(ends) - self.start if ends else None

    def chunks(self) -> Generator[Sound, None, None]:
        """The sound, lazily. Raises UnreadableAudio where the file is damaged or when it holds no sound."""
        left = None if self._end is None else round((self._end - self.start) * SAMPLE_RATE)
        empty = True
        for chunk in resampled(self._decoder.blocks(self.start), self._decoder.rate):
            empty = False
            if left is not None:
                if len(chunk) >= left:
                    yield chunk[:left]
                    return
                left -= len(chunk)
            yield chunk
        if empty:
            raise UnreadableAudio(f"{self.name} holds no sound.")


@contextmanager
def open_file(path: Path, *, start: float = 0.0, end: float | None = None) -> Iterator[Recording]:
    """The recording in a file. Raises UnreadableAudio, in one sentence, for whatever else is there."""
    name = path.name or str(path)
    descriptor = _open_regular(path, name)
    try:
        with decoded(descriptor, name, start=start, end=end) as recording:
            yield recording
    finally:
        os.close(descriptor)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, undecoded. Raises UnreadableAudio when there is no such file or nothing in it."""
    with os.fdopen(_open_regular(path, path.name or str(path)), "rb") as file:
        yield file


@contextmanager
def decoded(
    descriptor: int, name: str, *, start: float = 0.0, end: float | None = None
) -> Iterator[Recording]:
    """The recording in an open file, which stays the caller's to close."""
    decoder = _decoder(descriptor, name)
    try:
        yield Recording(decoder, name, start, end)
    finally:
        decoder.close()


def _open_regular(path: Path, name: str) -> int:
    """A descriptor of a file that is one and is not empty."""
    try:
        # SAFETY: a FIFO would otherwise block whoever opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableAudio(_unopened(name, error)) from error
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and facts.st_size:
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(facts.st_mode):
        raise UnreadableAudio(f"{name} is a folder, not a file.", hint=f"Name its files: {path}/*.wav")
    if stat.S_ISREG(facts.st_mode):
        raise UnreadableAudio(f"{name} is empty.")
    raise UnreadableAudio(
        f"{name} is not an ordinary file.", hint="A stream is read from standard input, which is called `-`."
    )


def _unopened(name: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"There is no file {name}."
    return f"{name} cannot be opened: {error.strerror}."


def _decoder(descriptor: int, name: str) -> Decoder:
    try:
        return SoundFileDecoder(descriptor, name)
    except NotThisFormat as error:
        reason = str(error)
    os.lseek(descriptor, 0, os.SEEK_SET)
    head = os.read(descriptor, 16)
    try:
        from turbospark_cli.audio.codec_av import AvDecoder

        return AvDecoder(descriptor, name)
    except ModuleNotFoundError as error:
        if container := _container(head):
            raise UnreadableAudio(
                f"{name} is {container}, which needs the package PyAV.", hint=f"Install it: {_PYAV}"
            ) from error
    except NotThisFormat as error:
        reason = reason if _is_known_to_libsndfile(head) else str(error)
    raise UnreadableAudio(f"{name} cannot be read as sound: {reason}.", hint=_KNOWN)


_KNOWN: Final = "wav, flac, mp3, ogg and opus are read, and with PyAV m4a, mp4, webm and aac as well."


def _container(head: bytes) -> str | None:
    """What only FFmpeg reads, by its first bytes."""
    if head[4:8] == b"ftyp":
        return "an MPEG-4 file (m4a, mp4)"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "a WebM or Matroska file"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "an AAC file"
    if head.startswith(b"\x30\x26\xb2\x75"):
        return "a Windows Media file"
    return None


def _is_known_to_libsndfile(head: bytes) -> bool:
    return head[:4] in (b"RIFF", b"RF64", b"fLaC", b"OggS", b"FORM")
