"""From files to a model: dtypes by device, quantized weights, and a sentence for everything damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from tests.runtime.engine.driver import alone, cpu, request
from tests.runtime.engine.families import FAMILIES
from tests.runtime.engine.tiny import config, write_install
from turbospark_cli.errors import CorruptInstall, InvalidRequest, TurbosparkError
from turbospark_cli.runtime.engine import device, loader, mlx_models
from turbospark_cli.runtime.engine.device import Device
from turbospark_cli.runtime.engine.text import TextEngine

_GPU = Device("metal", "test", prefill_chunk=64)


def _load(folder: Path, target: Device | None = None) -> nn.Module:
    return loader.load(folder, loader.read_json(folder / "config.json"), target or cpu())


def _dtypes(model: nn.Module) -> set[mx.Dtype]:
    return {value.dtype for _, value in tree_flatten(model.parameters())}


def _edit(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def _quantized(folder: Path, family: str = "llama-gqa", **form: Any) -> Path:
    """An install whose layers are packed, with scales in float16 as on the Hub, and what they unpack to."""
    wider = dict.fromkeys(("hidden_size", "intermediate_size", "moe_intermediate_size"), 64)
    settings = {**FAMILIES[family].config, **wider, "head_dim": 16}
    write_install(folder, settings)
    model = _load(folder)
    form = {"group_size": 32, "bits": 4, **form}
    nn.quantize(model, **form)
    weights = {
        name: value.astype(mx.float16) if value.dtype == mx.float32 else value
        for name, value in tree_flatten(model.parameters())
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    _edit(folder, **settings, quantization=form)
    return folder


def test_a_cpu_computes_in_float32(tmp_path: Path) -> None:
    write_install(tmp_path, FAMILIES["llama-gqa"].config)
    weights = mx.load(str(tmp_path / "model.safetensors"))
    assert isinstance(weights, dict)
    half = {name: value.astype(mx.bfloat16) for name, value in weights.items()}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), half)
    assert _dtypes(_load(tmp_path)) == {mx.float32}
    assert _dtypes(_load(tmp_path, _GPU)) == {mx.bfloat16}


@pytest.mark.parametrize("form", [{}, {"bits": 8}, {"mode": "mxfp4"}], ids=repr)
@pytest.mark.parametrize("family", ["llama-gqa", "llama-tied", "qwen2"])
def test_packed_layers_are_unpacked_on_a_cpu_when_they_fit(
    family: str, form: dict[str, Any], tmp_path: Path
) -> None:
    folder = _quantized(tmp_path, family, **form)
    packed, dense = _load(folder, _GPU), _load(folder)
    assert any(isinstance(module, nn.QuantizedLinear) for _, module in packed.named_modules())
    assert not any(loader._is_packed(module) for _, module in dense.named_modules())
    assert _dtypes(dense) == {mx.float32}
    packed.set_dtype(mx.float32)
    ids = mx.array([[5, 6, 7, 200]])
    assert mx.allclose(packed(ids), dense(ids), atol=2e-3).item()
    assert loader._dense_bytes(packed) == pytest.approx(loader.weights_bytes(dense), rel=0.01)


def test_packed_layers_stay_packed_when_they_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _quantized(tmp_path)
    need = loader._dense_bytes(_load(folder, _GPU))
    monkeypatch.setattr(device, "available_memory", lambda: int(need / 0.6) + 8)
    assert not any(loader._is_packed(module) for _, module in _load(folder).named_modules())
    monkeypatch.setattr(device, "available_memory", lambda: int(need / 0.6) - 8)
    model = _load(folder)
    assert any(loader._is_packed(module) for _, module in model.named_modules())
    assert _dtypes(model) == {mx.float32, mx.uint32}  # scales too: half-precision ones are very slow
    engine = TextEngine(folder, cpu(), 2)
    assert len(alone(engine, request([1, 2, 3], 4)).tokens) == 4


def test_experts_that_are_packed_run_too(tmp_path: Path) -> None:
    folder = _quantized(tmp_path, "qwen3_moe")
    engine = TextEngine(folder, cpu(), 2)
    assert engine._model.batchable
    assert len(alone(engine, request([1, 2, 3], 4)).tokens) == 4


def test_a_layer_may_have_settings_of_its_own(tmp_path: Path) -> None:
    folder = _quantized(tmp_path)
    model = _load(folder)
    weights = dict(mx.load(str(folder / "model.safetensors")))  # type: ignore[arg-type]
    dense = dict(tree_flatten(model.parameters()))
    name = "model.layers.0.mlp.up_proj"
    packed = mx.quantize(dense[f"{name}.weight"], group_size=32, bits=8)
    for part, value in zip(("weight", "scales", "biases"), packed, strict=True):
        weights[f"{name}.{part}"] = value
    head = "lm_head"
    for part in ("scales", "biases"):
        del weights[f"{head}.{part}"]
    weights[f"{head}.weight"] = dense[f"{head}.weight"]
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    own = {"group_size": 32, "bits": 4, name: {"group_size": 32, "bits": 8}, head: False}
    _edit(folder, quantization=own)
    modules = dict(_load(folder, _GPU).named_modules())
    assert modules[name].bits == 8
    assert not loader._is_packed(modules[head])


def test_weights_in_several_files(tmp_path: Path) -> None:
    write_install(tmp_path, FAMILIES["llama-gqa"].config)
    weights = dict(mx.load(str(tmp_path / "model.safetensors")))  # type: ignore[arg-type]
    names = sorted(weights)
    for number, part in enumerate((names[::2], names[1::2])):
        mx.save_safetensors(str(tmp_path / f"model-0000{number}.safetensors"), {n: weights[n] for n in part})
    (tmp_path / "model.safetensors").unlink()
    loaded = dict(tree_flatten(_load(tmp_path).parameters()))
    assert all(mx.array_equal(loaded[name], weights[name]).item() for name in names)


def _remove(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def _overwrite(name: str, content: bytes) -> Any:
    return lambda folder: (folder / name).write_bytes(content)


def _truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _drop_a_weight(folder: Path) -> None:
    weights = dict(mx.load(str(folder / "model.safetensors")))  # type: ignore[arg-type]
    del weights["model.norm.weight"]
    mx.save_safetensors(str(folder / "model.safetensors"), weights)


_DAMAGE: dict[str, tuple[Any, type[TurbosparkError], str]] = {
    "no config": (_remove("config.json"), CorruptInstall, "config.json cannot be read"),
    "broken config": (_overwrite("config.json", b"{"), CorruptInstall, "config.json cannot be read"),
    "deep config": (_overwrite("config.json", b"[" * 10**5), CorruptInstall, "config.json cannot be read"),
    "a list": (_overwrite("config.json", b"[]"), CorruptInstall, "not a JSON object"),
    "not utf-8": (_overwrite("config.json", b"\xff"), CorruptInstall, "config.json cannot be read"),
    "no weights": (_remove("model.safetensors"), CorruptInstall, "no weights"),
    "truncated": (_truncate, CorruptInstall, "weights do not fit"),
    "empty file": (_overwrite("model.safetensors", b""), CorruptInstall, "weights do not fit"),
    "nonsense": (_overwrite("model.safetensors", b"\xff" * 64), CorruptInstall, "weights do not fit"),
    "a weight is missing": (_drop_a_weight, CorruptInstall, "weights do not fit"),
    "other shapes": (lambda f: _edit(f, intermediate_size=64), CorruptInstall, "weights do not fit"),
    "bad sizes": (lambda f: _edit(f, hidden_size="x"), CorruptInstall, "weights do not fit"),
    "no tokenizer": (_remove("tokenizer.json"), CorruptInstall, "tokenizer.json"),
    "no model_type": (lambda f: _edit(f, model_type=None), InvalidRequest, "not supported"),
    "unknown type": (lambda f: _edit(f, model_type="gpt9"), InvalidRequest, "'gpt9' is not supported"),
    "not a model": (lambda f: _edit(f, model_type="cache"), InvalidRequest, "not supported"),
    "a path": (lambda f: _edit(f, model_type="..utils"), InvalidRequest, "names no architecture"),
    "needs a package": (lambda f: _edit(f, model_type="olmo"), InvalidRequest, "not supported"),
    "own code": (lambda f: _edit(f, model_file="x.py"), InvalidRequest, "never does"),
    "foreign quantization": (
        lambda f: _edit(f, quantization_config={"quant_method": "gptq"}),
        InvalidRequest,
        "not MLX's",
    ),
    "quantization of another shape": (
        lambda f: _edit(f, quantization="4bit"),
        CorruptInstall,
        "weights do not fit",
    ),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", _DAMAGE)
def test_damage_is_told_in_one_sentence(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_install(tmp_path / "secret-folder", FAMILIES["llama-gqa"].config)
    how, kind, words = _DAMAGE[damage]
    how(folder)
    with pytest.raises(kind) as caught:
        TextEngine(folder, cpu(), 2)
    assert type(caught.value) is kind
    assert words in caught.value.message
    assert "secret-folder" not in caught.value.message


def test_a_model_that_does_not_run_on_this_machine(tmp_path: Path) -> None:
    """Bitnet's layers are Metal kernels; loading them elsewhere is a refusal and no crash."""
    if mx.metal.is_available():
        pytest.skip("this machine has Metal")
    folder = write_install(tmp_path, config("bitnet"))
    with pytest.raises(InvalidRequest, match="cannot run this model on this machine"):
        TextEngine(folder, cpu(), 2)


@pytest.mark.parametrize(
    ("model_type", "module"),
    [
        ("mistral", "llama"),
        ("llama", "llama"),
        ("falcon_mamba", "mamba"),
        ("nemotron-nas", "nemotron-nas"),
        ("Klear", "Klear"),
        ("phi-msft", "phixtral"),
    ],
)
def test_a_model_type_finds_its_module(model_type: str, module: str) -> None:
    model_class, args_class = mlx_models.classes({"model_type": model_type})
    assert model_class.__module__ == args_class.__module__ == f"mlx_lm.models.{module}"


def test_mlx_lm_itself_is_never_imported() -> None:
    """Its package module would bring transformers with it."""
    import subprocess
    import sys

    script = (
        "import sys\n"
        "from turbospark_cli.runtime.engine import mlx_models\n"
        "mlx_models.classes({'model_type': 'qwen3'})\n"
        "print([n for n in ('transformers', 'numpy', 'mlx_lm.utils', 'torch') if n in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
