"""How much memory a text model takes while it runs: its weights and the KV cache of one sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turbospark_cli.models.receipt import Receipt

CONTEXTS: Final = (8192, 32768)  # tokens; the sizes that people ask about
_FLOAT32: Final = 4  # bytes of a number on a CPU
_FLOAT16: Final = 2  # bytes of a number in a KV cache on a GPU


def estimate(receipt: Receipt, config: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """Bytes by context length, for weights `as_stored` (GPU) and as `float32` (CPU).

    Only context lengths that the model has; its own when it is shorter than all of them.
    """
    weights = sum(file.size for file in receipt.files if file.path.endswith(".safetensors"))
    contexts = [tokens for tokens in CONTEXTS if tokens <= receipt.context_length] or [receipt.context_length]
    numbers = {tokens: _cached_numbers(config, tokens) for tokens in contexts}
    return {
        "as_stored": {tokens: weights + count * _FLOAT16 for tokens, count in numbers.items()},
        "float32": {tokens: (receipt.parameters + count) * _FLOAT32 for tokens, count in numbers.items()},
    }


def _cached_numbers(config: Mapping[str, Any], tokens: int) -> int:
    """Keys and values of all layers for one sequence of `tokens`; sliding layers keep a window only."""
    layers: int = config["num_hidden_layers"]
    pattern: int = config.get("sliding_window_pattern") or 1
    window: int = config.get("sliding_window") or tokens
    whole = layers // pattern
    kept = whole * tokens + (layers - whole) * min(window, tokens)
    per_token: int = 2 * config["num_key_value_heads"] * config["head_dim"]
    return kept * per_token
