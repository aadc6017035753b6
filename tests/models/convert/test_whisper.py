"""CTranslate2 Whispers become MLX installs: every tensor to the last bit, or a sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.models import ctranslate2_files
from tests.models.ctranslate2_files import TinyWhisper
from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models import catalog, receipt
from turbospark_cli.models.convert.facts import Facts
from turbospark_cli.models.convert.whisper import convert

Array = np.ndarray[Any, Any]


def small(**changes: Any) -> TinyWhisper:
    """A Whisper of a few kB, English-only by its vocabulary."""
    return TinyWhisper(**{"audio_context": 20, "text_context": 12, "vocab": 2000} | changes)


def converted(folder: Path, model: TinyWhisper) -> tuple[Path, Facts]:
    source, target = folder / "source", folder / "install"
    source.mkdir()
    target.mkdir()
    return target, convert(ctranslate2_files.write(source, model), target, lambda done, total: None)


def stored(install: Path) -> dict[str, Array]:
    raw = mx.load(str(install / "model.safetensors"))
    assert isinstance(raw, dict)
    return {name: np.array(value) for name, value in raw.items()}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_tensor_arrives_under_its_name(tmp_path: Path, dtype: str) -> None:
    model = small(dtype=dtype)
    install, facts = converted(tmp_path, model)
    found, source = stored(install), model.variables
    assert facts.architecture == "whisper"
    assert facts.stored_as == dtype
    assert facts.parameters == sum(value.size for value in found.values())
    for side, layer in (("encoder", 0), ("decoder", 1)):
        rows = np.split(source[f"{side}/layer_{layer}/self_attention/linear_0/weight"], 3)
        offsets = np.split(source[f"{side}/layer_{layer}/self_attention/linear_0/bias"], 3)
        for part, row, offset in zip(("query", "key", "value"), rows, offsets, strict=True):
            assert np.array_equal(found[f"{side}.blocks.{layer}.attn.{part}.weight"], row)
            if part == "key":
                assert f"{side}.blocks.{layer}.attn.key.bias" not in found
            else:
                assert np.array_equal(found[f"{side}.blocks.{layer}.attn.{part}.bias"], offset)
    key, value = np.split(source["decoder/layer_0/attention/linear_1/weight"], 2)
    assert np.array_equal(found["decoder.blocks.0.cross_attn.key.weight"], key)
    assert np.array_equal(found["decoder.blocks.0.cross_attn.value.weight"], value)
    assert np.array_equal(
        found["decoder.blocks.0.cross_attn.query.weight"],
        source["decoder/layer_0/attention/linear_0/weight"],
    )
    assert np.array_equal(found["encoder.conv2.weight"], source["encoder/conv2/weight"].transpose(0, 2, 1))
    assert np.array_equal(found["decoder.token_embedding.weight"], source["decoder/embeddings/weight"])
    assert np.array_equal(
        found["decoder.positional_embedding"], source["decoder/position_encodings/encodings"]
    )
    assert np.array_equal(found["encoder.ln_post.weight"], source["encoder/layer_norm/gamma"])
    assert np.array_equal(
        found["decoder.blocks.1.mlp_ln.bias"], source["decoder/layer_1/ffn/layer_norm/beta"]
    )
    assert "encoder.positional_embedding" not in found


def test_eight_bit_weights_become_what_they_stand_for(tmp_path: Path) -> None:
    model = small(dtype="int8")
    found = stored(converted(tmp_path, model)[0])
    name = "decoder/layer_1/attention/linear_1/weight"
    expected = model.variables[name] / model.variables[f"{name}_scale"][:, None]
    assert np.array_equal(
        np.concatenate([found[f"decoder.blocks.1.cross_attn.{part}.weight"] for part in ("key", "value")]),
        expected.astype(np.float16),
    )


def test_the_files_beside_the_weights(tmp_path: Path) -> None:
    model = small(mels=128)
    model.config |= {"suppress_ids": [1, 2], "suppress_ids_begin": [3], "lang_ids": [4]}
    install, facts = converted(tmp_path, model)
    config = json.loads((install / "config.json").read_text())
    assert config["n_mels"] == 128
    assert (config["n_vocab"], config["n_audio_ctx"], config["n_text_ctx"]) == (2000, 20, 12)
    assert json.loads((install / "generation_config.json").read_text()) == {
        "is_multilingual": False,
        "suppress_tokens": [1, 2],
        "begin_suppress_tokens": [3],
        "alignment_heads": [[1, 0], [1, 1]],
    }
    assert facts.languages == ("en",)
    assert facts.context_length == 12


def test_the_languages_of_a_multilingual_model(tmp_path: Path) -> None:
    _, facts = converted(tmp_path, TinyWhisper(audio_context=20, width=2))
    assert facts.languages == ctranslate2_files.LANGUAGES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 5}, "version 6"),
        ({"specification": "TransformerSpec"}, "not a Whisper"),
        ({"revision": 2}, "not a Whisper"),
        ({"config": {"alignment_heads": [[2, 0]]}}, "alignment_heads"),
        ({"config": {"alignment_heads": [[0, True]]}}, "alignment_heads"),
        ({"config": {"suppress_ids": [2000]}}, "suppress_ids"),
        ({"config": {"suppress_ids": "all"}}, "suppress_ids"),
    ],
)
def test_what_a_file_says_about_itself_is_checked(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConversionFailed, match=message):
        converted(tmp_path, small(**change))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("encoder/extra", np.zeros(1, np.float32), "'encoder/extra'"),
        ("decoder/layer_norm/gamma", None, "lacks the variable 'decoder/layer_norm/gamma'"),
        ("decoder/layer_norm/gamma", np.zeros(15, np.float32), "has the shape"),
        ("decoder/layer_norm/gamma", np.full(16, np.inf, np.float32), "not numbers"),
        ("decoder/layer_norm/gamma", np.zeros(16, np.int16), "int16 are not supported"),
        ("decoder/num_heads", np.array(3, np.int16), "heads"),
        ("encoder/conv1/weight_scale", np.ones(16, np.float32), "scale"),
    ],
)
def test_a_variable_that_does_not_fit_is_named(
    tmp_path: Path, name: str, value: Array | None, message: str
) -> None:
    model = small()
    if value is None:
        del model.variables[name]
    else:
        model.variables[name] = value
    with pytest.raises(ConversionFailed, match=message):
        converted(tmp_path, model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff", b"[" * 200_000])
def test_a_companion_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None) -> None:
    source = ctranslate2_files.write(tmp_path, small())
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConversionFailed, match=name):
        convert(source, tmp_path, lambda done, total: None)


def test_mutated_files_are_converted_or_refused_and_nothing_else(tmp_path: Path) -> None:
    source = ctranslate2_files.write(tmp_path, small(width=4))
    whole, dice = source.read_bytes(), random.Random(20)
    outcomes, longest = {True: 0, False: 0}, 0
    for number in range(300):
        mutant = bytearray(whole)
        for _ in range(dice.randint(1, 8)):
            mutant[dice.randrange(len(mutant))] = dice.randrange(256)
        if dice.random() < 0.3:
            del mutant[dice.randrange(len(mutant)) :]
        source.write_bytes(mutant)
        target = tmp_path / f"{number}"
        target.mkdir()
        try:
            convert(source, target, lambda done, total: None)
        except ConversionFailed as error:
            outcomes[False] += 1
            longest = max(longest, len(error.message))
        else:
            outcomes[True] += 1
    assert longest < 300
    assert min(outcomes.values()) > 20


@pytest.mark.starter
@pytest.mark.parametrize("alias", ["whisper-tiny-en", "whisper-base"])
def test_the_real_models_are_what_their_rows_say(request: pytest.FixtureRequest, alias: str) -> None:
    install: Path = request.getfixturevalue(alias.replace("-", "_"))
    facts, row = receipt.read(install), catalog.find(alias)
    assert receipt.is_intact(install, facts)
    assert (facts.kind, facts.family, facts.quantization) == ("stt", "whisper", None)
    assert facts.parameters == row.parameters
    assert facts.size <= row.disk
    assert len(facts.languages) == (1 if alias.endswith("-en") else 99)
    assert len(facts.origins) == len(row.source.wheels)
