"""Architectures of mlx-lm that the engine is tried on: one for each kind of cache and of attention.

A `window` of 16 tokens is far shorter than the test prompts, so that rotating caches rotate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.runtime.engine.tiny import VOCAB, config

_WINDOW: Final = 16
_LAYERS: Final = ["sliding_attention", "full_attention"]
_MLA: Final[dict[str, Any]] = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_YARN: Final[dict[str, Any]] = {
    "type": "yarn",
    "factor": 1.0,
    "original_max_position_embeddings": 2048,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
_MOE: Final[dict[str, Any]] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_DELTA: Final[dict[str, Any]] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}


@dataclass(frozen=True, slots=True)
class Family:
    """`bucketed` are the layers whose caches the engine keeps in buckets, as it should find by itself."""

    config: dict[str, Any]
    bucketed: tuple[bool, ...]
    batchable: bool = True


FAMILIES: Final[dict[str, Family]] = {
    "llama-gqa": Family(config("llama"), (True, True)),
    "llama-mha": Family(config("llama", num_key_value_heads=4), (True, True)),
    "llama-tied": Family(config("llama", tie_word_embeddings=True), (True, True)),
    "llama-sliding": Family(config("llama", sliding_window=_WINDOW, layer_types=_LAYERS), (False, True)),
    "qwen2": Family(config("qwen2"), (True, True)),
    "qwen3": Family(config("qwen3"), (True, True)),
    "gemma2": Family(config("gemma2"), (False, False), batchable=False),
    "gemma3": Family(config("gemma3_text", sliding_window=_WINDOW, sliding_window_pattern=2), (False, True)),
    "gpt_oss": Family(config("gpt_oss", sliding_window=_WINDOW, layer_types=_LAYERS, **_MOE), (False, True)),
    "olmo3": Family(config("olmo3", sliding_window=_WINDOW, layer_types=_LAYERS), (False, True)),
    "exaone4": Family(
        config("exaone4", sliding_window=_WINDOW, sliding_window_pattern="LG", rope_scaling=None),
        (False, True),
    ),
    "cohere2": Family(config("cohere2", sliding_window=_WINDOW, sliding_window_pattern=2), (False, True)),
    "mixtral": Family(config("mixtral", **_MOE), (True, True)),
    "qwen3_moe": Family(config("qwen3_moe", **_MOE), (True, True)),
    "deepseek_v2": Family(config("deepseek_v2", rope_scaling=_YARN, **_MLA), (True, True)),
    "deepseek_v3": Family(config("deepseek_v3", **_MLA), (False, False)),
    "deepseek_v32": Family(config("deepseek_v32", **_MLA), (False, False)),
    "qwen3_next": Family(
        config(
            "qwen3_next",
            full_attention_interval=2,
            partial_rotary_factor=0.5,
            shared_expert_intermediate_size=16,
            **_MOE,
            **_DELTA,
        ),
        (False, True),
    ),
    "falcon_h1": Family(
        config("falcon_h1", mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8),
        (False, False),
    ),
    "lfm2": Family(
        config(
            "lfm2",
            conv_bias=False,
            conv_L_cache=3,
            block_dim=32,
            block_multiple_of=8,
            block_ffn_dim_multiplier=1.0,
            block_auto_adjust_ff_dim=True,
            full_attn_idxs=[1],
        ),
        (False, True),
    ),
    "plamo2": Family(
        config(
            "plamo2", mamba_d_state=8, mamba_d_conv=4, mamba_num_heads=4, mamba_step=2, hidden_size_per_head=8
        ),
        (False, False),
    ),
    "gemma3n": Family(
        {
            "model_type": "gemma3n",
            "text_config": config(
                "gemma3n_text",
                num_hidden_layers=4,
                num_kv_shared_layers=2,
                vocab_size_per_layer_input=VOCAB,
                sliding_window=_WINDOW,
                rope_local_base_freq=1e4,
                final_logit_softcapping=30.0,
                layer_types=_LAYERS * 2,
                activation_sparsity_pattern=[0.0] * 4,
                hidden_size_per_layer_input=8,
                altup_num_inputs=2,
                altup_coef_clip=120.0,
                altup_correct_scale=True,
                altup_active_idx=0,
                laurel_rank=8,
            ),
        },
        (False, False),
    ),
    "mamba": Family(
        config("mamba", state_size=8, conv_kernel=4, use_bias=False, use_conv_bias=True, time_step_rank=4),
        (False, False),
    ),
    "mamba2": Family(
        config(
            "mamba2",
            num_heads=4,
            head_dim=16,
            state_size=8,
            conv_kernel=4,
            n_groups=1,
            use_bias=False,
            use_conv_bias=True,
            time_step_limit=[0.001, 100.0],
            time_step_rank=4,
            intermediate_size=64,
        ),
        (False, False),
    ),
    "gpt2": Family(
        config("gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=2048, n_ctx=2048), (True, True)
    ),
    "llama4": Family(
        {
            "model_type": "llama4",
            "text_config": config(
                "llama4_text",
                attention_chunk_size=_WINDOW,
                num_hidden_layers=4,
                interleave_moe_layer_step=2,
                intermediate_size_mlp=48,
                rope_scaling=None,
                use_qk_norm=True,
                **{**_MOE, "num_experts_per_tok": 1},
            ),
        },
        (False,) * 4,
        batchable=False,
    ),
}
