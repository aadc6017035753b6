"""The sizes of a model, read from GGUF metadata and checked before any tensor is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert.architectures import Size
from turbospark_cli.models.convert.metadata import Metadata

_LARGEST: Final = 2**24  # of any size: a vocabulary, a width
_MOST_LAYERS: Final = 1024
LONGEST_CONTEXT: Final = 2**27  # tokens


@dataclass(frozen=True, slots=True)
class Shape:
    """How large one model is; widths in numbers, `context` in tokens."""

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head: int
    vocab: int
    context: int

    def of(self, size: Size) -> int:
        """The number behind a size that a table row names."""
        sizes: dict[Size, int] = {
            "hidden": self.hidden,
            "ffn": self.ffn,
            "vocab": self.vocab,
            "q": self.heads * self.head,
            "kv": self.kv_heads * self.head,
            "head": self.head,
        }
        return sizes[size]


def read_shape(metadata: Metadata, architecture: str, vocab: int) -> Shape:
    """The sizes of the model; `vocab` is the number of rows of its embedding. Raises ConversionFailed."""

    def integer(key: str, high: int = _LARGEST, default: int | None = None) -> int:
        return metadata.integer(f"{architecture}.{key}", 1, high, default)

    if metadata.has(f"{architecture}.expert_count"):
        raise ConversionFailed("GGUF files of mixture-of-experts models are not supported.")
    hidden, heads = integer("embedding_length"), integer("attention.head_count")
    kv_heads = integer("attention.head_count_kv", default=heads)
    head = integer("attention.key_length", default=max(hidden // heads, 1))
    if heads % kv_heads or head % 2:
        raise ConversionFailed("The GGUF file states attention heads that do not fit each other.")
    if (
        integer("attention.value_length", default=head) != head
        or integer("rope.dimension_count", default=head) != head
    ):
        raise ConversionFailed(
            "GGUF files whose rope or values do not span the whole head are not supported."
        )
    return Shape(
        architecture=architecture,
        layers=integer("block_count", _MOST_LAYERS),
        hidden=hidden,
        ffn=integer("feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        vocab=vocab,
        context=integer("context_length", LONGEST_CONTEXT),
    )
