"""What a Whisper's folder says about it: sizes, and the ids that its authors suppress or align with.

Two spellings of the sizes are read, MLX's (which is OpenAI's) and Hugging Face's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from turbospark_cli.errors import CorruptInstall

_LARGEST_JSON: Final = 16 * 1024 * 1024  # bytes
_LARGEST: Final = 2**20  # of any size
_HUGGING_FACE: Final = {
    "n_mels": "num_mel_bins",
    "n_audio_ctx": "max_source_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_attention_heads",
    "n_audio_layer": "encoder_layers",
    "n_vocab": "vocab_size",
    "n_text_ctx": "max_target_positions",
    "n_text_state": "d_model",
    "n_text_head": "decoder_attention_heads",
    "n_text_layer": "decoder_layers",
}
MULTILINGUAL_VOCAB: Final = 51_865  # the English-only models have fewer tokens


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The sizes of one model."""

    mels: int
    audio_context: int  # positions of the encoder, two frames each
    audio_heads: int
    audio_layers: int
    vocab: int
    text_context: int  # tokens
    text_heads: int
    text_layers: int
    width: int
    group_size: int = 0  # of quantized weights
    bits: int = 0  # 0: dense

    @property
    def frames(self) -> int:
        """Frames of one window."""
        return 2 * self.audio_context

    @property
    def multilingual(self) -> bool:
        """Whether it knows other languages than English."""
        return self.vocab >= MULTILINGUAL_VOCAB


@dataclass(frozen=True, slots=True)
class Generation:
    """Token ids that are never said, or not first, and (layer, head) pairs that attend to what is said now.

    None where the folder does not say.
    """

    suppressed: tuple[int, ...] | None
    suppressed_first: tuple[int, ...] | None
    alignment_heads: tuple[tuple[int, int], ...] | None


def read_dimensions(folder: Path) -> Dimensions:
    """The sizes in `config.json`. Raises CorruptInstall."""
    config = _read(folder, "config.json")
    spelled = {name: name for name in _HUGGING_FACE} if "n_audio_state" in config else _HUGGING_FACE
    sizes = {name: _size(folder, config, spelled[name]) for name in _HUGGING_FACE}
    quantization = config.get("quantization") or {}
    if not isinstance(quantization, dict):
        raise _unusable(folder, "quantization")
    quantized = bool(quantization)
    made = Dimensions(
        mels=sizes["n_mels"],
        audio_context=sizes["n_audio_ctx"],
        audio_heads=sizes["n_audio_head"],
        audio_layers=sizes["n_audio_layer"],
        vocab=sizes["n_vocab"],
        text_context=sizes["n_text_ctx"],
        text_heads=sizes["n_text_head"],
        text_layers=sizes["n_text_layer"],
        width=sizes["n_text_state"],
        group_size=_size(folder, quantization, "group_size") if quantized else 0,
        bits=_size(folder, quantization, "bits") if quantized else 0,
    )
    if sizes["n_audio_state"] != made.width or made.width % made.audio_heads or made.width % made.text_heads:
        raise _unusable(folder, "widths and heads")
    return made


def read_generation(folder: Path, dimensions: Dimensions) -> Generation:
    """What `generation_config.json` says, or else `config.json`. Raises CorruptInstall."""
    config = _read(folder, "config.json")
    if (folder / "generation_config.json").is_file():
        config |= _read(folder, "generation_config.json")
    pairs = config.get("alignment_heads")
    heads = None
    if pairs is not None:
        if not isinstance(pairs, list) or not pairs:
            raise _unusable(folder, "alignment_heads")
        heads = tuple(_pair(folder, pair, dimensions) for pair in pairs)
    return Generation(
        suppressed=_ids(folder, config, "suppress_tokens", dimensions.vocab),
        suppressed_first=_ids(folder, config, "begin_suppress_tokens", dimensions.vocab),
        alignment_heads=heads,
    )


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise _unusable(folder, "content", name)
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(folder, "content", name) from error
    if not isinstance(value, dict):
        raise _unusable(folder, "content", name)
    return value


def _size(folder: Path, config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 1 <= value <= _LARGEST:
        raise _unusable(folder, name)
    return value


def _ids(folder: Path, config: dict[str, Any], name: str, below: int) -> tuple[int, ...] | None:
    value = config.get(name)
    if value is None or value == [-1]:  # OpenAI's way to say: the usual ones
        return None
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < below for token in value):
        raise _unusable(folder, name)
    return tuple(value)


def _pair(folder: Path, pair: object, dimensions: Dimensions) -> tuple[int, int]:
    match pair:
        case [int(layer), int(head)] if (
            0 <= layer < dimensions.text_layers and 0 <= head < dimensions.text_heads
        ):
            return layer, head
    raise _unusable(folder, "alignment_heads")


def _unusable(folder: Path, what: str, file: str = "config.json") -> CorruptInstall:
    return CorruptInstall(
        f"{file} of {folder.stem} holds unusable {what}.",
        hint=f"`turbospark models pull --force {folder.stem}` installs it anew.",
    )
