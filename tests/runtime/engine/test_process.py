"""The engine as a process: messages in any order, and an end whenever the server hangs up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.engine.families import FAMILIES
from tests.runtime.engine.process import EngineProcess, engine, scripted, text_of
from tests.runtime.engine.tiny import write_install, write_tokenizer
from turbospark_cli.runtime.channel import Abort, Load, Ping, Pong, Prepared, Start, Step, Submit
from turbospark_cli.runtime.events import Failed, Finished, Started, Usage
from turbospark_cli.runtime.requests import (
    ChatPrompt,
    GenerationRequest,
    Message,
    Sampling,
    TextPrompt,
    TokenPrompt,
)

_SCRIPT = [
    {"match": "slow", "text": "abcdefgh", "interval": 0.01},
    {"match": "never", "text": "x", "delay": 3600},
    {"match": "wrong", "text": "so far", "error": "It broke."},
    {"match": "silent"},
    {"text": "Hi 👍"},
]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[EngineProcess]:
    """A scripted engine that is ready."""
    write_tokenizer(tmp_path)
    script = tmp_path / "script.json"
    script.write_text(json.dumps(_SCRIPT))
    with engine(scripted(tmp_path, script)) as running:
        running.ready()
        yield running


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """A text engine over a tiny model; each test uses ids of its own."""
    folder = write_install(tmp_path_factory.mktemp("tiny"), FAMILIES["llama-gqa"].config)
    with engine(Load("text", "tiny", str(folder), max_batch=4)) as running:
        running.ready()
        yield running


def _ask(text: str, **fields: object) -> GenerationRequest:
    return GenerationRequest("m", ChatPrompt((Message("user", text),)), **fields)  # type: ignore[arg-type]


def _tokens(*ids: int, max_tokens: int = 8, **sampling: object) -> GenerationRequest:
    way = Sampling(temperature=0, **sampling)  # type: ignore[arg-type]
    return GenerationRequest("m", TokenPrompt(ids), way, max_tokens, ignore_eos=True)


def test_an_answer_from_prepare_to_finish(played: EngineProcess) -> None:
    played.send(Submit(1, _ask("hello"), start=False))
    prepared = played.receive()
    assert isinstance(prepared, Prepared)
    played.send(Start(1))
    events = played.events(1)[1]
    assert events[0] == Started(prepared.prompt_tokens)
    assert text_of(events) == "Hi 👍"
    assert events[-1] == Finished("stop", Usage(prepared.prompt_tokens, 7))


def test_submit_with_start_skips_prepared(played: EngineProcess) -> None:
    played.send(Submit(1, _ask("hello"), start=True))
    first = played.receive()
    assert isinstance(first, Step)
    assert isinstance(first.events[0][1], Started)


def test_many_at_once_each_with_its_own_answer(played: EngineProcess) -> None:
    played.send(*(Submit(n, _ask(("slow", "wrong", "hello")[n % 3]), start=True) for n in range(30)))
    for number, events in played.events(*range(30)).items():
        assert text_of(events) == ("abcdefgh", "so far", "Hi 👍")[number % 3]
        if number % 3 == 1:
            assert events[-1] == Failed("internal_error", "It broke.")


def test_an_answer_of_nothing(played: EngineProcess) -> None:
    played.send(Submit(1, _ask("silent"), start=True))
    started, finished = played.events(1)[1]
    assert isinstance(started, Started)
    assert finished == Finished("stop", Usage(started.prompt_tokens, 0))


def test_max_tokens_and_stop_strings_hold_for_a_script(played: EngineProcess) -> None:
    played.send(
        Submit(1, _ask("slow", max_tokens=3), start=True), Submit(2, _ask("slow", stop=("de",)), start=True)
    )
    said = played.events(1, 2)
    assert text_of(said[1]) == "abc"
    assert text_of(said[2]) == "abc"
    assert [said[n][-1].reason for n in (1, 2)] == ["length", "stop"]  # type: ignore[union-attr]
    assert said[2][-1].stop_string == "de"  # type: ignore[union-attr]


def test_an_empty_conversation_does_not_end_the_engine(played: EngineProcess) -> None:
    played.send(Submit(1, GenerationRequest("m", ChatPrompt(())), start=True))
    assert text_of(played.events(1)[1]) == "Hi 👍"


def test_aborted_before_it_is_prepared_and_before_it_is_started(played: EngineProcess) -> None:
    played.send(
        Submit(1, _ask("hello"), start=True),
        Abort(1),
        Submit(2, _ask("hello"), start=False),
        Abort(2),
        Start(2),
    )
    said = [message for message in played.ping() if not isinstance(message, Pong)]
    assert Prepared not in {type(message) for message in played.ping(8)}
    ends = [n for m in said if isinstance(m, Step) for n, e in m.events if isinstance(e, Finished)]
    assert 2 not in ends


def test_aborted_while_it_runs_after_its_end_and_by_unknown_ids(played: EngineProcess) -> None:
    played.send(Submit(1, _ask("never"), start=True), Submit(2, _ask("slow"), start=True))
    played.until(lambda m: isinstance(m, Step))
    played.send(Abort(2), Abort(1), Abort(99), Start(99), Start(1))
    played.ping()
    played.send(Submit(3, _ask("hello"), start=True))
    assert text_of(played.events(3)[3]) == "Hi 👍"  # events() would raise KeyError for another's
    played.send(Abort(3), Start(3))
    assert played.ping(9) == [Pong(9)]


def test_a_request_that_is_refused_is_told_once_and_forgotten(played: EngineProcess) -> None:
    refused = Sampling(logit_bias={10**9: 1.0})
    played.send(
        Submit(1, GenerationRequest("m", TokenPrompt((1, 10**9))), start=True),
        Submit(2, GenerationRequest("m", TextPrompt("x"), refused), start=False),
        Submit(3, GenerationRequest("m", TextPrompt("")), start=False),
        Submit(4, GenerationRequest("m", TokenPrompt((1,) * 40_000)), start=False),
        Start(1),
        Abort(2),
    )
    said = {n: events[0] for n, events in played.events(1, 2, 3, 4).items()}
    assert all(isinstance(event, Failed) for event in said.values())
    assert [said[n].code for n in (1, 2, 3, 4)] == [  # type: ignore[union-attr]
        "invalid_request",
        "invalid_request",
        "invalid_request",
        "context_length_exceeded",
    ]
    assert [said[n].param for n in (1, 2)] == ["prompt", "logit_bias"]  # type: ignore[union-attr]
    assert played.ping() == [Pong(7)]


def test_a_long_prompt_delays_neither_aborts_nor_pings(played: EngineProcess) -> None:
    """A megabyte is tokenized elsewhere: what comes after it is answered before it."""
    played.send(
        Submit(1, _ask("never"), start=True),
        Submit(2, GenerationRequest("m", TextPrompt("never " * 200_000)), start=False),
        Abort(1),
        Ping(5),
    )
    assert played.until(lambda m: m == Pong(5))[-1] == Pong(5)
    said = played.events(2)[2]
    assert isinstance(said[0], Failed)
    assert said[0].code == "context_length_exceeded"


def test_an_abort_reaches_a_long_prompt_that_is_still_being_read(tiny: EngineProcess) -> None:
    """It never gets to run, whichever of the two is through first."""
    long = GenerationRequest("m", TokenPrompt((1,) * 1500), Sampling(temperature=0), 500, ignore_eos=True)
    padded = GenerationRequest("m" * 40_000, long.prompt, long.sampling, 500, ignore_eos=True)
    tiny.send(Submit(500, padded, start=True), Abort(500))
    said = [n for m in tiny.ping(1) + tiny.ping(2) if isinstance(m, Step) for n, _ in m.events]
    assert said.count(500) <= 2
    tiny.send(Submit(501, _tokens(1, 2), start=True))
    assert isinstance(tiny.events(501)[501][-1], Finished)


def test_pings_are_answered_between_the_steps_of_a_long_answer(tiny: EngineProcess) -> None:
    tiny.send(Submit(600, _tokens(1, 2, 3, max_tokens=1500), start=True))
    tiny.until(lambda m: isinstance(m, Step))
    assert all(not isinstance(e, Finished) for m in tiny.ping(3) if isinstance(m, Step) for _, e in m.events)
    tiny.send(Abort(600))
    tiny.ping(4)
    assert tiny.ping(5) == [Pong(5)]  # nothing of 600 after its abort was heard


def test_bad_ids_neither_end_the_engine_nor_touch_a_neighbour(tiny: EngineProcess) -> None:
    tiny.send(Submit(700, _tokens(9, 8, 7, max_tokens=40), start=True))
    expected = text_of(tiny.events(700)[700])
    width = 259
    tiny.send(Submit(701, _tokens(9, 8, 7, max_tokens=40), start=True))
    bad = [-1, -500, width, width + 5, 10**9, 2**63 - 1]
    numbers = range(710, 710 + 2 * len(bad))
    for number, token_id in zip(numbers, bad * 2, strict=True):
        if number % 2:
            tiny.send(Submit(number, _tokens(1, token_id), start=True))
        else:
            tiny.send(Submit(number, _tokens(1, logit_bias={token_id: 5.0}), start=True))
    said = tiny.events(701, *numbers)
    assert text_of(said[701]) == expected
    assert all(said[n] == [said[n][0]] and isinstance(said[n][0], Failed) for n in numbers)
