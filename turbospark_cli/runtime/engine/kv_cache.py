"""The KV cache of a running batch, without padding everybody to the longest sequence.

DESIGN. Rows of similar length share a bucket: one buffer (rows, heads, capacity, dim) in which every row ends
at the same column, so that a step writes one column and attends over one slice. Rows are ordered by length,
so a bucket is a contiguous slice of the batch and each layer costs one attention call per bucket. All rows
grow by one token a step, so the padding inside a bucket never grows; buckets are formed anew only when rows
join or leave.

`BucketedCache` stands where mlx-lm's models expect a layer's cache: `update_and_fetch` hands the new column
through and `attend` (mlx_models.py routes mlx-lm's attention to it) stores and uses it. Caches
of other kinds (sliding window, recurrent state) keep mlx-lm's own padded batch form.

What it does not know: requests, tokens, sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import mlx.core as mx

_GROW: Final = 256  # columns a full buffer grows by
_SLACK: Final = 128  # columns of padding that are never worth a bucket of their own
_RATIO: Final = 0.25  # padding a bucket may have, as a share of its longest row


@dataclass(slots=True)
class _Bucket:
    """Rows [start, stop) of the batch; every row ends at column `end`, row i begins at `pads[i]`."""

    start: int
    stop: int
    end: int
    pads: list[int]
    mask: mx.array | None = None  # (rows, 1, 1, end) for the coming step; None when nothing is padded


class Layout:
    """Which rows share a bucket, and where each begins and ends; shared by all layers of a model."""

    def __init__(self, lengths: Sequence[int]) -> None:
        """`lengths` (tokens in the cache) in batch order, longest first."""
        self.buckets: list[_Bucket] = []
        self.lengths = list(lengths)
        self.offset = mx.array(0)
        start = 0
        while start < len(lengths):
            longest = lengths[start]
            floor = longest - max(_SLACK, int(longest * _RATIO))
            stop = start + 1
            while stop < len(lengths) and lengths[stop] >= floor:
                stop += 1
            pads = [longest - length for length in lengths[start:stop]]
            self.buckets.append(_Bucket(start, stop, longest, pads))
            start = stop

    def advance(self) -> None:
        """Make room for one more token in every row; call before each decode step."""
        self.offset = mx.array(self.lengths)  # position of the new token, for rope
        self.lengths = [length + 1 for length in self.lengths]
        for bucket in self.buckets:
            bucket.end += 1
            if any(bucket.pads):
                columns = mx.arange(bucket.end)[None, None, None]
                bucket.mask = columns >= mx.array(bucket.pads)[:, None, None, None]


class BucketedCache:
    """One layer's keys and values for the whole batch."""

    def __init__(self, layout: Layout, fold_groups: bool) -> None:
        self.layout = layout
        self.attended = False  # for the check that a model reaches `attend` at all
        self._fold_groups = fold_groups
        self._buffers: list[tuple[mx.array, mx.array]] = []

    @property
    def offset(self) -> mx.array:
        """Positions (rows,) of the tokens of this step."""
        return self.layout.offset

    def fill(self, rows: Sequence[tuple[mx.array, mx.array]]) -> None:
        """Take each row's keys and values (1, heads, length, dim), in batch order."""
        self._buffers = []
        for bucket in self.layout.buckets:
            members = rows[bucket.start : bucket.stop]
            keys = _stack([row[0] for row in members], bucket)
            values = _stack([row[1] for row in members], bucket)
            self._buffers.append((keys, values))

    def rows(self) -> list[tuple[mx.array, mx.array]]:
        """Each row's keys and values without padding, in batch order; the inverse of `fill`."""
        found = []
        for bucket, (keys, values) in zip(self.layout.buckets, self._buffers, strict=True):
            for i, pad in enumerate(bucket.pads):
                found.append((keys[i : i + 1, :, pad : bucket.end], values[i : i + 1, :, pad : bucket.end]))
        return found

    def make_mask(self, *_: object, window_size: int | None = None, **__: object) -> None:
        """Masks belong to buckets; mlx-lm's models get none.

        Raises ValueError for a window over a cache that keeps everything, which buckets do not have.
        """
        if window_size is not None:
            raise ValueError("a sliding window over a bucket")

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """The new column as it came; `attend` stores it."""
        return keys, values

    def attend(
        self, queries: mx.array, keys: mx.array, values: mx.array, scale: float, sinks: mx.array | None
    ) -> mx.array:
        """Store the new column (rows, kv_heads, 1, dim) and attend: (rows, heads, 1, dim)."""
        self.attended = True
        outputs = []
        for i, bucket in enumerate(self.layout.buckets):
            part = slice(bucket.start, bucket.stop)
            stored_keys, stored_values = self._append(i, bucket, keys[part], values[part])
            outputs.append(
                self._attention(queries[part], stored_keys, stored_values, scale, bucket.mask, sinks)
            )
        return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)

    def _append(self, i: int, bucket: _Bucket, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        all_keys, all_values = self._buffers[i]
        if bucket.end > all_keys.shape[2]:
            all_keys, all_values = _widen(all_keys), _widen(all_values)
        all_keys[:, :, bucket.end - 1 : bucket.end] = keys
        all_values[:, :, bucket.end - 1 : bucket.end] = values
        self._buffers[i] = (all_keys, all_values)
        return all_keys[:, :, : bucket.end], all_values[:, :, : bucket.end]

    def _attention(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        scale: float,
        mask: mx.array | None,
        sinks: mx.array | None,
    ) -> mx.array:
        rows, heads, _, dim = queries.shape
        groups = keys.shape[1]
        if not self._fold_groups or sinks is not None or heads == groups:
            return mx.fast.scaled_dot_product_attention(
                queries, keys, values, scale=scale, mask=mask, sinks=sinks
            )
        # PERF: query heads that share a key head become the rows of one product, so that a CPU
        # reads the keys once instead of once per head.
        folded = queries.reshape(rows, groups, heads // groups, dim)
        out = mx.fast.scaled_dot_product_attention(folded, keys, values, scale=scale, mask=mask)
        return out.reshape(rows, heads, 1, values.shape[-1])


def _stack(rows: Sequence[mx.array], bucket: _Bucket) -> mx.array:
    """Rows (1, heads, length, dim) right-aligned at the bucket's end, with room to grow."""
    if len(rows) == 1 and not bucket.pads[0]:
        return rows[0]
    _, heads, _, dim = rows[0].shape
    capacity = -(-(bucket.end + 1) // _GROW) * _GROW
    buffer = mx.zeros((len(rows), heads, capacity, dim), dtype=rows[0].dtype)
    for i, (row, pad) in enumerate(zip(rows, bucket.pads, strict=True)):
        buffer[i : i + 1, :, pad : bucket.end] = row
    return buffer


def _widen(buffer: mx.array) -> mx.array:
    rows, heads, _, dim = buffer.shape
    return mx.concatenate([buffer, mx.zeros((rows, heads, _GROW, dim), dtype=buffer.dtype)], axis=2)
