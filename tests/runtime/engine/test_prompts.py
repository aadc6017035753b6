"""Every id that reaches MLX is one it has, and every prompt leaves room for an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.engine.tiny import END, START, VOCAB, write_tokenizer
from turbospark_cli.errors import ContextLengthExceeded, InvalidRequest
from turbospark_cli.runtime.engine.prompts import PromptReader
from turbospark_cli.runtime.engine.sequence import Prompt
from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.requests import (
    ChatPrompt,
    GenerationRequest,
    Message,
    Sampling,
    TextPrompt,
    TokenPrompt,
)

_WIDTH = VOCAB + 5  # logits may be wider than the tokenizer is long: the width is what counts
_OUTSIDE = [-1, -500, _WIDTH, _WIDTH + 5, 10**9, 2**31, 2**63 - 1, -(2**63)]


@pytest.fixture
def reader(tmp_path: Path) -> PromptReader:
    write_tokenizer(tmp_path)
    return PromptReader(Tokenizer(tmp_path), context_length=50, vocab_size=_WIDTH)


def _tokens(*ids: int, **fields: object) -> GenerationRequest:
    return GenerationRequest("m", TokenPrompt(ids), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("token_id", _OUTSIDE)
def test_ids_outside_the_logits_are_refused_by_name(reader: PromptReader, token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=rf"token id {token_id}.*0 to {_WIDTH - 1}") as caught:
        reader.read(_tokens(1, token_id, 2))
    assert caught.value.param == "prompt"
    biased = _tokens(1, sampling=Sampling(logit_bias={3: 1.0, token_id: 1.0}))
    with pytest.raises(InvalidRequest, match=rf"logit_bias holds the token id {token_id}") as caught:
        reader.read(biased)
    assert caught.value.param == "logit_bias"


def test_the_first_and_the_last_id_are_fine(reader: PromptReader) -> None:
    bias = Sampling(logit_bias={0: 1.0, _WIDTH - 1: -1.0})
    assert reader.read(_tokens(0, _WIDTH - 1, sampling=bias, max_tokens=3)) == Prompt([0, _WIDTH - 1], 3)


@pytest.mark.parametrize(
    ("length", "wanted", "budget"),
    [(10, 5, 5), (10, 40, 40), (10, 41, 40), (10, 10**12, 40), (10, None, 40), (49, None, 1), (49, 7, 1)],
)
def test_the_answer_is_clipped_to_the_room_there_is(
    reader: PromptReader, length: int, wanted: int | None, budget: int
) -> None:
    assert reader.read(_tokens(*[1] * length, max_tokens=wanted)).budget == budget


@pytest.mark.parametrize("length", [50, 51, 5000])
def test_a_prompt_that_leaves_no_room_says_so_as_clients_expect(reader: PromptReader, length: int) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        reader.read(_tokens(*[1] * length))
    assert "maximum context length is 50 tokens" in caught.value.message
    assert f"{length} tokens" in caught.value.message
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.status == 400


@pytest.mark.parametrize("prompt", [TokenPrompt(()), TextPrompt("")])
def test_an_empty_prompt_is_refused(reader: PromptReader, prompt: TokenPrompt | TextPrompt) -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        reader.read(GenerationRequest("m", prompt))


def test_special_tokens_of_a_template_are_tokens(reader: PromptReader) -> None:
    ids = reader.read(GenerationRequest("m", ChatPrompt((Message("user", "x"),)))).ids
    assert ids[0] == START
    assert ids.count(END) == 1
    assert ids.count(START) == 2


def test_a_model_without_a_template_cannot_chat(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, template=None)
    reader = PromptReader(Tokenizer(tmp_path), 50, VOCAB)
    with pytest.raises(InvalidRequest, match="no chat template"):
        reader.read(GenerationRequest("m", ChatPrompt((Message("user", "x"),))))
    assert reader.read(GenerationRequest("m", TextPrompt("x"), max_tokens=2)).budget == 2
