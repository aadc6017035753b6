"""The vocabulary of a GGUF file: its tokens with their types, and the ids that have a role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert.metadata import Metadata

_LONGEST: Final = 1024  # characters of one token
_UNKNOWN: Final = 2
_CONTROL: Final = 3  # special: never in the text that a user sees
_USER_DEFINED: Final = 4  # matched whole, but text
# End tokens by name: files often state only one of a model's several.
_ENDS: Final = frozenset(
    (
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<end_of_turn>",
        "<|end|>",
        "</s>",
    )
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id; `special` and `added` are ids that are matched as a whole before any merging."""

    tokens: list[str]
    special: list[int]
    added: list[int]
    bos: int | None
    eos: int | None
    pad: int | None
    unknown: int | None
    ends: list[int]  # every id that ends an answer, `eos` first
    adds_bos: bool

    def text(self, token: int | None) -> str | None:
        """The token's text; None for no token."""
        return None if token is None else self.tokens[token]


def read_vocabulary(metadata: Metadata, size: int) -> Vocabulary:
    """The vocabulary, checked against the `size` of the embedding. Raises ConversionFailed."""
    tokens = metadata.texts("tokenizer.ggml.tokens")
    if not 0 < len(tokens) <= size:
        raise ConversionFailed(f"The GGUF file has {len(tokens)} tokens but embeddings for {size}.")
    if max(map(len, tokens)) > _LONGEST:
        raise ConversionFailed("The GGUF file holds a token that is too long to be one.")
    if len(set(tokens)) != len(tokens):
        raise ConversionFailed("The GGUF file holds a token twice.")
    types = _types(metadata, len(tokens))
    special = [token for token, kind in enumerate(types) if kind in (_CONTROL, _UNKNOWN)]
    eos = _role(metadata, "eos", len(tokens))
    named = [token for token in special if tokens[token] in _ENDS]
    turn_end = _role(metadata, "eot", len(tokens))
    ends = [token for token in (eos, turn_end, *named) if token is not None]
    return Vocabulary(
        tokens=tokens,
        special=special,
        added=[token for token, kind in enumerate(types) if kind == _USER_DEFINED],
        bos=_role(metadata, "bos", len(tokens)),
        eos=eos,
        pad=_role(metadata, "padding", len(tokens)),
        unknown=_role(metadata, "unknown", len(tokens)),
        ends=list(dict.fromkeys(ends)),
        adds_bos=metadata.flag("tokenizer.ggml.add_bos_token", _adds_bos_unless_told(metadata)),
    )


def _types(metadata: Metadata, count: int) -> list[int] | list[float]:
    if not metadata.has("tokenizer.ggml.token_type"):
        return [1] * count
    return metadata.numbers("tokenizer.ggml.token_type", count)


def _role(metadata: Metadata, role: str, count: int) -> int | None:
    key = f"tokenizer.ggml.{role}_token_id"
    return metadata.integer(key, 0, count - 1) if metadata.has(key) else None


def _adds_bos_unless_told(metadata: Metadata) -> bool:
    return metadata.text("tokenizer.ggml.model", "gpt2") == "llama"
