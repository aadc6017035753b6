"""What a conversion tells about the model it made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """What the conversion learned about the model."""

    architecture: str
    context_length: int  # tokens
    parameters: int
    bits: int | None  # None: dense
    group_size: int
    stored_as: str  # the source's own type of most weights
    has_chat_template: bool = False
    languages: tuple[str, ...] = ()  # that a speech model knows
