"""When each token was spoken, from where some heads of the decoder look while it says the token.

OpenAI's method: the alignment heads' cross-attention is normalised over the tokens, smoothed by a median
filter and averaged; the cheapest path through it that never goes back gives each token its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import mlx.core as mx
import numpy as np

from turbospark_cli.audio.whisper.decoder import Decoder, Decoding, Heard
from turbospark_cli.audio.whisper.kernels import view

Array = np.ndarray[Any, np.dtype[np.float32]]

POSITIONS_PER_SECOND: Final = 50
_MEDIAN: Final = 7  # positions
_DIAGONAL, _DOWN, _RIGHT = 0, 1, 2


def token_times(
    decoder: Decoder,
    heard: Heard,
    heads: Sequence[tuple[int, int]],
    prompt: Sequence[int],
    text: Sequence[int],
    end: int,
    positions: int,
) -> tuple[Array, Array]:
    """Start of each token of `text` and of what follows them, and the probability of each.

    Shapes (len(text) + 1,) in seconds of the window and (len(text),). `prompt` ends with the token that says
    there are no timestamps; `positions` are those of the encoder that hold sound.
    """
    decoding = Decoding(decoder, heard)
    hidden, scores = decoding.read([*prompt, *text, end], attending=heads)
    first = len(prompt) - 1
    probabilities = _probabilities(decoder.logits(hidden[first:-2]), text, end)
    looks = np.stack([view(scores[head].astype(mx.float32)) for head in heads])[:, :, :positions]
    matrix = _normalised(looks)[first:-1]
    rows, columns = cheapest_path(-matrix)
    starts = columns[np.diff(rows, prepend=-1) > 0]
    times: Array = (starts / POSITIONS_PER_SECOND).astype(np.float32)
    return times, probabilities


def _probabilities(logits: Array, text: Sequence[int], end: int) -> Array:
    words = logits[:, :end]
    top = words.max(axis=1, keepdims=True)
    total = np.exp(words - top).sum(axis=1)
    chosen: Array = np.exp(words[np.arange(len(text)), list(text)] - top[:, 0]) / total
    return chosen


def _normalised(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mean, deviation = weights.mean(axis=1, keepdims=True), weights.std(axis=1, keepdims=True)
    weights -= mean
    weights /= np.maximum(deviation, np.finfo(np.float32).tiny)
    averaged: Array = median_filtered(weights).mean(axis=0)
    return averaged


def median_filtered(values: Array) -> Array:
    """A median over the last axis, mirrored at its ends; an axis too short to be mirrored stays as it is."""
    half = _MEDIAN // 2
    if values.shape[-1] <= half:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(half, half)], mode="reflect")
    spans = np.lib.stride_tricks.sliding_window_view(padded, _MEDIAN, axis=-1)
    filtered: Array = np.partition(spans, half, axis=-1)[..., half]
    return filtered


def cheapest_path(cost: Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows and columns of the cheapest path from the first cell to the last that never goes back.

    PERF: cells of one antidiagonal depend only on the two before it, so each is one vectorised step.
    """
    rows, columns = cost.shape
    steps = np.full((rows + columns - 1, rows), _RIGHT, np.int8)
    skewed = np.full((rows + columns - 1, rows), np.inf)
    for row in range(rows):
        skewed[row : row + columns, row] = cost[row]
    # Totals of a diagonal by row, shifted by one so that the row above has a place.
    before = np.full(rows + 1, np.inf)
    last = np.full(rows + 1, np.inf)
    last[1] = skewed[0, 0]
    for diagonal in range(1, rows + columns - 1):
        across, down, right = before[:-1], last[:-1], last[1:]
        best = np.minimum(np.minimum(across, down), right)
        step = steps[diagonal]
        step[(down < across) & (down < right)] = _DOWN
        step[(across < down) & (across < right)] = _DIAGONAL
        now = np.full(rows + 1, np.inf)
        now[1:] = best + skewed[diagonal]
        before, last = last, now
    path = [(rows - 1, columns - 1)]
    while path[-1] != (0, 0):
        row, column = path[-1]
        step = _RIGHT if row == 0 else _DOWN if column == 0 else steps[row + column, row]
        path.append((row - (step != _RIGHT), column - (step != _DOWN)))
    found = np.array(path[::-1])
    return found[:, 0], found[:, 1]
