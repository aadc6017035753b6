"""A sequence says in a batch what it says alone, and what mlx-lm's own model and caches say."""

from __future__ import annotations

import random

import pytest

from tests.runtime.engine.conftest import MakeEngine
from tests.runtime.engine.driver import Answer, Driver, alone, assert_same, reference, request
from tests.runtime.engine.families import FAMILIES
from turbospark_cli.runtime.engine.text import TextEngine
from turbospark_cli.runtime.events import Finished, Usage
from turbospark_cli.runtime.requests import GenerationRequest, Sampling

_LENGTHS = (1, 2, 17, 40, 90, 300, 5, 33, 64)
_TOKENS = 13


def _prompts(seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(256) for _ in range(length)] for length in _LENGTHS]


def _staggered(engine: TextEngine, requests: list[GenerationRequest], seed: int) -> dict[int, Answer]:
    """All of them at once, each beginning while the others are at work."""
    draw, driver = random.Random(seed), Driver(engine)
    for number, wanted in enumerate(requests):
        driver.start(number, wanted)
        for _ in range(draw.randrange(5)):
            driver.step()
    driver.finish()
    return driver.answers


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_says_what_each_says_alone_and_what_mlx_lm_says(family: str, make_engine: MakeEngine) -> None:
    engine = make_engine(family)
    prompts = _prompts(1)
    requests = [request(ids, _TOKENS - (number % 3) * 5) for number, ids in enumerate(prompts)]
    solo = [alone(engine, wanted) for wanted in requests]
    for wanted, ids, answer in zip(requests, prompts, solo, strict=True):
        assert wanted.max_tokens is not None
        expected = reference(engine._model._model, ids, wanted.max_tokens)
        assert_same(answer, [engine._tokenizer.token(token)[1] for token in expected])
        assert answer.end == Finished("length", Usage(len(ids), wanted.max_tokens))
    together = _staggered(engine, requests, seed=2)
    for number, answer in enumerate(solo):
        assert_same(together[number], answer.pieces)
        assert together[number].end == answer.end


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_finds_the_form_of_a_batch(family: str, make_engine: MakeEngine) -> None:
    """So that a silent fallback cannot hide behind right answers."""
    model = make_engine(family)._model
    assert model._bucketed == FAMILIES[family].bucketed
    assert model.batchable == FAMILIES[family].batchable


@pytest.mark.parametrize("family", ["llama-gqa", "gemma3", "qwen3_next", "gpt_oss"])
def test_seeded_samples_do_not_depend_on_neighbours(family: str, make_engine: MakeEngine) -> None:
    engine = make_engine(family)
    ways = [
        Sampling(temperature=1.0, seed=7),
        Sampling(temperature=0.7, top_p=0.9, seed=8),
        Sampling(temperature=1.3, top_k=20, min_p=0.02, seed=9),
        Sampling(temperature=0),
        Sampling(temperature=1.0, repetition_penalty=1.3, frequency_penalty=0.5, seed=10),
    ]
    requests = [
        request(ids, _TOKENS, sampling=ways[number % len(ways)]) for number, ids in enumerate(_prompts(3))
    ]
    solo = [alone(engine, wanted) for wanted in requests]
    together = _staggered(engine, requests, seed=4)
    for number, answer in enumerate(solo):
        assert together[number].pieces == answer.pieces
    assert len({tuple(answer.pieces) for answer in solo}) == len(solo)


@pytest.mark.parametrize("family", ["llama-mha", "gemma3", "mamba2", "deepseek_v3"])
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_a_prompt_read_in_chunks_is_the_prompt_read_whole(
    family: str, chunk: int, make_engine: MakeEngine
) -> None:
    whole, chunked = make_engine(family), make_engine(family, prefill_chunk=chunk)
    ids = _prompts(5)[4]
    assert_same(alone(chunked, request(ids, 8)), alone(whole, request(ids, 8)).pieces)


def test_rows_grow_past_their_buffers_and_over_many_regroups(make_engine: MakeEngine) -> None:
    """Over 256 columns of growth while short neighbours come and go."""
    engine = make_engine("llama-gqa")
    draw = random.Random(6)
    long = [request([draw.randrange(256) for _ in range(length)], 300) for length in (3, 250)]
    short = [request([draw.randrange(256) for _ in range(draw.randrange(1, 200))], 5) for _ in range(9)]
    solo = [alone(engine, wanted) for wanted in [*long, *short]]
    driver = Driver(engine)
    for number, wanted in enumerate([*long, *short]):
        driver.start(number, wanted)
        for _ in range(30 if number >= len(long) else 1):
            driver.step()
    driver.finish()
    for number, answer in enumerate(solo):
        assert_same(driver.answers[number], answer.pieces)
