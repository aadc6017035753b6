"""Chat templates: the model's own Jinja template, rendered in a sandbox.

Trimming, the `tojson` filter, `raise_exception` and `strftime_now` follow what Hugging Face's
`apply_chat_template` gives templates to work with. Only the installed template is ever run, never one from
a request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from turbospark_cli.errors import CorruptInstall, InvalidRequest, PayloadTooLarge
from turbospark_cli.runtime.requests import Message

MAX_RENDERED = 4 * 1024 * 1024  # characters; longer than any context this can be meant for
# Always there for Hugging Face's templates: some ask whether they are none without asking whether they exist.
_UNUSED: Final[dict[str, None]] = {"tools": None, "documents": None}
# What a template can raise by what it does with values: it is trusted, but it is not our code.
_FAULTS: Final = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)


class ChatTemplate:
    """One compiled template with the special tokens it may print."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises CorruptInstall when the source does not compile."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise CorruptInstall(
                "The model's chat template does not compile; pull the model again."
            ) from error
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Message], options: Mapping[str, object]) -> str:
        """The prompt text for a conversation, ending where the assistant's answer begins.

        Raises InvalidRequest with the template's own words when it refuses the conversation.
        """
        turns = [{"role": message.role, "content": message.content} for message in messages]
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(
                messages=turns, **_UNUSED, add_generation_prompt=True, **self._special_tokens, **options
            ):
                parts.append(part)
                size += len(part)
                if size > MAX_RENDERED:
                    raise PayloadTooLarge("The conversation is too long for any context; send less of it.")
        except _RefusedByTemplate as error:
            raise InvalidRequest(
                f"The model's chat template refuses this conversation: {error}", param="messages"
            ) from error
        except _FAULTS as error:
            raise InvalidRequest(
                "The model's chat template cannot render this conversation.", param="messages"
            ) from error
        return "".join(parts)


class _Generation(Extension):
    """`{% generation %}` marks what the assistant said, for training; here its body simply stands."""

    tags = {"generation"}  # noqa: RUF012 - as its base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _RefusedByTemplate(Exception):
    """A template called `raise_exception`."""


def _refuse(message: str) -> None:
    raise _RefusedByTemplate(str(message)[:200])


def _now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """Jinja's own `tojson` escapes for HTML, which would change what the model reads."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)
