"""Tiny random Whispers in every published layout, and a plain numpy one that says what they compute."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np

from tests.models import ctranslate2_files
from turbospark_cli.audio.whisper.config import Dimensions
from turbospark_cli.audio.whisper.weights import shapes

Array = np.ndarray[Any, Any]

_MLX: Final = {
    "n_mels": "mels",
    "n_audio_ctx": "audio_context",
    "n_audio_head": "audio_heads",
    "n_audio_layer": "audio_layers",
    "n_vocab": "vocab",
    "n_text_ctx": "text_context",
    "n_text_head": "text_heads",
    "n_text_layer": "text_layers",
}
_HUGGING_FACE: Final = {
    "num_mel_bins": "mels",
    "max_source_positions": "audio_context",
    "encoder_attention_heads": "audio_heads",
    "encoder_layers": "audio_layers",
    "vocab_size": "vocab",
    "max_target_positions": "text_context",
    "decoder_attention_heads": "text_heads",
    "decoder_layers": "text_layers",
    "d_model": "width",
}
_NAMES: Final = [
    ("attn_ln.", "self_attn_layer_norm."),
    ("cross_attn_ln.", "encoder_attn_layer_norm."),
    ("mlp_ln.", "final_layer_norm."),
    ("cross_attn.", "encoder_attn."),
    ("attn.", "self_attn."),
    ("query.", "q_proj."),
    ("key.", "k_proj."),
    ("value.", "v_proj."),
    ("out.", "out_proj."),
    ("mlp1.", "fc1."),
    ("mlp2.", "fc2."),
    ("blocks.", "layers."),
    ("encoder.ln_post.", "encoder.layer_norm."),
    ("decoder.ln.", "decoder.layer_norm."),
    ("decoder.token_embedding.", "decoder.embed_tokens."),
    ("decoder.positional_embedding", "decoder.embed_positions.weight"),
]


def dimensions(**changes: int) -> Dimensions:
    """A multilingual model of a few hundred kB; `mels=128, vocab=51866` is large-v3's kind."""
    sizes = {
        "mels": 80,
        "audio_context": 40,
        "audio_heads": 2,
        "audio_layers": 2,
        "vocab": 51_865,
        "text_context": 32,
        "text_heads": 2,
        "text_layers": 2,
        "width": 8,
    }
    return Dimensions(**sizes | changes)


def weights(sizes: Dimensions, seed: int = 0) -> dict[str, Array]:
    """Random tensors by their MLX names."""
    dice = np.random.default_rng(seed)
    made = {}
    for name, shape in shapes(sizes).items():
        spread = 0.3 if len(shape) == 1 else math.prod(shape[1:]) ** -0.5
        offset = 1.0 if name.endswith(("ln.weight", "ln_post.weight")) else 0.0
        made[name] = (dice.standard_normal(shape) * spread + offset).astype(np.float32)
    return made


def _config(folder: Path, sizes: Dimensions, names: dict[str, str], **more: object) -> None:
    config = {name: getattr(sizes, field) for name, field in names.items()}
    (folder / "config.json").write_text(json.dumps(config | more))
    (folder / "tokenizer.json").write_text(ctranslate2_files.tokenizer(sizes.vocab).to_str())


def _arrays(tensors: dict[str, Array]) -> dict[str, mx.array]:
    return {name: mx.array(value) for name, value in tensors.items()}


def write_mlx(folder: Path, sizes: Dimensions, tensors: dict[str, Array]) -> None:
    """As MLX publishes them today."""
    widths = {"n_audio_state": sizes.width, "n_text_state": sizes.width}
    _config(folder, sizes, _MLX, model_type="whisper", **widths)
    mx.save_safetensors(str(folder / "weights.safetensors"), _arrays(tensors))


def write_npz(folder: Path, sizes: Dimensions, tensors: dict[str, Array]) -> None:
    """As MLX published them first: no model type, one npz."""
    _config(folder, sizes, _MLX, n_audio_state=sizes.width, n_text_state=sizes.width)
    mx.savez(str(folder / "weights.npz"), **_arrays(tensors))


def write_openai(folder: Path, sizes: Dimensions, tensors: dict[str, Array]) -> None:
    """With OpenAI's own names and convolutions."""
    write_mlx(folder, sizes, {_openai(name): _turned(name, value) for name, value in tensors.items()})


def write_hugging_face(folder: Path, sizes: Dimensions, tensors: dict[str, Array]) -> None:
    """As Hugging Face has them, in two shards."""
    _config(folder, sizes, _HUGGING_FACE, model_type="whisper")
    named = {_hugging_face(name): _turned(name, value) for name, value in tensors.items()}
    named["model.encoder.embed_positions.weight"] = np.zeros((sizes.audio_context, sizes.width), np.float32)
    items = sorted(named.items())
    for number, half in enumerate((items[::2], items[1::2])):
        mx.save_safetensors(str(folder / f"model-0000{number}-of-00002.safetensors"), _arrays(dict(half)))


WRITERS: Final[list[Callable[[Path, Dimensions, dict[str, Array]], None]]] = [
    write_mlx,
    write_npz,
    write_openai,
    write_hugging_face,
]


def _turned(name: str, value: Array) -> Array:
    return value.swapaxes(1, 2) if ".conv" in name and value.ndim == 3 else value


def _openai(name: str) -> str:
    return name.replace(".mlp1.", ".mlp.0.").replace(".mlp2.", ".mlp.2.")


def _hugging_face(name: str) -> str:
    for ours, theirs in _NAMES:
        if f".{ours}" in f".{name}":
            name = f".{name}".replace(f".{ours}", f".{theirs}")[1:]
    return f"model.{name}"


class Plain:
    """Whisper by its definition, in float64."""

    def __init__(self, sizes: Dimensions, tensors: dict[str, Array]) -> None:
        self._sizes = sizes
        self._tensors = {name: value.astype(np.float64) for name, value in tensors.items()}

    def encode(self, frames: Array) -> Array:
        """(frames, mels) into (frames / 2, width)."""
        x = frames.astype(np.float64)
        for number, stride in ((1, 1), (2, 2)):
            kernel = self._tensors[f"encoder.conv{number}.weight"]
            padded = np.pad(x, [(1, 1), (0, 0)])
            rows = [
                np.einsum("okc,kc->o", kernel, padded[first : first + 3])
                for first in range(0, len(x), stride)
            ]
            x = _gelu(np.array(rows) + self._tensors[f"encoder.conv{number}.bias"])
        half = self._sizes.width // 2
        angles = np.arange(len(x))[:, None] * 10_000 ** (-np.arange(half) / (half - 1))
        x = x + np.concatenate([np.sin(angles), np.cos(angles)], 1)
        for layer in range(self._sizes.audio_layers):
            x = self._block(f"encoder.blocks.{layer}", x, self._sizes.audio_heads)
        return self._norm("encoder.ln_post", x)

    def logits(self, tokens: list[int], encoded: Array) -> Array:
        """(L, vocab) after `tokens`."""
        x = self._tensors["decoder.token_embedding.weight"][tokens]
        x = x + self._tensors["decoder.positional_embedding"][: len(tokens)]
        for layer in range(self._sizes.text_layers):
            x = self._block(f"decoder.blocks.{layer}", x, self._sizes.text_heads, encoded)
        return self._norm("decoder.ln", x) @ self._tensors["decoder.token_embedding.weight"].T

    def _block(self, name: str, x: Array, heads: int, encoded: Array | None = None) -> Array:
        own = self._norm(f"{name}.attn_ln", x)
        x = x + self._attention(f"{name}.attn", own, own, heads, causal=encoded is not None)
        if encoded is not None:
            crossed = self._norm(f"{name}.cross_attn_ln", x)
            x = x + self._attention(f"{name}.cross_attn", crossed, encoded, heads, causal=False)
        wide = _gelu(self._linear(f"{name}.mlp1", self._norm(f"{name}.mlp_ln", x)))
        return x + self._linear(f"{name}.mlp2", wide)

    def _attention(self, name: str, x: Array, other: Array, heads: int, *, causal: bool) -> Array:
        queries, keys, values = (
            self._linear(f"{name}.{part}", rows).reshape(len(rows), heads, -1)
            for part, rows in (("query", x), ("key", other), ("value", other))
        )
        scores = np.einsum("lhd,shd->hls", queries, keys) / math.sqrt(queries.shape[-1])
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return self._linear(f"{name}.out", np.einsum("hls,shd->lhd", scores, values).reshape(len(x), -1))

    def _linear(self, name: str, x: Array) -> Array:
        made: Array = x @ self._tensors[f"{name}.weight"].T + self._tensors.get(f"{name}.bias", 0)
        return made

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        made: Array = scaled * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]
        return made


def _gelu(x: Array) -> Array:
    made: Array = x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    return made
