from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.audio.whisper import models
from turbospark_cli.audio.whisper import config, words
from turbospark_cli.audio.whisper.config import Generation
from turbospark_cli.audio.whisper.vocabulary import Vocabulary
from turbospark_cli.errors import CorruptInstall


def test_special_tokens_follow_from_each_other(vocabulary: Vocabulary) -> None:
    assert (vocabulary.end, vocabulary.start) == (256, 257)
    assert vocabulary.languages == {"en": 258, "zh": 259, "de": 260}
    assert (vocabulary.translate, vocabulary.transcribe) == (261, 262)
    assert (vocabulary.previous, vocabulary.no_speech) == (264, 265)
    assert (vocabulary.no_timestamps, vocabulary.first_time) == (266, 267)
    assert vocabulary.seconds(267 + 1500) == 30.0
    assert vocabulary.beginning("de", "transcribe") == [257, 260, 262]
    assert vocabulary.beginning("zh", "translate") == [257, 259, 261]
    assert vocabulary.beginning(None, "transcribe") == [257]


def test_names_of_special_tokens_in_a_prompt_are_not_tokens(vocabulary: Vocabulary) -> None:
    assert vocabulary.text(vocabulary.encode("a<|endoftext|>b")) == "ab"


def test_text_leaves_times_out(vocabulary: Vocabulary) -> None:
    assert vocabulary.text([267, *vocabulary.encode(" Hello"), 300, 256]) == " Hello"


def test_what_is_suppressed_by_rule(vocabulary: Vocabulary) -> None:
    said = {token for text in ("(", "[", "♪", "@") for token in vocabulary.encode(text)[:1]}
    assert said <= set(vocabulary.suppressed)
    assert {257, 261, 262, 263, 264, 265} <= set(vocabulary.suppressed)
    assert not {256, vocabulary.encode("a")[0], vocabulary.encode(".")[0]} & set(vocabulary.suppressed)
    assert vocabulary.suppressed_first == (*vocabulary.encode(" "), 256)


def test_what_the_folder_suppresses_comes_first(tmp_path: Path) -> None:
    sizes = models.dimensions()
    models.write_mlx(tmp_path, sizes, {})
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"suppress_tokens": [5, 6], "begin_suppress_tokens": [7]})
    )
    generation = config.read_generation(tmp_path, sizes)
    found = Vocabulary(tmp_path, sizes, generation)
    assert found.suppressed == (5, 6, 257, 261, 262, 263, 264, 265)
    assert found.suppressed_first == (7,)


@pytest.mark.parametrize("text", ["Zażółć gęślą 你好 🙂 abc", "é", "a\u0301", ""])
def test_characters_are_never_cut(vocabulary: Vocabulary, text: str) -> None:
    tokens = vocabulary.encode(text)
    parts = vocabulary.characters(tokens)
    assert [token for part in parts for token in part] == tokens
    assert "".join(vocabulary.text(part) for part in parts) == text


def test_words_begin_at_spaces_or_at_every_character(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encode(" Say it, now.")
    assert [text for text, _ in words.split(vocabulary, tokens, "en")] == [" Say", " it", ",", " now", "."]
    tokens = vocabulary.encode("你好。")
    assert [text for text, _ in words.split(vocabulary, tokens, "zh")] == ["你", "好", "。"]


@pytest.mark.parametrize("content", [None, "{", '{"model": {}}'])
def test_a_tokenizer_that_cannot_be_used_is_a_sentence(tmp_path: Path, content: str | None) -> None:
    sizes = models.dimensions()
    models.write_mlx(tmp_path, sizes, {})
    path = tmp_path / "tokenizer.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(CorruptInstall, match="tokenizer"):
        Vocabulary(tmp_path, sizes, Generation(None, None, None))
