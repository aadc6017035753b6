"""The variables of a CTranslate2 Whisper, and the MLX tensors that each of them becomes.

Queries, keys and values are stored as one matrix; MLX wants one each. Keys have no bias in Whisper, so the
stored one is zero and left out. Convolutions are (out, in, width) there and (out, width, in) here. The
encoder's positions are sinusoids that the model computes itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert.ctranslate2_reader import Variable
from turbospark_cli.models.convert.safetensors import Dtype, Plan

Array = np.ndarray[Any, Any]

_LARGEST: Final = {"width": 4096, "vocab": 2**18, "layers": 128, "context": 2**16, "mels": 512}
_SCALE: Final = "_scale"
_POSITIONS: Final = "encoder/position_encodings/encodings"
_FLAGS: Final = (
    "activation", "alibi", "alignment_heads", "alignment_layer", "num_heads", "pre_norm",
    "scale_embeddings", "start_from_zero_embedding",
)  # fmt: skip
_STORED: Final[dict[str, tuple[Dtype, str]]] = {
    "float32": ("F32", "<f4"), "float16": ("F16", "<f2"), "int8": ("F16", "<f2"), "bfloat16": ("BF16", "<u2"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """How large one Whisper is."""

    mels: int
    audio_context: int
    text_context: int
    width: int
    vocab: int
    audio_layers: int
    text_layers: int
    audio_heads: int
    text_heads: int

    def config(self) -> dict[str, Any]:
        """`config.json` as MLX's Whisper models have it."""
        return {
            "model_type": "whisper",
            "n_mels": self.mels,
            "n_audio_ctx": self.audio_context,
            "n_audio_state": self.width,
            "n_audio_head": self.audio_heads,
            "n_audio_layer": self.audio_layers,
            "n_vocab": self.vocab,
            "n_text_ctx": self.text_context,
            "n_text_state": self.width,
            "n_text_head": self.text_heads,
            "n_text_layer": self.text_layers,
        }


@dataclass(frozen=True, slots=True)
class Move:
    """One MLX tensor: rows `first` to `last` of a variable, `transposed` for a convolution."""

    name: str
    variable: Variable
    scale: Variable | None
    first: int
    last: int
    transposed: bool = False

    @property
    def plan(self) -> Plan:
        """What the tensor will be in the file."""
        outer, *inner = self.variable.data.shape
        rows = self.last - self.first if outer else 0
        return Plan(
            self.name, _STORED[self.variable.type][0], (rows, *(inner[::-1] if self.transposed else inner))
        )

    def values(self) -> Array:
        """The values, in the plan's type. Raises ConversionFailed when they are not finite."""
        raw = self.variable.data[self.first : self.last]
        if self.variable.type == "bfloat16":
            finite = bool(((raw & 0x7F80) != 0x7F80).all())
        else:
            if self.scale is not None:
                scale = self.scale.data[self.first : self.last].astype(np.float32)
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    raw = raw / scale.reshape(-1, *[1] * (raw.ndim - 1))
            with np.errstate(over="ignore"):
                raw = raw.astype(_STORED[self.variable.type][1])
            finite = bool(np.isfinite(raw).all())
        if not finite:
            raise ConversionFailed(f"The variable {self.variable.name!r} holds weights that are not numbers.")
        return raw.swapaxes(1, 2) if self.transposed else raw


def read_shape(variables: Mapping[str, Variable]) -> Shape:
    """The sizes of the model, from its variables' own shapes. Raises ConversionFailed."""
    width, mels, _ = _dims(variables, "encoder/conv1/weight", 3)
    audio_context, _ = _dims(variables, _POSITIONS, 2)
    text_context, _ = _dims(variables, "decoder/position_encodings/encodings", 2)
    vocab, _ = _dims(variables, "decoder/embeddings/weight", 2)
    audio_layers, text_layers = _layers(variables, "encoder"), _layers(variables, "decoder")
    shape = Shape(
        mels=mels,
        audio_context=audio_context,
        text_context=text_context,
        width=width,
        vocab=vocab,
        audio_layers=audio_layers,
        text_layers=text_layers,
        audio_heads=_heads(variables, "encoder", width),
        text_heads=_heads(variables, "decoder", width),
    )
    sizes = [(width, "width"), (vocab, "vocab"), (audio_layers, "layers"), (text_layers, "layers")]
    sizes += [(audio_context, "context"), (text_context, "context"), (mels, "mels")]
    for size, what in sizes:
        if not 1 <= size <= _LARGEST[what]:
            raise ConversionFailed(f"The CTranslate2 file has {size} for its {what}, which no Whisper has.")
    return shape


def moves(variables: Mapping[str, Variable], shape: Shape) -> list[Move]:
    """Every tensor's move, in the order of the model; what does not match is refused by name."""
    used = {f"{side}/{flag}" for side in ("encoder", "decoder") for flag in _FLAGS} | {_POSITIONS}
    found = []
    for move in _moves(variables, shape):
        found.append(move)
        used.add(move.variable.name)
        if move.scale is not None:
            used.add(move.scale.name)
    used |= {name for name in variables if name.endswith("/self_attention/linear_0/bias")}
    unknown = sorted(set(variables) - used)
    if unknown:
        raise ConversionFailed(
            f"The CTranslate2 file holds a variable that Whisper lacks: {unknown[0][:80]!r}."
        )
    return found


def _moves(variables: Mapping[str, Variable], shape: Shape) -> Iterator[Move]:
    width = shape.width

    def matrix(source: str, targets: list[str], columns: int, rows: int) -> Iterator[Move]:
        """One stored matrix of len(targets) * rows by columns, and its bias; keys have none."""
        weight = _find(variables, f"{source}/weight", (rows * len(targets), columns))
        scale = variables.get(weight.name + _SCALE)
        offset = _find(variables, f"{source}/bias", (rows * len(targets),))
        for place, target in enumerate(targets):
            first, last = place * rows, (place + 1) * rows
            yield Move(f"{target}.weight", weight, scale, first, last)
            if not target.endswith(".key"):
                yield Move(f"{target}.bias", offset, None, first, last)

    def norm(source: str, target: str) -> Iterator[Move]:
        for stored, name in (("gamma", "weight"), ("beta", "bias")):
            yield _whole(_find(variables, f"{source}/{stored}", (width,)), f"{target}.{name}")

    for number, channels in ((1, shape.mels), (2, width)):
        kernel = _find(variables, f"encoder/conv{number}/weight", (width, channels, 3))
        scale = variables.get(kernel.name + _SCALE)
        yield Move(f"encoder.conv{number}.weight", kernel, scale, 0, width, transposed=True)
        yield _whole(_find(variables, f"encoder/conv{number}/bias", (width,)), f"encoder.conv{number}.bias")
    embedding = _find(variables, "decoder/embeddings/weight", (shape.vocab, width))
    scale = variables.get(embedding.name + _SCALE)
    yield Move("decoder.token_embedding.weight", embedding, scale, 0, shape.vocab)
    positions = _find(variables, "decoder/position_encodings/encodings", (shape.text_context, width))
    yield _whole(positions, "decoder.positional_embedding")
    for side, layers in (("encoder", shape.audio_layers), ("decoder", shape.text_layers)):
        for layer in range(layers):
            source, target = f"{side}/layer_{layer}", f"{side}.blocks.{layer}"
            own, ffn = f"{source}/self_attention", f"{source}/ffn"
            yield from norm(f"{own}/layer_norm", f"{target}.attn_ln")
            parts = [f"{target}.attn.{part}" for part in ("query", "key", "value")]
            yield from matrix(f"{own}/linear_0", parts, width, width)
            yield from matrix(f"{own}/linear_1", [f"{target}.attn.out"], width, width)
            if side == "decoder":
                cross = f"{source}/attention"
                yield from norm(f"{cross}/layer_norm", f"{target}.cross_attn_ln")
                yield from matrix(f"{cross}/linear_0", [f"{target}.cross_attn.query"], width, width)
                pair = [f"{target}.cross_attn.key", f"{target}.cross_attn.value"]
                yield from matrix(f"{cross}/linear_1", pair, width, width)
                yield from matrix(f"{cross}/linear_2", [f"{target}.cross_attn.out"], width, width)
            yield from norm(f"{ffn}/layer_norm", f"{target}.mlp_ln")
            yield from matrix(f"{ffn}/linear_0", [f"{target}.mlp1"], width, 4 * width)
            yield from matrix(f"{ffn}/linear_1", [f"{target}.mlp2"], 4 * width, width)
        yield from norm(f"{side}/layer_norm", "encoder.ln_post" if side == "encoder" else "decoder.ln")


def _whole(variable: Variable, name: str) -> Move:
    return Move(name, variable, None, 0, variable.data.shape[0])


def _find(variables: Mapping[str, Variable], name: str, shape: tuple[int, ...]) -> Variable:
    variable = variables.get(name)
    if variable is None:
        raise ConversionFailed(f"The CTranslate2 file lacks the variable {name!r}.")
    if variable.data.shape != shape:
        raise ConversionFailed(f"The variable {name!r} has the shape {variable.data.shape}, not {shape}.")
    if variable.type not in _STORED:
        raise ConversionFailed(f"Weights of type {variable.type} are not supported.")
    scale = variables.get(name + _SCALE)
    if (variable.type == "int8") != (scale is not None):
        raise ConversionFailed(f"The variable {name!r} has a scale without int8 weights, or none with them.")
    if scale is not None and (scale.data.shape != shape[:1] or scale.type not in ("float32", "float16")):
        raise ConversionFailed(f"The variable {scale.name!r} is not one scale for each row.")
    return variable


def _dims(variables: Mapping[str, Variable], name: str, rank: int) -> tuple[int, ...]:
    variable = variables.get(name)
    if variable is None or variable.data.ndim != rank:
        raise ConversionFailed(f"The CTranslate2 file lacks the variable {name!r}, or it is of another rank.")
    return tuple(variable.data.shape)


def _layers(variables: Mapping[str, Variable], side: str) -> int:
    count = 0
    while f"{side}/layer_{count}/ffn/linear_0/weight" in variables:
        count += 1
    return count


def _heads(variables: Mapping[str, Variable], side: str, width: int) -> int:
    variable = variables.get(f"{side}/num_heads")
    heads = int(variable.data) if variable is not None and variable.data.ndim == 0 else 0
    if heads < 1 or width % heads:
        raise ConversionFailed(f"The CTranslate2 file states no number of {side} heads that fits its width.")
    return heads
