"""Sampling against exact probabilities and against formulas written out in numpy."""

from __future__ import annotations

import math
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest

from turbospark_cli.runtime.engine import sampling
from turbospark_cli.runtime.engine.sampling import Sampler, choose, uniform
from turbospark_cli.runtime.requests import Sampling

_LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, 3.0, -2.0, 1.5, 0.25], dtype=np.float32)
_DRAWS = 8 * 500
# Quantile 1 - 1e-4 of chi-square by degrees of freedom: a right sampler with these fixed seeds is below it.
_CHI_SQUARE = {1: 15.14, 2: 18.42, 3: 21.11, 4: 23.51, 5: 25.74, 6: 27.86, 7: 29.88, 8: 31.83, 9: 33.72}


def _exact(way: Sampling) -> Any:
    """The distribution after temperature, top_k, top_p and min_p, step by step on a sorted list."""
    scaled = _LOGITS.astype(np.float64) / (1.0 if way.temperature is None else way.temperature)
    order = np.argsort(-scaled)
    weights = np.exp(scaled[order] - scaled[order][0])
    if way.top_k:
        weights[way.top_k :] = 0
    if way.top_p is not None and way.top_p < 1:
        before = np.concatenate([[0], np.cumsum(weights)[:-1]])
        weights[before >= way.top_p * weights.sum()] = 0
    if way.min_p:
        weights[weights < way.min_p] = 0
    result = np.zeros_like(weights)
    result[order] = weights / weights.sum()
    return result


def _draw(way: Sampling, rounds: int = 8, *, full_sort: bool = False, rows: int = 500) -> list[int]:
    """Tokens of `rows` sequences, each with a seed of its own, whose logits never change."""
    samplers = [Sampler(way, seed, [], len(_LOGITS)) for seed in range(rows)]
    logits = mx.broadcast_to(mx.array(_LOGITS), (rows, len(_LOGITS)))
    drawn: list[int] = []
    for _ in range(rounds):
        drawn += cast("list[int]", choose(logits, samplers, full_sort=full_sort).tokens.tolist())
    return drawn


@pytest.mark.parametrize("full_sort", [True, False])
@pytest.mark.parametrize(
    "way",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(temperature=2.0),
        Sampling(top_k=3),
        Sampling(top_p=0.6),
        Sampling(top_p=0.95),
        Sampling(min_p=0.2),
        Sampling(temperature=1.7, top_k=6, top_p=0.8, min_p=0.15),
        Sampling(temperature=1.7, top_k=4, top_p=0.9),
    ],
    ids=repr,
)
def test_tokens_come_as_often_as_their_probability_says(way: Sampling, full_sort: bool) -> None:
    exact = _exact(way)
    seen = np.bincount(_draw(way, full_sort=full_sort), minlength=len(exact))
    assert not seen[exact == 0].any()
    expected = exact[exact > 0] * _DRAWS
    statistic = ((seen[exact > 0] - expected) ** 2 / expected).sum()
    assert statistic < _CHI_SQUARE[len(expected) - 1]


@pytest.mark.parametrize(
    "way",
    [
        Sampling(temperature=0.0),
        Sampling(temperature=1e-40),  # not zero, but logits divided by it leave float32
        Sampling(temperature=5.0, top_k=1),
        Sampling(temperature=5.0, top_p=1e-9),
        Sampling(temperature=5.0, min_p=1.0),
    ],
    ids=repr,
)
def test_the_best_token_where_no_other_may_be(way: Sampling) -> None:
    assert set(_draw(way, 1)) == {int(_LOGITS.argmax())}


def test_a_top_k_of_a_million_is_no_top_k() -> None:
    assert _draw(Sampling(top_k=10**6), 1) == _draw(Sampling(), 1)
    assert _draw(Sampling(top_k=len(_LOGITS)), 1) == _draw(Sampling(top_k=0), 1)


def _wide(vocab: int, rows: int, *, flat: bool) -> mx.array:
    noise = np.random.default_rng(5).normal(size=(rows, vocab)).astype(np.float32)
    return mx.array(noise * (0.05 if flat else 4.0))


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(
    "way",
    [
        Sampling(top_p=0.9),
        Sampling(top_p=0.999999),
        Sampling(min_p=0.5),
        Sampling(min_p=1e-6),
        Sampling(top_k=1500),
        Sampling(top_k=1500, top_p=0.99, min_p=1e-4),
        Sampling(temperature=2.0, top_k=40),
    ],
    ids=repr,
)
def test_candidates_pick_what_a_full_sort_picks(way: Sampling, flat: bool) -> None:
    """Flat distributions have nuclei far larger than the number of candidates."""
    logits = _wide(5000, 6, flat=flat)

    def pick(full_sort: bool) -> list[int]:
        samplers = [Sampler(way, seed, [], 5000) for seed in range(6)]
        return cast("list[int]", choose(logits, samplers, full_sort=full_sort).tokens.tolist())

    assert pick(True) == pick(False)


def test_equal_logits_come_in_the_same_order_either_way() -> None:
    """A neighbour with a wide nucleus makes everybody's pick come from a full sort."""
    coarse = mx.round(_wide(5000, 1, flat=False) / 3)
    both = mx.concatenate([coarse, _wide(5000, 1, flat=True)])
    for seed in range(30):
        mine, other = Sampling(top_p=0.5), Sampling(top_p=0.9)
        solo = choose(coarse, [Sampler(mine, seed, [], 5000)], full_sort=False).tokens
        shared = choose(both, [Sampler(mine, seed, [], 5000), Sampler(other, 1, [], 5000)], full_sort=False)
        assert shared.tokens[0].item() == solo.item()


def test_a_row_is_sampled_alike_alone_and_in_any_batch() -> None:
    ways = [
        Sampling(temperature=0),
        Sampling(),
        Sampling(top_p=0.7),
        Sampling(temperature=0.6, top_k=5),
        Sampling(presence_penalty=1.5, logit_bias={3: 4.0}),
        Sampling(repetition_penalty=1.4, top_p=0.9),
    ]
    logits = _wide(300, len(ways), flat=False) / 4
    solo = []
    for i, way in enumerate(ways):
        sampler = Sampler(way, 20 + i, [1, 2], 300)
        solo.append([choose(logits[i : i + 1], [sampler], full_sort=False).tokens.item() for _ in range(20)])
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4]):
        samplers = [Sampler(ways[i], 20 + i, [1, 2], 300) for i in order]
        rows = logits[mx.array(order)]
        steps = [
            cast("list[int]", choose(rows, samplers, full_sort=False).tokens.tolist()) for _ in range(20)
        ]
        for place, i in enumerate(order):
            assert [step[place] for step in steps] == solo[i]


def test_choose_gives_back_the_logits_before_any_adjustment() -> None:
    logits = mx.array(_LOGITS)[None].astype(mx.bfloat16)
    choice = choose(
        logits, [Sampler(Sampling(temperature=0, logit_bias={0: 50.0}), 0, [], 10)], full_sort=True
    )
    assert choice.tokens.item() == 0
    assert choice.logits.dtype == mx.float32
    assert mx.array_equal(choice.logits, logits.astype(mx.float32)).item()


def _penalized(way: Sampling, prompt: list[int], said: list[int]) -> Any:
    """bias, repetition, presence and frequency as their formulas say."""
    logits = _LOGITS.astype(np.float64).copy()
    for token, bias in way.logit_bias.items():
        logits[token] += bias
    for token in set(prompt) | set(said):
        factor = way.repetition_penalty or 1.0
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token in set(said):
        logits[token] -= way.presence_penalty + way.frequency_penalty * said.count(token)
    return logits


@pytest.mark.parametrize(
    "way",
    [
        Sampling(repetition_penalty=1.5),
        Sampling(repetition_penalty=0.8),
        Sampling(presence_penalty=0.7),
        Sampling(frequency_penalty=0.4),
        Sampling(frequency_penalty=-1.0),
        Sampling(logit_bias={0: -3.0, 9: 2.5}),
        Sampling(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.25, logit_bias={6: -1.0}),
    ],
    ids=repr,
)
def test_penalties_are_their_formulas(way: Sampling) -> None:
    prompt, said = [2, 2, 5], [6, 6, 8, 3, 6]
    sampler = Sampler(way, 0, prompt, len(_LOGITS))
    assert sampler.adjusts
    for token in said:
        sampler.chosen(mx.array([token]))
    got = np.array(sampler.adjust(mx.array(_LOGITS)[None]).tolist())[0]
    np.testing.assert_allclose(got, _penalized(way, prompt, said), rtol=1e-5, atol=1e-5)


def test_penalties_see_the_tokens_that_were_chosen() -> None:
    way = Sampling(temperature=0, presence_penalty=10.0)
    assert sorted(_draw(way, len(_LOGITS), rows=1)) == list(range(len(_LOGITS)))  # each is taken once


def test_neutral_fields_adjust_nothing() -> None:
    assert not Sampler(Sampling(temperature=0.3, top_k=2, repetition_penalty=1.0), 0, [1], 10).adjusts


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_of_100_forces_or_bans(sign: int) -> None:
    if sign > 0:
        assert set(_draw(Sampling(temperature=1.0, logit_bias={7: 100.0}), 1)) == {7}
    else:
        banned = {int(token): -100.0 for token in (6, 0, 8)}
        assert not set(_draw(Sampling(temperature=1.0, logit_bias=banned), 1)) & set(banned)


def test_uniform_has_known_values_and_stays_inside() -> None:
    # SplitMix64 with state 0 gives this first output (a published test vector).
    assert sampling._mix(0) == 0xE220A8397B1DCDAF
    inner = sampling._mix(42)
    expected = ((sampling._mix((inner + 3) & (2**64 - 1)) >> 41) + 0.5) / 2**23
    assert uniform(42, 3) == expected
    drawn = [uniform(seed, place) for seed in range(40) for place in range(250)]
    assert 0 < min(drawn) < 0.001
    assert 0.999 < max(drawn) < 1
    assert len(set(drawn)) > 9900
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.01)
    assert all(np.float32(value) == value for value in drawn)
    assert uniform(-1, 0) == uniform(2**64 - 1, 0)


def test_the_first_token_takes_the_first_number() -> None:
    sampler = Sampler(Sampling(), 42, [], 10)
    assert [sampler.next_uniform() for _ in range(3)] == [uniform(42, 0), uniform(42, 1), uniform(42, 2)]


def test_the_ends_of_the_interval_pick_the_ends_of_the_distribution() -> None:
    weights = mx.array([[0.0, 0.25, 0.0, 0.75, 0.0]])
    smallest, largest = 0.5 / 2**23, (2**23 - 0.5) / 2**23
    for u, token in [(smallest, 1), (0.2499, 1), (0.2501, 3), (largest, 3)]:
        assert sampling._pick(weights, mx.array([[u]])).item() == token


def test_positions_of_a_sequence_are_not_correlated() -> None:
    pairs = [(uniform(seed, 0), uniform(seed, 1)) for seed in range(2000)]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 4 / math.sqrt(2000)
    neighbours = [(uniform(seed, 0), uniform(seed + 1, 0)) for seed in range(2000)]
    assert abs(np.corrcoef(np.array(neighbours).T)[0, 1]) < 4 / math.sqrt(2000)
