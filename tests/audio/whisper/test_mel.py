"""The log-mel spectrogram against an independent one, and the same however the sound is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbospark_cli.audio.whisper.frames import Frames
from turbospark_cli.audio.whisper.mel import LogMel, filter_bank, scaled

Array = np.ndarray[Any, Any]


def noise(samples: int, seed: int = 0) -> Array:
    """Noise under a swelling tone."""
    time = np.arange(samples) / 16_000
    tone = np.sin(2 * np.pi * (200 + 300 * time) * time) * np.minimum(1, time)
    return (0.5 * tone + 0.01 * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def reference(sound: Array, mels: int) -> Array:
    """Hugging Face's, which needs no torch; silence follows, where it would mirror the sound."""
    from transformers import WhisperFeatureExtractor

    extractor: Any = WhisperFeatureExtractor(feature_size=mels)  # type: ignore[no-untyped-call]
    made: Array = extractor._np_extract_fbank_features(np.pad(sound, (0, 480_800 - len(sound)))[None], "cpu")
    return np.asarray(made[0].T)


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("samples", [480_000, 160_000, 12_345, 400, 161])
def test_it_equals_the_reference(mels: int, samples: int) -> None:
    sound = noise(samples)
    window, held = Frames([sound], mels, 3000).at(0)
    assert held == samples // 160
    assert np.abs(window[:held] - reference(sound, mels)[:held]).max() < 1e-4
    assert not window[held:].any()


@given(cuts=st.lists(st.integers(1, 3000), max_size=12), samples=st.integers(0, 9000))
@settings(max_examples=60, deadline=None)
def test_it_is_the_same_however_the_sound_is_cut(cuts: list[int], samples: int) -> None:
    sound = noise(samples)
    whole, pieces = LogMel(80), LogMel(80)
    expected = np.concatenate([whole.push(sound), whole.finish()])
    found = [pieces.push(part) for part in np.split(sound, np.cumsum(cuts).clip(max=samples))]
    made = np.concatenate([*found, pieces.finish()])
    assert made.shape == expected.shape == (samples // 160, 80)
    assert np.abs(made - expected).max(initial=0) < 1e-5


@pytest.mark.parametrize("mels", [80, 128])
def test_filters_cover_the_spectrum_with_equal_areas(mels: int) -> None:
    bank = filter_bank(mels)
    assert bank.shape == (mels, 201)
    assert (bank >= 0).all()
    assert (np.diff(bank.argmax(1)) >= 0).all()
    wide = (bank > 0).sum(1) > 8
    assert np.allclose(bank[wide].sum(1) * 40, 1, atol=0.02)


def test_quiet_frames_are_raised_to_the_floor() -> None:
    made = scaled(np.array([[-10.0, 0.0]], np.float32), 0.0, 3)
    assert made.tolist() == [[-1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


def test_windows_follow_each_other_and_forget_what_is_behind() -> None:
    sound = noise(16_000 * 9)
    chunks = iter(np.split(sound, 90))
    pulled = 0

    def counted() -> Any:
        nonlocal pulled
        for chunk in chunks:
            pulled += 1
            yield chunk

    frames = Frames(counted(), 80, 200)
    first, held = frames.at(0)
    assert held == 200
    assert pulled < 25, "only what the window needs is pulled"
    again, _ = frames.at(0)
    assert np.array_equal(first, again)
    later, _ = frames.at(50)
    assert np.abs(later[:100] - first[50:150]).max() < 0.3  # the floor may have risen
    assert len(frames._held) < 300
    _, held = frames.at(850)
    assert (held, frames.count, frames.ended) == (50, 900, True)
    assert frames.at(900)[1] == 0
    assert frames.at(2000)[1] == 0


def test_no_sound_has_no_window() -> None:
    assert Frames([], 80, 200).at(0)[1] == 0
    assert Frames([np.zeros(100, np.float32)], 80, 200).at(0)[1] == 0
