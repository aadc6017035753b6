"""From the messages that clients send to the turns that chat templates accept.

Templates are strict: one system message, first; roles that alternate; plain text. Clients are not. What is
merged here keeps its order, so that a longer conversation still begins with the same text.
"""

from __future__ import annotations

from typing import Final, Literal

from turbospark_cli.errors import InvalidRequest
from turbospark_cli.runtime.requests import Message
from turbospark_cli.serve.openai.wire import InputMessage

_Role = Literal["system", "user", "assistant"]
_ROLES: Final[dict[str, _Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_NOTHING: Final = (b"null", b"[]")
_BETWEEN: Final = "\n\n"


def turns_of(messages: list[InputMessage]) -> tuple[Message, ...]:
    """The conversation in order. Raises InvalidRequest that names the message it cannot use."""
    turns: list[tuple[_Role, str]] = []
    for index, message in enumerate(messages):
        role = _role(message, index)
        text = _text(message, index)
        if role == "assistant" and not text:
            continue
        if role == "system" and any(known != "system" for known, _ in turns[-1:]):
            role = "user"  # an instruction in the middle becomes a part of the turn it stands beside
        if turns and turns[-1][0] == role:
            turns[-1] = (role, turns[-1][1] + _BETWEEN + text)
        else:
            turns.append((role, text))
    if not turns:
        raise InvalidRequest("The field messages must hold at least one message with text.", param="messages")
    return tuple(Message(role, text) for role, text in turns)


def _role(message: InputMessage, index: int) -> _Role:
    role = _ROLES.get(message.role)
    if role is None:
        known = message.role in ("tool", "function")
        text = "Tool results are not supported yet" if known else "The role of a message is unknown"
        param = f"messages[{index}].role"
        raise InvalidRequest(f"{text}: use system, developer, user or assistant.", param=param)
    for name in ("tool_calls", "function_call", "audio"):
        raw = getattr(message, name)
        if raw and bytes(raw) not in _NOTHING:
            param = f"messages[{index}].{name}"
            raise InvalidRequest(f"The field {param} is not supported yet; leave it out.", param=param)
    return role


def _text(message: InputMessage, index: int) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role == "assistant":
            return ""
        raise InvalidRequest(
            f"The field messages[{index}].content is required.", param=f"messages[{index}].content"
        )
    texts: list[str] = []
    for place, part in enumerate(content):
        text = part.text if part.type in _TEXT_PARTS else part.refusal if part.type == "refusal" else None
        if text is None:
            param = f"messages[{index}].content[{place}]"
            if part.type in _TEXT_PARTS:
                raise InvalidRequest(f"The field {param}.text is required.", param=f"{param}.text")
            raise InvalidRequest("This model reads text parts only.", param=f"{param}.type")
        texts.append(text)
    return "\n".join(texts) if len(texts) > 1 else "".join(texts)
