"""Converted tiny models, and their weights as plain float32 arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tests.models import gguf_files
from tests.models.gguf_files import TinyModel
from turbospark_cli.models.convert.facts import Facts
from turbospark_cli.models.convert.main import convert

Array = np.ndarray[Any, Any]


def convert_tiny(folder: Path, model: TinyModel) -> tuple[Path, Facts]:
    """Write the tiny model, convert it; its folder and what the converter said."""
    source, target = folder / "tiny.gguf", folder / "install"
    gguf_files.write(source, model)
    target.mkdir()
    return target, convert(source, target, lambda done, total: None)


def config(install: Path) -> dict[str, Any]:
    """The parsed config.json."""
    parsed: dict[str, Any] = json.loads((install / "config.json").read_text())
    return parsed


def dense_weights(install: Path) -> dict[str, Array]:
    """Every weight by its MLX name, dequantized by MLX itself."""
    raw = mx.load(str(install / "model.safetensors"))
    assert isinstance(raw, dict)
    table = config(install).get("quantization", {})
    found: dict[str, Array] = {}
    for name, stored in raw.items():
        value = stored
        stem = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if f"{stem}.scales" in raw:
            how = table.get(stem, table)
            value = mx.dequantize(
                value,
                raw[f"{stem}.scales"],
                raw[f"{stem}.biases"],
                group_size=how["group_size"],
                bits=how["bits"],
            )
        found[name] = np.array(value.astype(mx.float32))
    return found
