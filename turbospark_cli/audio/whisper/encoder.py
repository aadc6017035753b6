"""The encoder: 30 seconds of log-mel frames into one vector for every 20 ms."""

from __future__ import annotations

from typing import Final

import mlx.core as mx
import numpy as np

from turbospark_cli.audio.whisper import kernels
from turbospark_cli.audio.whisper.config import Dimensions
from turbospark_cli.audio.whisper.weights import Weights

NORM_EPSILON: Final = 1e-5
_LONGEST_WAVE: Final = 10_000.0


class Linear:
    """x W^T + b; several matrices of one input can be joined into one.

    PERF: a product with one row is fastest where the longer side of the matrix is the contiguous one.
    """

    def __init__(self, weights: Weights, *names: str) -> None:
        matrices = [weights[f"{name}.weight"] for name in names]
        offsets = [
            weights.get(f"{name}.bias", mx.zeros(matrix.shape[0], matrix.dtype))
            for name, matrix in zip(names, matrices, strict=True)
        ]
        matrix = matrices[0] if len(matrices) == 1 else mx.concatenate(matrices)
        rows, columns = matrix.shape
        self._turned = mx.contiguous(matrix.T) if rows > columns else matrix.T
        self._offset = offsets[0] if len(offsets) == 1 else mx.concatenate(offsets)
        mx.eval(self._turned, self._offset)

    def __call__(self, x: mx.array) -> mx.array:
        return mx.addmm(self._offset, x, self._turned)


class Norm:
    """Layer normalisation over the last axis."""

    def __init__(self, weights: Weights, name: str) -> None:
        self._scale, self._offset = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, self._scale, self._offset, NORM_EPSILON)


class SelfAttention:
    """Queries, keys and values of one input, and what follows from mixing them."""

    def __init__(self, weights: Weights, name: str, heads: int) -> None:
        self._joined = Linear(weights, *(f"{name}.{part}" for part in ("query", "key", "value")))
        self.out = Linear(weights, f"{name}.out")
        self._heads = heads

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Scaled queries, keys and values, each (heads, L, head)."""
        length, width = x.shape
        parts = self._joined(x).reshape(length, 3, self._heads, width // self._heads).transpose(1, 2, 0, 3)
        return parts[0] * (width // self._heads) ** -0.5, parts[1], parts[2]


class Mlp:
    """The two layers after attention, with their norm."""

    def __init__(self, weights: Weights, name: str) -> None:
        self._norm = Norm(weights, f"{name}.mlp_ln")
        self._wide, self._narrow = Linear(weights, f"{name}.mlp1"), Linear(weights, f"{name}.mlp2")

    def __call__(self, x: mx.array) -> mx.array:
        return self._narrow(kernels.gelu(self._wide(self._norm(x))))


def joined_heads(mixed: mx.array) -> mx.array:
    """(heads, L, head) as (L, width)."""
    heads, length, head = mixed.shape
    return mixed.transpose(1, 0, 2).reshape(length, heads * head)


class _Block:
    def __init__(self, weights: Weights, name: str, heads: int) -> None:
        self._norm = Norm(weights, f"{name}.attn_ln")
        self._attention = SelfAttention(weights, f"{name}.attn", heads)
        self._mlp = Mlp(weights, name)

    def __call__(self, x: mx.array) -> mx.array:
        queries, keys, values = (mx.contiguous(part) for part in self._attention.project(self._norm(x)))
        mixed = kernels.attention(queries, keys.swapaxes(-1, -2), values)
        x = x + self._attention.out(joined_heads(mixed))
        return x + self._mlp(x)


class Encoder:
    """Call it with (frames, mels); it gives (frames / 2, width)."""

    def __init__(self, weights: Weights, dimensions: Dimensions) -> None:
        self._convolutions = [
            (weights[f"encoder.conv{number}.weight"], weights[f"encoder.conv{number}.bias"], number)
            for number in (1, 2)
        ]
        self._blocks = [
            _Block(weights, f"encoder.blocks.{layer}", dimensions.audio_heads)
            for layer in range(dimensions.audio_layers)
        ]
        self._norm = Norm(weights, "encoder.ln_post")
        self._positions = _sinusoids(dimensions.audio_context, dimensions.width).astype(
            weights["encoder.conv1.weight"].dtype
        )

    def __call__(self, frames: mx.array) -> mx.array:
        x = frames.astype(self._positions.dtype)
        for weight, bias, stride in self._convolutions:
            x = kernels.gelu(kernels.convolution(x, weight, bias, stride))
        x = x + self._positions
        for block in self._blocks:
            x = block(x)
        return self._norm(x)


def _sinusoids(length: int, width: int) -> mx.array:
    waves = _LONGEST_WAVE ** (-np.arange(width // 2) / max(1, width // 2 - 1))
    angles = np.arange(length)[:, None] * waves
    return mx.array(np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32))
