"""The running batch: which sequences decode together, and their caches in step with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from turbospark_cli.runtime.engine.kv_cache import BucketedCache, Layout
from turbospark_cli.runtime.engine.mlx_models import KVCache
from turbospark_cli.runtime.engine.text_model import TextModel


class Batch:
    """The caches of all running rows, in an order of the batch's own (longest first)."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._layout = Layout([])
        self._caches: list[Any] = []

    @property
    def size(self) -> int:
        return len(self._layout.lengths)

    def decode(self, tokens: mx.array) -> mx.array:
        """One step: tokens (rows,) in batch order to logits (rows, vocab), lazy."""
        self._layout.advance()
        return self._model.decode(tokens, self._caches)

    def regroup(self, keep: Sequence[int], joining: Sequence[tuple[list[Any], int]]) -> list[int]:
        """Drop all rows but `keep` and take in sequences as (their caches, tokens in them).

        Returns the new batch order as places in `[*keep, *joining]`.
        """
        lengths = [self._layout.lengths[i] for i in keep] + [length for _, length in joining]
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        layout = Layout([lengths[i] for i in order])
        newcomers = [caches for caches, _ in joining]
        if not lengths:
            self._caches = []
        elif not self._model.batchable:
            self._caches = newcomers[0] if newcomers else self._caches
        else:
            self._caches = [
                self._bucketed(i, cache, keep, newcomers, order)
                if cache is not None
                else self._padded(i, keep, newcomers, order)
                for i, cache in enumerate(self._model.batch_caches(layout))
            ]
        self._layout = layout
        return order

    def _bucketed(
        self,
        layer: int,
        cache: BucketedCache,
        keep: Sequence[int],
        newcomers: Sequence[list[Any]],
        order: Sequence[int],
    ) -> BucketedCache:
        old: list[tuple[mx.array, mx.array]] = self._caches[layer].rows() if keep else []
        rows = [old[i] for i in keep]
        for caches in newcomers:
            own: KVCache = caches[layer]
            rows.append(own.keys_and_values())
        cache.fill([rows[i] for i in order])
        return cache

    def _padded(
        self, layer: int, keep: Sequence[int], newcomers: Sequence[list[Any]], order: Sequence[int]
    ) -> Any:
        """mlx-lm's own batch form, for caches that are not plain keys and values."""
        merged: Any = None
        if newcomers:
            own = [caches[layer] for caches in newcomers]
            merged = type(own[0]).merge(own)
        if keep:
            current = self._caches[layer]
            if list(keep) != list(range(self.size)):
                current.filter(mx.array(list(keep)))
            if merged is not None:
                current.extend(merged)
            merged = current
        if list(order) != list(range(len(order))):
            merged.filter(mx.array(list(order)))
        return merged
