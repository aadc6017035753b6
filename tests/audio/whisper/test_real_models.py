"""The real models on real speech: words, times and languages, against what other engines made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.audio import speech
from turbospark_cli.audio.transcript import Event, Language, Options, Progress, Segment
from turbospark_cli.audio.whisper import WhisperTranscriber, load
from turbospark_cli.audio.whisper.mel import SAMPLE_RATE, Array

pytestmark = pytest.mark.starter


@pytest.fixture(scope="module")
def tiny(whisper_tiny_en: Path) -> WhisperTranscriber:
    return load(whisper_tiny_en)


@pytest.fixture(scope="module")
def base(whisper_base: Path) -> WhisperTranscriber:
    return load(whisper_base)


def seconds(sound: Array) -> Iterator[Array]:
    """The sound in chunks of one second."""
    for first in range(0, len(sound), SAMPLE_RATE):
        yield sound[first : first + SAMPLE_RATE]


def heard(model: WhisperTranscriber, sound: Array, options: Options | None = None) -> list[Event]:
    return list(model.transcribe(seconds(sound), options or Options()))


def segments(events: list[Event]) -> list[Segment]:
    return [event for event in events if isinstance(event, Segment)]


def text(events: list[Event]) -> str:
    return "".join(segment.text for segment in segments(events)).strip()


def test_tiny_en_hears_every_word(tiny: WhisperTranscriber) -> None:
    events = heard(tiny, speech.kennedy())
    assert events[0] == Language("en", 1.0)
    assert events[-1] == Progress(11.0)
    assert speech.words(text(events)) == speech.words(speech.KENNEDY)


def test_base_hears_every_word_and_the_language(base: WhisperTranscriber) -> None:
    events = heard(base, speech.kennedy())
    assert isinstance(events[0], Language)
    assert events[0].code == "en"
    assert events[0].probability > 0.9
    assert speech.words(text(events)) == speech.words(speech.KENNEDY)
