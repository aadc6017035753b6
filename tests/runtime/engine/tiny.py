"""Tiny models with random weights: whole installs of a few kilobytes, for any architecture of mlx-lm.

The tokenizer has one token per byte and three special ones, so a token's exact bytes name it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB: Final = 259
SPECIAL: Final = ("<|start|>", "<|end|>", "<|pad|>")
START, END = 256, 257
TEMPLATE: Final = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)

# Every family takes the keys it knows and leaves the rest.
_COMMON: Final[dict[str, Any]] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-5,
    "norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "layernorm_epsilon": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}


def config(model_type: str, **settings: Any) -> dict[str, Any]:
    """A config.json of this architecture with two small layers."""
    return {**_COMMON, "model_type": model_type, **settings}


@lru_cache(maxsize=1)
def byte_tokenizer() -> Tokenizer:
    """Ids 0 to 255 are the bytes of GPT-2's alphabet in code point order; then the special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def write_tokenizer(
    folder: Path, *, template: str | None = TEMPLATE, settings: Mapping[str, Any] | None = None
) -> None:
    """tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    about: dict[str, Any] = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], **(settings or {})}
    if template is not None:
        about["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


def write_install(
    folder: Path, settings: Mapping[str, Any], *, seed: int = 0, scale: float = 0.25, **files: Any
) -> Path:
    """An install with weights drawn from `seed`; returns the folder. `files` are `write_tokenizer`'s."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from turbospark_cli.runtime.engine import mlx_models

    write_tokenizer(folder, **files)
    (folder / "config.json").write_text(json.dumps(dict(settings)))
    model_class, args_class = mlx_models.classes(dict(settings))
    model = model_class(args_class.from_dict(dict(settings)))
    key = mx.random.key(seed)
    weights: dict[str, mx.array] = {}
    for name, value in tree_flatten(model.parameters()):
        key, own = mx.random.split(key)
        weights[name] = _drawn(name, value, own, scale)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return folder


def _drawn(name: str, value: Any, key: Any, scale: float) -> Any:
    """Norms stay near one and matrices have about unit gain, so that two layers say something."""
    import mlx.core as mx

    if not mx.issubdtype(value.dtype, mx.floating):
        return value
    noise = mx.random.normal(value.shape, key=key)
    if value.ndim < 2:
        return (value + 0.1 * noise).astype(mx.float32)
    return (scale * noise).astype(mx.float32)
