"""Each block format and each architecture, on tiny files: names, values, permutation, norms, tables."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Ggml
from gguf import quants

from tests.models import gguf_files
from tests.models.convert.installs import config, convert_tiny, dense_weights
from tests.models.gguf_files import TinyModel
from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert import weights
from turbospark_cli.models.convert.architectures import ARCHITECTURES
from turbospark_cli.models.convert.gguf_reader import Tensor

_LAYER_0 = "blk.0."


def mlx_name(model: TinyModel, name: str) -> str:
    table = ARCHITECTURES[model.architecture]
    if not name.startswith("blk."):
        return table.whole[name].name
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{table.block[rest].name}"


def rounded(model: TinyModel, name: str, values: gguf_files.Array) -> gguf_files.Array:
    """The original weights after the rounding of the block format, which works along rows only."""
    if values.ndim == 1 or model.quant is Ggml.F32:
        return values
    return quants.dequantize(quants.quantize(values, model.quant), model.quant).astype(np.float32)


@pytest.mark.parametrize("quant", [Ggml.Q4_0, Ggml.Q4_1, Ggml.Q8_0, Ggml.F32, Ggml.F16, Ggml.BF16])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_every_weight_is_the_original_one_to_the_last_bit(
    tmp_path: Path, architecture: str, quant: Ggml
) -> None:
    model = TinyModel(architecture=architecture, quant=quant)
    install, facts = convert_tiny(tmp_path, model)
    found, originals = dense_weights(install), gguf_files.tensors(model)
    assert len(found) == len(originals)
    for name, values in originals.items():
        expected = rounded(model, name, values)
        if architecture == "gemma3" and "norm" in name:
            expected = (expected + np.float32(1)) - np.float32(1)
        assert np.array_equal(found[mlx_name(model, name)], expected), name
    assert facts.bits == {Ggml.Q4_0: 4, Ggml.Q4_1: 4, Ggml.Q8_0: 8}.get(quant)
    assert facts.parameters == sum(values.size for values in originals.values())


@pytest.mark.parametrize("quant", [Ggml.Q5_0, Ggml.Q5_1])
def test_other_blocks_become_float16(tmp_path: Path, quant: Ggml) -> None:
    model = TinyModel(quant=quant)
    install, facts = convert_tiny(tmp_path, model)
    raw = mx.load(str(install / "model.safetensors"))
    assert isinstance(raw, dict)
    name = "model.layers.0.mlp.up_proj.weight"
    assert raw[name].dtype == mx.float16
    expected = rounded(model, "", gguf_files.tensors(model)["blk.0.ffn_up.weight"]).astype(np.float16)
    assert np.array_equal(np.array(raw[name]), expected)
    assert facts.bits is None
    assert "quantization" not in config(install)


@pytest.mark.parametrize("quant", [Ggml.Q2_K, Ggml.Q3_K, Ggml.Q4_K, Ggml.Q5_K, Ggml.Q6_K, Ggml.IQ4_XS])
def test_k_quants_are_dequantized_as_the_package_does(quant: Ggml) -> None:
    from gguf.constants import GGML_QUANT_SIZES

    block, size = GGML_QUANT_SIZES[quant]
    data = np.random.default_rng(3).integers(
        0, 60, (4, 2 * size), dtype=np.uint8
    )  # small: every scale is finite
    tensor = Tensor("t", quant, (4, 2 * block), data)
    (plan,) = weights.plan(tensor, "t.weight")
    (values,) = weights.arrays(tensor, weights.Change())
    assert (plan.dtype, plan.shape) == ("F16", (4, 2 * block))
    assert np.array_equal(values, quants.dequantize(data, quant).astype(np.float16))


def test_extreme_blocks_are_exact() -> None:
    """Every nibble and byte, both signs of the scale, and the smallest float16."""
    for quant in weights.BITS:
        scales = np.array([1.5, -3.25, 6e-8, 65504, 0], "<f2").view(np.uint8).reshape(5, 2)
        minimum = np.array([-7.5], "<f2").view(np.uint8) if quant is Ggml.Q4_1 else np.zeros(0, np.uint8)
        codes = np.arange(32 if quant is Ggml.Q8_0 else 16, dtype=np.uint8) * (
            8 if quant is Ggml.Q8_0 else 17
        )
        rows = np.stack([np.concatenate([scale, minimum, codes]) for scale in scales])
        tensor = Tensor("t", quant, (5, 32), rows)
        packed, scale, bias = weights.arrays(tensor, weights.Change())
        with np.errstate(over="ignore"):
            got = mx.dequantize(
                mx.array(packed), mx.array(scale), mx.array(bias), group_size=32, bits=weights.BITS[quant]
            )
        assert np.array_equal(np.array(got), quants.dequantize(rows, quant)), quant


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00, 0x7D01])
@pytest.mark.parametrize("quant", list(weights.BITS))
def test_a_scale_that_is_no_number_is_refused(quant: Ggml, bits: int) -> None:
    size = {Ggml.Q4_0: 18, Ggml.Q4_1: 20, Ggml.Q8_0: 34}[quant]
    block = np.zeros((1, size), np.uint8)
    block[0, :2] = np.array([bits], "<u2").view(np.uint8)
    with pytest.raises(ConversionFailed, match="not finite"):
        list(weights.arrays(Tensor("t", quant, (1, 32), block), weights.Change()))


def test_an_untied_head_is_kept(tmp_path: Path) -> None:
    head = (
        np.random.default_rng(1)
        .normal(0, 1, (len(gguf_files.tokens()), gguf_files.HIDDEN))
        .astype(np.float32)
    )
    install, _ = convert_tiny(tmp_path, TinyModel(extra={"output.weight": head}, quant=Ggml.F32))
    assert np.array_equal(dense_weights(install)["lm_head.weight"], head)
    assert config(install)["tie_word_embeddings"] is False


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (TinyModel(drop=("output_norm.weight",)), "lacks the tensor 'output_norm.weight'"),
        (TinyModel(drop=("blk.1.ffn_up.weight",)), "lacks the tensor 'blk.1.ffn_up.weight'"),
        (TinyModel(drop=("token_embd.weight",)), "lacks the tensor 'token_embd.weight'"),
        (TinyModel(extra={"blk.0.surprise.weight": np.ones(4, np.float32)}), "surprise"),
        (TinyModel(extra={"blk.7.attn_norm.weight": np.ones(64, np.float32)}), "blk.7"),
        (TinyModel(extra={"output_norm.weight": np.ones(32, np.float32)}), "has the shape"),
        (TinyModel(extra={"output_norm.weight": np.full(64, np.nan, np.float32)}), "not finite"),
        (TinyModel(extra={"output_norm.weight": np.full(64, np.inf, np.float32)}), "not finite"),
        (TinyModel(architecture="mamba"), "architecture 'mamba'"),
        (TinyModel(metadata={"llama.attention.head_count": 3}), "do not fit"),
        (
            TinyModel(metadata={"llama.attention.head_count": 0}),
            "unusable value for llama.attention.head_count",
        ),
        (TinyModel(metadata={"llama.block_count": 10**6}), "unusable value for llama.block_count"),
        (TinyModel(metadata={"llama.block_count": "two"}), "unusable value for llama.block_count"),
        (TinyModel(metadata={"llama.block_count": True}), "unusable value for llama.block_count"),
        (TinyModel(metadata={"llama.context_length": None}), "lacks llama.context_length"),
        (TinyModel(metadata={"llama.expert_count": 8}), "mixture-of-experts"),
        (TinyModel(metadata={"llama.rope.scaling.type": "yarn"}), "'yarn' rope scaling"),
        (
            TinyModel(metadata={"llama.rope.freq_base": float("nan")}),
            "unusable value for llama.rope.freq_base",
        ),
        (TinyModel(metadata={"llama.rope.dimension_count": 8}), "rope"),
        (TinyModel(metadata={"tokenizer.ggml.model": "bert"}), "'bert' tokenizer"),
        (TinyModel(metadata={"tokenizer.ggml.tokens": ["a", "a"]}), "unusable|twice"),
        (
            TinyModel(metadata={"tokenizer.ggml.eos_token_id": 10**6}),
            "unusable value for tokenizer.ggml.eos_token_id",
        ),
        (TinyModel(metadata={"tokenizer.ggml.merges": ["nomerge"]}), "not two tokens"),
        (TinyModel(metadata={"tokenizer.ggml.merges": ["q zzz"]}), "merges that do not fit"),
        (
            TinyModel(metadata={"tokenizer.ggml.token_type": [1]}),
            "unusable value for tokenizer.ggml.token_type",
        ),
        (TinyModel(pre="unheard-of"), "pre-tokenizer 'unheard-of'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path: Path, model: TinyModel, reason: str) -> None:
    with pytest.raises(ConversionFailed, match=reason):
        convert_tiny(tmp_path, model)


def test_config_carries_the_sizes(tmp_path: Path) -> None:
    install, facts = convert_tiny(
        tmp_path, TinyModel(metadata={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    )
    found = config(install)
    assert found["rope_scaling"] == {"type": "linear", "factor": 4.0}
    assert found["num_key_value_heads"] == gguf_files.KV_HEADS
    assert found["max_position_embeddings"] == facts.context_length == gguf_files.CONTEXT
    assert found["quantization"] == {"group_size": 32, "bits": 4}
    assert found["eos_token_id"] == [2, 0]


def test_gemma3_config_carries_its_windows(tmp_path: Path) -> None:
    install, _ = convert_tiny(
        tmp_path, TinyModel(architecture="gemma3", metadata={"gemma3.attention.sliding_window": 32})
    )
    found = config(install)
    assert found["model_type"] == "gemma3_text"
    assert (found["sliding_window"], found["sliding_window_pattern"]) == (32, 6)
    assert found["query_pre_attn_scalar"] == gguf_files.HEAD
