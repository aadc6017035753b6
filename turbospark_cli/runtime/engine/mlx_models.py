"""The one door to mlx-lm: its model classes and caches, without its servers, tokenizers and transformers.

`import mlx_lm` costs seconds because its package module imports transformers. Its model modules need only
MLX, so a bare package object of the same name, with the real search path, stands in for it. Model modules
take `scaled_dot_product_attention` by name when they are imported, so it is replaced here, before any of
them, by one that lets a cache with an `attend` of its own (kv_cache.py) do the attention.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import types
from typing import Any, Final, cast

import mlx.core as mx

from turbospark_cli.errors import InvalidRequest

# Checkpoints whose model_type is served by another module (mlx-lm 0.32, utils.MODEL_REMAPPING).
_SERVED_BY: Final = {
    "mistral": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
    "xverse": "llama",
    "gemma4_unified": "gemma4",
    "deepseek_v41_text": "deepseek_v41",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def _install_bare_package() -> None:
    """Make `mlx_lm.*` importable without running the package's own `__init__`."""
    if "mlx_lm" in sys.modules:
        return
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("mlx_lm")
    package = types.ModuleType("mlx_lm")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["mlx_lm"] = package


_install_bare_package()

from mlx_lm.models import base as _base  # noqa: E402 - the bare package must stand first
from mlx_lm.models.cache import KVCache, make_prompt_cache  # noqa: E402

__all__ = ["KVCache", "classes", "make_prompt_cache"]

_own_attention = _base.scaled_dot_product_attention


def _attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    cache: Any,
    scale: float,
    mask: mx.array | None,
    sinks: mx.array | None = None,
) -> mx.array:
    attend = getattr(cache, "attend", None)
    if attend is not None:
        if mask is not None:  # a bucket would leave it out
            raise ValueError("a mask of the model's own over a bucket")
        return cast("mx.array", attend(queries, keys, values, scale, sinks))
    return cast("mx.array", _own_attention(queries, keys, values, cache, scale, mask, sinks))


_base.scaled_dot_product_attention = _attention


def classes(config: dict[str, Any]) -> tuple[type[Any], type[Any]]:
    """(Model, ModelArgs) for a checkpoint's config.

    Raises InvalidRequest when the architecture is unknown or wants to bring its own code.
    """
    if config.get("model_file"):
        raise InvalidRequest("This model wants to run Python code of its own, which turbospark never does.")
    model_type = str(config.get("model_type", ""))
    name = _SERVED_BY.get(model_type, model_type)
    if not _NAME.fullmatch(name):
        raise InvalidRequest("The model's config.json names no architecture (model_type).")
    try:
        module = importlib.import_module(f"mlx_lm.models.{name}")
        return module.Model, module.ModelArgs
    except (ImportError, AttributeError, SystemExit) as error:
        raise InvalidRequest(f"The architecture {model_type!r} is not supported by MLX yet.") from error
