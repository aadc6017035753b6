"""What one sequence tells, token by token or at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.engine.tiny import END, write_tokenizer
from turbospark_cli.runtime.engine.sequence import Prompt, Sequence
from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.events import Event, Finished, TextDelta, TokenLogprob, Usage
from turbospark_cli.runtime.requests import GenerationRequest, TokenPrompt


def _told(folder: Path, text: str, *, stream: bool, stop: tuple[str, ...] = ()) -> list[Event]:
    write_tokenizer(folder)
    tokenizer = Tokenizer(folder)
    request = GenerationRequest("m", TokenPrompt((1, 2)), stop=stop, top_logprobs=0, stream=stream)
    sequence = Sequence(7, request, Prompt([1, 2], 100), tokenizer)
    events: list[Event] = []
    for token_id in [*tokenizer.encode(text, special_tokens=False), END]:
        events += sequence.accept(token_id, TokenLogprob(*tokenizer.token(token_id), -0.5))
        if sequence.finished:
            break
    return events


def test_a_streamed_answer_is_told_token_by_token(tmp_path: Path) -> None:
    deltas = _told(tmp_path, "abc", stream=True)
    assert [event.text for event in deltas if isinstance(event, TextDelta)] == ["a", "b", "c"]


def test_an_unstreamed_answer_is_told_at_its_first_word_and_at_its_end(tmp_path: Path) -> None:
    first, rest, end = _told(tmp_path, "abcdef", stream=False)
    assert isinstance(first, TextDelta)
    assert isinstance(rest, TextDelta)
    assert (first.text, rest.text) == ("a", "bcdef")
    assert [len(first.logprobs), len(rest.logprobs)] == [1, 5]
    assert end == Finished("stop", Usage(2, 7))


@pytest.mark.parametrize("text", ["", "a", "日本 and é", "stop here: END and no further"])
def test_both_ways_say_the_same(tmp_path: Path, text: str) -> None:
    def whole(stream: bool) -> tuple[str, tuple[TokenLogprob, ...], Event]:
        events = _told(tmp_path, text, stream=stream, stop=("END",))
        deltas = [event for event in events if isinstance(event, TextDelta)]
        logprobs = tuple(logprob for delta in deltas for logprob in delta.logprobs)
        return "".join(delta.text for delta in deltas), logprobs, events[-1]

    assert whole(True) == whole(False)
