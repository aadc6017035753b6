"""The cheapest path and the median, against the plainest way to compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbospark_cli.audio.whisper.alignment import cheapest_path, median_filtered

Array = np.ndarray[Any, Any]


def plain_path(cost: Array) -> list[tuple[int, int]]:
    """Dynamic time warping cell by cell."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    back: dict[tuple[int, int], tuple[int, int]] = {}
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            across, down, right = (
                total[row - 1, column - 1],
                total[row - 1, column],
                total[row, column - 1],
            )
            if across < down and across < right:
                total[row, column], back[row, column] = across, (row - 1, column - 1)
            elif down < across and down < right:
                total[row, column], back[row, column] = down, (row - 1, column)
            else:
                total[row, column], back[row, column] = right, (row, column - 1)
            total[row, column] += cost[row - 1, column - 1]
    path, place = [], (rows, columns)
    while place[0] > 0 and place[1] > 0:
        path.append((place[0] - 1, place[1] - 1))
        row, column = place
        place = (row, column - 1) if row == 1 else (row - 1, column) if column == 1 else back[place]
    return path[::-1]


@given(rows=st.integers(1, 7), columns=st.integers(1, 9), seed=st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_the_path_is_the_plain_one(rows: int, columns: int, seed: int) -> None:
    cost = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    found = cheapest_path(cost)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == plain_path(cost)


def test_a_long_path_follows_the_ridge() -> None:
    cost = np.ones((200, 1500), np.float32)
    for row in range(200):
        cost[row, row * 7 : row * 7 + 7] = -1
    rows, columns = cheapest_path(cost)
    starts = columns[np.diff(rows, prepend=-1) > 0]
    assert starts.tolist() == [row * 7 for row in range(200)]


@pytest.mark.parametrize("length", [1, 3, 4, 7, 50])
def test_the_median_is_the_plain_one(length: int) -> None:
    values = np.random.default_rng(length).standard_normal((2, 3, length)).astype(np.float32)
    found = median_filtered(values)
    if length <= 3:
        assert np.array_equal(found, values)
        return
    padded = np.pad(values, [(0, 0), (0, 0), (3, 3)], mode="reflect")
    for place in range(length):
        assert np.array_equal(found[..., place], np.median(padded[..., place : place + 7], axis=-1))
