"""`config.json` as mlx-lm reads it, from a model's sizes and GGUF metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert import weights
from turbospark_cli.models.convert.architectures import Architecture
from turbospark_cli.models.convert.layout import Move
from turbospark_cli.models.convert.metadata import Metadata
from turbospark_cli.models.convert.shape import LONGEST_CONTEXT, Shape

_ROPE_BASE: Final = {"llama": 10_000.0, "qwen2": 1_000_000.0, "gemma3": 1_000_000.0}
_GEMMA3_LOCAL_ROPE_BASE: Final = 10_000.0
_GEMMA3_PATTERN: Final = 6  # every sixth layer attends to everything
_GEMMA3_WINDOW: Final = 512
_GEMMA3_27B_LAYERS: Final = 62  # the one size whose queries are scaled by hidden / heads


def model_config(
    architecture: Architecture, shape: Shape, metadata: Metadata, moves: Sequence[Move]
) -> dict[str, Any]:
    """The whole of `config.json`. Raises ConversionFailed for what mlx-lm would not honour."""
    key = shape.architecture
    config: dict[str, Any] = {
        "model_type": architecture.model_type,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": metadata.number(f"{key}.attention.layer_norm_rms_epsilon", 1e-6),
        "rope_theta": metadata.number(f"{key}.rope.freq_base", _ROPE_BASE[key]),
        "tie_word_embeddings": not any(move.name == "lm_head.weight" for move in moves),
    }
    if (scaling := _rope_scaling(key, metadata)) is not None:
        config["rope_scaling"] = scaling
    if key == "gemma3":
        config |= _gemma3(shape, metadata)
    if (quantization := _quantization(moves)) is not None:
        config["quantization"] = quantization
    return config


def most_common_bits(moves: Sequence[Move]) -> int | None:
    """The bits of most weights; None when all are dense."""
    counts: Counter[int] = Counter()
    for move in moves:
        if (width := weights.bits(move.tensor)) is not None:
            counts[width] += move.tensor.data.size
    return counts.most_common(1)[0][0] if counts else None


def _quantization(moves: Sequence[Move]) -> dict[str, Any] | None:
    """mlx-lm's table: one rule for all, an exception per tensor with other bits; dense ones: no scales."""
    common = most_common_bits(moves)
    if common is None:
        return None
    table: dict[str, Any] = {"group_size": weights.GROUP, "bits": common}
    for move in moves:
        width = weights.bits(move.tensor)
        if width is not None and width != common:
            table[move.name.removesuffix(".weight")] = {"group_size": weights.GROUP, "bits": width}
    return table


def _rope_scaling(key: str, metadata: Metadata) -> dict[str, Any] | None:
    kind = metadata.text(f"{key}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise ConversionFailed(f"GGUF files with {kind[:20]!r} rope scaling are not supported.")
    return {"type": "linear", "factor": metadata.number(f"{key}.rope.scaling.factor")}


def _gemma3(shape: Shape, metadata: Metadata) -> dict[str, Any]:
    scalar = shape.hidden // shape.heads if shape.layers == _GEMMA3_27B_LAYERS else shape.head
    return {
        "sliding_window": metadata.integer(
            "gemma3.attention.sliding_window", 1, LONGEST_CONTEXT, _GEMMA3_WINDOW
        ),
        "sliding_window_pattern": _GEMMA3_PATTERN,
        "rope_local_base_freq": metadata.number("gemma3.rope.freq_base_swa", _GEMMA3_LOCAL_ROPE_BASE),
        "query_pre_attn_scalar": scalar,
    }
