"""POST /v1/chat/completions: JSON or server-sent events, both folded from the same neutral events."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from falcon.asgi import Request, Response

from turbospark_cli import __version__
from turbospark_cli.errors import InvalidRequest, TurbosparkError
from turbospark_cli.runtime import events
from turbospark_cli.runtime.events import Event, Failed, Finished, TextDelta
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest
from turbospark_cli.serve.exchange import SCOPE_KEY, Exchange
from turbospark_cli.serve.framing import CONTENT_TYPE, HEADERS, Batches, Opening, error_of, stream
from turbospark_cli.serve.openai import policy, wire
from turbospark_cli.serve.openai.conversation import turns_of
from turbospark_cli.serve.openai.errors import decoded, error_body

DONE: Final = b"data: [DONE]\n\n"
FINGERPRINT: Final = f"turbospark-{__version__}"
_FINGERPRINT_FIELD: Final = b',"system_fingerprint":"%s"}' % FINGERPRINT.encode()
_LEAST_LOGPROB: Final = -9999.0  # JSON has no infinity; OpenAI writes this
_numbers = itertools.count(1)
_prefix = f"chatcmpl-{secrets.token_hex(8)}"

Generate = Callable[[GenerationRequest], AbstractAsyncContextManager[Batches]]


def to_request(chat: wire.ChatRequest) -> GenerationRequest:
    """What the runtime is asked for. Raises InvalidRequest that names the field it refuses."""
    if not 1 <= len(chat.model) <= policy.MAX_MODEL_NAME:
        raise InvalidRequest(
            f"The field model must have 1 to {policy.MAX_MODEL_NAME} characters.", param="model"
        )
    policy.refuse_unsupported(chat)
    return GenerationRequest(
        model=chat.model,
        prompt=ChatPrompt(turns_of(chat.messages), policy.template_options_of(chat)),
        sampling=policy.sampling_of(chat),
        max_tokens=policy.max_tokens_of(chat),
        stop=policy.stops_of(chat.stop),
        top_logprobs=policy.top_logprobs_of(chat),
        ignore_eos=bool(chat.ignore_eos),
        stream=bool(chat.stream),
    )


class ChatCompletions:
    """The Falcon resource; `generate` is `Runtime.generate`."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate

    async def on_post(self, req: Request, resp: Response) -> None:
        exchange: Exchange = req.scope[SCOPE_KEY]
        chat = decoded(wire.decode_chat, exchange.body)
        request = to_request(chat)
        if chat.stream:
            opening = await exchange.enter(Opening(self._generate(request)))
            await opening.wait()
            wants_usage = bool(chat.stream_options is not None and chat.stream_options.include_usage)
            resp.content_type = CONTENT_TYPE
            for name, value in HEADERS:
                resp.set_header(name, value)
            resp.stream = stream(exchange, opening, ChunkEncoder(request, wants_usage=wants_usage))
            return
        async with self._generate(request) as batches:
            resp.data = await _answer(request, batches)


async def _answer(request: GenerationRequest, batches: Batches) -> bytes:
    """The whole answer as JSON. Raises the error that the generation failed with."""
    texts: list[str] = []
    logprobs: list[wire.TokenLogprob] = []
    async for batch in batches:
        for event in batch:
            if type(event) is TextDelta:
                texts.append(event.text)
                logprobs += map(_logprob, event.logprobs)
            elif type(event) is Finished:
                return _completion(request, "".join(texts), logprobs, event)
            elif type(event) is Failed:
                raise error_of(event)
    raise TurbosparkError("The engine ended this answer without a word.")


def _completion(
    request: GenerationRequest, text: str, logprobs: list[wire.TokenLogprob], end: Finished
) -> bytes:
    """PERF: put together from encoded pieces; making and encoding the structs takes twice as long."""
    scores = b"null" if request.top_logprobs is None else wire.encode(wire.Logprobs(logprobs))
    return b"".join(
        (
            b'{"id":"',
            _new_id().encode(),
            b'","object":"chat.completion","created":%d,"model":' % time.time(),
            wire.encode(request.model),
            b',"choices":[{"index":0,"message":{"role":"assistant","content":',
            wire.encode(text),
            b',"refusal":null},"finish_reason":"',
            end.reason.encode(),
            b'","logprobs":',
            scores,
            b'}],"usage":',
            wire.encode(_usage(end.usage)),
            _FINGERPRINT_FIELD,
        )
    )


class ChunkEncoder:
    """The frames of one stream. PERF: what all chunks share is encoded once."""

    def __init__(self, request: GenerationRequest, *, wants_usage: bool) -> None:
        head = wire.encode(
            {
                "id": _new_id(),
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": request.model,
                "system_fingerprint": FINGERPRINT,
            }
        )
        self._head = b"data: " + head[:-1]
        self._delta = self._head + b',"choices":[{"index":0,"delta":'
        self._tail = (b',"usage":null' if wants_usage else b"") + b"}\n\n"
        self._plain_end = b'},"logprobs":null,"finish_reason":null}]' + self._tail
        self._wants_usage = wants_usage
        self._begun = False

    def encode(self, events: list[Event]) -> bytes:
        """As in framing.Encoder."""
        frames: list[bytes] = []
        if not self._begun:
            self._begun = True
            frames.append(self._delta + b'{"role":"assistant","content":""' + self._plain_end)
        for event in events:
            if type(event) is TextDelta:
                frames.append(self._text(event))
            elif type(event) is Finished:
                frames.append(self._finish(event))
            elif type(event) is Failed:
                frames.append(self.failed(error_of(event)))
        return b"".join(frames)

    def failed(self, error: TurbosparkError) -> bytes:
        """As in framing.Encoder."""
        return b"data: " + error_body(error) + b"\n\n" + DONE

    def _text(self, event: TextDelta) -> bytes:
        start = self._delta + b'{"content":' + wire.encode(event.text)
        if not event.logprobs:
            return start + self._plain_end
        logprobs = wire.encode(wire.Logprobs(list(map(_logprob, event.logprobs))))
        return start + b'},"logprobs":' + logprobs + b',"finish_reason":null}]' + self._tail

    def _finish(self, event: Finished) -> bytes:
        reason = wire.encode(event.reason)
        last = self._delta + b'{},"logprobs":null,"finish_reason":' + reason + b"}]" + self._tail
        if not self._wants_usage:
            return last + DONE
        usage = wire.encode(_usage(event.usage))
        return last + self._head + b',"choices":[],"usage":' + usage + b"}\n\n" + DONE


def _new_id() -> str:
    return f"{_prefix}{next(_numbers):08x}"


def _usage(usage: events.Usage) -> wire.Usage:
    return wire.Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        wire.PromptTokensDetails(usage.cached_tokens),
        wire.CompletionTokensDetails(),
    )


def _logprob(chosen: events.TokenLogprob) -> wire.TokenLogprob:
    top = [wire.TopLogprob(each.token, _finite(each.logprob), list(each.data)) for each in chosen.top]
    return wire.TokenLogprob(chosen.token, _finite(chosen.logprob), list(chosen.data), top)


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
