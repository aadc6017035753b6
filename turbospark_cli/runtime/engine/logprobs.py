"""Log-probabilities of chosen tokens and their alternatives, from the model's own distribution.

They are taken before bias, penalties and temperature, so that they mean the same for every request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.events import TokenLogprob, TopLogprob


@dataclass(frozen=True, slots=True)
class PendingLogprobs:
    """One row's figures, not evaluated yet: chosen (1,), alternatives' ids and values (top,)."""

    chosen: mx.array
    ids: mx.array
    values: mx.array

    def arrays(self) -> list[mx.array]:
        return [self.chosen, self.ids, self.values]

    def read(self, token_id: int, tokenizer: Tokenizer) -> TokenLogprob:
        """The event's form; waits for the values."""
        text, data = tokenizer.token(token_id)
        ids, values = cast("list[int]", self.ids.tolist()), cast("list[float]", self.values.tolist())
        top = zip(ids, values, strict=True)
        alternatives = tuple(TopLogprob(*tokenizer.token(i), value) for i, value in top)
        return TokenLogprob(text, data, cast("float", self.chosen.item()), alternatives)


def pending(logits: mx.array, token: mx.array, top: int) -> PendingLogprobs:
    """For one row: logits (1, vocab), the chosen id (1,), and how many alternatives are wanted."""
    values = (logits - mx.logsumexp(logits, axis=-1, keepdims=True))[0]
    if top == 0:
        empty = mx.zeros((0,))
        return PendingLogprobs(values[token], empty.astype(mx.int32), empty)
    top = min(top, values.shape[0])
    best = mx.argpartition(-values, kth=top - 1)[:top]
    best = best[mx.argsort(-values[best])]
    return PendingLogprobs(values[token], best, values[best])
