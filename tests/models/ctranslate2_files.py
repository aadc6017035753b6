"""Tiny random Whispers as CTranslate2 files, written by the format's description and nothing of ours."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Array = np.ndarray[Any, Any]

CODES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
LANGUAGES = ("en", "zh", "de")


@dataclass
class TinyWhisper:
    """Sizes, and what the file says about itself; `variables` can be changed before it is written."""

    width: int = 16
    heads: int = 2
    mels: int = 80
    layers: int = 2
    audio_context: int = 1500
    text_context: int = 448
    vocab: int = 51_865
    dtype: str = "float32"
    seed: int = 0
    version: int = 6
    specification: str = "WhisperSpec"
    revision: int = 3
    variables: dict[str, Array] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=lambda: {"alignment_heads": [[1, 0], [1, 1]]})

    def __post_init__(self) -> None:
        if not self.variables:
            self.variables = dict(sorted(_variables(self).items()))

    def bytes(self) -> bytes:
        """The whole file."""
        parts = [struct.pack("<I", self.version), _string(self.specification)]
        parts += [struct.pack("<II", self.revision, len(self.variables))]
        for name, value in self.variables.items():
            shape = value.shape
            parts += [_string(name), struct.pack(f"<B{len(shape)}I", len(shape), *shape)]
            parts += [struct.pack("<BI", CODES[value.dtype.name], value.nbytes), value.tobytes()]
        aliases = {"decoder/projection/weight": "decoder/embeddings/weight"}
        parts.append(struct.pack("<I", len(aliases)))
        parts += [_string(name) + _string(target) for name, target in aliases.items()]
        return b"".join(parts)


def write(folder: Path, model: TinyWhisper) -> Path:
    """The weight file, with its companions beside it."""
    (folder / "config.json").write_text(json.dumps(model.config))
    (folder / "tokenizer.json").write_text(tokenizer(model.vocab).to_str())
    path = folder / "weights"
    path.write_bytes(model.bytes())
    return path


def tokenizer(vocab: int) -> Tokenizer:
    """A byte-level tokenizer without merges, whose special tokens have ids in Whisper's order.

    Like some published files it lacks the tokens of times.
    """
    letters = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=letters, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    names = ["endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe", "startoflm"]
    names += ["startofprev", "nospeech", "notimestamps"]
    made.add_special_tokens([AddedToken(f"<|{name}|>", special=True, normalized=False) for name in names])
    assert made.get_vocab_size() + 1501 <= vocab
    return made


def _string(text: str) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw


def _variables(model: TinyWhisper) -> dict[str, Array]:
    drawn = _Drawn(model)
    width = model.width
    for side, context in (("encoder", model.audio_context), ("decoder", model.text_context)):
        drawn.put(f"{side}/position_encodings/encodings", context, width)
        drawn.found[f"{side}/num_heads"] = np.array(model.heads, np.int16)
        drawn.norm(f"{side}/layer_norm")
        for layer in range(model.layers):
            drawn.block(f"{side}/layer_{layer}", crossed=side == "decoder")
    for number, channels in ((1, model.mels), (2, width)):
        drawn.put(f"encoder/conv{number}/weight", width, channels, 3, spread=(3 * channels) ** -0.5)
        drawn.put(f"encoder/conv{number}/bias", width)
    drawn.put("decoder/embeddings/weight", model.vocab, width)
    drawn.found["decoder/activation"] = np.array(3, np.int8)
    return drawn.found


class _Drawn:
    """Random variables, in the order in which they are asked for."""

    def __init__(self, model: TinyWhisper) -> None:
        self.found: dict[str, Array] = {}
        self._dtype, self._width = model.dtype, model.width
        self._dice = np.random.default_rng(model.seed)

    def put(self, name: str, *shape: int, spread: float = 0.1, offset: float = 0.0) -> None:
        value = (self._dice.standard_normal(shape) * spread + offset).astype(np.float32)
        if self._dtype == "int8" and name.endswith("weight"):
            scale = 127 / np.abs(value).reshape(shape[0], -1).max(1)
            self.found[f"{name}_scale"] = scale.astype(np.float32)
            value = np.round(value * scale.reshape(-1, *[1] * (len(shape) - 1))).astype(np.int8)
        elif self._dtype == "float16":
            value = value.astype(np.float16)
        self.found[name] = value

    def linear(self, name: str, rows: int, columns: int) -> None:
        self.put(f"{name}/weight", rows, columns, spread=columns**-0.5)
        self.put(f"{name}/bias", rows)

    def norm(self, name: str) -> None:
        self.put(f"{name}/gamma", self._width, offset=1.0)
        self.put(f"{name}/beta", self._width)

    def block(self, at: str, crossed: bool) -> None:
        width = self._width
        self.norm(f"{at}/self_attention/layer_norm")
        self.linear(f"{at}/self_attention/linear_0", 3 * width, width)
        self.linear(f"{at}/self_attention/linear_1", width, width)
        if crossed:
            self.norm(f"{at}/attention/layer_norm")
            for number, rows in enumerate((width, 2 * width, width)):
                self.linear(f"{at}/attention/linear_{number}", rows, width)
        self.norm(f"{at}/ffn/layer_norm")
        self.linear(f"{at}/ffn/linear_0", 4 * width, width)
        self.linear(f"{at}/ffn/linear_1", width, 4 * width)
