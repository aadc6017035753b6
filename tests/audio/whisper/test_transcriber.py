"""The whole way on tiny random models: events in order, lazily, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.audio.whisper import models
from turbospark_cli.audio import families
from turbospark_cli.audio.transcript import Event, Language, Options, Partial, Progress, Segment
from turbospark_cli.audio.whisper import WhisperTranscriber, load
from turbospark_cli.audio.whisper.mel import Array
from turbospark_cli.errors import InvalidRequest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    sizes = models.dimensions(audio_context=100, text_context=64)
    models.write_mlx(path, sizes, models.weights(sizes))
    return path


@pytest.fixture(scope="module")
def tiny(folder: Path) -> WhisperTranscriber:
    """Windows of two seconds."""
    return load(folder)


def noise(seconds: int) -> Iterator[Array]:
    dice = np.random.default_rng(3)
    for _ in range(seconds):
        yield (dice.standard_normal(16_000) * 0.1).astype(np.float32)


# A random model is never sure of anything, which would make every window silence or hot.
SURE = Options(temperatures=(0.0,), logprob_threshold=-1e9, compression_ratio_threshold=1e9)


def test_it_is_found_by_its_type(folder: Path) -> None:
    found = families.load(folder)
    assert isinstance(found, WhisperTranscriber)
    assert found.multilingual
    assert found.languages == {"en", "zh", "de"}


@pytest.mark.parametrize("word_timestamps", [False, True])
@pytest.mark.parametrize("timestamps", [False, True])
def test_events_come_in_order_and_stay_in_the_sound(
    tiny: WhisperTranscriber, word_timestamps: bool, timestamps: bool
) -> None:
    options = Options(
        temperatures=(0.0,),
        logprob_threshold=-1e9,
        compression_ratio_threshold=1e9,
        word_timestamps=word_timestamps,
        timestamps=timestamps,
    )
    events = list(tiny.transcribe(noise(5), options))
    assert isinstance(events[0], Language)
    segments = [event for event in events if isinstance(event, Segment)]
    assert segments
    assert any(isinstance(event, Partial) for event in events)
    assert all(0 <= segment.start < segment.end <= 5 for segment in segments)
    assert events[-1] == Progress(5.0)
    done = [event.seconds for event in events if isinstance(event, Progress)]
    assert done == sorted(done)
    if word_timestamps:
        words = [word for segment in segments for word in segment.words]
        assert words
        assert all(0 <= word.probability <= 1 for word in words)
        assert all(word.start <= word.end for word in words)


def test_the_same_sound_gives_the_same_events(tiny: WhisperTranscriber) -> None:
    hot = Options(temperatures=(0.8,), logprob_threshold=-1e9, compression_ratio_threshold=1e9)
    assert list(tiny.transcribe(noise(3), hot)) == list(tiny.transcribe(noise(3), hot))


def test_a_silent_window_says_nothing(tiny: WhisperTranscriber) -> None:
    options = Options(temperatures=(0.0,), no_speech_threshold=-1.0, logprob_threshold=0.0)
    events = list(tiny.transcribe(noise(3), options))
    assert not [event for event in events if isinstance(event, Segment)]
    assert [event for event in events if isinstance(event, Progress)] == [Progress(2.0), Progress(3.0)]


def test_sound_is_pulled_as_it_is_needed(tiny: WhisperTranscriber) -> None:
    pulled = 0

    def counted() -> Iterator[Array]:
        nonlocal pulled
        for chunk in noise(60):
            pulled += 1
            yield chunk

    events = tiny.transcribe(counted(), SURE)
    assert pulled == 0
    next(events)
    assert pulled <= 4
    events.close()
    assert pulled <= 4


def test_a_given_language_is_not_detected(tiny: WhisperTranscriber) -> None:
    events: list[Event] = list(tiny.transcribe(noise(1), Options(language="de", temperatures=(0.0,))))
    assert events[0] == Language("de", 1.0)


def test_no_sound_is_no_event_but_a_given_language(tiny: WhisperTranscriber) -> None:
    assert list(tiny.transcribe([], SURE)) == []


def test_what_it_does_not_know_is_refused_before_any_sound_is_pulled(
    tiny: WhisperTranscriber, tmp_path: Path
) -> None:
    def never() -> Iterator[Array]:
        yield from ()
        raise AssertionError

    with pytest.raises(InvalidRequest, match="language 'xx'"):
        tiny.transcribe(never(), Options(language="xx"))
    sizes = models.dimensions(vocab=51_864)
    models.write_mlx(tmp_path, sizes, models.weights(sizes))
    english = load(tmp_path)
    assert english.languages == {"en"}
    with pytest.raises(InvalidRequest, match="cannot translate"):
        english.transcribe(never(), Options(task="translate"))
    with pytest.raises(InvalidRequest, match="language 'de'"):
        english.transcribe(never(), Options(language="de"))
