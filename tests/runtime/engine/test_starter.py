"""The real starter model: eight at once say what each says alone, which is what mlx-lm computes."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import cast

import mlx.core as mx
import pytest

from tests.runtime.engine.driver import Answer, Driver, alone, assert_same
from tests.runtime.engine.process import engine, scripted, text_of
from turbospark_cli.runtime.channel import Submit
from turbospark_cli.runtime.engine import device
from turbospark_cli.runtime.engine.text import TextEngine
from turbospark_cli.runtime.events import Finished
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, Message, Sampling

pytestmark = pytest.mark.starter

_QUESTIONS = (
    "Hi",
    "What is the capital of France?",
    "Write a haiku about rain and then explain it line by line to a child.",
    "List three primes.",
    "Repeat this text. " + "The quick brown fox jumps over the lazy dog. " * 3,
    "日本の首都はどこですか？",
    "Say a smiley 👍🏽.",
    "Summarize: " + "one two three four five six seven eight nine ten " * 6,
)
_TOKENS = 7


@pytest.fixture(scope="module")
def real(starter: Path) -> TextEngine:
    return TextEngine(starter, device.select("test"), 8)


def _ask(question: str) -> GenerationRequest:
    prompt = ChatPrompt((Message("user", question),))
    return GenerationRequest(
        "m", prompt, Sampling(temperature=0, repetition_penalty=1.0), _TOKENS, top_logprobs=2
    )


def test_eight_at_once_say_what_each_says_alone_and_mlx_lm(real: TextEngine) -> None:
    assert all(real._model._bucketed)
    driver = Driver(real)
    for number, question in enumerate(_QUESTIONS):
        driver.start(number, _ask(question))
        driver.step()
    driver.finish()
    for number, question in enumerate(_QUESTIONS):
        together = driver.answers[number]
        assert_same(together, alone(real, _ask(question)).pieces)
        assert_same(together, _by_mlx_lm(real, real.prepare(_ask(question)).ids, together))
        _check_text(together)


def _by_mlx_lm(real: TextEngine, prompt: list[int], answer: Answer) -> list[bytes]:
    """The best token at every place of the answer, by one forward pass over all of it without a cache."""
    said = [_ids(real)[piece] for piece in answer.pieces]
    logits = real._model._model(mx.array([prompt + said[:-1]]))[0, len(prompt) - 1 :]
    best = cast("list[int]", mx.argmax(logits, axis=-1).tolist())
    return [real._tokenizer.token(token_id)[1] for token_id in best]


@lru_cache(maxsize=1)
def _ids(real: TextEngine) -> dict[bytes, int]:
    return {real._tokenizer.token(token_id)[1]: token_id for token_id in range(real.info.vocab_size)}


def _check_text(answer: Answer) -> None:
    """Streamed text is the text of all bytes; end tokens are counted and not shown."""
    assert answer.text == b"".join(answer.pieces).decode("utf-8", "replace")
    assert isinstance(answer.end, Finished)
    assert answer.end.usage.completion_tokens == len(answer.tokens) + (answer.end.reason == "stop")


def test_the_answer_makes_sense(real: TextEngine) -> None:
    assert "Paris" in alone(real, _ask("What is the capital of France?")).text


def test_a_script_with_the_real_tokenizer(starter: Path) -> None:
    with engine(scripted(starter)) as running:
        running.ready()
        running.send(Submit(1, _ask("Hello 👍"), start=True))
        assert text_of(running.events(1)[1]) == "This is a scripted answer."
