"""The scripted engine in this process: what it prepares, plays and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.engine.tiny import write_tokenizer
from turbospark_cli.errors import UsageError
from turbospark_cli.runtime.engine import scripted
from turbospark_cli.runtime.engine.scripted import ScriptedEngine
from turbospark_cli.runtime.events import Event, Finished, Started, TextDelta
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, Message, TextPrompt, TokenPrompt


class _Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(scripted, "time", clock)
    return clock


def _engine(folder: Path, *entries: dict[str, Any], template: bool = True) -> ScriptedEngine:
    if template:
        write_tokenizer(folder)
    else:
        write_tokenizer(folder, template=None)
    file = folder / "script.json"
    file.write_text(json.dumps(entries))
    return ScriptedEngine(folder, file)


def _chat(text: str) -> GenerationRequest:
    return GenerationRequest("m", ChatPrompt((Message("user", text),)))


def _start(engine: ScriptedEngine, number: int, request: GenerationRequest) -> None:
    engine.start(number, request, engine.prepare(request))


def _text(events: list[tuple[int, Event]]) -> str:
    return "".join(event.text for _, event in events if isinstance(event, TextDelta))


def test_the_first_entry_that_matches_answers(tmp_path: Path, clock: _Clock) -> None:
    engine = _engine(tmp_path, {"match": "^rain", "text": "wet"}, {"match": "rain|sun", "text": "dry"})
    for number, (question, answer) in enumerate(
        [("rain?", "wet"), ("no rain", "dry"), ("sun", "dry"), ("fog", "This is a scripted answer.")]
    ):
        _start(engine, number, _chat(question))
        assert _text(engine.step()) == answer
        assert engine.idle


def test_match_looks_at_the_last_message_or_the_raw_text(tmp_path: Path, clock: _Clock) -> None:
    engine = _engine(tmp_path, {"match": "rain", "text": "wet"}, {"text": "dry"})
    _start(engine, 1, GenerationRequest("m", ChatPrompt((Message("user", "rain"), Message("user", "sun")))))
    assert _text(engine.step()) == "dry"
    _start(engine, 2, GenerationRequest("m", TextPrompt("rain")))
    assert _text(engine.step()) == "wet"
    _start(engine, 3, GenerationRequest("m", TokenPrompt((65, 66))))
    assert _text(engine.step()) == "dry"


def test_delay_and_interval_are_kept(tmp_path: Path, clock: _Clock) -> None:
    engine = _engine(tmp_path, {"text": "abc", "delay": 2.0, "interval": 0.5})
    assert engine.pause == 0
    _start(engine, 1, _chat("x"))
    assert engine.pause == 2.0
    assert engine.step() == []
    clock.now += 2.0
    assert engine.pause == 0
    first = engine.step()
    assert isinstance(first[0][1], Started)
    assert _text(first) == "a"
    assert engine.step() == []
    assert engine.pause == 0.5
    clock.now += 0.5
    assert _text(engine.step()) == "b"
    clock.now += 0.5
    last = engine.step()
    assert _text(last) == "c"
    assert isinstance(last[-1][1], Finished)
    assert engine.idle


def test_without_a_template_messages_are_counted_as_text(tmp_path: Path, clock: _Clock) -> None:
    plain = _engine(tmp_path, template=False)
    assert len(plain.prepare(_chat("abc")).ids) == 3


def test_the_prompt_is_counted_as_a_real_engine_counts_it(tmp_path: Path, clock: _Clock) -> None:
    engine = _engine(tmp_path)
    shown = "<|start|>user\nabc<|end|>\n<|start|>assistant\n"
    assert engine.prepare(_chat("abc")).ids == engine._tokenizer.encode(shown, special_tokens=False)
    assert engine.info.vocab_size == 259


def test_aborted_runs_say_nothing(tmp_path: Path, clock: _Clock) -> None:
    engine = _engine(tmp_path)
    _start(engine, 1, _chat("x"))
    engine.abort(1)
    engine.abort(2)
    assert engine.idle
    assert engine.step() == []


@pytest.mark.parametrize("content", ["{}", '[{"text": 3}]', '[{"match": "["}]', '[{"texts": "x"}]', ""])
def test_a_bad_script_is_a_sentence(content: str, tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"script\.json is not a list of entries"):
        scripted.read_script(file)
    with pytest.raises(UsageError, match="cannot be read"):
        scripted.read_script(tmp_path / "none.json")
