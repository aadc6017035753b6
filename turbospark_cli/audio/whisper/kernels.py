"""The three computations that decide how fast Whisper is, on a GPU as MLX has them, on a CPU by hand.

PERF. MLX's CPU backend takes exp, tanh and erf one number at a time (20 to 40 ns each) and convolutions with
naive loops. numpy has vectorised exp and tanh, and works in place on MLX's memory. So on a CPU attention goes
through blocks that stay in the cache, GELU is a polynomial inside one tanh, and a convolution is one matrix
product.

SAFETY: numpy writes into arrays that MLX has just computed and that nothing else refers to yet.
"""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]

_BLOCK: Final = 400_000  # scores at a time: what a second-level cache holds
_BY_HAND: Final = 2_000  # fewer scores than this are not worth leaving MLX for
_ROWS: Final = 64  # of GELU's input at a time
# GELU(x) = x * (1 + tanh(x * p(x * x))) / 2 within 2.6e-5 of the exact one: p fitted to that, up to |x| = 6.
_GELU: Final = (np.float32(0.7975079), np.float32(0.03700565), np.float32(-3.515169e-4))
_GELU_END: Final = np.float32(36.0)


def on_cpu() -> bool:
    """Whether MLX computes on a CPU here."""
    return mx.default_device() == mx.Device(mx.cpu)


def view(array: mx.array) -> Array:
    """The memory of a float32 array, computed now, as numpy sees it."""
    mx.eval(array)
    return np.asarray(memoryview(array))  # type: ignore[arg-type]


def attention(
    queries: mx.array, turned: mx.array, values: mx.array, mask: mx.array | None = None
) -> mx.array:
    """softmax(queries turned + mask) values.

    `queries` (heads, L, head) are scaled already; `turned` (heads, head, S) are the keys; `values` are
    (heads, S, head), the mask is (L, S).
    """
    if not on_cpu():
        mixed = mx.fast.scaled_dot_product_attention(
            queries[None], turned.swapaxes(-1, -2)[None], values[None], scale=1.0, mask=mask
        )
        return mixed[0]
    heads, length, _ = queries.shape
    positions = turned.shape[-1]
    if heads * length * positions <= _BLOCK:
        return _mixed(queries, turned, values, mask)
    rows = max(1, _BLOCK // positions)
    done = []
    for head in range(heads):
        parts = []
        for first in range(0, length, rows):
            masked = None if mask is None else mask[first : first + rows]
            parts.append(_mixed(queries[head, first : first + rows], turned[head], values[head], masked))
            mx.eval(parts[-1])  # frees the scores, which the next block then reuses
        done.append(mx.concatenate(parts))
    return mx.stack(done)


def _mixed(queries: mx.array, turned: mx.array, values: mx.array, mask: mx.array | None) -> mx.array:
    scores = queries @ turned
    if mask is not None:
        scores = scores + mask
    if scores.size <= _BY_HAND:
        return mx.softmax(scores, axis=-1) @ values
    numbers = view(scores)
    numbers -= numbers.max(axis=-1, keepdims=True)
    np.exp(numbers, out=numbers)
    numbers /= numbers.sum(axis=-1, keepdims=True)
    return scores @ values


def gelu(array: mx.array) -> mx.array:
    """GELU; on a CPU in place."""
    if not on_cpu():
        return array * (1 + mx.erf(array * 2**-0.5)) * 0.5
    numbers = view(array)
    flat = numbers.reshape(-1, numbers.shape[-1])
    for first in range(0, len(flat), _ROWS):
        _gelu(flat[first : first + _ROWS])
    return array


def _gelu(x: Array) -> None:
    square = x * x
    np.minimum(square, _GELU_END, out=square)
    curve = square * _GELU[2]
    curve += _GELU[1]
    curve *= square
    curve += _GELU[0]
    curve *= x
    np.tanh(curve, out=curve)
    curve += 1
    curve *= np.float32(0.5)
    x *= curve


def convolution(array: mx.array, weight: mx.array, bias: mx.array, stride: int) -> mx.array:
    """A convolution of width 3 with one row of padding; shapes (L, in), (out, 3, in), (out,)."""
    if not on_cpu():
        return mx.conv1d(array[None], weight, stride=stride, padding=1)[0] + bias
    length, channels = array.shape
    padded = mx.pad(array, [(1, 1), (0, 0)])
    rows = (length + 2 - 3) // stride + 1
    spans = mx.as_strided(padded, (rows, 3 * channels), (stride * channels, 1))
    return mx.addmm(bias, spans, weight.reshape(weight.shape[0], -1).T)
