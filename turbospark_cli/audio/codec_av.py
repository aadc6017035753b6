"""m4a, mp4, webm, aac and more through FFmpeg's libraries, which the extra `av` brings."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from turbospark_cli.audio.codec_sound import NotThisFormat
from turbospark_cli.errors import UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

# SAFETY: no playlists, which name other files and addresses to open.
_FORMATS: Final = (
    "mov,matroska,webm,aac,mp3,ogg,flac,wav,asf,aiff,caf,amr,mpegts,mpeg,avi,flv,ac3,eac3,w64,au"
)
_PREROLL: Final = 0.5  # seconds that are decoded before `start`, until the codec has settled
_SMALLEST_GAP: Final = 0.03  # seconds between two packets that are no mere rounding
_LONGEST_GAP: Final = 3600.0  # seconds; beyond that the clock of the file is broken
_SILENCE: Final = 2**16  # samples of silence that are made at a time


class AvDecoder:
    """The first audio stream of one open file. `seconds` is its length, or None when it is not said."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Read the header of an open file, which stays the caller's to close.

        Raises ModuleNotFoundError without PyAV, NotThisFormat, and UnreadableAudio for a file without sound.
        """
        import av

        self._name = name
        self._stream = io.BufferedReader(io.FileIO(descriptor, closefd=False))
        self._stream.seek(0)
        try:
            # SAFETY: a file object instead of a name, since FFmpeg takes some names for addresses.
            self._container = av.open(
                self._stream, "r", options={"format_whitelist": _FORMATS}, io_open=_refuse_to_open
            )
        except (av.FFmpegError, OSError, ValueError, ArithmeticError) as error:
            raise NotThisFormat(_reason(error)) from error
        if not self._container.streams.audio:
            raise UnreadableAudio(f"{name} has no sound in it.")
        self._audio = self._container.streams.audio[0]
        self._mono = av.AudioResampler(format="fltp", layout="mono")
        try:
            self.rate: int = int(self._audio.rate)
        except (TypeError, AttributeError) as error:
            raise UnreadableAudio(f"{name} uses a codec that FFmpeg does not know.") from error
        length = self._container.duration
        self.seconds = length / av.time_base if length and length > 0 else None

    def blocks(self, start: float) -> Iterator[Sound]:
        """Mono blocks from `start` seconds on, silence where the file has a gap.

        Raises UnreadableAudio where the file is damaged.
        """
        import av

        at = 0.0
        seeks = start > _PREROLL
        try:
            if seeks:
                self._container.seek(int((start - _PREROLL) * av.time_base))
            for at, block in self._placed(None if seeks else 0.0):
                skip = round((start - at) * self.rate)
                if skip < len(block):
                    yield block[max(skip, 0) :]
        except (av.FFmpegError, OSError, ValueError, ArithmeticError) as error:
            raise UnreadableAudio(
                f"{self._name} is damaged after {at:.1f} seconds: {_reason(error)}."
            ) from error

    def _placed(self, clock: float | None) -> Iterator[tuple[float, Sound]]:
        """Blocks with the seconds at which they start; each begins where the one before it ends.

        `clock` is where the first one should begin, None when that is not known.
        """
        import numpy as np

        for frame in itertools.chain.from_iterable(map(self._mono.resample, self._decoded())):
            block: Sound = frame.to_ndarray()[0]
            at = clock if frame.pts is None else float(frame.pts * (frame.time_base or 0))
            if clock is None or (at is not None and at < 0):  # what codecs put before the first sample
                clock = at or 0.0
            elif at is not None and _SMALLEST_GAP < at - clock < _LONGEST_GAP:
                for length in _pieces(round((at - clock) * self.rate)):
                    yield clock, np.zeros(length, np.float32)
                    clock += length / self.rate
            yield clock, block
            clock += len(block) / self.rate

    def _decoded(self) -> Iterator[Any]:
        yield from self._container.decode(self._audio)
        yield None  # lets the resampler give what it holds back

    def close(self) -> None:
        self._container.close()
        self._stream.close()


def _pieces(count: int) -> Iterator[int]:
    while count > 0:
        yield min(count, _SILENCE)
        count -= _SILENCE


def _refuse_to_open(url: str, flags: int, options: dict[str, str]) -> object:
    raise ValueError("it refers to another file")


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).rstrip(".")
