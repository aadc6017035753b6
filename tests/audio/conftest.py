"""Sounds that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
import soundfile

from turbospark_cli.audio.codec import open_file
from turbospark_cli.audio.transcript import SAMPLE_RATE

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

SOUNDS: Final = Path(__file__).parent / "sounds"


@pytest.fixture(scope="session")
def spoken() -> Path:
    """A clip of two sentences; sounds/README.md says which."""
    return SOUNDS / "harvard.opus"


@pytest.fixture(scope="session")
def speech_sound(spoken: Path) -> Sound:
    """The samples of `spoken`."""
    with open_file(spoken) as recording:
        return np.concatenate(list(recording.chunks()))


@pytest.fixture
def tone(tmp_path: Path) -> Path:
    """Two seconds of a rising tone at 44.1 kHz, of which no two moments are alike."""
    time = np.arange(2 * 44_100) / 44_100
    path = tmp_path / "tone.wav"
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * (300 + 400 * time) * time), 44_100)
    return path


def rising_tone(start: float, seconds: float) -> Sound:
    """What `tone` holds, at the rate that models listen at."""
    time = start + np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (0.5 * np.sin(2 * np.pi * (300 + 400 * time) * time)).astype(np.float32)
