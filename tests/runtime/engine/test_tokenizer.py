"""Tokenizers of other makes than bytes alone: exact bytes, streams, end tokens and templates beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models

from tests.runtime.engine.tiny import END, VOCAB, byte_tokenizer, write_tokenizer
from turbospark_cli.errors import CorruptInstall
from turbospark_cli.runtime.engine.token_stream import TokenStream
from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.requests import Message

_WORDS = ("▁", "a", "b", "▁Hello", "▁▁", "日", "é", "▁a", "<tool>")


def _fallback() -> RawTokenizer:
    """As Llama 2's: words with their space before them, and bytes for what is not a word."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for piece in (*(f"<0x{byte:02X}>" for byte in range(256)), *_WORDS):
        vocab[piece] = len(vocab)
    tokenizer = RawTokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


_FALLBACK = _fallback()


def _word(piece: str) -> int:
    token_id = _FALLBACK.token_to_id(piece)
    assert token_id is not None
    return token_id


def _byte(value: int) -> int:
    return 3 + value


def _streamed(tokenizer: RawTokenizer, ids: list[int]) -> str:
    stream = TokenStream(tokenizer)
    return "".join([stream.step(token_id) for token_id in ids]) + stream.flush()


_fallback_ids = st.lists(
    st.one_of(
        st.sampled_from([2, *range(259, 259 + len(_WORDS))]).map(lambda token_id: [token_id]),
        st.sampled_from("aé日👍\u0301 \n\ufffd").map(lambda c: [_byte(byte) for byte in c.encode()]),
    ),
    max_size=12,
).map(lambda groups: [token_id for group in groups for token_id in group])


@settings(deadline=None, derandomize=True, max_examples=300)
@given(_fallback_ids)
def test_words_and_bytes_of_whole_characters_read_as_in_a_whole_decode(ids: list[int]) -> None:
    assert _streamed(_FALLBACK, ids) == _FALLBACK.decode(ids, skip_special_tokens=True)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.lists(st.integers(0, 258 + len(_WORDS)), max_size=15))
def test_no_bytes_raise_and_words_are_never_lost(ids: list[int]) -> None:
    """A run of bytes that is not UTF-8 changes how the bytes before it read; a stream has said those."""
    text = _streamed(_FALLBACK, ids)
    assert text.count("Hello") == ids.count(_word("▁Hello"))
    assert text.count("日") >= ids.count(_word("日"))


def test_ascii_before_a_broken_byte_stays_said() -> None:
    stream = TokenStream(_FALLBACK)
    shown = [stream.step(token_id) for token_id in (_byte(0x4F), _byte(0xD0), _word("▁a"))]
    assert shown == ["O", "", "\ufffd a"]


def test_a_character_before_a_broken_byte_is_not_said_twice_nor_cut() -> None:
    stream = TokenStream(_FALLBACK)
    ids = [*map(_byte, "日".encode()), _byte(0xD0), _word("▁a")]
    assert [stream.step(token_id) for token_id in ids] == ["", "", "日", "", "\ufffd a"]


def _written(folder: Path, raw: RawTokenizer, **files: Any) -> Tokenizer:
    folder.mkdir(exist_ok=True)
    raw.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return Tokenizer(folder)


def test_exact_bytes_of_byte_level_tokens(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenizer = Tokenizer(tmp_path)
    assert sorted(tokenizer.token(token_id)[1] for token_id in range(256)) == [bytes([b]) for b in range(256)]
    text = "Zoë 👍\n"
    ids = tokenizer.encode(text, special_tokens=False)
    assert b"".join(tokenizer.token(token_id)[1] for token_id in ids) == text.encode()
    assert tokenizer.token(ids[3]) == ("\ufffd", b"\xab")
    assert tokenizer.token(END) == ("<|end|>", b"<|end|>")
    assert tokenizer.token(VOCAB) == ("", b"")  # logits may be wider than the vocabulary
    assert tokenizer.size == VOCAB


def test_exact_bytes_of_byte_fallback_tokens(tmp_path: Path) -> None:
    tokenizer = _written(tmp_path, _FALLBACK)
    assert [tokenizer.token(_byte(b))[1] for b in range(256)] == [bytes([b]) for b in range(256)]
    assert tokenizer.token(_word("▁Hello")) == (" Hello", b" Hello")
    assert tokenizer.token(_word("日")) == ("日", "日".encode())
    assert tokenizer.token(2) == ("</s>", b"</s>")


def test_added_tokens_are_themselves_even_where_bytes_have_an_alphabet(tmp_path: Path) -> None:
    raw = RawTokenizer.from_str(byte_tokenizer().to_str())
    raw.add_tokens(["Ġé"])
    tokenizer = _written(tmp_path, raw)
    assert tokenizer.token(VOCAB) == ("Ġé", "Ġé".encode())


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({}, set()),
        ({"config": {"eos_token_id": 5}}, {5}),
        ({"config": {"eos_token_id": [5, 6]}, "generation_config": {"eos_token_id": 7}}, {5, 6, 7}),
        ({"config": {"eos_token_id": None}, "tokenizer_config": {"eos_token": "<|end|>"}}, {END}),
        ({"tokenizer_config": {"eos_token": {"content": "<|end|>"}}}, {END}),
        ({"tokenizer_config": {"eos_token": "no such token"}}, set()),
        ({"generation_config": {"eos_token_id": ["x", 3]}}, {3}),
    ],
)
def test_end_ids(files: dict[str, Any], ends: set[int], tmp_path: Path) -> None:
    assert _written(tmp_path, byte_tokenizer(), **files).end_ids == ends


def _rendered(tokenizer: Tokenizer) -> str:
    assert tokenizer.template is not None
    return tokenizer.template.render((Message("user", "x"),), {})


def test_where_a_chat_template_comes_from(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D{{ eos_token }}"}]
    settings_ = {"chat_template": named, "eos_token": {"content": "<|end|>"}}
    assert _rendered(_written(tmp_path, byte_tokenizer(), tokenizer_config=settings_)) == "D<|end|>"
    (tmp_path / "chat_template.jinja").write_text("F{{ messages[0].content }}")
    assert _rendered(Tokenizer(tmp_path)) == "Fx"
    assert _written(tmp_path / "none", byte_tokenizer()).template is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"\xff\xfe"),
        ("tokenizer_config.json", b"{"),
        ("generation_config.json", b"\xff"),
        ("config.json", b"[" * 100_000),
        ("chat_template.jinja", b"{% if"),
        ("chat_template.jinja", b"\xff\xfe\x00"),
    ],
)
def test_damaged_files_are_a_corrupt_install(name: str, content: bytes, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorruptInstall):
        Tokenizer(tmp_path)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(CorruptInstall, match=r"tokenizer\.json"):
        Tokenizer(tmp_path)


def test_truncation_and_padding_of_a_tokenizer_file_are_not_for_prompts(tmp_path: Path) -> None:
    raw = RawTokenizer.from_str(byte_tokenizer().to_str())
    raw.enable_truncation(4)
    raw.enable_padding(length=8)
    assert len(_written(tmp_path, raw).encode("abcdef", special_tokens=True)) == 6
