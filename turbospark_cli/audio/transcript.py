"""What a speech model tells while it listens: neutral events, and the contract of speech-to-text families.

DESIGN. A family turns chunks of sound into events, lazily in both directions. It pulls a chunk when it needs
one and yields an event when it has one, so memory does not grow with the sound, and closing the iterator
cancels. All times are seconds of the sound that was handed in; `pipeline` maps them back to the file's own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Sound = NDArray[np.float32]  # one channel of samples in [-1, 1] at SAMPLE_RATE, of any length

SAMPLE_RATE: Final = 16_000  # Hz; of all sound that a family is handed

Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True)
class Word:
    """One word, with the space before it where there is one; times in seconds."""

    start: float
    end: float
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the transcript that will not change any more; times in seconds.

    `avg_logprob` is per token; `words` is empty unless word times were asked for.
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 1.0
    no_speech_prob: float = 0.0
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Partial:
    """The text, so far, of the window that is being decoded; a later Partial or Segment replaces it."""

    text: str


@dataclass(frozen=True, slots=True)
class Language:
    """What is spoken: a code such as "en", and how sure that is; 1.0 when it was given."""

    code: str
    probability: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How many seconds of the sound are done."""

    seconds: float


Event = Language | Partial | Segment | Progress


@dataclass(frozen=True, slots=True)
class Options:
    """How to transcribe.

    `language` None detects it. The first of `temperatures` is used unless its text repeats itself
    (`compression_ratio_threshold`) or is unlikely (`logprob_threshold`), then the next ones. A window is
    silence when its no-speech probability is above `no_speech_threshold` and its text is unlikely as well.
    """

    task: Task = "transcribe"
    language: str | None = None
    prompt: str | None = None
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    condition_on_previous_text: bool = True
    word_timestamps: bool = False
    timestamps: bool = True
    compression_ratio_threshold: float = 2.4
    logprob_threshold: float = -1.0
    no_speech_threshold: float = 0.6


class Transcriber(Protocol):
    """One loaded model; not for use by two threads at a time."""

    languages: frozenset[str]  # codes that `Options.language` may name
    multilingual: bool  # whether it can detect languages and translate

    def transcribe(self, audio: Iterable[Sound], options: Options) -> Generator[Event, None, None]:
        """The events of `audio`, pulled lazily; closing the generator cancels.

        Segments come in order and do not overlap; one Language comes before the first of them.
        Raises InvalidRequest for a language or a task that this model cannot do, before any chunk is pulled.
        """
        ...
