"""A transcriber that needs no model: it writes down how much it heard, a segment for every ten seconds."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from turbospark_cli.audio.transcript import (
    SAMPLE_RATE,
    Event,
    Language,
    Options,
    Partial,
    Progress,
    Segment,
    Word,
)

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

WINDOW = 10 * SAMPLE_RATE


class FakeTranscriber:
    """Each segment says which samples it is about; `closed` tells whether its work was cancelled."""

    languages = frozenset({"en", "de"})
    multilingual = True

    def __init__(self) -> None:
        self.heard: list[Sound] = []
        self.options: Options | None = None
        self.closed = False

    def transcribe(self, audio: Iterable[Sound], options: Options) -> Generator[Event, None, None]:
        self.options = options
        yield Language(options.language or "en", 1.0)
        first = total = 0
        try:
            for chunk in audio:
                self.heard.append(chunk)
                total += len(chunk)
                while total - first >= WINDOW:
                    yield from _window(first, first + WINDOW, options)
                    first += WINDOW
            if total > first:
                yield from _window(first, total, options)
        except GeneratorExit:
            self.closed = True
            raise


def _window(first: int, end: int, options: Options) -> Generator[Event, None, None]:
    start, stop = first / SAMPLE_RATE, end / SAMPLE_RATE
    text = f" Samples {first} to {end}."
    yield Partial(text[:8])
    words: tuple[Word, ...] = ()
    if options.word_timestamps:
        middle = (start + stop) / 2
        words = (Word(start, middle, " Samples", 0.9), Word(middle, stop, text[8:], 0.8))
    yield Segment(start, stop, text, tokens=(1, 2), words=words)
    yield Progress(stop)
