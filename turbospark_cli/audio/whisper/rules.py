"""Which tokens may come next: OpenAI's rules for text and timestamps, on one row of logits in place.

A transcript begins with a time within the first second. Times come in pairs, the end of one piece and the
start of the next, and never go back. Where all times together are likelier than any text, a time comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from turbospark_cli.audio.whisper.vocabulary import TIME_STEP, Vocabulary

Array = np.ndarray[Any, np.dtype[np.float32]]

_LATEST_BEGINNING: Final = 1.0  # seconds
_NEVER: Final = np.float32(-np.inf)


class Rules:
    """The rules for one vocabulary, with or without times."""

    def __init__(self, vocabulary: Vocabulary, *, timestamps: bool) -> None:
        self._vocabulary = vocabulary
        self._timestamps = timestamps
        self._suppressed = np.array(vocabulary.suppressed, np.int64)
        self._suppressed_first = np.array(vocabulary.suppressed_first, np.int64)

    def apply(self, logits: Array, said: Sequence[int]) -> None:
        """Rule out what may not follow `said`, the tokens since the beginning of the transcript."""
        if not said:
            logits[self._suppressed_first] = _NEVER
        logits[self._suppressed] = _NEVER
        logits[self._vocabulary.no_timestamps] = _NEVER
        first = self._vocabulary.first_time
        if not self._timestamps:
            logits[first:] = _NEVER
            return
        logits[self._vocabulary.last_time + 1 :] = _NEVER
        self._pair(logits, said)
        if not said:
            logits[:first] = _NEVER
            logits[first + round(_LATEST_BEGINNING / TIME_STEP) + 1 :] = _NEVER
        elif _log_sum(logits[first:]) > logits[:first].max():
            logits[:first] = _NEVER

    def _pair(self, logits: Array, said: Sequence[int]) -> None:
        vocabulary, first = self._vocabulary, self._vocabulary.first_time
        after_time = bool(said) and vocabulary.is_time(said[-1])
        after_pair = after_time and (len(said) < 2 or vocabulary.is_time(said[-2]))
        if after_pair:
            logits[first:] = _NEVER
        elif after_time:
            logits[: vocabulary.end] = _NEVER
        latest = next((token for token in reversed(said) if vocabulary.is_time(token)), None)
        if latest is not None:
            # The start of a piece may repeat the end before it; an end must come after its start.
            logits[first : latest + (0 if after_time and not after_pair else 1)] = _NEVER


def log_probabilities(logits: Array) -> Array:
    """log softmax of one row."""
    likely: Array = logits - logits.max()
    likely -= np.log(np.exp(likely).sum())
    return likely


def _log_sum(logits: Array) -> float:
    top = logits.max()
    return float(top + np.log(np.exp(logits - top).sum())) if top > _NEVER else float(_NEVER)
