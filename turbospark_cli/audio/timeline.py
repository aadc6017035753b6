"""From the clock of the sound that a model heard back to the clock of the file.

DESIGN. The model hears the spans of speech end to end. A moment in it lies in one span, and is as far from
that span's start in the file as it is in what was heard. At the seam of two spans a moment has two places,
minutes apart perhaps, so starts and ends are placed differently: a start on the seam belongs to the later
span, an end to the earlier one. A segment that begins in the silence after a span's voice and ends in the
next span begins there; likewise for ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from turbospark_cli.audio.transcript import SAMPLE_RATE, Event, Progress, Segment, Word
from turbospark_cli.audio.vad import Piece, Span

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound


class Timeline:
    """The spans heard so far; `origin` is the file's time of the first sample, in seconds."""

    def __init__(self, origin: float) -> None:
        self._origin = origin
        self._spans: list[Span] = []
        self._heard: list[int] = []  # samples heard before each span

    def listen(self, pieces: Iterable[Piece]) -> Iterator[Sound]:
        """The sound of `pieces`, whose spans are remembered."""
        heard = 0
        for piece in pieces:
            if not self._spans or self._spans[-1] is not piece.span:
                self._spans.append(piece.span)
                self._heard.append(heard)
            heard += len(piece.sound)
            yield piece.sound

    def place(self, event: Event) -> Event:
        """`event` with all times on the file's clock."""
        if isinstance(event, Segment):
            return self._segment(event)
        if isinstance(event, Progress):
            samples = _samples(event.seconds)
            return Progress(self._seconds(self._ending(samples), samples))
        return event

    def _segment(self, segment: Segment) -> Segment:
        if segment.words:
            words = tuple(self._word(word) for word in segment.words)
            return replace(segment, start=words[0].start, end=words[-1].end, words=words)
        first, last = _samples(segment.start), _samples(segment.end)
        before, after = self._starting(first), self._ending(last)
        if before >= after:  # in one span, or of no length on a seam
            return replace(
                segment, start=self._seconds(before, first), end=self._seconds(before, max(first, last))
            )
        start, end = self._seconds(before, first), self._seconds(after, last)
        in_silence = self._in_span(before, first) >= self._spans[before].voice_end
        before_voice = self._in_span(after, last) <= self._spans[after].voice
        if in_silence and before_voice and after == before + 1:
            return replace(segment, start=start, end=end)  # no voice in it: its own times are all there is
        if in_silence:
            start = self._moment(self._spans[before + 1].voice)
        if before_voice:
            end = self._moment(self._spans[after - 1].voice_end)
        return replace(segment, start=start, end=end)

    def _word(self, word: Word) -> Word:
        """A word lies in the span that holds its middle."""
        first, last = _samples(word.start), max(_samples(word.start), _samples(word.end))
        place = self._starting((first + last) // 2)
        least = self._heard[place]
        most = least + self._spans[place].length
        first, last = (min(max(each, least), most) for each in (first, last))
        return replace(word, start=self._seconds(place, first), end=self._seconds(place, last))

    def _starting(self, heard: int) -> int:
        """The span in which what starts at sample `heard` lies."""
        return max(bisect_right(self._heard, heard) - 1, 0)

    def _ending(self, heard: int) -> int:
        return max(bisect_left(self._heard, heard) - 1, 0)

    def _in_span(self, place: int, heard: int) -> int:
        """The sample of the stream at which sample `heard` lies, not beyond the end of its span."""
        span = self._spans[place]
        return span.start + min(heard - self._heard[place], span.length)

    def _seconds(self, place: int, heard: int) -> float:
        return self._moment(self._in_span(place, heard))

    def _moment(self, sample: int) -> float:
        return self._origin + sample / SAMPLE_RATE


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)
