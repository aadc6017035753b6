"""Words from tokens, with their times; and what is done about words that seem to last through a pause."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from turbospark_cli.audio.transcript import Word
from turbospark_cli.audio.whisper.vocabulary import Vocabulary

_WITHOUT_SPACES: Final = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
_OPENING: Final = "\"'“¿([{-"
_CLOSING: Final = "\"'.。,，!！?？:：”)]}、"
_SENTENCE_ENDS: Final = ".。!！?？"
_LONGEST_MEDIAN: Final = 0.7  # seconds; half of what a word may last at the edge of a sentence
_PAUSE: Final = 4  # medians of silence before a word that make its length doubtful
_SLACK: Final = 0.5  # seconds that a word may reach beyond its piece


@dataclass(slots=True)
class Timed:
    """A word in the making; times in seconds of its window."""

    text: str
    tokens: int
    start: float
    end: float
    probability: float


def split(vocabulary: Vocabulary, tokens: Sequence[int], language: str) -> list[tuple[str, list[int]]]:
    """The words of `tokens`: between spaces, or single characters in languages that write none."""
    words: list[tuple[str, list[int]]] = []
    for part in vocabulary.characters(tokens):
        text = vocabulary.text(part)
        begins = text.startswith(" ") or text.strip() in string.punctuation
        if begins or not words or language in _WITHOUT_SPACES:
            words.append((text, part))
        else:
            before, earlier = words[-1]
            words[-1] = (before + text, earlier + part)
    return words


def timed(
    words: Sequence[tuple[str, list[int]]], starts: Sequence[float], probabilities: Sequence[float]
) -> list[Timed]:
    """Words with the times of their tokens; `starts` holds one more, the end of the last word."""
    made, first = [], 0
    for text, tokens in words:
        last = first + len(tokens)
        sure = float(np.mean(probabilities[first:last]))
        made.append(Timed(text, len(tokens), float(starts[first]), float(starts[last]), sure))
        first = last
    return made


class Pauses:
    """Shortens words that reach into silence; knows when speech last ended, from window to window."""

    def __init__(self) -> None:
        self._spoken_until = 0.0
        self._median = 0.0

    @property
    def _longest(self) -> float:
        return 2 * self._median

    def tidy(self, words: list[Timed]) -> list[Timed]:
        """The words of one window, shortened at the ends of sentences and with punctuation in its place."""
        lengths = [word.end - word.start for word in words if word.end != word.start]
        self._median = min(_LONGEST_MEDIAN, float(np.median(lengths))) if lengths else 0.0
        if lengths:
            for before, word in pairwise(words):
                if word.end - word.start > self._longest:
                    if word.text in _SENTENCE_ENDS:
                        word.end = word.start + self._longest
                    elif before.text in _SENTENCE_ENDS:
                        word.start = word.end - self._longest
        return _with_punctuation(words)

    def place(
        self, words: list[Timed], offset: float, start: float, end: float
    ) -> tuple[tuple[Word, ...], float, float]:
        """The words of one piece in the sound's time, and the start and end of the piece that fit them.

        `offset` is where the window begins, `start` and `end` are what the piece's timestamps say.
        """
        found = [_moved(word, offset) for word in words if word.text]
        if not found:
            return (), start, end
        self._after_a_pause(found)
        first, last = found[0], found[-1]
        # A piece's own time is better than one that a word stretches far over; otherwise the word's is.
        if first.start + _SLACK < start < first.end:
            first.start = max(0.0, min(first.end - self._median, start))
        else:
            start = first.start
        if last.start < end < last.end - _SLACK:
            last.end = max(last.start + self._median, end)
        else:
            end = last.end
        self._spoken_until = end
        return tuple(_final(word) for word in found), start, end

    def _after_a_pause(self, words: list[Timed]) -> None:
        first, second = words[0], words[1] if len(words) > 1 else None
        if first.end - self._spoken_until <= self._median * _PAUSE:
            return
        long = first.end - first.start > self._longest
        if not long and (second is None or second.end - first.start <= 2 * self._longest):
            return
        if second is not None and second.end - second.start > self._longest:
            first.end = second.start = max(second.end / 2, second.end - self._longest)
        first.start = max(0.0, first.end - self._longest)


def _with_punctuation(words: list[Timed]) -> list[Timed]:
    """Opening marks joined to the word that follows, closing marks to the word before."""
    opened: list[Timed] = []
    for word in reversed(words):
        mark = word.text.startswith(" ") and word.text.strip() in _OPENING
        if opened and mark:
            after = opened[-1]
            after.text, after.tokens = word.text + after.text, word.tokens + after.tokens
        else:
            opened.append(word)
    closed: list[Timed] = []
    for word in reversed(opened):
        if closed and word.text in _CLOSING and not closed[-1].text.endswith(" "):
            before = closed[-1]
            before.text, before.tokens = before.text + word.text, before.tokens + word.tokens
        else:
            closed.append(word)
    return closed


def _moved(word: Timed, offset: float) -> Timed:
    return replace(word, start=round(offset + word.start, 2), end=round(offset + word.end, 2))


def _final(word: Timed) -> Word:
    return Word(round(word.start, 2), round(word.end, 2), word.text, word.probability)
