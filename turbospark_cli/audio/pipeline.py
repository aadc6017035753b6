"""From a recording to the events of its transcript, with all times on the clock of the file.

Pulls as the model does, holds no more than the voice detector needs, and stops when it is closed.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from turbospark_cli.audio.codec import Recording
from turbospark_cli.audio.timeline import Timeline
from turbospark_cli.audio.transcript import SAMPLE_RATE, Event, Options, Progress, Transcriber
from turbospark_cli.audio.vad import Piece, Span, speech

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound


def transcribe(
    recording: Recording, transcriber: Transcriber, options: Options, *, skip_silence: bool = True
) -> Generator[Event, None, None]:
    """The events of `recording`; the last one is the Progress of its end.

    A recording without speech has no Language and no Segment. Raises UnreadableAudio where the file is
    damaged, after the events of what came before, and InvalidRequest as the transcriber does.
    """
    timeline = Timeline(recording.start)
    counter = _Counter()
    chunks = counter.count(recording.chunks())
    heard = timeline.listen(speech(chunks) if skip_silence else _all(chunks))
    first = next(heard, None)
    if first is not None:
        events = transcriber.transcribe(itertools.chain((first,), heard), options)
        try:
            for event in events:
                yield timeline.place(event)
        finally:
            events.close()
    yield Progress(recording.start + counter.samples / SAMPLE_RATE)


class _Counter:
    """How many samples were pulled."""

    samples = 0

    def count(self, chunks: Iterable[Sound]) -> Iterator[Sound]:
        for chunk in chunks:
            self.samples += len(chunk)
            yield chunk


def _all(chunks: Iterable[Sound]) -> Iterator[Piece]:
    """Everything as one span of speech."""
    span = Span(start=0, voice=0, voice_end=0)
    for chunk in chunks:
        span.length += len(chunk)
        span.voice_end = span.length
        yield Piece(span, chunk)
