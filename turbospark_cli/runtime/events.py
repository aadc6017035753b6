"""The neutral events: what an engine says about one sequence, in order.

Every sequence ends with exactly one `Finished` or `Failed`, and nothing follows it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FinishReason = Literal["stop", "length"]


class Usage(Struct, frozen=True, array_like=True):
    """Token counts of one sequence."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class TopLogprob(Struct, frozen=True, array_like=True):
    """An alternative token: its text, its exact bytes and its natural-log probability."""

    token: str
    data: bytes
    logprob: float


class TokenLogprob(Struct, frozen=True, array_like=True):
    """The chosen token with the most likely alternatives, best first."""

    token: str
    data: bytes
    logprob: float
    top: tuple[TopLogprob, ...] = ()


class Queued(Struct, frozen=True, array_like=True, tag="q"):
    """Waiting for a slot; `position` 1 is next."""

    position: int


class Started(Struct, frozen=True, array_like=True, tag="s"):
    """The first token is being computed; the prompt has been counted."""

    prompt_tokens: int


class TextDelta(Struct, frozen=True, array_like=True, tag="t"):
    """New answer text. Text may lag behind its tokens (UTF-8, stop strings), so either part may be empty."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class Finished(Struct, frozen=True, array_like=True, tag="f"):
    """The end: `stop` (end token or stop string) or `length` (max_tokens or the context is full)."""

    reason: FinishReason
    usage: Usage
    stop_string: str | None = None  # the stop string that matched, if one did


class Failed(Struct, frozen=True, array_like=True, tag="x"):
    """The end after a fault. `code` is one of `errors`; `message` is safe to show to a client."""

    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None


Event = Queued | Started | TextDelta | Finished | Failed
