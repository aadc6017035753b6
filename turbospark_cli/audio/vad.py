"""Where somebody speaks: a stream of sound without its silences, with the place of every piece.

DESIGN. A detector gives a probability for each frame. A span of speech begins at two frames above `ENTER`
in a row and lasts until all frames of `SILENCE` are below `LEAVE`, so a pause within a sentence stays; it is
handed on with `PADDING` before and after, since a detector hears the soft ends of a word late or not at all.
What is handed on needs no look ahead beyond SILENCE, which bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from turbospark_cli.audio.silero import FRAME, Silero
from turbospark_cli.audio.transcript import SAMPLE_RATE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from turbospark_cli.audio.transcript import Sound

    Detector = Callable[[Sound], NDArray[np.float32]]  # whole frames -> a probability for each

ENTER: Final = 0.5
LEAVE: Final = 0.3
SILENCE: Final = round(2.0 * SAMPLE_RATE / FRAME)  # frames
PADDING: Final = round(0.4 * SAMPLE_RATE / FRAME)  # frames
_ONSET: Final = 2  # frames in a row


@dataclass(slots=True)
class Span:
    """One span of speech, in samples of the stream; it grows while its pieces come.

    `start` to `start + length` is handed on; the voice lies between `voice` and `voice_end`.
    """

    start: int
    voice: int
    voice_end: int
    length: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Sound that continues `span`."""

    span: Span
    sound: Sound


def speech(chunks: Iterable[Sound], detector: Detector | None = None) -> Iterator[Piece]:
    """The pieces of `chunks` in which somebody speaks, in order; those of one span follow without a gap."""
    import numpy as np

    probabilities = detector or Silero().probabilities
    cutter = _Cutter()
    rest = np.empty(0, np.float32)
    for chunk in chunks:
        rest = np.concatenate((rest, chunk)) if len(rest) else chunk
        whole = len(rest) - len(rest) % FRAME
        if whole:
            yield from cutter.cut(rest[:whole], probabilities(rest[:whole]))
            rest = rest[whole:]
    if len(rest):
        padded = np.zeros(FRAME, np.float32)
        padded[: len(rest)] = rest
        yield from cutter.cut(rest, probabilities(padded))


class _Cutter:
    """Decides frame by frame. `_held` are the latest frames that were not handed on."""

    def __init__(self) -> None:
        self._position = 0  # samples before the frame that is looked at
        self._held: deque[Sound] = deque()
        self._span: Span | None = None
        self._onset = 0  # loud frames in a row before a span
        self._quiet = 0  # quiet frames in a row within a span

    def cut(self, sound: Sound, probabilities: NDArray[np.float32]) -> Iterator[Piece]:
        """The pieces that are sure after `sound`; its last frame may be shorter than FRAME."""
        import numpy as np

        ready: list[Sound] = []
        owner: Span | None = None
        for place, probability in enumerate(probabilities):
            frame = sound[place * FRAME : (place + 1) * FRAME]
            self._held.append(frame)
            self._position += len(frame)
            if self._decide(float(probability), len(frame)):
                if ready and owner is not self._span and owner is not None:
                    yield Piece(owner, np.concatenate(ready))
                    ready.clear()
                owner = self._span
                ready.extend(self._held)
                self._held.clear()
        if ready and owner is not None:
            yield Piece(owner, np.concatenate(ready))

    def _decide(self, probability: float, length: int) -> bool:
        """Whether everything held belongs to the span, which may begin or end here."""
        if self._span is None:
            return self._may_begin(probability)
        if probability >= LEAVE:
            self._quiet = 0
            self._span.voice_end = self._position
        else:
            self._quiet += 1
            if self._quiet >= SILENCE:
                self._span = None
                self._onset = 0
                self._forget()
                return False
            if self._quiet > PADDING:
                return False
        self._span.length += sum(map(len, self._held))
        return True

    def _may_begin(self, probability: float) -> bool:
        self._onset = self._onset + 1 if probability >= ENTER else 0
        if self._onset < _ONSET:
            self._forget()
            return False
        held = sum(map(len, self._held))
        voice = self._position - sum(len(frame) for frame in list(self._held)[-_ONSET:])
        self._span = Span(self._position - held, voice, self._position, held)
        self._quiet = 0
        return True

    def _forget(self) -> None:
        """Keep what a span that begins with the next frames would have in front of its voice."""
        while len(self._held) > PADDING + _ONSET - 1:
            self._held.popleft()
