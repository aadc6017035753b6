from __future__ import annotations

import pytest

from turbospark_cli.audio.whisper.pieces import Piece, cut
from turbospark_cli.audio.whisper.vocabulary import Vocabulary

A, T = 70, 267


def test_pairs_of_times_cut_and_the_rest_is_said_again(vocabulary: Vocabulary) -> None:
    found = cut(vocabulary, [T, A, T + 100, T + 150, A, A, T + 200, T + 200, A], 3000)
    assert found.pieces == (
        Piece(0.0, 2.0, (T, A, T + 100)),
        Piece(3.0, 4.0, (T + 150, A, A, T + 200)),
    )
    assert (found.advance, found.complete) == (400, False)


def test_one_time_at_the_end_ends_the_window(vocabulary: Vocabulary) -> None:
    found = cut(vocabulary, [T, A, T + 100, T + 100, A, T + 250], 3000)
    assert [piece.end for piece in found.pieces] == [2.0, 5.0]
    assert (found.advance, found.complete) == (3000, True)


@pytest.mark.parametrize(
    ("tokens", "end"), [([T, A, T + 100], 2.0), ([T, A], 8.0), ([A, A], 8.0), ([], 8.0), ([T, A, T], 8.0)]
)
def test_without_a_pair_the_window_is_one_piece(
    vocabulary: Vocabulary, tokens: list[int], end: float
) -> None:
    found = cut(vocabulary, tokens, 800)
    assert found.pieces == (Piece(0.0, end, tuple(tokens)),)
    assert found.advance == 800


def test_the_next_window_is_never_behind_nor_beyond(vocabulary: Vocabulary) -> None:
    assert cut(vocabulary, [T, T, A], 800).advance == 800
    assert cut(vocabulary, [T, A, T + 1500, T + 1500, A], 800).advance == 800
