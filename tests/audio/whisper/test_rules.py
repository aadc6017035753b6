"""Which tokens may follow which, by OpenAI's rules."""

from __future__ import annotations

import numpy as np
import pytest

from turbospark_cli.audio.whisper.rules import Rules, log_probabilities
from turbospark_cli.audio.whisper.vocabulary import Vocabulary

A, B = 70, 71  # two letters
T = 267  # the time zero


def allowed(vocabulary: Vocabulary, said: list[int], *, timestamps: bool = True) -> set[int]:
    """What may follow when every token is as likely as any other, and a time is not."""
    logits = np.zeros(vocabulary.size, np.float32)
    logits[T:] = -20
    Rules(vocabulary, timestamps=timestamps).apply(logits, said)
    return set(np.flatnonzero(np.isfinite(logits)).tolist())


def test_a_transcript_begins_with_a_time_in_its_first_second(vocabulary: Vocabulary) -> None:
    assert allowed(vocabulary, []) == set(range(T, T + 51))


def test_text_follows_the_first_time(vocabulary: Vocabulary) -> None:
    found = allowed(vocabulary, [T])
    assert {A, B, vocabulary.end} <= found
    assert max(found) < T


def test_a_time_after_text_may_not_go_back(vocabulary: Vocabulary) -> None:
    assert min(token for token in allowed(vocabulary, [T + 5, A]) if token >= T) == T + 6


def test_an_end_is_followed_by_a_start_or_the_end(vocabulary: Vocabulary) -> None:
    found = allowed(vocabulary, [T, A, T + 9])
    assert vocabulary.end in found
    assert not {A, B} & found
    assert min(token for token in found if token >= T) == T + 9


def test_text_follows_a_pair_of_times(vocabulary: Vocabulary) -> None:
    found = allowed(vocabulary, [T, A, T + 9, T + 9])
    assert {A, B} <= found
    assert max(found) < T


def test_a_time_comes_where_all_times_together_are_likelier_than_any_text(vocabulary: Vocabulary) -> None:
    logits = np.zeros(vocabulary.size, np.float32)
    logits[A] = 5  # likelier than each time, but not than the 1,400 of them
    Rules(vocabulary, timestamps=True).apply(logits, [T, B])
    assert not np.isfinite(logits[:T]).any()
    assert np.isfinite(logits[T + 1 : T + 1501]).all()
    assert not np.isfinite(logits[T + 1501 :]).any()


def test_without_timestamps_there_is_only_text(vocabulary: Vocabulary) -> None:
    found = allowed(vocabulary, [], timestamps=False)
    assert A in found
    assert max(found) < T
    assert not set(vocabulary.suppressed_first) & found
    assert vocabulary.end in allowed(vocabulary, [A], timestamps=False)


@pytest.mark.parametrize("said", [[], [T], [T, A]])
def test_suppressed_tokens_never_come(vocabulary: Vocabulary, said: list[int]) -> None:
    found = allowed(vocabulary, said)
    assert not {*vocabulary.suppressed, vocabulary.no_timestamps} & found


def test_log_probabilities_sum_to_one() -> None:
    likely = log_probabilities(np.array([1.0, 2.0, -np.inf], np.float32))
    assert np.isclose(np.exp(likely).sum(), 1)
