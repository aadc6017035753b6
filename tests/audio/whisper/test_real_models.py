"""The real models on real speech: words, times and languages, against what other engines made of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
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


# faster-whisper's on the same sound and weights, greedy, float32.
TINY_STARTS = [
    *(0.0, 0.76, 1.06, 1.46, 1.76, 2.26, 3.88, 4.52, 5.7, 6.02, 6.36, 6.76, 7.02, 7.26),
    *(8.06, 8.66, 8.94, 9.28, 9.5, 9.72, 9.92, 10.22),
]
BASE_STARTS = [
    *(0.0, 0.52, 0.84, 1.18, 1.56, 2.1, 3.72, 4.24, 5.52, 5.76, 6.24, 6.62, 6.82, 7.08),
    *(7.42, 8.46, 8.76, 9.04, 9.32, 9.56, 9.78, 9.94),
]
TIMED = Options(word_timestamps=True)


@pytest.mark.parametrize(("name", "expected"), [("tiny", TINY_STARTS), ("base", BASE_STARTS)])
def test_words_start_where_they_do_elsewhere(
    request: pytest.FixtureRequest, name: str, expected: list[float]
) -> None:
    found = segments(heard(request.getfixturevalue(name), speech.kennedy(), TIMED))
    words = [word for segment in found for word in segment.words]
    assert [word.text.strip(" ,.").lower() for word in words] == speech.words(speech.KENNEDY)
    apart = np.abs(np.array([word.start for word in words]) - expected)
    assert (apart <= 0.041).mean() >= 0.95
    assert all(first.end <= second.start + 0.001 for first, second in pairwise(words))
    assert all(word.probability > 0.2 for word in words)


def test_a_minute_is_heard_from_end_to_end(tiny: WhisperTranscriber) -> None:
    """Windows follow each other: the same words, six times, each at its own time."""
    found = segments(heard(tiny, np.tile(speech.kennedy(), 6), TIMED))
    words = [word for segment in found for word in segment.words]
    starts = [word.start for word in words if word.text.strip(" ,.") == "Americans"]
    assert len(starts) == 6
    expected = np.arange(6) * 11 + TINY_STARTS[4]
    assert np.abs(np.array(starts) - expected).max() < 0.3
    assert all(first.end <= second.start + 0.001 for first, second in pairwise(found))


def test_a_prompt_says_how_to_write(tiny: WhisperTranscriber) -> None:
    assert text(heard(tiny, speech.kennedy())).startswith("And so")
    lower = Options(prompt="good evening this is the news and here is the weather")
    assert text(heard(tiny, speech.kennedy(), lower)).startswith("and so")


@pytest.mark.parametrize("loudness", [0.0, 0.2])
def test_nothing_is_told_of_silence_or_noise(base: WhisperTranscriber, loudness: float) -> None:
    noise = np.random.default_rng(0).standard_normal(16_000 * 30).astype(np.float32) * np.float32(loudness)
    said = text(heard(base, noise, Options(language="en")))
    assert len(said.split()) <= 1, "digital silence is `you` to every Whisper; a sentence would be invented"
