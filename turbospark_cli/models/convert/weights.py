"""GGUF blocks as MLX weights: bit-exact affine groups where the formats agree, dense numbers elsewhere.

MLX stores a group of 32 weights as packed integers q with one scale s and one bias b: w = s * q + b.
    Q4_0  d * (q - 8)    s = d, b = -8 * d
    Q4_1  d * q + m      s = d, b = m
    Q8_0  d * q, signed  q + 128, s = d, b = -128 * d
d and m are float16 in the file; s and b are float32 here, since MLX is slow on a CPU with float16 scales
and since -8 * d and -128 * d are then exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType as Ggml

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert.gguf_reader import Bytes, Tensor
from turbospark_cli.models.convert.safetensors import Dtype, Plan

Array = np.ndarray[Any, Any]

GROUP: Final = 32  # weights that share a scale and a bias
BITS: Final = {Ggml.Q4_0: 4, Ggml.Q4_1: 4, Ggml.Q8_0: 8}
_DENSE: Final[dict[Ggml, Dtype]] = {Ggml.F32: "F32", Ggml.BF16: "BF16"}  # F16 otherwise
_FLOAT16_MAX: Final = 65_504.0
_BFLOAT16_EXPONENT: Final = 0x7F80


@dataclass(frozen=True, slots=True)
class Change:
    """What the architecture asks for beyond a new name."""

    heads: int = 0  # rows are permuted within this many heads for interleaved rope: undo it
    minus_one: bool = False  # a norm that is stored as weight + 1


def bits(tensor: Tensor) -> int | None:
    """How many bits a weight of this tensor takes in MLX's quantized form; None when it becomes dense."""
    return BITS.get(tensor.type) if len(tensor.shape) == 2 else None


def plan(tensor: Tensor, name: str) -> list[Plan]:
    """What `tensor` becomes under the MLX name `name`, which ends in `.weight` or `.bias`."""
    width = bits(tensor)
    if width is None:
        return [Plan(name, _dense_type(tensor), tensor.shape)]
    rows, columns = tensor.shape
    stem = name.removesuffix(".weight")
    groups = (rows, columns // GROUP)
    return [
        Plan(name, "U32", (rows, columns * width // 32)),
        Plan(f"{stem}.scales", "F32", groups),
        Plan(f"{stem}.biases", "F32", groups),
    ]


def arrays(tensor: Tensor, change: Change) -> Iterator[Array]:
    """The values of `plan`, in its order. Raises ConversionFailed when they are not finite."""
    parts = (_dense(tensor, change),) if bits(tensor) is None else _quantized(tensor)
    for part in parts:
        yield unpermute(part, change.heads) if change.heads else part


def unpermute(rows: Array, heads: int) -> Array:
    """Undo, on the first axis, the pairing of each head's halves that interleaved rope wants."""
    half = rows.shape[0] // heads // 2
    split = rows.reshape(heads, half, 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def _quantized(tensor: Tensor) -> tuple[Array, Array, Array]:
    rows, columns = tensor.shape
    blocks = tensor.data.reshape(rows, columns // GROUP, -1)
    scales = _halves(blocks[..., :2])
    _check_finite(tensor, scales)
    if tensor.type is Ggml.Q8_0:
        packed = blocks[..., 2:] ^ np.uint8(0x80)  # int8 q as uint8 q + 128
        biases = scales * np.float32(-128)
    elif tensor.type is Ggml.Q4_0:
        packed, biases = _nibbles(blocks[..., 2:]), scales * np.float32(-8)
    else:
        packed, biases = _nibbles(blocks[..., 4:]), _halves(blocks[..., 2:4])
        _check_finite(tensor, biases)
    words = np.ascontiguousarray(packed.reshape(rows, -1)).view("<u4")
    return words, scales, biases


def _halves(data: Bytes) -> Array:
    return np.ascontiguousarray(data).view("<f2")[..., 0].astype(np.float32)


def _nibbles(data: Bytes) -> Bytes:
    """Blocks of 16 bytes, low nibbles before high ones, packed as MLX has them: neighbours in one byte."""
    low, high = data & np.uint8(0x0F), data >> np.uint8(4)
    order = np.concatenate([low, high], axis=-1)
    packed: Bytes = order[..., 0::2] | (order[..., 1::2] << np.uint8(4))
    return packed


def _dense_type(tensor: Tensor) -> Dtype:
    if len(tensor.shape) == 1:  # norms and biases: small, and exact in float32
        return "F32"
    return _DENSE.get(tensor.type, "F16")


def _dense(tensor: Tensor, change: Change) -> Array:
    kind = _dense_type(tensor)
    if kind == "BF16":
        raw = tensor.data.reshape(-1).view("<u2").reshape(tensor.shape)
        if ((raw & _BFLOAT16_EXPONENT) == _BFLOAT16_EXPONENT).any():
            raise _not_finite(tensor)
        return raw
    try:
        values = quants.dequantize(tensor.data, tensor.type).reshape(tensor.shape)
    except NotImplementedError:
        raise ConversionFailed(f"Weights of type {tensor.type.name} are not supported.") from None
    _check_finite(tensor, values)
    if change.minus_one:
        values = values - np.float32(1)
    if kind == "F16" and np.abs(values).max(initial=0) > _FLOAT16_MAX:
        raise ConversionFailed(f"The tensor {tensor.name!r} holds weights that are too large for float16.")
    return values.astype("<f4" if kind == "F32" else "<f2")


def _check_finite(tensor: Tensor, values: Array) -> None:
    if not np.isfinite(values).all():
        raise _not_finite(tensor)


def _not_finite(tensor: Tensor) -> ConversionFailed:
    return ConversionFailed(f"The tensor {tensor.name!r} holds weights that are not finite numbers.")
