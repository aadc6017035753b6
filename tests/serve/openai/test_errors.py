from __future__ import annotations

import json

import pytest

from turbospark_cli import errors
from turbospark_cli.errors import InvalidRequest, TurbosparkError
from turbospark_cli.serve.openai import wire
from turbospark_cli.serve.openai.errors import decoded, error_body


def failure(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decoded(wire.decode_chat, body)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b"\xff\xfe",
        b'{"model": "m"} x',
        b'{"model": NaN}',
        b'{"x": Infinity}',
        b'{"x": -Infinity}',
        b'{"model": "\\ud800", "messages": []}',
        b'{"model": "\xff", "messages": []}',
        b"[" * 100_000,
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"tools": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"messages": [{"role": "user", "content": "a',
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    assert failure(body).status == 400


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"messages": []}', "model"),
        (b'{"model": "m"}', "messages"),
        (b'{"model": "m", "messages": [{"content": "a"}]}', "messages[0].role"),
        (b'{"model": "m", "messages": [{"role": 5}]}', "messages[0].role"),
        (
            b'{"model": "m", "messages": [{"role": "user", "content": [{"text": "a"}]}]}',
            "messages[0].content[0].type",
        ),
        (b'{"model": "m", "messages": [], "temperature": 1e999}', "temperature"),
        (b'{"model": "m", "messages": [], "temperature": "hot"}', "temperature"),
        (b'{"model": "m", "messages": [], "logit_bias": {"1": "x"}}', "logit_bias[...]"),
        (
            b'{"model": "m", "messages": [], "stream_options": {"include_usage": 1}}',
            "stream_options.include_usage",
        ),
    ],
)
def test_errors_name_the_field(body: bytes, param: str) -> None:
    error = failure(body)
    assert error.param == param
    assert param in error.message


def test_every_error_of_the_tree_has_an_envelope() -> None:
    pending: list[type[TurbosparkError]] = [TurbosparkError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        body = json.loads(error_body(kind("Some text.", param="x")))
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert body["error"]["message"] == "Some text."
        assert body["error"]["code"] == kind.code


def test_the_types_are_those_that_sdks_know() -> None:
    def kind(error: TurbosparkError) -> str:
        text: str = json.loads(error_body(error))["error"]["type"]
        return text

    assert kind(errors.QueueFull("x")) == "rate_limit_error"
    assert kind(errors.EngineUnavailable("x")) == "overloaded"
    assert kind(errors.InvalidRequest("x")) == "invalid_request_error"
    assert kind(errors.TurbosparkError("x")) == "server_error"
