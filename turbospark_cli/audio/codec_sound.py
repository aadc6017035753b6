"""wav, flac, mp3, ogg, opus and more through libsndfile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from turbospark_cli.errors import UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

_BLOCK: Final = 2**16  # samples of all channels that are decoded at a time
_LONGEST: Final = 30 * 24 * 3600.0  # seconds; a header that says more does not know


class NotThisFormat(Exception):
    """A decoder does not know what is in a file; the text says why."""


class SoundFileDecoder:
    """One open file. `seconds` is its length, or None when its header does not say."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Read the header of an open file, which stays the caller's to close. Raises NotThisFormat."""
        import soundfile

        self._name = name
        try:
            # SAFETY: by descriptor, since a name's ending would choose the format.
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
        size = max(_BLOCK // self._file.channels, 1)
        try:
            if done:
                self._file.seek(done)
            while len(frames := self._file.read(size, dtype="float32", always_2d=True)):
                yield frames.mean(axis=1)
                done += len(frames)
        except soundfile.LibsndfileError as error:
            raise UnreadableAudio(
                f"{self._name} is damaged after {done / self.rate:.1f} seconds: {_reason(error)}."
            ) from error

    def close(self) -> None:
        self._file.close()


def _reason(error: Exception) -> str:
    """What libsndfile says, without the name of the file in front."""
    return str(getattr(error, "error_string", error)).rstrip(".")
