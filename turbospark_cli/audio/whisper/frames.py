"""Windows of log-mel frames from sound that arrives lazily."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from turbospark_cli.audio.whisper.mel import Array, LogMel, scaled


class Frames:
    """Holds the frames of one window and those of the chunk that filled it, however long the sound is.

    The reference takes the floor of its spectrogram from the loudest frame of the whole file. Here it comes
    from the loudest so far, which is the same for sound that fits one window.
    """

    def __init__(self, sound: Iterable[Array], mels: int, window: int) -> None:
        self._sound: Iterator[Array] = iter(sound)
        self._mel = LogMel(mels)
        self._window = window
        self._held = np.zeros((0, mels), np.float32)
        self._first = 0  # number of the first frame held
        self._loudest = -np.inf
        self.ended = False  # whether all sound has been pulled

    @property
    def count(self) -> int:
        """Frames so far; of the whole sound once it has ended."""
        return self._first + len(self._held)

    def at(self, first: int) -> tuple[Array, int]:
        """The window from frame `first` on as the encoder wants it, and how many of its frames hold sound.

        Frames before `first` are forgotten. The count is zero when the sound is over.
        """
        self._forget(first)
        parts, held = [self._held], len(self._held)
        while held < self._window and not self.ended:
            chunk = next(self._sound, None)
            self.ended = chunk is None
            new = self._mel.finish() if chunk is None else self._mel.push(chunk)
            new = self._skip(new, first, held)
            parts.append(new)
            held += len(new)
            self._loudest = max(self._loudest, new.max(initial=-np.inf))
        self._held = np.concatenate(parts)
        window = self._held[: self._window]
        return scaled(window, self._loudest, self._window), len(window)

    def _forget(self, first: int) -> None:
        gone = min(first - self._first, len(self._held))
        self._held = self._held[gone:]
        self._first += gone

    def _skip(self, new: Array, first: int, held: int) -> Array:
        """What of `new` is not before `first`: a seek may go beyond what has been pulled."""
        if held or self._first >= first:
            return new
        gone = min(first - self._first, len(new))
        self._first += gone
        return new[gone:]
