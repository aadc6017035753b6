"""The loop's bookkeeping of requests between their Submit and their start, in every order."""

from __future__ import annotations

from itertools import permutations
from typing import cast

import pytest

from turbospark_cli.runtime.channel import Abort, EngineInfo, Ping, Pong, Start, Submit, ToServer
from turbospark_cli.runtime.engine.main import Link, Loop
from turbospark_cli.runtime.engine.sequence import Prompt
from turbospark_cli.runtime.events import Event
from turbospark_cli.runtime.requests import GenerationRequest, TokenPrompt

_REQUEST = GenerationRequest("m", TokenPrompt((1,)))
_PROMPT = Prompt([1], 1)


class _Backend:
    """Notes what it is told."""

    info = EngineInfo(1, 1, "cpu", "")
    idle = True
    pause = 0.0

    def __init__(self) -> None:
        self.running: set[int] = set()

    def prepare(self, request: GenerationRequest) -> Prompt:
        raise NotImplementedError

    def start(self, sequence_id: int, request: GenerationRequest, prompt: Prompt) -> None:
        self.running.add(sequence_id)

    def abort(self, sequence_id: int) -> None:
        self.running.discard(sequence_id)

    def step(self) -> list[tuple[int, Event]]:
        raise NotImplementedError


class _Link:
    def __init__(self) -> None:
        self.sent: list[ToServer] = []

    def send(self, *messages: ToServer) -> None:
        self.sent += messages


@pytest.fixture
def backend() -> _Backend:
    return _Backend()


@pytest.fixture
def loop(backend: _Backend) -> Loop:
    return Loop(cast("Link", _Link()), backend)


def _at_rest(loop: Loop) -> bool:
    return not (loop._waiting or loop._aborted or loop._reader.preparing)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("prompt", [_PROMPT, None])
def test_aborted_while_it_is_being_prepared(
    loop: Loop, backend: _Backend, start: bool, prompt: Prompt | None
) -> None:
    """As with a long prompt, which is read beside the messages that come after it."""
    loop._reader.preparing.add(1)
    loop._handle(Abort(1))
    loop._handle((Submit(1, _REQUEST, start), prompt))
    loop._handle(Start(1))
    assert backend.running == set()
    assert _at_rest(loop)


def test_aborted_between_prepared_and_start(loop: Loop, backend: _Backend) -> None:
    loop._handle((Submit(1, _REQUEST, False), _PROMPT))
    loop._handle(Abort(1))
    loop._handle(Start(1))
    assert backend.running == set()
    assert _at_rest(loop)


def test_a_request_that_could_not_be_prepared_is_forgotten(loop: Loop, backend: _Backend) -> None:
    loop._reader.preparing.add(1)
    loop._handle((Submit(1, _REQUEST, True), None))
    loop._handle(Start(1))
    loop._handle(Abort(1))
    assert backend.running == set()
    assert _at_rest(loop)


@pytest.mark.parametrize("order", list(permutations(["submit", "start", "abort"])))
def test_any_order_leaves_nothing_behind(order: tuple[str, ...], loop: Loop, backend: _Backend) -> None:
    """There is an Abort in every order, so nothing may run at the end."""
    loop._reader.preparing.add(1)
    for step in order:
        if step == "submit":
            loop._handle((Submit(1, _REQUEST, False), _PROMPT))
        else:
            loop._handle(Start(1) if step == "start" else Abort(1))
    assert backend.running == set()
    assert _at_rest(loop)


def test_start_runs_once_and_pings_are_answered(loop: Loop, backend: _Backend) -> None:
    loop._handle((Submit(1, _REQUEST, False), _PROMPT))
    assert backend.running == set()
    loop._handle(Start(1))
    assert backend.running == {1}
    backend.running.clear()
    loop._handle(Start(1))
    assert backend.running == set()
    loop._handle(Ping(4))
    assert cast("_Link", loop._link).sent == [Pong(4)]
