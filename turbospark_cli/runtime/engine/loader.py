"""From an install folder to an mlx-lm model that is ready to run on this device.

Only safetensors and JSON are read. On a CPU the weights become float32 when they fit, since MLX's bf16 and
quantized kernels are far slower there than a float32 product in a real BLAS; otherwise they stay quantized
with float32 scales.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from turbospark_cli.errors import CorruptInstall, InvalidRequest, TurbosparkError
from turbospark_cli.runtime.engine import device, mlx_models

# Share of the free memory that float32 weights may take; the rest is for the KV cache and the system.
_MEMORY_SHARE = 0.6


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from an install's file; raises CorruptInstall when it is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptInstall(f"The model's {path.name} cannot be read; pull the model again.") from error
    if not isinstance(value, dict):
        raise CorruptInstall(f"The model's {path.name} is not a JSON object; pull the model again.")
    return value


def load(folder: Path, config: dict[str, Any], target: device.Device) -> nn.Module:
    """Build, fill and materialize the model of an install.

    Raises InvalidRequest for an architecture MLX does not have, CorruptInstall for weights
    that do not fit it.
    """
    model_class, args_class = mlx_models.classes(config)
    try:
        model = model_class(args_class.from_dict(config))
        weights = _read_weights(folder)
        if hasattr(model, "sanitize"):
            weights = model.sanitize(weights)
        _quantize(model, config, weights)
        model.eval()
        model.load_weights(list(weights.items()), strict=True)
    except TurbosparkError:
        raise
    except Exception as error:
        raise CorruptInstall(
            f"The model's weights do not fit its config.json ({type(error).__name__})."
        ) from error
    if target.kind == "cpu":
        _for_cpu(model)
    mx.eval(model.parameters())
    return model


def weights_bytes(model: nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(value.nbytes for _, value in tree_flatten(model.parameters()))


def _read_weights(folder: Path) -> dict[str, mx.array]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise CorruptInstall("The model has no weights (model*.safetensors); pull it again.")
    weights: dict[str, mx.array] = {}
    for file in files:
        weights.update(cast("dict[str, mx.array]", mx.load(str(file))))  # what it gives for this suffix
    return weights


def _quantize(model: nn.Module, config: dict[str, Any], weights: dict[str, mx.array]) -> None:
    """Turn the layers whose stored weights are packed into MLX's quantized ones."""
    quantization = config.get("quantization")
    if quantization is None:
        if config.get("quantization_config"):
            raise InvalidRequest(
                "This model is quantized in a form that is not MLX's; pull an MLX version of it."
            )
        return

    def settings(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if path in quantization:  # a layer with settings of its own
            own = quantization[path]
            return own if isinstance(own, dict) else bool(own)
        return hasattr(module, "to_quantized") and f"{path}.scales" in weights

    nn.quantize(
        model,
        group_size=quantization["group_size"],
        bits=quantization["bits"],
        mode=quantization.get("mode", "affine"),
        class_predicate=settings,
    )


def _for_cpu(model: nn.Module) -> None:
    """Float32 throughout; packed layers are unpacked when the result fits in memory."""
    if _dense_bytes(model) <= _MEMORY_SHARE * device.available_memory():
        unpacked = {path: _unpack(module) for path, module in model.named_modules() if _is_packed(module)}
        model.update_modules(_tree(unpacked))
    model.set_dtype(mx.float32)


def _is_packed(module: nn.Module) -> bool:
    return isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding)


def _dense_bytes(model: nn.Module) -> int:
    """Size of the model in float32."""
    total = 0
    for _, module in model.named_modules():
        if _is_packed(module):
            total += module.weight.size * 32 // module.bits * 4
        elif not module.children():
            total += sum(value.size * 4 for _, value in tree_flatten(module.parameters()))
    return total


def _unpack(module: Any) -> nn.Module:
    """The dense float32 twin of a quantized linear layer or embedding."""
    module.set_dtype(mx.float32)  # before unpacking: half-precision scales would round every weight
    weight = mx.dequantize(
        module.weight,
        module.scales,
        getattr(module, "biases", None),
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
    ).astype(mx.float32)
    dense: nn.Module
    if isinstance(module, nn.QuantizedEmbedding):
        dense = nn.Embedding(1, 1)
    else:
        dense = nn.Linear(1, 1, bias="bias" in module)
        if "bias" in module:
            dense.bias = module.bias
    dense.weight = weight
    return dense


def _tree(flat: dict[str, nn.Module]) -> dict[str, Any]:
    """Dotted paths to the nested form that `update_modules` takes."""
    return tree_unflatten(list(flat.items())) if flat else {}
