"""Text as it may be shown: whatever the chunking, the streamed text is the whole text up to its end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.runtime.engine.tiny import END, START, byte_tokenizer
from turbospark_cli.runtime.engine.answer_text import AnswerText
from turbospark_cli.runtime.engine.token_stream import TokenStream

_quickly = settings(deadline=None, derandomize=True, max_examples=300)


class _Pieces:
    """A stream whose token `i` is the piece `i`, as it is."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces

    def step(self, token_id: int) -> str:
        return self._pieces[token_id]

    def flush(self) -> str:
        return ""


def _stream(pieces: Sequence[str], stops: Sequence[str]) -> tuple[list[str], str | None]:
    """What is shown at each push, and at last by `finish`; and the stop string."""
    text = AnswerText(cast("TokenStream", _Pieces(pieces)), stops)
    shown: list[str] = []
    for number in range(len(pieces)):
        shown.append(text.push(number))
        if text.matched is not None:
            return shown, text.matched
    shown.append(text.finish())
    return shown, text.matched


def _cut(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The first end of a stop string in the whole text, letter by letter."""
    for end in range(1, len(text) + 1):
        here = [stop for stop in stops if text[:end].endswith(stop)]
        if here:
            stop = max(here, key=len)
            return text[: end - len(stop)], stop
    return text, None


_text = st.text("abc ", max_size=30)
_stops = st.lists(st.text("abc ", min_size=1, max_size=4), max_size=4)


@_quickly
@given(_text, _stops, st.lists(st.integers(0, 30), max_size=8))
def test_streaming_is_cutting_the_whole_text(text: str, stops: list[str], cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:stop] for start, stop in pairwise(places)]
    shown, matched = _stream(pieces, stops)
    assert ("".join(shown), matched) == _cut(text, stops)


@_quickly
@given(_text, _stops)
def test_only_what_may_become_a_stop_is_held_back(text: str, stops: list[str]) -> None:
    shown, matched = _stream(list(text), stops)
    seen = ""
    for place, part in enumerate(shown[: len(text)]):
        seen += part
        so_far = text[: place + 1]
        if matched is not None and place == len(shown) - 1:
            break
        held = so_far[len(seen) :]
        assert so_far.startswith(seen)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "stops", "text", "matched"),
    [
        (["abcd"], ["abcd", "bc"], "a", "bc"),
        (list("abcd"), ["abcd", "bc"], "a", "bc"),
        (["abc"], ["c", "bc"], "a", "bc"),
        (["aa", "aab"], ["aab"], "aa", "aab"),
        (["ab", "ab", "ac"], ["abac"], "ab", "abac"),
        (["END"], ["END"], "", "END"),
        (["EN", "d"], ["END"], "ENd", None),
        (["EN"], ["END"], "EN", None),
        ([], ["x"], "", None),
    ],
)
def test_stop_strings_by_example(pieces: list[str], stops: list[str], text: str, matched: str | None) -> None:
    shown, found = _stream(pieces, stops)
    assert ("".join(shown), found) == (text, matched)


def _bytes_of(text: str) -> list[int]:
    return byte_tokenizer().encode(text, add_special_tokens=False).ids


def _say(ids: Sequence[int], stops: Sequence[str] = ()) -> tuple[str, str | None]:
    text = AnswerText(TokenStream(byte_tokenizer()), stops)
    shown = ""
    for token_id in ids:
        shown += text.push(token_id)
        if text.matched is not None:
            return shown, text.matched
    return shown + text.finish(), text.matched


_any_text = st.text("aé日👍\u0301 \n\ufffd", max_size=20)


@_quickly
@given(_any_text, st.lists(_any_text.filter(bool), max_size=3))
def test_text_in_single_bytes(text: str, stops: list[str]) -> None:
    assert _say(_bytes_of(text), stops) == _cut(text, stops)


@_quickly
@given(st.lists(st.integers(0, 258), max_size=25))
def test_any_bytes_and_special_tokens_read_as_in_a_whole_decode(ids: list[int]) -> None:
    assert _say(ids) == (byte_tokenizer().decode(ids, skip_special_tokens=True), None)


@pytest.mark.parametrize(
    "text", ["👩🏽‍🚀!", "日本語", "e\u0301a\u0308", "🇩🇪", "naïve…", "a\ufffdb", "\ufffd"]
)
def test_characters_come_whole(text: str) -> None:
    stream = TokenStream(byte_tokenizer())
    parts = [stream.step(token_id) for token_id in _bytes_of(text)]
    assert "".join(parts) + stream.flush() == text
    assert all(part in text for part in parts)
    if "\ufffd" not in text:
        assert "\ufffd" not in "".join(parts)


def test_an_unfinished_character_shows_at_the_end_and_only_there() -> None:
    half = _bytes_of("a👍")[:3]
    stream = TokenStream(byte_tokenizer())
    assert [stream.step(token_id) for token_id in half] == ["a", "", ""]
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_a_stop_string_in_the_last_bytes_still_counts() -> None:
    assert _say(_bytes_of("ab\ufffd")[:-1], ["\ufffd"]) == ("ab", "\ufffd")


def test_special_tokens_are_not_shown() -> None:
    assert _say([START, *_bytes_of("hé"), END, *_bytes_of("!")]) == ("hé!", None)


def test_endless_nonsense_is_said_in_parts() -> None:
    stream = TokenStream(byte_tokenizer())
    continuation = _bytes_of("é")[1]  # a byte that begins nothing
    shown = [stream.step(continuation) for _ in range(200)]
    assert len("".join(shown)) >= 160
