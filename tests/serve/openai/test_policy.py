from __future__ import annotations

import json
import typing
from typing import Any

import msgspec
import pytest
from openai.types.chat import completion_create_params

from turbospark_cli.errors import InvalidRequest
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, Sampling
from turbospark_cli.serve.openai import policy, wire
from turbospark_cli.serve.openai.chat import to_request
from turbospark_cli.serve.openai.errors import decoded

MESSAGES = [{"role": "user", "content": "hi"}]


def request_of(**fields: Any) -> GenerationRequest:
    body = {"model": "m", "messages": MESSAGES, **fields}
    return to_request(decoded(wire.decode_chat, json.dumps(body).encode()))


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        request_of(**fields)
    return caught.value


# What each field of the SDK does. A new one of a later SDK has to be put into one of these tables.
HONOURED: dict[str, tuple[Any, Any]] = {  # field → (value sent, what the engine is asked for)
    "frequency_penalty": (0.5, Sampling(frequency_penalty=0.5)),
    "presence_penalty": (-2, Sampling(presence_penalty=-2.0)),
    "temperature": (0, Sampling(temperature=0.0)),
    "top_p": (0.25, Sampling(top_p=0.25)),
    "seed": (-1, Sampling(seed=2**64 - 1)),
    "logit_bias": ({"5": -100, "17": 1.5}, Sampling(logit_bias={5: -100.0, 17: 1.5})),
}
HONOURED_ELSEWHERE = {
    "messages",
    "model",
    "logprobs",
    "top_logprobs",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "stream",
    "stream_options",
}
REFUSED: dict[str, tuple[Any, Any]] = {  # field → (what is refused, what asks for nothing)
    "n": (2, 1),
    "tools": ([{"type": "function", "function": {"name": "f"}}], []),
    "tool_choice": ("required", "auto"),
    "functions": ([{"name": "f"}], []),
    "function_call": ({"name": "f"}, "none"),
    "response_format": ({"type": "json_object"}, {"type": "text"}),
    "modalities": (["text", "audio"], ["text"]),
    "audio": ({"voice": "alloy", "format": "wav"}, None),
    "reasoning_effort": ("low", "none"),
}
REFUSED_EXTRAS: dict[str, tuple[Any, Any]] = {
    "chat_template": ("{{ messages }}", None),
    "think": (True, False),
    "thinking": ({"type": "enabled", "budget_tokens": 5}, {"type": "disabled"}),
    "reasoning": ({"effort": "high"}, {"enabled": False}),
    "guided_json": ({"type": "object"}, None),
    "guided_regex": ("a+", None),
    "guided_choice": (["a"], None),
    "guided_grammar": ("root ::= x", None),
    "structured_outputs": ({"json": {}}, None),
    "grammar": ("root ::= x", ""),
    "json_schema": ({}, None),
    "min_tokens": (5, 0),
    "stop_token_ids": ([1], []),
    "typical_p": (0.5, 1),
    "best_of": (3, 1),
}


def test_every_field_of_the_sdk_has_a_policy() -> None:
    fields = set(typing.get_type_hints(completion_create_params.CompletionCreateParamsBase))
    fields |= set(typing.get_type_hints(completion_create_params.CompletionCreateParamsStreaming))
    decided = {*HONOURED, *HONOURED_ELSEWHERE, *REFUSED, *policy.IGNORED}
    assert fields == decided
    declared = {field.name for field in msgspec.structs.fields(wire.ChatRequest)}
    assert {*HONOURED, *HONOURED_ELSEWHERE, *REFUSED, *REFUSED_EXTRAS} <= declared
    assert not policy.IGNORED & declared


@pytest.mark.parametrize("field", sorted(HONOURED))
def test_sampling_fields_reach_the_engine(field: str) -> None:
    value, sampling = HONOURED[field]
    assert request_of(**{field: value}).sampling == sampling
    assert request_of(**{field: None}).sampling == Sampling()


@pytest.mark.parametrize("field", sorted(policy.IGNORED))
def test_ignored_fields_change_nothing(field: str) -> None:
    assert request_of(**{field: {"any": ["thing"]}}) == request_of()


@pytest.mark.parametrize("field", sorted({**REFUSED, **REFUSED_EXTRAS}))
def test_what_cannot_be_honoured_is_refused_by_name(field: str) -> None:
    value, nothing = {**REFUSED, **REFUSED_EXTRAS}[field]
    assert refused(**{field: value}).param == field
    for harmless in (nothing, None):
        assert request_of(**{field: harmless}).sampling == Sampling()


def test_the_other_fields_reach_the_engine() -> None:
    request = request_of(
        max_tokens=5.0, stop=["a", "b"], logprobs=True, top_logprobs=3, ignore_eos=True, min_p=0.5
    )
    assert request.max_tokens == 5
    assert type(request.max_tokens) is int
    assert request.stop == ("a", "b")
    assert request.top_logprobs == 3
    assert request.ignore_eos
    assert request.sampling == Sampling(min_p=0.5)
    assert request_of(stop="x").stop == ("x",)
    assert request_of(logprobs=True).top_logprobs == 0
    assert request_of().top_logprobs is None
    assert request_of(top_k=-1).sampling.top_k == 0
    assert request_of(top_k=40, repetition_penalty=1.1).sampling == Sampling(top_k=40, repetition_penalty=1.1)


def test_the_newer_token_limit_wins() -> None:
    assert request_of(max_tokens=5, max_completion_tokens=7).max_tokens == 7


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [-0.1, 2.1, "1", True, [], {}, 10**400]),
        ("top_p", [0, -1, 1.1, ""]),
        ("top_k", [1_000_000, -2, 1.5, "5", 2**63, 10**400]),
        ("min_p", [-0.1, 1.1]),
        ("frequency_penalty", [-2.1, 2.1]),
        ("presence_penalty", [-3, 3]),
        ("repetition_penalty", [0, -1, 11]),
        ("max_tokens", [0, -1, 1.5, 2**31, 2**63, 10**400, "7", True]),
        ("max_completion_tokens", [0, -5]),
        ("seed", [2**64, -(2**63) - 1, 0.5, "x"]),
        ("stop", ["", ["a", ""], ["x"] * 17, "x" * 257, [1], 5, {}]),
        ("logprobs", [1, "true"]),
        ("top_logprobs", [-1, 21, 5]),
        ("n", [0, -1, 1.5, 129]),
        ("stream", ["yes", 1]),
        ("stream_options", [True, []]),
        ("ignore_eos", [0]),
        ("model", ["", "x" * 257, 5, [], None]),
        ("messages", ["", {}, 5, None, []]),
        ("enable_thinking", ["yes"]),
        ("reasoning_effort", ["high", 5, ""]),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        assert (refused(**{field: value}).param or "").partition("[")[0] == field, value


@pytest.mark.parametrize(
    "bias",
    [
        {"x": 1},
        {"-200": 5},
        {"1.5": 5},
        {"": 5},
        {" 1": 5},
        {"1": 101},
        {"1": -101},
        {"٣": 1},
        {"9" * 400: 1},
        {str(n): 1 for n in range(301)},
    ],
)
def test_logit_bias_takes_token_ids_only(bias: dict[str, float]) -> None:
    assert refused(logit_bias=bias).param == "logit_bias"


def test_template_variables_come_from_a_list() -> None:
    prompt = request_of(chat_template_kwargs={"enable_thinking": False}).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.template_options == {"enable_thinking": False}
    assert refused(chat_template_kwargs={"tokenize": True}).param == "chat_template_kwargs.tokenize"
    assert refused(chat_template_kwargs={"enable_thinking": "x"}).param == (
        "chat_template_kwargs.enable_thinking"
    )
    assert refused(chat_template_kwargs={"reasoning_effort": "x" * 65}).param is not None
    off = request_of(reasoning_effort="none").prompt
    assert isinstance(off, ChatPrompt)
    assert off.template_options == {"enable_thinking": False}
