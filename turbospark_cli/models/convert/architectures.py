"""The text architectures that can be converted: what each GGUF tensor is called, and its shape, in MLX.

A shape names sizes of the model: `hidden`, `ffn`, `vocab`, `q` (heads * head size), `kv` (KV heads * head
size) and `head`. Every tensor of a file must have a row here, and every required row a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Size = Literal["hidden", "ffn", "vocab", "q", "kv", "head"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One tensor: its MLX name, its shape and what happens to its values."""

    name: str
    shape: tuple[Size, ...]
    permuted: Literal["heads", "kv_heads"] | None = None  # rows stored for interleaved rope
    minus_one: bool = False  # stored as weight + 1
    required: bool = True


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture; keys are GGUF names, in a block without their `blk.N.`."""

    model_type: str  # of mlx-lm
    whole: Mapping[str, Rule]
    block: Mapping[str, Rule]


_WHOLE: Final = {
    "token_embd.weight": Rule("model.embed_tokens.weight", ("vocab", "hidden")),
    "output_norm.weight": Rule("model.norm.weight", ("hidden",)),
    "output.weight": Rule("lm_head.weight", ("vocab", "hidden"), required=False),
}
_MLP: Final = {
    "ffn_gate.weight": Rule("mlp.gate_proj.weight", ("ffn", "hidden")),
    "ffn_up.weight": Rule("mlp.up_proj.weight", ("ffn", "hidden")),
    "ffn_down.weight": Rule("mlp.down_proj.weight", ("hidden", "ffn")),
}
_ATTENTION: Final = {
    "attn_q.weight": Rule("self_attn.q_proj.weight", ("q", "hidden")),
    "attn_k.weight": Rule("self_attn.k_proj.weight", ("kv", "hidden")),
    "attn_v.weight": Rule("self_attn.v_proj.weight", ("kv", "hidden")),
    "attn_output.weight": Rule("self_attn.o_proj.weight", ("hidden", "q")),
}
_NORMS: Final = {
    "attn_norm.weight": Rule("input_layernorm.weight", ("hidden",)),
    "ffn_norm.weight": Rule("post_attention_layernorm.weight", ("hidden",)),
}

_LLAMA: Final = Architecture(
    model_type="llama",
    whole=_WHOLE,
    block={
        **_NORMS,
        **_ATTENTION,
        **_MLP,
        "attn_q.weight": Rule("self_attn.q_proj.weight", ("q", "hidden"), permuted="heads"),
        "attn_k.weight": Rule("self_attn.k_proj.weight", ("kv", "hidden"), permuted="kv_heads"),
    },
)
_QWEN2: Final = Architecture(
    model_type="qwen2",
    whole=_WHOLE,
    block={
        **_NORMS,
        **_ATTENTION,
        **_MLP,
        "attn_q.bias": Rule("self_attn.q_proj.bias", ("q",)),
        "attn_k.bias": Rule("self_attn.k_proj.bias", ("kv",)),
        "attn_v.bias": Rule("self_attn.v_proj.bias", ("kv",)),
    },
)
_GEMMA3: Final = Architecture(
    model_type="gemma3_text",
    whole={**_WHOLE, "output_norm.weight": Rule("model.norm.weight", ("hidden",), minus_one=True)},
    block={
        **_ATTENTION,
        **_MLP,
        "attn_norm.weight": Rule("input_layernorm.weight", ("hidden",), minus_one=True),
        "post_attention_norm.weight": Rule("post_attention_layernorm.weight", ("hidden",), minus_one=True),
        "ffn_norm.weight": Rule("pre_feedforward_layernorm.weight", ("hidden",), minus_one=True),
        "post_ffw_norm.weight": Rule("post_feedforward_layernorm.weight", ("hidden",), minus_one=True),
        "attn_q_norm.weight": Rule("self_attn.q_norm.weight", ("head",), minus_one=True),
        "attn_k_norm.weight": Rule("self_attn.k_norm.weight", ("head",), minus_one=True),
    },
)

# By the GGUF's `general.architecture`.
ARCHITECTURES: Final[Mapping[str, Architecture]] = {"llama": _LLAMA, "qwen2": _QWEN2, "gemma3": _GEMMA3}
