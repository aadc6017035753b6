"""The text engine's rounds: joining, leaving, aborting, failing; nothing is lost and nobody is disturbed."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from tests.runtime.engine.conftest import MakeEngine
from tests.runtime.engine.driver import Answer, Driver, alone, request
from turbospark_cli.runtime.engine import text as text_module
from turbospark_cli.runtime.engine.sequence import Prompt
from turbospark_cli.runtime.engine.text import TextEngine
from turbospark_cli.runtime.events import Finished, Started
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, Message, Sampling, TextPrompt


def _ids(number: int, length: int) -> list[int]:
    return [(number * 37 + place * place * 11 + place) % 256 for place in range(length)]


def test_one_at_a_time_where_a_family_cannot_share_a_step(make_engine: MakeEngine) -> None:
    engine = make_engine("gemma2")
    driver = Driver(engine)
    for number in range(3):
        driver.start(number, request(_ids(number, 10), 4))
    while not engine.idle:
        driver.step()
        begun = [a for a in driver.answers.values() if a.started is not None and a.end is None]
        assert len(begun) <= 1
    assert all(len(answer.tokens) == 4 for answer in driver.answers.values())


def test_no_more_than_max_batch_run_together_and_all_get_their_turn(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa", max_batch=3)
    driver = Driver(engine)
    for number in range(8):
        driver.start(number, request(_ids(number, 5), 3 + number))
    most = 0
    while not engine.idle:
        driver.step()
        begun = [a for a in driver.answers.values() if a.started is not None and a.end is None]
        most = max(most, len(begun), engine._batch.size)
    assert most == 3
    assert [len(a.tokens) for a in driver.answers.values()] == [3 + number for number in range(8)]


def test_a_late_short_request_overtakes_an_early_long_prompt(make_engine: MakeEngine) -> None:
    driver = Driver(make_engine("llama-gqa", prefill_chunk=8))
    driver.start(0, request(_ids(0, 300), 4))
    driver.step()
    driver.start(1, request(_ids(1, 4), 4))
    while driver.answers[1].end is None:
        driver.step()
    assert not driver.answers[0].tokens
    driver.finish()


def test_a_long_prompt_is_not_starved_by_short_ones(make_engine: MakeEngine) -> None:
    driver = Driver(make_engine("llama-gqa", prefill_chunk=8))
    driver.start(0, request(_ids(0, 64), 2))
    for number in range(1, 300):  # one new short prompt a step, for ever
        driver.start(number, request(_ids(number, 8), 1))
        driver.step()
        if driver.answers[0].end is not None:
            break
    assert driver.answers[0].end is not None
    driver.finish()


def test_an_aborted_sequence_leaves_the_batch_before_the_next_token(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa")
    driver = Driver(engine)
    for number in range(3):
        driver.start(number, request(_ids(number, 5), 50))
    for _ in range(4):
        driver.step()
    assert engine._batch.size == 3
    driver.abort(1)
    driver.step()
    assert engine._batch.size == 2
    driver.abort(0)
    driver.abort(2)
    driver.step()
    assert engine._batch.size == 0
    assert engine.idle


def test_the_last_token_of_a_budget_costs_no_step_of_its_own(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("llama-gqa")
    steps: list[int] = []
    decode = engine._model.decode

    def counted(tokens: mx.array, caches: list[Any]) -> mx.array:
        steps.append(tokens.shape[0])
        return decode(tokens, caches)

    monkeypatch.setattr(engine._model, "decode", counted)
    alone(engine, request(_ids(0, 5), 1))
    assert steps == []
    driver = Driver(engine)
    for number in range(3):
        driver.start(number, request(_ids(number, 5), number + 2))
    driver.finish()
    assert sum(steps) == 1 + 2 + 3


def test_aborted_while_waiting_and_while_being_read(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa", max_batch=1, prefill_chunk=4)
    driver = Driver(engine)
    driver.start(0, request(_ids(0, 30), 5))
    driver.start(1, request(_ids(1, 5), 5))
    driver.step()
    assert len(engine._prefill) == 1
    driver.abort(0)
    driver.abort(1)
    assert engine.idle


def test_end_tokens_end_a_sequence_and_are_counted(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa")
    wanted = request(_ids(4, 20), 30)
    free = alone(engine, wanted)
    engine._tokenizer.end_ids = frozenset({_id_of(engine, free.pieces[6])})
    first = free.pieces.index(free.pieces[6])
    ended = alone(engine, request(_ids(4, 20), 30, ignore_eos=False))
    assert ended.pieces == free.pieces[:first]
    assert isinstance(ended.end, Finished)
    assert (ended.end.reason, ended.end.usage.completion_tokens) == ("stop", first + 1)
    assert alone(engine, wanted).pieces == free.pieces  # ignore_eos


def _id_of(engine: TextEngine, piece: bytes) -> int:
    return next(i for i in range(engine.info.vocab_size) if engine._tokenizer.token(i)[1] == piece)


def test_a_stop_string_ends_a_sequence_and_frees_its_place(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa")
    free = alone(engine, request(_ids(5, 20), 30))
    stop = free.text[9:11]
    place = free.text.index(stop)
    stopped = alone(engine, request(_ids(5, 20), 30, stop=(stop,)))
    assert stopped.text == free.text[:place]
    assert isinstance(stopped.end, Finished)
    assert (stopped.end.reason, stopped.end.stop_string) == ("stop", stop)
    assert engine.idle


def test_logprobs_are_the_models_own_whatever_the_sampling(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa")
    ids = _ids(6, 12)
    greedy = alone(engine, request(ids, 1, top_logprobs=5)).tokens[0]
    biased = request(ids, 1, top_logprobs=5, sampling=Sampling(temperature=0, logit_bias={65: 100.0}))
    forced = alone(engine, biased).tokens[0]
    assert forced.token == engine._tokenizer.token(65)[0]
    assert [t.data for t in forced.top] == [t.data for t in greedy.top]
    assert [t.logprob for t in forced.top] == pytest.approx([t.logprob for t in greedy.top], abs=1e-5)
    assert greedy.logprob == pytest.approx(greedy.top[0].logprob)
    assert [t.logprob for t in greedy.top] == sorted((t.logprob for t in greedy.top), reverse=True)
    everything = alone(engine, request(ids, 1, top_logprobs=10**6)).tokens[0]
    assert len(everything.top) == engine.info.vocab_size
    assert sum(2.718281828459045**t.logprob for t in everything.top) == pytest.approx(1, abs=1e-4)
    chosen_only = alone(engine, request(ids, 2, top_logprobs=0)).tokens
    assert [t.top for t in chosen_only] == [(), ()]
    assert alone(engine, request(ids, 2, top_logprobs=None)).tokens == []


def test_without_a_seed_two_requests_differ_and_with_one_they_do_not(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa")

    def say(seed: int | None) -> Answer:
        return alone(engine, request([1, 2, 3], 24, sampling=Sampling(temperature=1.0, seed=seed)))

    assert say(None).pieces != say(None).pieces
    assert say(2**70 + 5).pieces == say(2**70 + 5).pieces
    assert say(-1).pieces == say(-1).pieces


def test_chat_and_text_prompts_give_the_ids_of_template_and_tokenizer(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa")
    chat = GenerationRequest("m", ChatPrompt((Message("user", "hé"),)), max_tokens=1)
    text = "<|start|>user\nhé<|end|>\n<|start|>assistant\n"
    assert engine.prepare(chat).ids == engine._tokenizer.encode(text, special_tokens=False)
    raw = GenerationRequest("m", TextPrompt("hé"), max_tokens=1)
    assert engine.prepare(raw) == Prompt(engine._tokenizer.encode("hé", special_tokens=True), 1)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 77}, 77),
        ({"n_positions": 78, "text_config": {"max_position_embeddings": 5}}, 78),
        ({"text_config": {"max_position_embeddings": 79}}, 79),
        ({"max_position_embeddings": -1, "n_ctx": 80}, 80),
        ({"max_position_embeddings": "many"}, 4096),
        ({}, 4096),
    ],
)
def test_context_length(config: dict[str, object], expected: int) -> None:
    assert text_module._context_length(config) == expected


def test_info_and_started(make_engine: MakeEngine) -> None:
    engine = make_engine("llama-gqa")
    assert engine.info.vocab_size == 259
    assert engine.info.context_length == 2048
    assert engine.info.device == "cpu"
    assert engine.info.weights_bytes % 4 == 0
    assert engine.info.weights_bytes > 2 * 259 * 32 * 4  # at least embedding and head, in float32
    engine.start(5, request([1, 2, 3], 1), Prompt([1, 2, 3], 1))
    assert engine.step()[0] == (5, Started(3))
