"""Punctuation joins its word, and words do not last through pauses."""

from __future__ import annotations

import pytest

from turbospark_cli.audio.whisper.words import Pauses, Timed, timed


def word(text: str, start: float, end: float) -> Timed:
    return Timed(text, 1, start, end, 0.9)


def test_words_get_the_times_and_the_mean_probability_of_their_tokens() -> None:
    made = timed([(" ab", [1, 2]), (" c", [3])], [0.0, 0.5, 1.0, 1.4], [0.5, 1.0, 0.2])
    assert made == [Timed(" ab", 2, 0.0, 1.0, 0.75), Timed(" c", 1, 1.0, 1.4, 0.2)]


def test_punctuation_joins_the_word_it_belongs_to() -> None:
    words = [word(' "', 0, 0.1), word("Hi", 0.1, 0.4), word(",", 0.4, 0.5), word(" you", 0.5, 0.8)]
    words += [word("!", 0.8, 0.9), word('"', 0.9, 1.0)]
    made = Pauses().tidy(words)
    assert [(each.text, each.tokens, each.start, each.end) for each in made] == [
        (' "Hi,', 3, 0.1, 0.4),
        (' you!"', 3, 0.5, 0.8),
    ]


def test_a_full_stop_does_not_last_through_a_pause() -> None:
    words = [word(" one", 0, 0.3), word(".", 0.3, 6.0), word(" Two", 6.0, 6.3)]
    assert [each.end for each in Pauses().tidy(words)] == [0.3, 6.3]
    words = [word(" one", 0, 0.3), word(".", 0.3, 0.4), word(" Two", 0.4, 6.3), word(" or", 6.3, 6.6)]
    assert Pauses().tidy(words)[1].start == pytest.approx(6.3 - 0.6)


def test_the_first_word_after_a_pause_is_no_longer_than_two_medians() -> None:
    pauses = Pauses()
    words = pauses.tidy([word(" so", 0.0, 5.0), word(" it", 5.0, 5.3), word(" is", 5.3, 5.6)])
    placed, start, end = pauses.place(words, 10.0, 0.0 + 10, 5.6 + 10)
    assert (placed[0].start, placed[0].end) == (14.4, 15.0)
    assert (start, end) == (14.4, 15.6)
    assert [each.text for each in placed] == [" so", " it", " is"]


def test_a_piece_s_own_time_wins_over_a_word_that_stretches_over_it() -> None:
    pauses = Pauses()
    words = pauses.tidy([word(" a", 0.0, 0.2), word(" b", 0.2, 0.4), word(" c", 0.4, 2.4)])
    placed, start, end = pauses.place(words, 0.0, 0.0, 1.0)
    assert placed[-1].end == 1.0
    assert (start, end) == (0.0, 1.0)


def test_without_words_the_times_stay() -> None:
    assert Pauses().place([], 5.0, 5.5, 6.0) == ((), 5.5, 6.0)
    assert Pauses().tidy([]) == []
