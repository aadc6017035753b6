"""Streams of ids read as a whole decode does, whatever the ids are."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, settings
from tokenizers import AddedToken, decoders
from tokenizers import Tokenizer as RawTokenizer

from tests.runtime.engine.tiny import byte_tokenizer
from turbospark_cli.runtime.engine.token_stream import ByteStream, TokenStream
from turbospark_cli.runtime.engine.tokenizer import Tokenizer

_ADDED = ("<tool>", "é", "日本", "a日")  # not special: they are part of a text


def _byte_level(folder: Path) -> tuple[Tokenizer, int]:
    raw = RawTokenizer.from_str(byte_tokenizer().to_str())
    raw.add_tokens([AddedToken(text, special=False) for text in _ADDED])
    raw.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder), raw.get_vocab_size(with_added_tokens=True)


def test_any_ids_of_a_byte_level_tokenizer_read_as_in_a_whole_decode(tmp_path: Path) -> None:
    tokenizer, size = _byte_level(tmp_path)
    assert isinstance(tokenizer.stream(), ByteStream)

    @settings(deadline=None, derandomize=True, max_examples=500)
    @given(st.lists(st.integers(0, size + 3), max_size=20))  # ids past the vocabulary pad many models' logits
    def check(ids: list[int]) -> None:
        stream = tokenizer.stream()
        assert "".join(map(stream.step, ids)) + stream.flush() == tokenizer.decode(ids)

    check()


def test_a_character_is_told_when_its_last_byte_is_there(tmp_path: Path) -> None:
    tokenizer, _ = _byte_level(tmp_path)
    ids = tokenizer.encode("a日b", special_tokens=False)
    whole = byte_tokenizer().encode("日").ids
    stream = tokenizer.stream()
    assert [stream.step(token_id) for token_id in whole] == ["", "", "日"]
    assert tokenizer.decode(ids) == "a日b"


def test_other_decoders_are_streamed_by_the_library(tmp_path: Path) -> None:
    raw = RawTokenizer.from_str(byte_tokenizer().to_str())
    raw.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(content="x", left=1, right=0)])
    raw.save(str(tmp_path / "tokenizer.json"))
    assert isinstance(Tokenizer(tmp_path).stream(), TokenStream)
