"""A Whisper's weights under one set of names, whoever published them.

MLX (which took OpenAI's names), OpenAI and Hugging Face name and lay out the same tensors differently. What
is read is told by its keys, and every tensor that the model needs must be there in its exact shape. Quantized
weights are unpacked: Whisper computes on whole windows, where unpacking once costs least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mlx.core as mx

from turbospark_cli.audio.whisper.config import Dimensions
from turbospark_cli.errors import CorruptInstall

Weights = dict[str, mx.array]

_FILES: Final = ("model*.safetensors", "weights*.safetensors", "weights.npz")
_BLOCK: Final = {
    "self_attn_layer_norm": "attn_ln",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "final_layer_norm": "mlp_ln",
    "self_attn": "attn",
    "encoder_attn": "cross_attn",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "out",
    "fc1": "mlp1",
    "fc2": "mlp2",
}
_WHOLE: Final = {
    "encoder.layer_norm": "encoder.ln_post",
    "decoder.layer_norm": "decoder.ln",
    "decoder.embed_tokens": "decoder.token_embedding",
    "decoder.embed_positions.weight": "decoder.positional_embedding",
}


def load(folder: Path, dimensions: Dimensions, dtype: mx.Dtype) -> Weights:
    """Every tensor of the model in `dtype`, by its MLX name. Raises CorruptInstall."""
    raw = {_name(key): value for key, value in _read(folder).items()}
    found: Weights = {}
    for name, shape in shapes(dimensions).items():
        value = _dense(raw, name, dimensions)
        if value is None:
            raise _damaged(folder, f"lack {name}")
        if name.endswith((".conv1.weight", ".conv2.weight")) and value.shape == (
            shape[0],
            shape[2],
            shape[1],
        ):
            value = value.swapaxes(1, 2)
        if tuple(value.shape) != shape:
            raise _damaged(folder, f"hold {name} in the shape {tuple(value.shape)} instead of {shape}")
        found[name] = value.astype(dtype)
    mx.eval(found)
    return found


def shapes(dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that a model of these sizes has, by name."""
    width = dimensions.width
    made: dict[str, tuple[int, ...]] = {
        "encoder.conv1.weight": (width, 3, dimensions.mels),
        "encoder.conv2.weight": (width, 3, width),
        "decoder.token_embedding.weight": (dimensions.vocab, width),
        "decoder.positional_embedding": (dimensions.text_context, width),
    }
    vectors = ["encoder.conv1.bias", "encoder.conv2.bias"]
    vectors += [f"{norm}.{part}" for norm in ("encoder.ln_post", "decoder.ln") for part in ("weight", "bias")]
    made |= dict.fromkeys(vectors, (width,))
    for side, layers in (("encoder", dimensions.audio_layers), ("decoder", dimensions.text_layers)):
        for layer in range(layers):
            for name, shape in _block_shapes(width, crossed=side == "decoder"):
                made[f"{side}.blocks.{layer}.{name}"] = shape
    return made


def _block_shapes(width: int, *, crossed: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    for attention in ("attn", "cross_attn") if crossed else ("attn",):
        for part in ("query", "key", "value", "out"):
            yield f"{attention}.{part}.weight", (width, width)
            if part != "key":
                yield f"{attention}.{part}.bias", (width,)
        yield f"{attention}_ln.weight", (width,)
        yield f"{attention}_ln.bias", (width,)
    for name, rows, columns in (("mlp1", 4 * width, width), ("mlp2", width, 4 * width)):
        yield f"{name}.weight", (rows, columns)
        yield f"{name}.bias", (rows,)
    yield "mlp_ln.weight", (width,)
    yield "mlp_ln.bias", (width,)


def _read(folder: Path) -> Weights:
    for pattern in _FILES:
        paths = sorted(folder.glob(pattern))
        if not paths:
            continue
        found: Weights = {}
        for path in paths:
            try:
                part = mx.load(str(path))
            except (RuntimeError, ValueError, OSError) as error:
                raise _damaged(folder, "cannot be read") from error
            if not isinstance(part, dict):
                raise _damaged(folder, "are not named tensors")
            found |= part
        return found
    raise _damaged(folder, "are not there")


def _name(key: str) -> str:
    """The MLX name of a tensor that somebody calls `key`."""
    name = key.removeprefix("model.")
    name = re.sub(r"\.mlp\.([02])\.", lambda match: f".mlp{int(match[1]) // 2 + 1}.", name)
    for theirs, ours in _WHOLE.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    match = re.match(r"(encoder|decoder)\.layers\.(\d+)\.(.*)", name)
    if match is None:
        return name
    parts = [_BLOCK.get(part, part) for part in match[3].split(".")]
    return f"{match[1]}.blocks.{match[2]}.{'.'.join(parts)}"


def _dense(raw: Weights, name: str, dimensions: Dimensions) -> mx.array | None:
    value = raw.get(name)
    stem = name.removesuffix(".weight")
    scales = raw.get(f"{stem}.scales")
    if value is None or scales is None or not dimensions.bits:
        return value
    try:
        return mx.dequantize(
            value,
            scales,
            raw.get(f"{stem}.biases"),
            group_size=dimensions.group_size,
            bits=dimensions.bits,
        )
    except (ValueError, RuntimeError):
        return None


def _damaged(folder: Path, how: str) -> CorruptInstall:
    return CorruptInstall(
        f"The weights of {folder.stem} {how}.",
        hint=f"`turbospark models pull --force {folder.stem}` installs it anew.",
    )
