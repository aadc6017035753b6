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

_PROBE: Final = (1, 2, 3)  # any valid ids
_TOLERANCE: Final = 2e-2  # relative to the largest logit; wide enough for bf16


class TextModel:
    """One loaded model; `vocab_size` is the width of its logits, which is what token ids must stay below."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        self._model: Any = model
        self._device = device
        probe = mx.array([_PROBE])
        reference = self._model(probe, cache=self.new_cache())[:, -1]
        self.vocab_size = int(reference.shape[-1])
        self._head = self._find_head(probe, reference)
        kinds = self.new_cache()
        self.batchable = all(hasattr(kind, "merge") for kind in kinds)
        self._bucketed = tuple(type(kind) is KVCache for kind in kinds)
        if any(self._bucketed) and not self._buckets_agree():
            self._bucketed = (False,) * len(kinds)

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

    def _find_head(self, probe: mx.array, reference: mx.array) -> Callable[[mx.array], mx.array] | None:
        """The output head, if head(body(x)) is all that the model does."""
        body = getattr(self._model, "model", None)
        head = getattr(self._model, "lm_head", None)
        if head is None:
            head = getattr(getattr(body, "embed_tokens", None), "as_linear", None)
        if body is None or head is None:
            return None
        try:
            logits = head(body(probe, cache=self.new_cache())[:, -1:])[:, -1]
            return head if _close(logits, reference) else None
        except (TypeError, ValueError, AttributeError):
            return None

    def _buckets_agree(self) -> bool:
        """Whether a decode step through buckets gives the logits of the model's own caches."""
        own, token = self.new_cache(), mx.array([_PROBE[0]])
        self.read(_PROBE, own)
        layout = Layout([len(_PROBE)])
        caches = self.batch_caches(layout)
        for bucketed, layer in zip(caches, own, strict=True):
            if bucketed is not None:
                bucketed.fill([layer.keys_and_values()])
        # Layers of another kind keep a copy of their own cache: a step would change it for both runs.
        others = self.new_cache()
        self.read(_PROBE, others)
        mixed = [bucketed or other for bucketed, other in zip(caches, others, strict=True)]
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
