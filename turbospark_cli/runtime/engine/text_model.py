"""An mlx-lm model as the scheduler uses it: read a piece of a prompt, decode a batch.

Two shortcuts are taken only when a probe at load time shows that this model allows them, since mlx-lm's
140 architectures do not all share one shape: applying the output head to the last position alone, and
keeping plain KV caches in buckets (kv_cache.py) instead of mlx-lm's padded batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn

from turbospark_cli.runtime.engine.device import Device
from turbospark_cli.runtime.engine.kv_cache import BucketedCache, Layout
from turbospark_cli.runtime.engine.mlx_models import KVCache, make_prompt_cache

_PROBE: Final = mx.array([[1, 2, 3]])  # any valid ids
_TOLERANCE: Final = 2e-2  # relative to the largest logit; wide enough for bf16


class TextModel:
    """One loaded model; `vocab_size` is the width of its logits, which is what token ids must stay below."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        self._model: Any = model
        self._device = device
        own, twin = self.new_cache(), self.new_cache()
        reference = self._model(_PROBE, cache=own)[:, -1]
        self.vocab_size = int(reference.shape[-1])
        self._head = self._find_head(twin, reference)
        self.batchable = all(hasattr(layer, "merge") for layer in own)
        self._bucketed = tuple(type(layer) is KVCache for layer in own)
        if any(self._bucketed) and not self._buckets_agree(own, twin):
            self._bucketed = (False,) * len(own)

    def new_cache(self) -> list[Any]:
        """An empty cache for one sequence, one entry a layer."""
        return list(make_prompt_cache(self._model))

    def read(self, ids: Sequence[int], cache: list[Any]) -> None:
        """Run `ids` into a sequence's cache, without logits; evaluated on return."""
        body = self._model if self._head is None else self._model.model
        body(mx.array([ids]), cache=cache)
        mx.eval([layer.state for layer in cache])

    def read_last(self, ids: Sequence[int], cache: list[Any]) -> mx.array:
        """Run the end of a prompt into a sequence's cache: logits (1, vocab) of the next token, lazy."""
        inputs = mx.array([ids])
        if self._head is None:
            logits: mx.array = self._model(inputs, cache=cache)
        else:
            logits = self._head(self._model.model(inputs, cache=cache)[:, -1:])
        return logits[:, -1]

    def decode(self, tokens: mx.array, caches: list[Any]) -> mx.array:
        """One step for every row: tokens (rows,) to logits (rows, vocab), lazy."""
        logits: mx.array = self._model(tokens[:, None], cache=caches)
        return logits[:, -1]

    def batch_caches(self, layout: Layout) -> list[BucketedCache | None]:
        """An empty bucketed cache for each layer that takes one; None for a layer of another kind."""
        fold = self._device.kind == "cpu"
        return [BucketedCache(layout, fold) if bucketed else None for bucketed in self._bucketed]

    def _find_head(self, cache: list[Any], reference: mx.array) -> Callable[[mx.array], mx.array] | None:
        """The output head, if head(body(x)) is all that the model does; `cache` takes the probe."""
        body = getattr(self._model, "model", None)
        head = getattr(self._model, "lm_head", None)
        if head is None:
            head = getattr(getattr(body, "embed_tokens", None), "as_linear", None)
        if body is not None and head is not None:
            try:
                logits = head(body(_PROBE, cache=cache)[:, -1:])[:, -1]
                return head if _close(logits, reference) else None
            except (TypeError, ValueError, AttributeError):
                cache[:] = self.new_cache()
        self._model(_PROBE, cache=cache)
        return None

    def _buckets_agree(self, own: list[Any], twin: list[Any]) -> bool:
        """Whether a decode step through buckets gives the logits of the model's own caches.

        Both caches hold the probe. Layers that are not bucketed step in one of them each.
        """
        token = mx.array([1])
        layout = Layout([_PROBE.shape[1]])
        caches = self.batch_caches(layout)
        for bucketed, layer in zip(caches, twin, strict=True):
            if bucketed is not None:
                bucketed.fill([layer.keys_and_values()])
        mixed = [bucketed or layer for bucketed, layer in zip(caches, twin, strict=True)]
        layout.advance()
        try:
            logits = self.decode(token, mixed)
            attended = all(bucketed.attended for bucketed in caches if bucketed is not None)
            return attended and _close(logits, self.decode(token, own))
        except (TypeError, ValueError, AttributeError):
            return False


def _close(left: mx.array, right: mx.array) -> bool:
    left, right = left.astype(mx.float32), right.astype(mx.float32)
    if left.shape != right.shape:
        return False
    return bool((mx.abs(left - right).max() <= _TOLERANCE * mx.abs(right).max()).item())
