"""One window of sound into tokens: greedy first, then hotter while the text is poor."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from turbospark_cli.audio.transcript import Options, Partial
from turbospark_cli.audio.whisper.decoder import Decoder, Decoding, Heard
from turbospark_cli.audio.whisper.rules import Array, Rules, log_probabilities
from turbospark_cli.audio.whisper.vocabulary import REPLACEMENT, Vocabulary


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a window was decoded into, and how good that is; `tokens` without the end."""

    tokens: tuple[int, ...]
    text: str
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float

    def is_silence(self, options: Options) -> bool:
        """Nobody speaks only where that is likely *and* the text is not."""
        return self.no_speech_prob > options.no_speech_threshold and self.is_unlikely(options)

    def is_unlikely(self, options: Options) -> bool:
        """Whether its tokens are too improbable on average."""
        return self.avg_logprob < options.logprob_threshold

    def repeats_itself(self, options: Options) -> bool:
        """Whether its text compresses too well."""
        return self.compression_ratio > options.compression_ratio_threshold

    def is_poor(self, options: Options) -> bool:
        """Whether another temperature should be tried."""
        return (self.repeats_itself(options) or self.is_unlikely(options)) and not self.is_silence(options)


class WindowDecoder:
    """Decodes window after window with one set of options."""

    def __init__(self, decoder: Decoder, vocabulary: Vocabulary, options: Options, seed: int = 0) -> None:
        self._decoder, self._vocabulary, self._options = decoder, vocabulary, options
        self._rules = Rules(vocabulary, timestamps=options.timestamps)
        self._dice = np.random.default_rng(seed)
        self._most = decoder.dimensions.text_context // 2  # tokens said in one window

    def decode(
        self, heard: Heard, beginning: Sequence[int], previous: Sequence[int]
    ) -> Generator[Partial, None, Attempt]:
        """The best attempt at a window, after yielding the text as it comes.

        `beginning` is what the transcript begins with, `previous` the tokens of what was said before it. The
        prompt is read once, whatever the number of attempts.
        """
        vocabulary = self._vocabulary
        prompt = list(beginning)
        if not self._options.timestamps:
            prompt.append(vocabulary.no_timestamps)
        room = self._most - 1
        if previous and room > 0:
            prompt = [vocabulary.previous, *previous[-room:], *prompt]
        decoding = Decoding(self._decoder, heard)
        hidden, _ = decoding.read(prompt)
        start = prompt.index(vocabulary.start)
        rows = self._decoder.logits(mx.stack([hidden[start], hidden[-1]]))
        silence = float(np.exp(log_probabilities(rows[0])[vocabulary.no_speech]))
        attempts = []
        for temperature in self._options.temperatures or (0.0,):
            decoding.rewind(len(prompt))
            attempt = yield from self._attempt(decoding, rows[-1].copy(), temperature, silence)
            if not attempt.is_poor(self._options):
                return attempt
            attempts.append(attempt)
        return self._best(attempts)

    def _best(self, attempts: Sequence[Attempt]) -> Attempt:
        """The likeliest of the poor, of those that do not repeat themselves where there are any."""
        fresh = [attempt for attempt in attempts if not attempt.repeats_itself(self._options)]
        return max(fresh or attempts, key=lambda attempt: attempt.avg_logprob)

    def _attempt(
        self, decoding: Decoding, logits: Array, temperature: float, silence: float
    ) -> Generator[Partial, None, Attempt]:
        vocabulary = self._vocabulary
        said: list[int] = []
        total, shown = 0.0, ""
        while True:
            self._rules.apply(logits, said)
            likely = log_probabilities(logits)
            token = self._choose(likely, temperature)
            total += float(likely[token])
            if token == vocabulary.end:
                break
            said.append(token)
            text = vocabulary.text(said)
            if text != shown and not text.endswith(REPLACEMENT):
                shown = text
                yield Partial(text.strip())
            if len(said) >= self._most or decoding.length >= self._decoder.dimensions.text_context:
                break
            hidden, _ = decoding.read([token])
            logits = self._decoder.logits(hidden)[-1]
        text = vocabulary.text(said).strip()
        return Attempt(
            tokens=tuple(said),
            text=text,
            temperature=temperature,
            avg_logprob=total / (len(said) + 1),
            compression_ratio=compression_ratio(text),
            no_speech_prob=silence,
        )

    def _choose(self, likely: Array, temperature: float) -> int:
        if temperature == 0:
            return int(likely.argmax())
        weights = np.exp(likely.astype(np.float64) / temperature - float(likely.max()) / temperature)
        steps = weights.cumsum()
        return int(np.searchsorted(steps, self._dice.random() * steps[-1], side="right"))


def compression_ratio(text: str) -> float:
    """How well a text compresses: high for one that repeats itself."""
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw))
