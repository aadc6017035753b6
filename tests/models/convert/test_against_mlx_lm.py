"""A converted file computes what mlx-lm computes from the original weights."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from gguf import GGMLQuantizationType as Ggml

from tests.models import gguf_files
from tests.models.convert.installs import config, convert_tiny
from tests.models.convert.test_conversion_of_weights import mlx_name
from tests.models.gguf_files import TinyModel


def build(settings: dict[str, Any], weights: dict[str, mx.array]) -> Any:
    module = import_module(f"mlx_lm.models.{settings['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(settings))
    weights = model.sanitize(weights)
    if "quantization" in settings:
        table = settings["quantization"]
        nn.quantize(
            model,
            table["group_size"],
            table["bits"],
            class_predicate=lambda path, _: f"{path}.scales" in weights,
        )
    model.load_weights(list(weights.items()), strict=True)
    return model


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_logits_equal_those_of_the_original_weights(tmp_path: Path, architecture: str) -> None:
    model = TinyModel(architecture=architecture, quant=Ggml.F32)
    install, _ = convert_tiny(tmp_path, model)
    originals = {
        mlx_name(model, name): mx.array(values) for name, values in gguf_files.tensors(model).items()
    }
    stored = mx.load(str(install / "model.safetensors"))
    assert isinstance(stored, dict)
    prompt = mx.array([[1, 5, 9, 200, 7, 7, 30]])
    expected = build(config(install), originals)(prompt)
    got = build(config(install), stored)(prompt)
    assert mx.allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert (mx.abs(expected).max() > 0.01).item()


def test_a_quantized_install_loads_strictly(tmp_path: Path) -> None:
    install, _ = convert_tiny(tmp_path, TinyModel(quant=Ggml.Q4_1))
    stored = mx.load(str(install / "model.safetensors"))
    assert isinstance(stored, dict)
    logits = build(config(install), stored)(mx.array([[1, 2, 3]]))
    assert logits.shape == (1, 3, len(gguf_files.tokens()))
    assert mx.isfinite(logits).all().item()
