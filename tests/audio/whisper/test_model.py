"""Encoder and decoder against the plain one, from every layout that weights are published in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.audio.whisper import models
from tests.audio.whisper.models import Array, Plain
from turbospark_cli.audio.whisper import config, load, weights
from turbospark_cli.audio.whisper.config import Dimensions
from turbospark_cli.audio.whisper.decoder import Decoder, Decoding
from turbospark_cli.audio.whisper.encoder import Encoder
from turbospark_cli.errors import CorruptInstall

TOKENS = [50_258, 50_259, 50_359, 400, 51_864, 7, 300]


def frames(sizes: Dimensions, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal((sizes.frames, sizes.mels)).astype(np.float32)


def built(folder: Path) -> tuple[Encoder, Decoder, Dimensions]:
    sizes = config.read_dimensions(folder)
    tensors = weights.load(folder, sizes, mx.float32)
    return Encoder(tensors, sizes), Decoder(tensors, sizes), sizes


@pytest.mark.parametrize("write", models.WRITERS)
@pytest.mark.parametrize("sizes", [models.dimensions(), models.dimensions(mels=128, vocab=51_866)])
def test_every_layout_computes_the_same(
    tmp_path: Path, write: Callable[[Path, Dimensions, dict[str, Array]], None], sizes: Dimensions
) -> None:
    tensors = models.weights(sizes)
    write(tmp_path, sizes, tensors)
    encoder, decoder, found = built(tmp_path)
    assert found == sizes
    plain, sound = Plain(sizes, tensors), frames(sizes)
    encoded = encoder(mx.array(sound))
    assert np.allclose(np.array(encoded), plain.encode(sound), atol=2e-4)
    hidden, _ = Decoding(decoder, decoder.hear(encoded)).read(TOKENS)
    assert np.allclose(decoder.logits(hidden), plain.logits(TOKENS, plain.encode(sound)), atol=1e-3)


def test_a_window_of_the_real_length_computes_the_same(tmp_path: Path) -> None:
    sizes = models.dimensions(audio_context=1500, audio_layers=1)
    tensors = models.weights(sizes)
    models.write_mlx(tmp_path, sizes, tensors)
    encoder, _, _ = built(tmp_path)
    sound = frames(sizes)
    assert np.allclose(np.array(encoder(mx.array(sound))), Plain(sizes, tensors).encode(sound), atol=5e-4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoder, Decoder, Dimensions]:
    folder = tmp_path_factory.mktemp("tiny")
    sizes = models.dimensions()
    models.write_mlx(folder, sizes, models.weights(sizes))
    return built(folder)


@pytest.mark.parametrize("cuts", [[1, 1, 1, 1, 1, 1, 1], [3, 4], [6, 1]])
def test_tokens_read_in_pieces_are_tokens_read_at_once(
    tiny: tuple[Encoder, Decoder, Dimensions], cuts: list[int]
) -> None:
    encoder, decoder, sizes = tiny
    heard = decoder.hear(encoder(mx.array(frames(sizes))))
    whole = decoder.logits(Decoding(decoder, heard).read(TOKENS)[0])
    decoding, rows, left = Decoding(decoder, heard), [], list(TOKENS)
    for count in cuts:
        rows.append(decoder.logits(decoding.read(left[:count])[0]).copy())
        left = left[count:]
    assert np.allclose(np.concatenate(rows), whole, atol=1e-4)


def test_tokens_that_are_forgotten_leave_no_trace(tiny: tuple[Encoder, Decoder, Dimensions]) -> None:
    encoder, decoder, sizes = tiny
    heard = decoder.hear(encoder(mx.array(frames(sizes))))
    decoding = Decoding(decoder, heard)
    decoding.read(TOKENS[:3])
    first = decoder.logits(decoding.read([400])[0]).copy()
    decoding.read([9, 9, 9])
    decoding.rewind(3)
    assert np.array_equal(decoder.logits(decoding.read([400])[0]), first)


@pytest.mark.parametrize("tokens", [[51_865], [-1], [0] * 33])
def test_tokens_beyond_the_model_are_refused(
    tiny: tuple[Encoder, Decoder, Dimensions], tokens: list[int]
) -> None:
    encoder, decoder, sizes = tiny
    heard = decoder.hear(encoder(mx.array(frames(sizes))))
    with pytest.raises(ValueError, match="cannot read"):
        Decoding(decoder, heard).read(tokens)


def test_quantized_weights_are_unpacked(tmp_path: Path) -> None:
    sizes = models.dimensions(width=64)
    packed: dict[str, mx.array] = {}
    expected = {}
    for name, value in models.weights(sizes).items():
        packed[name] = mx.array(value)
        if value.ndim == 2 and name.endswith(".weight"):
            stem = name.removesuffix(".weight")
            packed[name], scales, biases = mx.quantize(mx.array(value), group_size=32, bits=8)
            packed |= {f"{stem}.scales": scales, f"{stem}.biases": biases}
            expected[name] = np.array(mx.dequantize(packed[name], scales, biases, group_size=32, bits=8))
    models.write_mlx(tmp_path, sizes, {})
    mx.save_safetensors(str(tmp_path / "weights.safetensors"), packed)
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"quantization": {"group_size": 32, "bits": 8}})
    )
    found = weights.load(tmp_path, config.read_dimensions(tmp_path), mx.float32)
    assert expected
    assert all(np.array_equal(np.array(found[name]), value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_vocab": 0}, "n_vocab"),
        ({"n_mels": "80"}, "n_mels"),
        ({"n_audio_state": 16}, "widths"),
        ({"n_text_head": 3}, "widths"),
        ({"n_text_layer": 3}, "lack"),
        ({"n_mels": 128}, "shape"),
        ({"quantization": [4]}, "quantization"),
        ({"alignment_heads": [[2, 0]]}, "alignment_heads"),
        ({"suppress_tokens": [51_865]}, "suppress_tokens"),
    ],
)
def test_a_folder_that_contradicts_itself_is_a_sentence(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    sizes = models.dimensions()
    models.write_mlx(tmp_path, sizes, models.weights(sizes))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CorruptInstall, match=message):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no weights", b"\xff" * 100])
def test_weights_that_cannot_be_read_are_a_sentence(tmp_path: Path, content: bytes) -> None:
    models.write_mlx(tmp_path, models.dimensions(), {})
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(CorruptInstall, match="cannot be read"):
        built(tmp_path)
