"""Whisper as a speech-to-text family: window after window of sound into segments.

DESIGN. A window is encoded once; its attempts at several temperatures, its language and the times of its
words all use the same keys and values. Where the next window begins follows from the timestamps that the
model says, as in OpenAI's code. Memory holds one window, whatever the length of the sound.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import mlx.core as mx
import numpy as np

from turbospark_cli.audio.transcript import Event, Language, Options, Progress, Segment, Word
from turbospark_cli.audio.whisper import alignment, config, kernels, pieces, weights, words
from turbospark_cli.audio.whisper.decoder import Decoder, Decoding, Heard
from turbospark_cli.audio.whisper.decoding import Attempt, WindowDecoder
from turbospark_cli.audio.whisper.encoder import Encoder
from turbospark_cli.audio.whisper.frames import Frames
from turbospark_cli.audio.whisper.mel import FRAMES_PER_SECOND
from turbospark_cli.audio.whisper.pieces import Piece
from turbospark_cli.audio.whisper.vocabulary import Vocabulary
from turbospark_cli.errors import InvalidRequest

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

_HOT: Final = 0.5  # above this temperature a text is no good context for the next window
_ENGLISH: Final = "en"


def load(folder: Path) -> WhisperTranscriber:
    """The model in a folder, ready to transcribe on this thread. Raises CorruptInstall."""
    dimensions = config.read_dimensions(folder)
    generation = config.read_generation(folder, dimensions)
    vocabulary = Vocabulary(folder, dimensions, generation)
    dtype = mx.float32 if kernels.on_cpu() else mx.float16
    tensors = weights.load(folder, dimensions, dtype)
    heads = generation.alignment_heads or _usual_heads(dimensions)
    return WhisperTranscriber(Encoder(tensors, dimensions), Decoder(tensors, dimensions), vocabulary, heads)


def _usual_heads(dimensions: config.Dimensions) -> tuple[tuple[int, int], ...]:
    """All heads of the upper half of the layers, which is what OpenAI takes where nobody measured better."""
    layers = range(dimensions.text_layers // 2, dimensions.text_layers)
    return tuple((layer, head) for layer in layers for head in range(dimensions.text_heads))


@dataclass(slots=True)
class _Said:
    """What one transcription has said so far, as context for its next window."""

    tokens: list[int] = field(default_factory=list)
    pauses: words.Pauses = field(default_factory=words.Pauses)


class WhisperTranscriber:
    """A loaded Whisper of any size; see `transcript.Transcriber`."""

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        vocabulary: Vocabulary,
        alignment_heads: tuple[tuple[int, int], ...],
    ) -> None:
        self._encoder, self._decoder, self._vocabulary = encoder, decoder, vocabulary
        self._heads = alignment_heads
        self._dimensions = decoder.dimensions
        self.multilingual = self._dimensions.multilingual
        self.languages = frozenset(vocabulary.languages) if self.multilingual else frozenset({_ENGLISH})

    def transcribe(self, audio: Iterable[Sound], options: Options) -> Generator[Event, None, None]:
        """The events of `audio`. Raises InvalidRequest for a language or a task that it does not know."""
        if options.language is not None and options.language not in self.languages:
            raise InvalidRequest(
                f"This model does not know the language {options.language[:20]!r}.", param="language"
            )
        if options.task == "translate" and not self.multilingual:
            raise InvalidRequest("This model knows English only, so it cannot translate.", param="task")
        return self._events(audio, options)

    def _events(self, audio: Iterable[Sound], options: Options) -> Generator[Event, None, None]:
        frames = Frames(audio, self._dimensions.mels, self._dimensions.frames)
        decoder = WindowDecoder(self._decoder, self._vocabulary, options)
        said = _Said(self._vocabulary.encode(f" {options.prompt.strip()}") if options.prompt else [])
        language = options.language if self.multilingual else _ENGLISH
        if language is not None:
            yield Language(language, 1.0)
        first = 0
        while True:
            window, held = frames.at(first)
            if held == 0:
                return
            heard = self._decoder.hear(self._encoder(mx.array(window)))
            if language is None:
                found = self._detect(heard)
                language = found.code
                yield found
            beginning = self._vocabulary.beginning(language if self.multilingual else None, options.task)
            attempt = yield from decoder.decode(heard, beginning, said.tokens)
            until = frames.count / FRAMES_PER_SECOND if frames.ended else np.inf
            if attempt.is_silence(options):
                first += held
            else:
                segments, advance = self._segments(
                    attempt, heard, beginning, _Window(first, held, until, language), said, options
                )
                first += advance
                yield from segments
            yield Progress(min(first, frames.count) / FRAMES_PER_SECOND)

    def _detect(self, heard: Heard) -> Language:
        hidden, _ = Decoding(self._decoder, heard).read([self._vocabulary.start])
        logits = self._decoder.logits(hidden)[0]
        codes = list(self._vocabulary.languages)
        likely = logits[list(self._vocabulary.languages.values())].astype(np.float64)
        likely = np.exp(likely - likely.max())
        best = int(likely.argmax())
        return Language(codes[best], float(likely[best] / likely.sum()))

    def _segments(
        self,
        attempt: Attempt,
        heard: Heard,
        beginning: list[int],
        window: _Window,
        said: _Said,
        options: Options,
    ) -> tuple[list[Segment], int]:
        """The segments of one window, and how many frames later the next one begins."""
        cut = pieces.cut(self._vocabulary, attempt.tokens, window.frames)
        spoken: list[list[words.Timed]] = [[] for _ in cut.pieces]
        if options.word_timestamps:
            spoken = self._words(cut.pieces, heard, beginning, window, said)
        segments: list[Segment] = []
        kept: list[int] = []
        for piece, timed in zip(cut.pieces, spoken, strict=True):
            segment = self._segment(piece, timed, attempt, window, said)
            if segment is not None:
                segments.append(segment)
                kept += piece.tokens
        if not options.condition_on_previous_text or attempt.temperature > _HOT:
            said.tokens = []
        else:
            said.tokens = (said.tokens + kept)[-self._dimensions.text_context :]
        advance = cut.advance
        if options.word_timestamps and not cut.complete and segments and segments[-1].words:
            until = round(segments[-1].words[-1].end * FRAMES_PER_SECOND) - window.first
            advance = min(until, window.frames) if until > 0 else advance
        return segments, advance

    def _segment(
        self, piece: Piece, timed: list[words.Timed], attempt: Attempt, window: _Window, said: _Said
    ) -> Segment | None:
        """A piece in the sound's own time; None when nothing is left of it."""
        text = self._vocabulary.text(piece.tokens)
        start, end = window.offset + piece.start, window.offset + piece.end
        found: tuple[Word, ...] = ()
        if timed:
            found, start, end = said.pauses.place(timed, window.offset, start, end)
        start, end = round(start, 2), round(min(end, window.until), 2)
        if start >= end or not text.strip():
            return None
        return Segment(
            start=start,
            end=end,
            text=text,
            tokens=piece.tokens,
            temperature=attempt.temperature,
            avg_logprob=attempt.avg_logprob,
            compression_ratio=attempt.compression_ratio,
            no_speech_prob=attempt.no_speech_prob,
            words=found,
        )

    def _words(
        self,
        cut: tuple[Piece, ...],
        heard: Heard,
        beginning: list[int],
        window: _Window,
        said: _Said,
    ) -> list[list[words.Timed]]:
        """The timed words of each piece."""
        vocabulary = self._vocabulary
        texts = [[token for token in piece.tokens if token < vocabulary.end] for piece in cut]
        room = self._dimensions.text_context - len(beginning) - 2
        tokens = [token for text in texts for token in text][:room]
        if not tokens:
            return [[] for _ in cut]
        starts, probabilities = alignment.token_times(
            self._decoder,
            heard,
            self._heads,
            [*beginning, vocabulary.no_timestamps],
            tokens,
            vocabulary.end,
            max(1, window.frames // 2),
        )
        found = words.split(vocabulary, tokens, window.language)
        timed = said.pauses.tidy(words.timed(found, starts.tolist(), probabilities.tolist()))
        return _shared_out(timed, [len(text) for text in texts])


@dataclass(frozen=True, slots=True)
class _Window:
    """Where a window lies in the sound, and what is known of it; `until` is where the sound ends."""

    first: int
    frames: int
    until: float
    language: str

    @property
    def offset(self) -> float:
        return self.first / FRAMES_PER_SECOND


def _shared_out(timed: list[words.Timed], lengths: list[int]) -> list[list[words.Timed]]:
    """Words to the pieces that their tokens began in."""
    shares: list[list[words.Timed]] = []
    place = 0
    for length in lengths:
        share, taken = [], 0
        while place < len(timed) and taken < length:
            share.append(timed[place])
            taken += timed[place].tokens
            place += 1
        shares.append(share)
    return shares
