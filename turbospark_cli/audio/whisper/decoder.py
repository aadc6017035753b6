"""The decoder: what has been said so far, and what has been heard, into the likelihood of each next token.

Keys and values of what was heard are computed once for a window; those of what was said grow by one row for
each token, in arrays as long as the model's context, so that a step copies nothing. `rewind` forgets tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import mlx.core as mx

from turbospark_cli.audio.whisper import kernels
from turbospark_cli.audio.whisper.config import Dimensions
from turbospark_cli.audio.whisper.encoder import Linear, Mlp, Norm, SelfAttention, joined_heads
from turbospark_cli.audio.whisper.weights import Weights

Heard = list[tuple[mx.array, mx.array]]  # keys and values of each layer, (heads, head, positions)


class _CrossAttention:
    def __init__(self, weights: Weights, name: str, heads: int) -> None:
        self._query = Linear(weights, f"{name}.query")
        self._pair = Linear(weights, f"{name}.key", f"{name}.value")
        self.out = Linear(weights, f"{name}.out")
        self._heads = heads

    def hear(self, encoded: mx.array) -> tuple[mx.array, mx.array]:
        length, width = encoded.shape
        pair = self._pair(encoded).reshape(length, 2, self._heads, width // self._heads)
        keys, values = pair.transpose(1, 2, 3, 0)
        # PERF: each step multiplies one row by both, which is fastest along contiguous positions.
        return mx.contiguous(keys), mx.contiguous(values)

    def queries(self, x: mx.array) -> mx.array:
        length, width = x.shape
        split = self._query(x).reshape(length, self._heads, width // self._heads)
        scale: float = (width // self._heads) ** -0.5
        return split.transpose(1, 0, 2) * scale


class _Block:
    def __init__(self, weights: Weights, name: str, heads: int) -> None:
        self.norm, self.cross_norm = Norm(weights, f"{name}.attn_ln"), Norm(weights, f"{name}.cross_attn_ln")
        self.attention = SelfAttention(weights, f"{name}.attn", heads)
        self.cross = _CrossAttention(weights, f"{name}.cross_attn", heads)
        self.mlp = Mlp(weights, name)


class Decoder:
    """The weights; `Decoding` holds what belongs to one window."""

    def __init__(self, weights: Weights, dimensions: Dimensions) -> None:
        self.dimensions = dimensions
        # PERF: turned, since the product with all tokens is half of a step; a column is one token.
        self._embedding = mx.contiguous(weights["decoder.token_embedding.weight"].T)
        self.positions = weights["decoder.positional_embedding"]
        self.norm = Norm(weights, "decoder.ln")
        self.blocks = [
            _Block(weights, f"decoder.blocks.{layer}", dimensions.text_heads)
            for layer in range(dimensions.text_layers)
        ]

    def hear(self, encoded: mx.array) -> Heard:
        """Keys and values of a window."""
        heard = [block.cross.hear(encoded) for block in self.blocks]
        mx.eval(heard)
        return heard

    def logits(self, hidden: mx.array) -> kernels.Array:
        """float32 logits of hidden rows (L, width), as (L, vocab)."""
        return kernels.view((hidden @ self._embedding).astype(mx.float32))

    def embedded(self, tokens: Sequence[int], first: int) -> mx.array:
        """Rows (L, width) for tokens that stand at positions from `first` on."""
        rows = mx.take(self._embedding, mx.array(list(tokens)), axis=1).T
        return rows + self.positions[first : first + len(tokens)]


class Decoding:
    """One window being decoded; `length` tokens of it have been read."""

    def __init__(self, decoder: Decoder, heard: Heard) -> None:
        self._decoder, self._heard = decoder, heard
        sizes = decoder.dimensions
        shape = (sizes.text_heads, sizes.text_context, sizes.width // sizes.text_heads)
        self._keys = [mx.zeros(shape, decoder.positions.dtype) for _ in decoder.blocks]
        self._values = [mx.zeros(shape, decoder.positions.dtype) for _ in decoder.blocks]
        self.length = 0

    def rewind(self, length: int) -> None:
        """Forget all tokens after the first `length`."""
        self.length = length

    def read(
        self, tokens: Sequence[int], attending: Collection[tuple[int, int]] = ()
    ) -> tuple[mx.array, dict[tuple[int, int], mx.array]]:
        """Hidden rows (L, width) after `tokens`, and the cross-attention scores of the heads `attending`.

        SAFETY: MLX checks no index. Ids must be below the vocabulary; the context must hold all of them.
        """
        decoder, first, last = self._decoder, self.length, self.length + len(tokens)
        if last > decoder.dimensions.text_context or not all(
            0 <= token < decoder.dimensions.vocab for token in tokens
        ):
            raise ValueError("tokens that the model cannot read")
        x = decoder.embedded(tokens, first)
        mask = _causal(len(tokens), first, x.dtype) if len(tokens) > 1 else None
        scores: dict[tuple[int, int], mx.array] = {}
        for layer, block in enumerate(decoder.blocks):
            queries, keys, values = block.attention.project(block.norm(x))
            self._keys[layer][:, first:last] = keys
            self._values[layer][:, first:last] = values
            said = self._keys[layer][:, :last].swapaxes(-1, -2)
            mixed = kernels.attention(queries, said, self._values[layer][:, :last], mask)
            x = x + block.attention.out(joined_heads(mixed))
            queries = block.cross.queries(block.cross_norm(x))
            for head in (head for where, head in attending if where == layer):
                scores[layer, head] = queries[head] @ self._heard[layer][0][head]
            keys, values = self._heard[layer]
            mixed = kernels.attention(queries, keys, values.swapaxes(-1, -2))
            x = x + block.cross.out(joined_heads(mixed))
            x = x + block.mlp(x)
        self.length = last
        return decoder.norm(x), scores


def _causal(rows: int, before: int, dtype: mx.Dtype) -> mx.array:
    """0 where a row may look, a large negative number where it may not; (rows, before + rows)."""
    places = mx.arange(before + rows)
    ahead = places[None] > places[before:, None]
    return mx.where(ahead, mx.array(-1e9 if dtype == mx.float32 else -6e4, dtype), mx.array(0, dtype))
