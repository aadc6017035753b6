"""Choosing the next token for every row of a batch.

DESIGN. One uniform number per token, computed from (seed, position), picks from the cumulative
distribution (inverse transform sampling). Nothing is drawn from shared state, so a row's choice depends on
its own seed, position and logits only: the same alone or in any batch. Rows fall into three groups that are
each computed in one go: greedy, the whole distribution in vocabulary order, and a truncated distribution
(top_k, top_p, min_p) in order of probability. A row's group depends on its own parameters alone.

Order of operations, as Hugging Face's and vLLM's: logit_bias, repetition, presence and frequency penalties,
temperature, top_k, top_p, min_p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import mlx.core as mx

from turbospark_cli.runtime.requests import Sampling

# On a CPU sorting a vocabulary costs more than a layer; this many candidates nearly always hold the nucleus.
_CANDIDATES: Final = 1024
# Colder than this the best token is certain, and logits divided by the temperature leave float32.
_COLDEST: Final = 1e-5
_MASK64: Final = (1 << 64) - 1
_UNIFORM_BITS: Final = 23  # (k + 1/2) / 2^23 is exact in float32 and never 0 or 1


def uniform(seed: int, position: int) -> float:
    """The number in (0, 1) that belongs to one token of one sequence (SplitMix64 over both)."""
    value = _mix(_mix(seed & _MASK64) + position)
    return ((value >> (64 - _UNIFORM_BITS)) + 0.5) / (1 << _UNIFORM_BITS)


def _mix(value: int) -> int:
    """SplitMix64's output function (Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


class Sampler:
    """The sampling state of one sequence."""

    def __init__(self, sampling: Sampling, seed: int, prompt: Sequence[int], vocab_size: int) -> None:
        """`prompt` counts for the repetition penalty only; ids are already checked against `vocab_size`."""
        self.temperature = _given(sampling.temperature, 1.0)
        top_k = sampling.top_k or 0
        self.top_k = top_k if 0 < top_k < vocab_size else vocab_size
        self.top_p = _given(sampling.top_p, 1.0)
        self.min_p = _given(sampling.min_p, 0.0)
        self.greedy = self.temperature < _COLDEST or self.top_k == 1
        self.truncated = self.top_k < vocab_size or self.top_p < 1 or self.min_p > 0
        self._seed = seed
        self._position = 0
        self._penalties = _Penalties(sampling, prompt, vocab_size) if _has_penalties(sampling) else None

    def adjust(self, logits: mx.array) -> mx.array:
        """Bias and penalties on this row's logits (1, vocab)."""
        return logits if self._penalties is None else self._penalties.apply(logits)

    @property
    def adjusts(self) -> bool:
        return self._penalties is not None

    def next_uniform(self) -> float:
        """The number for this position; moves on to the next one."""
        self._position += 1
        return uniform(self._seed, self._position - 1)

    def chosen(self, token: mx.array) -> None:
        """Note a chosen token (shape (1,), maybe not evaluated yet) for the penalties."""
        if self._penalties is not None:
            self._penalties.count(token)


def _given(value: float | None, neutral: float) -> float:
    return neutral if value is None else value


def _has_penalties(sampling: Sampling) -> bool:
    return bool(
        sampling.logit_bias
        or _given(sampling.repetition_penalty, 1.0) != 1
        or sampling.presence_penalty
        or sampling.frequency_penalty
    )


class _Penalties:
    """logit_bias and the penalties; presence and frequency count generated tokens, as OpenAI's do."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], vocab_size: int) -> None:
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._repetition = _given(sampling.repetition_penalty, 1.0)
        self._bias: mx.array | None = None
        if sampling.logit_bias:
            ids = mx.array(list(sampling.logit_bias))
            values = mx.array([float(v) for v in sampling.logit_bias.values()])
            self._bias = mx.zeros((vocab_size,)).at[ids].add(values)
        self._counts = mx.zeros((vocab_size,))
        self._seen = mx.zeros((vocab_size,), dtype=mx.bool_)
        if self._repetition != 1 and prompt:
            self._seen[mx.array(sorted(set(prompt)))] = True

    def apply(self, logits: mx.array) -> mx.array:
        if self._bias is not None:
            logits = logits + self._bias
        if self._repetition != 1:  # CTRL (Keskar et al., 2019): towards less likely on either side of zero
            punished = mx.where(logits > 0, logits / self._repetition, logits * self._repetition)
            logits = mx.where(self._seen, punished, logits)
        if self._presence or self._frequency:
            logits = logits - self._presence * (self._counts > 0) - self._frequency * self._counts
        return logits

    def count(self, token: mx.array) -> None:
        if self._presence or self._frequency:
            self._counts = self._counts.at[token].add(1.0)
        if self._repetition != 1:
            self._seen = self._seen.at[token].maximum(True)


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen ids (rows,), not evaluated yet, and the raw log-probabilities where a row asked for them."""

    tokens: mx.array
    logits: mx.array  # (rows, vocab) before any adjustment


def choose(logits: mx.array, samplers: Sequence[Sampler], *, full_sort: bool) -> Choice:
    """One token per row of `logits` (rows, vocab); advances every sampler.

    Evaluates the logits when a truncated row is not `full_sort`; otherwise nothing is evaluated.
    """
    raw = logits.astype(mx.float32)
    adjusted = raw
    if any(sampler.adjusts for sampler in samplers):
        rows = [sampler.adjust(raw[i : i + 1]) for i, sampler in enumerate(samplers)]
        adjusted = mx.concatenate(rows)
    tokens = _choose_groups(adjusted, samplers, full_sort)
    for i, sampler in enumerate(samplers):
        sampler.chosen(tokens[i : i + 1])
    return Choice(tokens, raw)


def _choose_groups(logits: mx.array, samplers: Sequence[Sampler], full_sort: bool) -> mx.array:
    groups: dict[str, list[int]] = {}
    for i, sampler in enumerate(samplers):
        kind = "greedy" if sampler.greedy else "truncated" if sampler.truncated else "plain"
        groups.setdefault(kind, []).append(i)
    parts: list[mx.array] = []
    for kind, members in groups.items():
        rows = logits if len(groups) == 1 else logits[mx.array(members)]
        own = [samplers[i] for i in members]
        if kind == "greedy":
            parts.append(mx.argmax(rows, axis=-1))
        elif kind == "plain":
            parts.append(_plain(rows, own))
        else:
            parts.append(_truncated(rows, own, full_sort))
    if len(parts) == 1:
        return parts[0]
    order = [i for members in groups.values() for i in members]
    places = sorted(range(len(order)), key=order.__getitem__)
    return mx.concatenate(parts)[mx.array(places)]


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]


def _scaled(logits: mx.array, samplers: Sequence[Sampler]) -> mx.array:
    return logits / _column([sampler.temperature for sampler in samplers])


def _pick(weights: mx.array, uniforms: mx.array) -> mx.array:
    """First index where the running sum of `weights` (rows, n) reaches its share `uniforms` of the total."""
    running = mx.cumsum(weights, axis=-1)
    return mx.argmax(running >= uniforms * running[:, -1:], axis=-1)


def _plain(logits: mx.array, samplers: Sequence[Sampler]) -> mx.array:
    uniforms = _column([sampler.next_uniform() for sampler in samplers])
    return _pick(mx.softmax(_scaled(logits, samplers), axis=-1), uniforms)


def _truncated(logits: mx.array, samplers: Sequence[Sampler], full_sort: bool) -> mx.array:
    """top_k, top_p and min_p, over the best candidates, or over all when those do not hold the nucleus."""
    vocab = logits.shape[-1]
    scaled = _scaled(logits, samplers)
    uniforms = _column([sampler.next_uniform() for sampler in samplers])
    wanted = max((s.top_k for s in samplers if s.top_k < vocab), default=0)
    count = vocab if full_sort else min(vocab, max(_CANDIDATES, wanted))
    tokens, complete = _from_candidates(scaled, samplers, uniforms, count)
    if count < vocab and not mx.all(complete).item():
        tokens, _ = _from_candidates(scaled, samplers, uniforms, vocab)
    return tokens


def _from_candidates(
    logits: mx.array, samplers: Sequence[Sampler], uniforms: mx.array, count: int
) -> tuple[mx.array, mx.array]:
    """Pick among the `count` most likely tokens: (ids (rows,), whether they were enough (rows, 1))."""
    vocab = logits.shape[-1]
    if count < vocab:
        # In order of id first: then tokens of equal probability come in the same order as from a full sort.
        best = mx.sort(mx.argpartition(-logits, kth=count - 1, axis=-1)[:, :count], axis=-1)
        values = mx.take_along_axis(logits, best, axis=-1)
        order = mx.argsort(-values, axis=-1)
        ids = mx.take_along_axis(best, order, axis=-1)
    else:
        ids = mx.argsort(-logits, axis=-1)
    values = mx.take_along_axis(logits, ids, axis=-1)
    weights = mx.exp(values - values[:, :1])  # relative to the most likely token
    everything = mx.exp(mx.logsumexp(logits, axis=-1, keepdims=True) - values[:, :1])
    top_k = _column([sampler.top_k for sampler in samplers])
    top_p = _column([sampler.top_p for sampler in samplers])
    min_p = _column([sampler.min_p for sampler in samplers])

    weights = mx.where(mx.arange(count)[None] < top_k, weights, 0.0)
    running = mx.cumsum(weights, axis=-1)
    total = mx.where(top_k < vocab, running[:, -1:], everything)
    # A token stays while the mass before it is short of top_p: the smallest set that reaches it.
    inside = (running - weights < top_p * total) | (top_p >= 1)
    kept = mx.where(inside & (weights >= min_p), weights, 0.0)
    complete = (
        (top_k <= count) | ((top_p < 1) & (running[:, -1:] >= top_p * total)) | (weights[:, -1:] < min_p)
    )
    return mx.take_along_axis(ids, _pick(kept, uniforms)[:, None], axis=-1)[:, 0], complete
