"""The real starter model behind the real server, asked by the real SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

pytestmark = pytest.mark.starter

QUESTION: Any = {
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
    "temperature": 0,
    "max_tokens": 24,
}


@pytest.fixture(scope="module")
def server(starter: Path, start_server: Any) -> Iterator[Any]:
    home = starter.parents[2]
    started = start_server(
        "--port", "0", "--json", env={"TURBOSPARK_HOME": str(home), "TURBOSPARK_OFFLINE": "1"}
    )
    yield started
    assert started.end() == 0


def test_it_gives_a_coherent_answer(server: Any) -> None:
    assert server.ready["models"] == ["smollm2-135m"]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(**QUESTION)
        text = answer.choices[0].message.content
        assert text is not None
        assert "Paris" in text
        chunks = list(client.chat.completions.create(**QUESTION, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
        assert chunks[-1].choices[0].finish_reason == answer.choices[0].finish_reason
        scored = client.chat.completions.create(**QUESTION, logprobs=True, top_logprobs=2)
        assert scored.choices[0].logprobs is not None
        tokens = scored.choices[0].logprobs.content
        assert tokens is not None
        assert b"".join(bytes(token.bytes or []) for token in tokens).decode().startswith(text)
        assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens)


async def test_many_ask_at_once_and_bad_requests_harm_nobody(server: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

        async def text() -> str | None:
            answer: ChatCompletion = await client.chat.completions.create(**QUESTION)
            return answer.choices[0].message.content

        async def bad(**fields: Any) -> str | None:
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(**{**QUESTION, **fields})
            return caught.value.param

        *texts, bias, top_k, prompt = await asyncio.gather(
            *(text() for _ in range(4)),
            bad(logit_bias={"1000000000": 1}),
            bad(extra_body={"top_k": 1_000_000}),
            bad(messages=[{"role": "user", "content": "word " * 9000}]),
        )
    assert len(set(texts)) == 1
    assert (bias, top_k, prompt) == ("logit_bias", "top_k", "messages")
    assert server.metric("turbospark_engine_restarts_total") == 0
