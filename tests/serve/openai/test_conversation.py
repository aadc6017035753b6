from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from turbospark_cli.errors import InvalidRequest
from turbospark_cli.serve.openai.conversation import turns_of
from turbospark_cli.serve.openai.wire import InputMessage


def turns(*messages: Any) -> list[tuple[str, str]]:
    read = msgspec.json.decode(json.dumps(messages).encode(), type=list[InputMessage])
    return [(turn.role, turn.content) for turn in turns_of(read)]


def say(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_leading_instructions_become_one() -> None:
    assert turns(say("system", "a"), say("developer", "b"), say("user", "c")) == [
        ("system", "a\n\nb"),
        ("user", "c"),
    ]


def test_a_later_instruction_joins_the_turn_beside_it() -> None:
    messages = [say("user", "a"), say("assistant", "b"), say("system", "c"), say("user", "d")]
    assert turns(*messages) == [("user", "a"), ("assistant", "b"), ("user", "c\n\nd")]
    longer = turns(*messages, say("assistant", "e"), say("developer", "f"))
    assert longer[:3] == turns(*messages)


def test_turns_of_one_role_are_merged() -> None:
    assert turns(say("user", "a"), say("user", "b"), say("assistant", "c"), say("assistant", "d")) == [
        ("user", "a\n\nb"),
        ("assistant", "c\n\nd"),
    ]


def test_parts_become_text_and_empty_answers_vanish() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    refusal = [{"type": "refusal", "refusal": "no"}]
    assert turns(say("user", parts), say("assistant", None), say("assistant", ""), say("user", "c")) == [
        ("user", "a\nb\n\nc")
    ]
    assert turns(say("user", "a"), say("assistant", refusal)) == [("user", "a"), ("assistant", "no")]


def test_harmless_extras_of_a_message_are_ignored() -> None:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "a",
        "tool_calls": [],
        "function_call": None,
        "name": "x",
    }
    assert turns(say("user", "q"), message)[1] == ("assistant", "a")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([say("assistant", "")], "messages"),
        ([say("tool", "x")], "messages[0].role"),
        ([say("function", "x")], "messages[0].role"),
        ([say("robot", "x")], "messages[0].role"),
        ([say("user", None)], "messages[0].content"),
        ([say("user", "a"), say("user", [{"type": "text"}])], "messages[1].content[0].text"),
        ([say("user", [{"type": "image_url", "image_url": {"url": "x"}}])], "messages[0].content[0].type"),
        ([say("user", [{"type": "input_audio"}])], "messages[0].content[0].type"),
        ([say("user", [{"type": "file"}])], "messages[0].content[0].type"),
        ([{"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}], "messages[0].tool_calls"),
        (
            [{"role": "assistant", "content": "a", "function_call": {"name": "f"}}],
            "messages[0].function_call",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(messages: list[Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        turns(*messages)
    assert caught.value.param == param
