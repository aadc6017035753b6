"""What the OpenAI routes read and write. `| None` in a request: null means absent."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

# Clients send 5.0 where a whole number is meant; the policy turns it into 5 or refuses it.
Whole = int | float

_ABSENT: Final = Raw()


class Part(Struct):
    """One part of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None


class InputMessage(Struct):
    """A message as it came."""

    role: str
    content: str | list[Part] | None = None
    tool_calls: Raw = _ABSENT
    function_call: Raw = _ABSENT
    audio: Raw = _ABSENT


class StreamOptions(Struct):
    include_usage: bool | None = None


class ChatRequest(Struct):
    """POST /v1/chat/completions. A field of no type is only looked at to refuse it (policy.REFUSED)."""

    messages: list[InputMessage]
    model: str
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Whole | None = None
    min_p: float | None = None
    seed: Whole | None = None
    stop: str | list[str] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    n: Whole | None = None
    tools: Raw = _ABSENT
    tool_choice: Raw = _ABSENT
    functions: Raw = _ABSENT
    function_call: Raw = _ABSENT
    response_format: Raw = _ABSENT
    modalities: Raw = _ABSENT
    audio: Raw = _ABSENT
    # Not OpenAI's, but sent by clients of other servers, and never without a meaning.
    chat_template: Raw = _ABSENT
    think: Raw = _ABSENT
    thinking: Raw = _ABSENT
    reasoning: Raw = _ABSENT
    guided_json: Raw = _ABSENT
    guided_regex: Raw = _ABSENT
    guided_choice: Raw = _ABSENT
    guided_grammar: Raw = _ABSENT
    structured_outputs: Raw = _ABSENT
    grammar: Raw = _ABSENT
    json_schema: Raw = _ABSENT
    min_tokens: Raw = _ABSENT
    stop_token_ids: Raw = _ABSENT
    typical_p: Raw = _ABSENT
    best_of: Raw = _ABSENT


class PromptTokensDetails(Struct):
    cached_tokens: int = 0


class CompletionTokensDetails(Struct):
    reasoning_tokens: int = 0


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(Struct):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class Logprobs(Struct):
    content: list[TokenLogprob]
    refusal: None = None


class ModelRow(Struct, omit_defaults=True):
    """One row of /v1/models: OpenAI's four fields, then what clients of other servers look for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["turbospark"]
    state: str  # "loading", "ready", "restarting" or "failed"
    context_length: int | None = None  # tokens; the three spellings are those that clients know
    max_model_len: int | None = None
    max_context_length: int | None = None


class ModelList(Struct):
    data: list[ModelRow]
    object: Literal["list"] = "list"


class ErrorDetail(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Struct):
    error: ErrorDetail


encode: Final = msgspec.json.Encoder().encode
decode_chat: Final = msgspec.json.Decoder(ChatRequest).decode
