from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.models import gguf_files
from tests.models.convert.installs import convert_tiny
from tests.models.gguf_files import TinyModel

TEXTS = ["the hi 12", " the  the", "naïve café", "日本語 🙂🏽", "a\r\n\tb\n\n", "\u200d\ufeff", "12 345", ""]


def tokenizer(folder: Path, model: TinyModel) -> Tokenizer:
    install, _ = convert_tiny(folder, model)
    return Tokenizer.from_file(str(install / "tokenizer.json"))


@pytest.mark.parametrize("pre", ["smollm", "qwen2", "llama-bpe", "gpt-2"])
def test_text_survives_a_round_trip(tmp_path: Path, pre: str) -> None:
    made = tokenizer(tmp_path, TinyModel(pre=pre))
    for text in TEXTS:
        assert made.decode(made.encode(text).ids) == text


@pytest.mark.parametrize(
    ("pre", "split"), [("smollm", True), ("qwen2", True), ("gpt-2", False), ("llama-bpe", False)]
)
def test_digits_are_split_where_the_style_says_so(tmp_path: Path, pre: str, split: bool) -> None:
    assert tokenizer(tmp_path, TinyModel(pre=pre)).encode("12").tokens == (["1", "2"] if split else ["12"])


def test_merges_apply_inside_words_only(tmp_path: Path) -> None:
    assert tokenizer(tmp_path, TinyModel()).encode("the the").tokens == ["the", "Ġthe"]


def test_special_tokens_are_whole_and_left_out_of_text(tmp_path: Path) -> None:
    made = tokenizer(tmp_path, TinyModel())
    ids = made.encode("<|im_start|>hi<|im_end|>").ids
    assert ids == [1, made.token_to_id("hi"), 2]
    assert made.decode(ids) == "hi"
    assert made.decode(ids, skip_special_tokens=False) == "<|im_start|>hi<|im_end|>"


def test_user_defined_tokens_are_whole_and_stay_in_text(tmp_path: Path) -> None:
    types = [3, 3, 3] + [1] * (len(gguf_files.tokens()) - 4) + [4]
    made = tokenizer(tmp_path, TinyModel(metadata={"tokenizer.ggml.token_type": types}))
    last = gguf_files.tokens()[-1]
    assert made.decode(made.encode(f"x{last}y").ids) == f"x{last}y"
    assert len(gguf_files.tokens()) - 1 in made.encode(f"x{last}y").ids


def test_bos_comes_first_when_the_file_says_so(tmp_path: Path) -> None:
    made = tokenizer(tmp_path, TinyModel(metadata={"tokenizer.ggml.add_bos_token": True}))
    assert made.encode("hi").ids[0] == 1
    assert made.encode("hi", add_special_tokens=False).ids[0] != 1


def test_qwen2_normalizes_to_composed_letters(tmp_path: Path) -> None:
    made = tokenizer(tmp_path, TinyModel(pre="qwen2"))
    assert made.decode(made.encode("e\u0301").ids) == "\u00e9"


def test_companion_files(tmp_path: Path) -> None:
    install, facts = convert_tiny(tmp_path, TinyModel())
    settings = json.loads((install / "tokenizer_config.json").read_text())
    assert (settings["bos_token"], settings["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert (
        settings["chat_template"] == (install / "chat_template.jinja").read_text() == gguf_files.CHAT_TEMPLATE
    )
    assert json.loads((install / "generation_config.json").read_text())["eos_token_id"] == [2, 0]
    assert facts.has_chat_template


def test_a_base_model_has_no_chat_template(tmp_path: Path) -> None:
    install, facts = convert_tiny(tmp_path, TinyModel(template=None))
    assert not (install / "chat_template.jinja").exists()
    assert not facts.has_chat_template


PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁",
    "h",
    "i",
    "hi",
    "▁hi",
    "x",
]


def sentence_piece(prefix: bool) -> TinyModel:
    size = len(gguf_files.tokens())
    pieces = PIECES + [f"<unused{number}>" for number in range(size - len(PIECES))]
    types = [2, 3, 3] + [6] * 256 + [1] * 6 + [5] * (size - len(PIECES))
    scores = [0.0] * 259 + [-5.0, -6.0, -7.0, -1.0, -2.0, -9.0] + [-1000.0] * (size - len(PIECES))
    return TinyModel(
        architecture="gemma3",
        metadata={
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": pieces[:size],
            "tokenizer.ggml.token_type": types[:size],
            "tokenizer.ggml.scores": scores[:size],
            "tokenizer.ggml.merges": None,
            "tokenizer.ggml.add_space_prefix": prefix,
            "tokenizer.ggml.unknown_token_id": 0,
        },
    )


@pytest.mark.parametrize("prefix", [False, True])
def test_sentence_piece(tmp_path: Path, prefix: bool) -> None:
    made = tokenizer(tmp_path, sentence_piece(prefix))
    assert made.encode("hi hi", add_special_tokens=False).tokens == (
        ["▁hi", "▁hi"] if prefix else ["hi", "▁hi"]
    )
    for text in ("hi hi", "x", "日 hi", "  hi  hi"):
        assert made.decode(made.encode(text).ids) == text
    assert made.encode("hi").ids[0] == 1  # SentencePiece models begin with bos unless told otherwise
