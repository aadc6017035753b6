"""Attempts at a window: greedy, hotter where the text is poor, and what counts as silence."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest

from tests.audio.whisper import models
from turbospark_cli.audio.transcript import Options, Partial
from turbospark_cli.audio.whisper import decoding
from turbospark_cli.audio.whisper.decoder import Decoder
from turbospark_cli.audio.whisper.decoding import Attempt, WindowDecoder, compression_ratio
from turbospark_cli.audio.whisper.vocabulary import Vocabulary

T = 267
START = [257, 258, 262]
STRICT = Options(logprob_threshold=-0.1)  # what a script says at 8 above the rest is below


@dataclass
class Scripted:
    """Stands in for decoder and decoding: attempt by attempt it says the next script, each token this likely.

    `sure` is how far the token is above the rest; `silence` how far no_speech is at the start.
    """

    scripts: list[list[int]]
    sure: list[float]
    silence: float = 0.0
    prompts: list[list[int]] = field(default_factory=list)
    dimensions: Any = field(default_factory=models.dimensions)
    length: int = 0
    attempt: int = -1
    place: int = 0

    def read(self, tokens: Sequence[int], attending: object = ()) -> tuple[mx.array, dict[Any, Any]]:
        if self.attempt < 0 and not self.prompts:
            self.prompts.append(list(tokens))
        self.length += len(tokens)
        self.place += 1
        return mx.zeros((len(tokens), 1)), {}

    def rewind(self, length: int) -> None:
        self.length, self.place = length, 0
        self.attempt += 1

    def logits(self, hidden: mx.array) -> Any:
        rows = np.zeros((hidden.shape[0], self.dimensions.vocab), np.float32)
        rows[0, 265] += self.silence
        script = self.scripts[max(self.attempt, 0)]
        place = self.place if self.attempt >= 0 else 0
        rows[-1, script[place] if place < len(script) else 256] += self.sure[max(self.attempt, 0)]
        return rows


def run(
    said: Scripted,
    vocabulary: Vocabulary,
    monkeypatch: pytest.MonkeyPatch,
    options: Options,
    previous: Sequence[int] = (),
) -> tuple[Attempt, list[str]]:
    """The attempt, and the partial texts before it."""
    monkeypatch.setattr(decoding, "Decoding", lambda decoder, heard: said)
    steps: Generator[Partial, None, Attempt] = WindowDecoder(
        cast("Decoder", said), vocabulary, options
    ).decode([], START, previous)
    partial = []
    while True:
        try:
            partial.append(next(steps).text)
        except StopIteration as ended:
            return ended.value, partial


@pytest.fixture
def letters(vocabulary: Vocabulary) -> list[int]:
    return [T, *vocabulary.encode("so,be,it"), T + 100]


def test_a_likely_text_is_taken_at_once(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([letters], [30.0])
    attempt, partial = run(said, vocabulary, monkeypatch, Options())
    assert attempt.tokens == tuple(letters)
    assert (attempt.text, attempt.temperature) == ("so,be,it", 0.0)
    assert attempt.avg_logprob == pytest.approx(0, abs=1e-3)
    assert partial[0] == "s"
    assert partial[-1] == "so,be,it"
    assert said.prompts == [START]


def test_what_was_said_before_is_the_prompt(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([letters], [30.0])
    run(said, vocabulary, monkeypatch, Options(), previous=list(range(100)))
    room = said.dimensions.text_context // 2 - 1
    assert said.prompts == [[264, *range(100)[-room:], *START]]


def test_without_timestamps_the_prompt_says_so(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([letters[1:-1]], [30.0])
    attempt, _ = run(said, vocabulary, monkeypatch, Options(timestamps=False))
    assert said.prompts == [[*START, 266]]
    assert attempt.text == "so,be,it"


def test_an_unlikely_text_is_tried_hotter(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([letters, letters], [8.0, 60.0])
    attempt, _ = run(said, vocabulary, monkeypatch, replace(STRICT, temperatures=(0.0, 0.4)))
    assert attempt.temperature == 0.4
    assert attempt.tokens == tuple(letters)


def test_a_text_that_repeats_itself_is_tried_hotter(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = [T, *vocabulary.encode("a" * 14)]
    said = Scripted([again, letters], [60.0, 60.0])
    options = Options(temperatures=(0.0, 0.2), compression_ratio_threshold=1.0)
    attempt, _ = run(said, vocabulary, monkeypatch, options)
    assert attempt.temperature == 0.2
    assert len(said.prompts) == 1, "the prompt is read once for all attempts"


def test_when_all_are_poor_the_likeliest_is_taken(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([letters, letters], [9.0, 1.0])
    attempt, _ = run(said, vocabulary, monkeypatch, replace(STRICT, temperatures=(0.0, 1.0)))
    assert attempt.temperature == 0.0
    assert attempt.avg_logprob < -0.1


def test_a_silent_window_is_not_tried_hotter(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([letters], [8.0], silence=60.0)
    attempt, _ = run(said, vocabulary, monkeypatch, STRICT)
    assert attempt.is_silence(STRICT)
    assert attempt.temperature == 0.0


def test_no_speech_alone_is_no_silence(
    vocabulary: Vocabulary, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([letters], [60.0], silence=90.0)
    attempt, _ = run(said, vocabulary, monkeypatch, Options())
    assert attempt.no_speech_prob > 0.9
    assert not attempt.is_silence(Options())
    assert not attempt.is_poor(Options())


def test_a_window_ends_with_the_models_context(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([[T, *vocabulary.encode("abc" * 40)]], [60.0])
    attempt, _ = run(said, vocabulary, monkeypatch, Options())
    assert len(attempt.tokens) == said.dimensions.text_context // 2


def test_compression() -> None:
    assert compression_ratio("ha " * 100) > 2.4
    assert compression_ratio("Every word of this is another one.") < 1.2
    assert compression_ratio("") < 1
