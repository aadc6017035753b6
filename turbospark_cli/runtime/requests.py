"""The neutral request: what every protocol adapter builds and every engine runs.

Adapters have already validated ranges and refused what cannot be honoured; an engine checks only what
it alone knows (token ids against the logit width, the prompt against the context length).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Message(Struct, frozen=True, omit_defaults=True):
    """One turn of a conversation, as the chat template will see it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class ChatPrompt(Struct, frozen=True, tag="chat", omit_defaults=True):
    """A conversation, rendered by the model's own chat template."""

    messages: tuple[Message, ...]
    # Extra variables for the template, already limited to an allow-list by the adapter.
    template_options: dict[str, bool | int | float | str] = {}


class TextPrompt(Struct, frozen=True, tag="text"):
    """A raw prompt: tokenized as it is, never through a chat template."""

    text: str


class TokenPrompt(Struct, frozen=True, tag="tokens"):
    """Token ids, taken as they are; the engine checks them against the logit width."""

    ids: tuple[int, ...]


class Sampling(Struct, frozen=True, omit_defaults=True):
    """How the next token is chosen. None: as the model's authors recommend, else its own distribution."""

    temperature: float | None = None  # 0 is greedy
    top_p: float | None = None
    top_k: int | None = None  # 0 is off
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None  # None: the engine draws one


class GenerationRequest(Struct, frozen=True, omit_defaults=True):
    """One sequence to generate."""

    model: str  # as the client named it
    prompt: ChatPrompt | TextPrompt | TokenPrompt
    sampling: Sampling = Sampling()
    max_tokens: int | None = None  # None: as much as the context has room for
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None  # None: no logprobs; 0: the chosen token only
    ignore_eos: bool = False
    stream: bool = True  # False: after the first words the rest may be told at the end, all at once
