"""An mlx-lm model as the scheduler uses it: read a piece of a prompt, decode a batch.

Shortcuts are taken only when a probe at load time shows that this model allows them, since mlx-lm's 140
architectures do not all share one shape: applying the output head to the last position alone, keeping plain
KV caches in buckets (kv_cache.py) instead of mlx-lm's padded batch, and sharing a step at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn

from turbospark_cli.errors import InvalidRequest
from turbospark_cli.runtime.engine.device import Device
from turbospark_cli.runtime.engine.kv_cache import BucketedCache, Layout
from turbospark_cli.runtime.engine.mlx_models import KVCache, make_prompt_cache

_PROBE: Final = (1, 2, 3)  # any valid ids
# Relative to the largest logit. Two ways of computing the same differ by rounding, and by it alone.
_ROUNDING: Final = {mx.float32: 5e-3}
_HALF_ROUNDING: Final = 5e-2
_SAME: Final = 1e-4  # for the very same operations


class TextModel:
    """One loaded model; `vocab_size` is the width of its logits, which is what token ids must stay below."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        """Raises InvalidRequest when the model does not run on this device."""
        self._model: Any = model
        self._device = device
        try:
            reference = self._model(mx.array([_PROBE]), cache=self.new_cache())
            mx.eval(reference)
        except Exception as error:
            raise InvalidRequest(
                f"MLX cannot run this model on this machine ({type(error).__name__})."
            ) from error
        self.vocab_size = int(reference.shape[-1])
        self._head = self._find_head(reference)
        self._bucketed, self.batchable = self._find_batch_form(reference[0])

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

    def _find_head(self, reference: mx.array) -> Callable[[mx.array], mx.array] | None:
        """The output head, if head(body(x)) is all that the model does; `reference` is what it does."""
        body = getattr(self._model, "model", None)
        head = getattr(self._model, "lm_head", None)
        if head is None:
            head = getattr(getattr(body, "embed_tokens", None), "as_linear", None)
        if body is None or head is None:
            return None
        try:
            logits = head(body(mx.array([_PROBE]), cache=self.new_cache()))
            return head if _close(logits, reference, _SAME) else None
        except Exception:  # noqa: BLE001 - whatever it raises, this model has another shape
            return None

    def _find_batch_form(self, reference: mx.array) -> tuple[tuple[bool, ...], bool]:
        """Which layers' caches go into buckets, and whether sequences can share a step at all."""
        kinds = self.new_cache()
        none = (False,) * len(kinds)
        if not all(hasattr(kind, "merge") for kind in kinds):
            return none, False
        plain = tuple(type(kind) is KVCache for kind in kinds)
        for form in dict.fromkeys((plain, none)):
            if self._batch_agrees(form, reference):
                return form, True
        return none, False

    def _batch_agrees(self, form: tuple[bool, ...], reference: mx.array) -> bool:
        """Whether two beginnings of the probe, in one step, go on as the whole probe does at these places.

        Two rows of different length show what one row cannot: positions and padding of each its own.
        """
        self._bucketed = form
        places = (2, 1)
        try:
            layout = Layout(places)
            rows = [self.new_cache() for _ in places]
            for place, own in zip(places, rows, strict=True):
                self.read(_PROBE[:place], own)
            caches = [
                _bucket_of(bucket, layers) if bucket is not None else type(layers[0]).merge(layers)
                for bucket, *layers in zip(self.batch_caches(layout), *rows, strict=True)
            ]
            layout.advance()
            logits = self.decode(mx.array([_PROBE[place] for place in places]), caches)
            attended = all(cache.attended for cache in caches if isinstance(cache, BucketedCache))
            tolerance = _ROUNDING.get(logits.dtype, _HALF_ROUNDING)
            return attended and _close(logits, reference[mx.array(places)], tolerance)
        except Exception:  # noqa: BLE001 - whatever it raises, this form is not for this model
            return False


def _bucket_of(bucket: BucketedCache, layers: Sequence[KVCache]) -> BucketedCache:
    bucket.fill([layer.keys_and_values() for layer in layers])
    return bucket


def _close(left: mx.array, right: mx.array, tolerance: float) -> bool:
    left, right = left.astype(mx.float32), right.astype(mx.float32)
    if left.shape != right.shape:
        return False
    return bool((mx.abs(left - right).max() <= tolerance * mx.abs(right).max()).item())
