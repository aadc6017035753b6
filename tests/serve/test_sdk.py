"""The real openai SDK against a real scripted server: typed answers, streams and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

MODEL = "gpt-anything"


@pytest.fixture
def client(scripted: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def ask(text: str) -> Any:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}]}


def check(chunk: ChatCompletionChunk | ChatCompletion) -> None:
    """The SDK does not validate by itself; this does."""
    type(chunk).model_validate(chunk.model_dump(exclude_unset=True), strict=True)


def test_an_answer_is_a_chat_completion(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ask("umlaut"))
    check(answer)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")
    (choice,) = answer.choices
    assert choice.message.content == "Grüße, 世界 🙂"
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(b"umlaut")
    assert answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("text", ["umlaut", "hello", "empty", "count slowly"])
def test_a_stream_says_the_same(client: openai.OpenAI, text: str) -> None:
    whole = client.chat.completions.create(**ask(text))
    chunks = list(
        client.chat.completions.create(**ask(text), stream=True, stream_options={"include_usage": True})
    )
    for chunk in chunks:
        check(chunk)
    first = chunks[0]
    shared = {(c.id, c.created, c.model, c.system_fingerprint, c.object) for c in chunks}
    assert shared == {(first.id, first.created, MODEL, first.system_fingerprint, "chat.completion.chunk")}
    assert first.choices[0].delta.role == "assistant"
    assert first.choices[0].delta.content == ""
    *body, last, usage = chunks
    joined = "".join(chunk.choices[0].delta.content or "" for chunk in body)
    assert joined == whole.choices[0].message.content
    assert all(chunk.choices[0].finish_reason is None for chunk in body)
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    assert usage.choices == []
    assert usage.usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_usage_comes_only_when_asked_for(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(**ask("hello"), stream=True))
    assert all("usage" not in chunk.model_fields_set for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_token_limit_is_reported(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ask("hello"), max_tokens=4)
    assert answer.choices[0].message.content == "This"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


def test_a_stop_string_ends_the_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ask("hello"), stop=[" scripted"])
    assert answer.choices[0].message.content == "This is a"
    assert answer.choices[0].finish_reason == "stop"


async def test_the_async_client_streams_many_at_once(scripted: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0) as client:

        async def one() -> str:
            stream = await client.chat.completions.create(**ask("count slowly"), stream=True)
            text = ""
            async for chunk in stream:
                check(chunk)
                text += chunk.choices[0].delta.content or ""
            return text

        texts = await asyncio.gather(*(one() for _ in range(4)))
    assert set(texts) == {"one two three four five six seven eight nine ten"}


def test_the_stream_helper_accumulates(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**ask("umlaut")) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Grüße, 世界 🙂"


def test_a_fault_before_the_first_token_is_a_status(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(**ask("fail now"))
    assert caught.value.status_code == 500
    assert "scripted to fail" in caught.value.message


def test_a_fault_in_the_middle_is_an_error_frame(client: openai.OpenAI) -> None:
    chunks: list[ChatCompletionChunk] = []
    stream = client.chat.completions.create(**ask("fail later"), stream=True)
    with pytest.raises(openai.APIError) as caught:
        chunks.extend(stream)
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks)
    assert "scripted to fail" in caught.value.message


def test_an_error_frame_is_followed_by_the_end(scripted: Any) -> None:
    body = {**ask("fail later"), "stream": True}
    lines = httpx2.post(f"{scripted.url}/v1/chat/completions", json=body).text.strip().split("\n\n")
    assert "error" in json.loads(lines[-2].removeprefix("data: "))
    assert lines[-1] == "data: [DONE]"


def test_bad_requests_are_bad_requests(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**ask("hello"), n=3)
    assert caught.value.param == "n"
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id == caught.value.response.headers["x-request-id"]


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    (model,) = client.models.list()
    assert model.id == "scripted"
    assert model.object == "model"
    assert model.created > 1_600_000_000
    found = client.models.retrieve("scripted")
    assert found == model
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("org/repo")
    assert caught.value.code == "model_not_found"
