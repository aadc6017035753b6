"""Which fields of a chat request are honoured, ignored or refused, and within which bounds.

The rule: a field is honoured, or ignored because the answer does not depend on it, or refused by name.
Nothing that would change the answer is dropped in silence.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from turbospark_cli.errors import InvalidRequest
from turbospark_cli.runtime.requests import Sampling
from turbospark_cli.serve.openai.wire import ChatRequest

MAX_TOP_K: Final = 100_000
MAX_LOGIT_BIAS: Final = 300  # keys
MAX_STOPS: Final = 16
MAX_STOP_BYTES: Final = 256
MAX_TOP_LOGPROBS: Final = 20
MAX_MODEL_NAME: Final = 256  # characters
_MOST_TOKENS: Final = 2**31 - 1
_SEEDS: Final = 2**64
_MAX_TOKEN_ID: Final = 2**31 - 1

# Of no influence on the text: hints for caches, billing, moderation and storage, and hints we may ignore.
IGNORED: Final = frozenset(
    {
        "metadata",
        "moderation",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        "verbosity",
        "web_search_options",
    }
)

Json: TypeAlias = Any
_NOTHING: Final[tuple[Json, ...]] = (None,)

# Refused unless the value is one of these, which ask for nothing.
REFUSED: Final[Mapping[str, tuple[Json, ...]]] = {
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, [], ["text"]),
    "audio": _NOTHING,
    "chat_template": _NOTHING,
    "think": (None, False),
    "thinking": (None, {"type": "disabled"}),
    "reasoning": (None, {}, {"enabled": False}, {"effort": "none"}),
    "guided_json": _NOTHING,
    "guided_regex": _NOTHING,
    "guided_choice": _NOTHING,
    "guided_grammar": _NOTHING,
    "structured_outputs": _NOTHING,
    "grammar": (None, ""),
    "json_schema": _NOTHING,
    "min_tokens": (None, 0),
    "stop_token_ids": (None, []),
    "typical_p": (None, 1),
    "best_of": (None, 1),
}
# The template variables that a client may set; the values are the types they may have.
TEMPLATE_OPTIONS: Final[Mapping[str, type[bool | int | str]]] = {
    "enable_thinking": bool,
    "thinking": bool,
    "preserve_thinking": bool,
    "reasoning_effort": str,
    "thinking_budget": int,
    "add_vision_id": bool,
}
_MAX_OPTION: Final = 64  # characters of a text

_REFUSED_FIELDS: Final = tuple(REFUSED)
_refused_values: Final = operator.attrgetter(*_REFUSED_FIELDS)


def refuse_unsupported(chat: ChatRequest) -> None:
    """Raises InvalidRequest that names the first field that asks for something this server lacks."""
    values: tuple[msgspec.Raw, ...] = _refused_values(chat)
    if any(values):
        for name, raw in zip(_REFUSED_FIELDS, values, strict=True):
            if raw and _value(raw) not in REFUSED[name]:
                raise _unsupported(name)
    if chat.n is not None and whole("n", chat.n, 1, 128) != 1:
        raise InvalidRequest("This server gives one choice for each request: n must be 1.", param="n")
    if chat.reasoning_effort not in (None, "none"):
        raise _unsupported("reasoning_effort")


def sampling_of(chat: ChatRequest) -> Sampling:
    """The sampling fields, within their bounds. Raises InvalidRequest that names the field."""
    return Sampling(
        temperature=number("temperature", chat.temperature, 0, 2),
        top_p=number("top_p", chat.top_p, 0, 1, above=True),
        top_k=top_k_of(chat),
        min_p=number("min_p", chat.min_p, 0, 1),
        repetition_penalty=number("repetition_penalty", chat.repetition_penalty, 0, 10, above=True),
        presence_penalty=number("presence_penalty", chat.presence_penalty, -2, 2) or 0.0,
        frequency_penalty=number("frequency_penalty", chat.frequency_penalty, -2, 2) or 0.0,
        logit_bias=logit_bias_of(chat.logit_bias) if chat.logit_bias else {},
        seed=None if chat.seed is None else whole("seed", chat.seed, -(2**63), _SEEDS - 1) % _SEEDS,
    )


def max_tokens_of(chat: ChatRequest) -> int | None:
    """The newer of the two fields wins; None leaves it to the room in the context."""
    if chat.max_completion_tokens is not None:
        return whole("max_completion_tokens", chat.max_completion_tokens, 1, _MOST_TOKENS)
    return None if chat.max_tokens is None else whole("max_tokens", chat.max_tokens, 1, _MOST_TOKENS)


def top_k_of(chat: ChatRequest) -> int | None:
    """0 is off; so is -1, as other servers spell it."""
    return None if chat.top_k is None else max(0, whole("top_k", chat.top_k, -1, MAX_TOP_K))


def top_logprobs_of(chat: ChatRequest) -> int | None:
    """How many alternatives; None for no logprobs at all."""
    top = 0 if chat.top_logprobs is None else whole("top_logprobs", chat.top_logprobs, 0, MAX_TOP_LOGPROBS)
    if chat.logprobs:
        return top
    if top:
        raise InvalidRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
    return None


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"At most {MAX_STOPS} stop strings are allowed.", param="stop")
    for each in stops:
        if not 1 <= len(each.encode()) <= MAX_STOP_BYTES:
            raise InvalidRequest(f"A stop string must have 1 to {MAX_STOP_BYTES} bytes.", param="stop")
    return stops


def logit_bias_of(biases: dict[str, float]) -> dict[int, float]:
    """Token ids and what is added to their logits. The engine knows which ids exist."""
    if len(biases) > MAX_LOGIT_BIAS:
        raise InvalidRequest(f"At most {MAX_LOGIT_BIAS} tokens may be biased.", param="logit_bias")
    checked: dict[int, float] = {}
    for key, value in biases.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= _MAX_TOKEN_ID):
            raise InvalidRequest("The keys of logit_bias must be token ids.", param="logit_bias")
        checked[int(key)] = number("logit_bias", value, -100, 100) or 0.0
    return checked


def template_options_of(chat: ChatRequest) -> dict[str, bool | int | float | str]:
    """The variables for the chat template, from an allow-list."""
    options: dict[str, bool | int | float | str] = {}
    if chat.reasoning_effort == "none":
        options["enable_thinking"] = False
    if chat.enable_thinking is not None:
        options["enable_thinking"] = chat.enable_thinking
    given: dict[str, Any] = chat.chat_template_kwargs or {}
    for name, value in given.items():
        param = f"chat_template_kwargs.{name[:_MAX_OPTION]}"
        kind = TEMPLATE_OPTIONS.get(name)
        if kind is None:
            known = ", ".join(TEMPLATE_OPTIONS)
            raise InvalidRequest(f"A request may set these template variables only: {known}.", param=param)
        if value is None:
            continue
        if type(value) is not kind or len(str(value)) > _MAX_OPTION:
            raise InvalidRequest(f"The field {param} must be a short {kind.__name__}.", param=param)
        options[name] = value
    return options


def number(name: str, value: float | None, low: float, high: float, *, above: bool = False) -> float | None:
    """`value` within its bounds, or None as it came; `above` excludes the lower one."""
    if value is None:
        return None
    if math.isfinite(value) and low <= value <= high and not (above and value == low):
        return float(value)
    bounds = f"greater than {low} and at most {high}" if above else f"between {low} and {high}"
    raise InvalidRequest(f"The field {name} must be {bounds}.", param=name)


def whole(name: str, value: float, low: int, high: int) -> int:
    """`value` as a whole number within its bounds; 5.0 is 5."""
    if value % 1 == 0 and low <= value <= high:
        return int(value)
    raise InvalidRequest(f"The field {name} must be a whole number from {low} to {high}.", param=name)


def _value(raw: msgspec.Raw) -> Json:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:  # text that was skipped, not read: it may hold half a character
        return raw


def _unsupported(name: str) -> InvalidRequest:
    return InvalidRequest(f"This server cannot honour the field {name} yet; leave it out.", param=name)
