"""A tiny vocabulary whose special tokens keep Whisper's order, and a decoder that says what it is told."""

from __future__ import annotations

import pytest

from tests.audio.whisper import models
from turbospark_cli.audio.whisper import config
from turbospark_cli.audio.whisper.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """Letters, three languages, and times from id 267 on."""
    folder = tmp_path_factory.mktemp("vocabulary")
    sizes = models.dimensions(audio_context=1500)
    models.write_mlx(folder, sizes, {})
    return Vocabulary(folder, sizes, config.read_generation(folder, sizes))
