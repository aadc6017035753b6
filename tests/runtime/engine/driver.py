"""Drives a text engine token by token, and the plain loop over mlx-lm's model that it must agree with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from turbospark_cli.runtime.engine.device import Device
from turbospark_cli.runtime.engine.text import TextEngine
from turbospark_cli.runtime.events import Failed, Finished, Started, TextDelta, TokenLogprob
from turbospark_cli.runtime.requests import GenerationRequest, Sampling, TokenPrompt

NEAR_TIE: Final = 1e-3  # a difference of log-probabilities that rounding can turn round
_MOST_STEPS: Final = 5000


def cpu(prefill_chunk: int = 32) -> Device:
    """A CPU whose chunks are short enough for tiny prompts to need several."""
    return Device("cpu", "test", prefill_chunk=prefill_chunk)


@dataclass(slots=True)
class Answer:
    """Everything one sequence said."""

    text: str = ""
    tokens: list[TokenLogprob] = field(default_factory=list)
    started: int | None = None
    end: Finished | Failed | None = None

    @property
    def pieces(self) -> list[bytes]:
        """The exact bytes of each token."""
        return [token.data for token in self.tokens]


class Driver:
    """One engine and the answers so far."""

    def __init__(self, engine: TextEngine) -> None:
        self.engine = engine
        self.answers: dict[int, Answer] = {}

    def start(self, number: int, request: GenerationRequest) -> None:
        self.answers[number] = Answer()
        self.engine.start(number, request, self.engine.prepare(request))

    def abort(self, number: int) -> None:
        self.engine.abort(number)
        del self.answers[number]

    def step(self) -> None:
        """One round; checks the order of every sequence's events."""
        for number, event in self.engine.step():
            answer = self.answers[number]  # KeyError: something was said of an aborted sequence
            assert answer.end is None, "an event after the end"
            if isinstance(event, Started):
                assert answer.started is None
                answer.started = event.prompt_tokens
            elif isinstance(event, TextDelta):
                assert answer.started is not None
                answer.text += event.text
                answer.tokens.extend(event.logprobs)
            else:
                assert isinstance(event, Finished | Failed)
                answer.end = event

    def finish(self) -> None:
        """Step until everybody has ended."""
        for _ in range(_MOST_STEPS):
            if self.engine.idle:
                break
            self.step()
        assert self.engine.idle, "the engine never comes to rest"
        assert all(answer.end is not None for answer in self.answers.values())


def request(ids: Iterable[int], max_tokens: int, **settings: Any) -> GenerationRequest:
    """A greedy request with the two best log-probabilities of every token, unless told otherwise."""
    sampling = settings.pop("sampling", Sampling(temperature=0))
    settings = {"top_logprobs": 2, "ignore_eos": True, **settings}
    return GenerationRequest("tiny", TokenPrompt(tuple(ids)), sampling, max_tokens, **settings)


def alone(engine: TextEngine, wanted: GenerationRequest) -> Answer:
    """What the engine answers when it has nothing else to do."""
    driver = Driver(engine)
    driver.start(0, wanted)
    driver.finish()
    return driver.answers[0]


def reference(model: Any, ids: Sequence[int], count: int) -> list[int]:
    """Greedy ids by mlx-lm's own model and caches: the whole prompt at once, then token by token."""
    import mlx.core as mx

    from turbospark_cli.runtime.engine.mlx_models import make_prompt_cache

    cache = make_prompt_cache(model)
    logits = model(mx.array([list(ids)]), cache=cache)[:, -1]
    found: list[int] = []
    for _ in range(count):
        token = mx.argmax(logits, axis=-1)
        found.append(cast("int", token.item()))
        logits = model(token[None], cache=cache)[:, -1]
    return found


def assert_same(got: Answer, pieces: Sequence[bytes]) -> None:
    """The same tokens, up to the first that is a near-tie; after one the two may go different ways."""
    assert len(got.tokens) == len(pieces)
    for place, (token, piece) in enumerate(zip(got.tokens, pieces, strict=True)):
        if token.data != piece:
            best, second = token.top[0].logprob, token.top[1].logprob
            assert best - second < NEAR_TIE, f"another token at place {place}, and no near-tie"
            assert piece in {alternative.data for alternative in token.top}
            return
