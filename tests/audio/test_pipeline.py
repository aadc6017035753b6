"""A recording through decoder, voice detector and a model that is not one."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.audio.fake_transcriber import FakeTranscriber
from turbospark_cli.audio.codec import open_file
from turbospark_cli.audio.pipeline import transcribe
from turbospark_cli.audio.transcript import SAMPLE_RATE, Event, Language, Options, Progress, Segment
from turbospark_cli.errors import UnreadableAudio


def events(path: Path, model: FakeTranscriber, *, skip_silence: bool, start: float = 0.0) -> list[Event]:
    with open_file(path, start=start) as recording:
        return list(transcribe(recording, model, Options(), skip_silence=skip_silence))


def test_without_the_detector_everything_is_heard_at_its_time(spoken: Path) -> None:
    model = FakeTranscriber()
    found = events(spoken, model, skip_silence=False, start=1.5)
    first, second = (event for event in found if isinstance(event, Segment))
    assert (first.start, first.end, second.start) == (1.5, 11.5, 11.5)
    assert sum(map(len, model.heard)) == round((second.end - 1.5) * SAMPLE_RATE)
    assert found[-1] == Progress(second.end)


def test_with_it_only_speech_is_heard_and_times_stay_those_of_the_file(spoken: Path) -> None:
    model = FakeTranscriber()
    found = events(spoken, model, skip_silence=True)
    assert 6.0 < sum(map(len, model.heard)) / SAMPLE_RATE < 7.6
    (segment,) = (event for event in found if isinstance(event, Segment))
    assert segment.start == pytest.approx(0.6, abs=0.2)
    assert segment.end == pytest.approx(10.7, abs=0.25)
    assert found[0] == Language("en", 1.0)
    assert isinstance(found[-1], Progress)
    assert found[-1].seconds == pytest.approx(11.55, abs=0.1)


def test_a_recording_without_speech_never_reaches_the_model(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(3 * SAMPLE_RATE), SAMPLE_RATE)
    model = FakeTranscriber()
    assert events(tmp_path / "a.wav", model, skip_silence=True) == [Progress(3.0)]
    assert model.options is None


def test_what_came_before_the_damage_is_told(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 40 * SAMPLE_RATE)
    path = tmp_path / "a.flac"
    soundfile.write(path, noise, SAMPLE_RATE)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(data)
    found: list[Event] = []
    with open_file(path) as recording:
        running = transcribe(recording, FakeTranscriber(), Options(), skip_silence=False)
        with pytest.raises(UnreadableAudio, match="is damaged after"):
            found.extend(running)
    assert [event.start for event in found if isinstance(event, Segment)] == [0.0]


def test_closing_cancels_at_once(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(600 * SAMPLE_RATE, np.int16), SAMPLE_RATE)
    model = FakeTranscriber()
    with open_file(tmp_path / "a.wav") as recording:
        running = transcribe(recording, model, Options(), skip_silence=False)
        while not isinstance(next(running), Segment):
            pass
        running.close()
    assert model.closed
    assert sum(map(len, model.heard)) < 60 * SAMPLE_RATE


class Forgetful(FakeTranscriber):
    """Keeps nothing of what it heard."""

    def transcribe(self, audio, options):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        for chunk in audio:
            yield Progress(len(chunk) / SAMPLE_RATE)


@pytest.mark.parametrize("skip_silence", [True, False])
def test_memory_does_not_grow_with_the_recording(tmp_path: Path, spoken: Path, *, skip_silence: bool) -> None:
    clip, rate = soundfile.read(spoken, dtype="int16")
    peaks = []
    for times in (2, 6):
        path = tmp_path / f"{times}.wav"
        soundfile.write(path, np.tile(clip, times), rate)
        tracemalloc.start()
        events(path, Forgetful(), skip_silence=skip_silence)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.25 * peaks[0]


def test_the_package_imports_no_other_speech_library() -> None:
    package = Path(__file__).resolve().parents[2] / "turbospark_cli"
    forbidden = re.compile(r"^\s*(import|from) (mlx_whisper|mlx_audio|faster_whisper|torch)\b", re.MULTILINE)
    assert not [path for path in package.rglob("*.py") if forbidden.search(path.read_text())]
