"""One streamed chat completion, watched from outside."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import msgspec

from turbospark_cli.commands.bench.statistics import Stream
from turbospark_cli.commands.bench.target import Target

_SHOWN = 200  # characters of a server's own error


def open_client(width: int, timeout: float) -> httpx2.AsyncClient:
    """A client with room for `width` connections; `timeout` is the longest silence in seconds."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=width)
    return httpx2.AsyncClient(timeout=httpx2.Timeout(timeout), limits=limits, trust_env=False)


async def stream_chat(
    client: httpx2.AsyncClient,
    target: Target,
    prompt: str,
    max_tokens: int,
    seen: Stream,
    begun: asyncio.Event,
) -> None:
    """Send `prompt` and note in `seen` when each piece of the answer arrives; a fault becomes its `error`.

    `begun` is set at the first piece, or at the end when there is none.
    """
    body = {
        "model": target.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        async with client.stream("POST", target.chat, json=body, headers=target.headers) as answer:
            if answer.status_code != 200:
                text = (await answer.aread())[:_SHOWN].decode(errors="replace")
                seen.error = f"HTTP {answer.status_code}: {text}"
                return
            await _read(answer, seen, begun)
    except httpx2.HTTPError as error:
        seen.error = f"{type(error).__name__}: {error}"[:_SHOWN]
    finally:
        begun.set()
    seen.tokens = seen.tokens or len(seen.stamps)


async def _read(answer: httpx2.Response, seen: Stream, begun: asyncio.Event) -> None:
    async for line in answer.aiter_lines():
        data = line.removeprefix("data:").strip()
        if data == line or not data:  # a comment, another field, or the end of an event
            continue
        if data == "[DONE]":
            break
        try:
            _note(msgspec.json.decode(data), seen)
        except (msgspec.DecodeError, AttributeError, TypeError):
            seen.error = f"not a completion chunk: {data[:_SHOWN]}"
        if seen.stamps:
            begun.set()
    if seen.error is None and seen.finish is None:
        seen.error = "the stream ended without a finish_reason"


def _note(chunk: dict[str, Any], seen: Stream) -> None:
    """Take the time, the counts and the end from one chunk."""
    if chunk.get("error"):
        seen.error = str(chunk["error"])[:_SHOWN]
    if usage := chunk.get("usage"):
        seen.tokens = usage.get("completion_tokens") or 0
        seen.prompt_tokens = usage.get("prompt_tokens")
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if delta.get("content") or delta.get("reasoning") or delta.get("reasoning_content"):
            seen.stamps.append(time.perf_counter())
        seen.finish = choice.get("finish_reason") or seen.finish
