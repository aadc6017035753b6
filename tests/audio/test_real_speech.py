"""`turbospark transcribe` with the real model: it writes what was said, and nothing where nothing was."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import soundfile

from turbospark_cli.audio.transcript import SAMPLE_RATE

NOT_SPEECH: Final[dict[str, Callable[[np.random.Generator], Any]]] = {
    "silence": lambda random: np.zeros(30 * SAMPLE_RATE),
    "hiss": lambda random: random.normal(0, 0.1, 30 * SAMPLE_RATE),
    "rumble": lambda random: 0.02 * np.convolve(random.normal(0, 1, 30 * SAMPLE_RATE), np.ones(64), "same"),
}


def transcribe(model: Path, *arguments: str | Path, data: bytes = b"") -> str:
    home = model.parents[2]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "turbospark_cli",
            "transcribe",
            "-q",
            "--no-pull",
            "-m",
            model.stem,
            *arguments,
        ],
        input=data,
        capture_output=True,
        env=os.environ | {"TURBOSPARK_HOME": str(home)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def test_two_sentences_at_their_times(whisper_base: Path, spoken: Path) -> None:
    document: dict[str, Any] = json.loads(transcribe(whisper_base, spoken, "--json", "--word-timestamps"))
    assert document["language"] == "en"
    assert "sheet to the dark blue background" in document["text"]
    assert document["duration"] == pytest.approx(11.56, abs=0.01)
    (glue,) = (word for word in document["words"] if word["word"].lower().startswith("sheet"))
    assert 7.9 < glue["start"] < 8.6
    between = [word for word in document["words"] if word["end"] > 4.3 and word["start"] < 7.4]
    assert between == []


def test_a_pipe_hears_what_a_file_holds(whisper_tiny_en: Path, spoken: Path) -> None:
    stored = transcribe(whisper_tiny_en, spoken)
    assert transcribe(whisper_tiny_en, "-", data=spoken.read_bytes()) == stored
    assert words(stored)[-4:] == ["the", "dark", "blue", "background"]


@pytest.mark.parametrize("kind", NOT_SPEECH)
def test_nothing_is_invented(whisper_tiny_en: Path, tmp_path: Path, kind: str) -> None:
    sound = NOT_SPEECH[kind](np.random.default_rng(0))
    soundfile.write(tmp_path / "a.wav", np.clip(sound, -1, 1), SAMPLE_RATE)
    assert transcribe(whisper_tiny_en, tmp_path / "a.wav") == ""
