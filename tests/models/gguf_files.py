"""Tiny GGUF files written with the `gguf` package: random weights and a byte-level vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Ggml
from gguf import GGUFWriter, quants
from tokenizers import pre_tokenizers

Array = np.ndarray[Any, Any]

HIDDEN, FFN, HEADS, KV_HEADS, HEAD, CONTEXT = 64, 96, 4, 2, 16, 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
MERGES = ("t h", "th e", "Ġ the", "1 2", "h i")


@dataclass(frozen=True)
class TinyModel:
    """What a tiny file shall hold. `drop` and `extra` spoil it on purpose."""

    architecture: str = "llama"
    quant: Ggml = Ggml.Q4_0
    pre: str = "smollm"
    template: str | None = CHAT_TEMPLATE
    metadata: dict[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    extra: dict[str, Array] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        """As few as mlx-lm can run: gemma3 wants one that attends to everything."""
        return 6 if self.architecture == "gemma3" else 2


def tokens() -> list[str]:
    """Special tokens, the 256 byte letters, and one token per merge."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*SPECIAL, *letters, *(merge.replace(" ", "") for merge in MERGES)]


def tensors(model: TinyModel) -> dict[str, Array]:
    """Random float32 tensors as the original checkpoint has them, by GGUF name; always the same ones."""
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(tokens()), HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    block: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (HIDDEN,),
        "attn_q.weight": (HEADS * HEAD, HIDDEN),
        "attn_k.weight": (KV_HEADS * HEAD, HIDDEN),
        "attn_v.weight": (KV_HEADS * HEAD, HIDDEN),
        "attn_output.weight": (HIDDEN, HEADS * HEAD),
        "ffn_norm.weight": (HIDDEN,),
        "ffn_gate.weight": (FFN, HIDDEN),
        "ffn_up.weight": (FFN, HIDDEN),
        "ffn_down.weight": (HIDDEN, FFN),
    }
    if model.architecture == "qwen2":
        block |= {f"attn_{part}.bias": (block[f"attn_{part}.weight"][0],) for part in "qkv"}
    if model.architecture == "gemma3":
        block |= {"post_attention_norm.weight": (HIDDEN,), "post_ffw_norm.weight": (HIDDEN,)}
        block |= {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
    for layer in range(model.layers):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return {name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def stored(name: str, values: Array, model: TinyModel) -> Array:
    """The values as llama.cpp's converter would store them."""
    if model.architecture == "gemma3" and "norm" in name:
        return values + np.float32(1)
    heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}.get(name.split(".", 2)[-1])
    if model.architecture == "llama" and heads:
        pairs = values.reshape(heads, 2, len(values) // heads // 2, -1)
        return pairs.swapaxes(1, 2).reshape(values.shape)
    return values


def write(path: Path, model: TinyModel = TinyModel()) -> Path:
    """Write the file; its path."""
    writer = GGUFWriter(path, model.architecture)
    _add_metadata(writer, model)
    for name, original in (tensors(model) | model.extra).items():
        if name in model.drop:
            continue
        values = np.ascontiguousarray(stored(name, original, model))
        if values.ndim == 1 or model.quant is Ggml.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quants.quantize(values, model.quant), raw_dtype=model.quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_metadata(writer: GGUFWriter, model: TinyModel) -> None:
    kind = model.architecture
    values: dict[str, Any] = {
        f"{kind}.block_count": model.layers,
        f"{kind}.context_length": CONTEXT,
        f"{kind}.embedding_length": HIDDEN,
        f"{kind}.feed_forward_length": FFN,
        f"{kind}.attention.head_count": HEADS,
        f"{kind}.attention.head_count_kv": KV_HEADS,
        f"{kind}.attention.key_length": HEAD,
        f"{kind}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{kind}.rope.freq_base": 10_000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": model.pre,
        "tokenizer.ggml.tokens": tokens(),
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokens()) - len(SPECIAL)),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": model.template,
    } | model.metadata
    for key, value in values.items():
        _add(writer, key, value)


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
