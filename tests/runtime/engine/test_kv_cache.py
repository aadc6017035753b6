"""Buckets: who shares one, and that rows come out of them as they went in."""

from __future__ import annotations

import hypothesis.strategies as st
import mlx.core as mx
import pytest
from hypothesis import given, settings

from turbospark_cli.runtime.engine.kv_cache import BucketedCache, Layout

_HEADS, _DIM = 2, 4


def _row(length: int, number: int, heads: int = _HEADS) -> tuple[mx.array, mx.array]:
    keys = mx.random.normal((1, heads, length, _DIM), key=mx.random.key(number))
    values = mx.random.normal((1, heads, length, _DIM + 1), key=mx.random.key(1000 + number))
    return keys, values


def _equal(left: mx.array, right: mx.array) -> bool:
    return bool(mx.array_equal(left, right).item())


@pytest.mark.parametrize(
    ("lengths", "buckets"),
    [
        ([], []),
        ([5], [(0, 1)]),
        ([129, 1], [(0, 2)]),  # 128 columns of padding are never worth a bucket
        ([130, 1], [(0, 1), (1, 2)]),
        ([1000, 750, 749], [(0, 2), (2, 3)]),  # a quarter of the longest
        ([1000, 20, 20, 20], [(0, 1), (1, 4)]),
        ([900, 800, 700, 600, 470, 1], [(0, 3), (3, 5), (5, 6)]),
    ],
)
def test_rows_of_similar_length_share_a_bucket(lengths: list[int], buckets: list[tuple[int, int]]) -> None:
    layout = Layout(lengths)
    assert [(bucket.start, bucket.stop) for bucket in layout.buckets] == buckets
    assert [pad for bucket in layout.buckets for pad in bucket.pads] == [
        lengths[start] - lengths[i] for start, stop in buckets for i in range(start, stop)
    ]


def test_advance_moves_positions_ends_and_masks() -> None:
    layout = Layout([7, 5, 5])
    layout.advance()
    assert layout.offset.tolist() == [7, 5, 5]
    assert layout.lengths == [8, 6, 6]
    mask = layout.buckets[0].mask
    assert mask is not None
    assert mask.shape == (3, 1, 1, 8)
    assert mask[:, 0, 0].astype(mx.int32).sum(axis=1).tolist() == [8, 6, 6]
    assert not mask[1, 0, 0, 1].item()
    assert mask[1, 0, 0, 2].item()
    even = Layout([4, 4])
    even.advance()
    assert even.buckets[0].mask is None
    layout.advance()
    assert layout.offset.tolist() == [8, 6, 6]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 600), min_size=1, max_size=7).map(lambda x: sorted(x, reverse=True)))
def test_rows_is_the_inverse_of_fill(lengths: list[int]) -> None:
    rows = [_row(length, number) for number, length in enumerate(lengths)]
    cache = BucketedCache(Layout(lengths), fold_groups=False)
    cache.fill(rows)
    for (keys, values), (got_keys, got_values) in zip(rows, cache.rows(), strict=True):
        assert _equal(keys, got_keys)
        assert _equal(values, got_values)


def _plain_attention(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """One row, written out: (heads, 1, dim)."""
    repeats = queries.shape[1] // keys.shape[1]
    keys, values = mx.repeat(keys, repeats, axis=1), mx.repeat(values, repeats, axis=1)
    weights = mx.softmax(0.5 * queries @ keys.swapaxes(-1, -2), axis=-1)
    return weights @ values


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("lengths", [[3], [9, 9], [300, 290, 290, 12, 1], [256, 255]])
def test_attend_is_attention_over_each_rows_own_tokens(fold: bool, heads: int, lengths: list[int]) -> None:
    """For long enough that every buffer grows."""
    rows = [_row(length, number) for number, length in enumerate(lengths)]
    layout = Layout(lengths)
    cache = BucketedCache(layout, fold)
    cache.fill(rows)
    for step in range(262):
        layout.advance()
        new = [_row(1, 100 * step + number) for number in range(len(lengths))]
        queries = mx.random.normal((len(lengths), heads, 1, _DIM), key=mx.random.key(step))
        keys, values = cache.update_and_fetch(
            mx.concatenate([key for key, _ in new]), mx.concatenate([value for _, value in new])
        )
        got = cache.attend(queries, keys, values, 0.5, None)
        rows = [
            (mx.concatenate([old_keys, key], axis=2), mx.concatenate([old_values, value], axis=2))
            for (old_keys, old_values), (key, value) in zip(rows, new, strict=True)
        ]
        mx.eval(got, rows)
        if step % 60 == 0 or step > 255:
            for i, (all_keys, all_values) in enumerate(rows):
                expected = _plain_attention(queries[i : i + 1], all_keys, all_values)
                assert mx.allclose(got[i : i + 1], expected, atol=1e-5).item()
    assert cache.attended
    for (keys, values), (got_keys, got_values) in zip(rows, cache.rows(), strict=True):
        assert _equal(keys, got_keys)
        assert _equal(values, got_values)


def test_sinks_take_their_share_of_the_attention() -> None:
    lengths = [5, 3]
    rows = [_row(length, number) for number, length in enumerate(lengths)]
    layout = Layout(lengths)
    cache = BucketedCache(layout, fold_groups=True)
    cache.fill(rows)
    layout.advance()
    new = [_row(1, 50 + number) for number in range(2)]
    queries = mx.random.normal((2, 4, 1, _DIM), key=mx.random.key(9))
    sinks = mx.array([0.5, -1.0, 2.0, 0.0])
    got = cache.attend(
        queries,
        mx.concatenate([key for key, _ in new]),
        mx.concatenate([value for _, value in new]),
        0.5,
        sinks,
    )
    for i, (row, column) in enumerate(zip(rows, new, strict=True)):
        keys = mx.repeat(mx.concatenate([row[0], column[0]], axis=2), 2, axis=1)
        values = mx.repeat(mx.concatenate([row[1], column[1]], axis=2), 2, axis=1)
        scores = mx.exp(0.5 * queries[i : i + 1] @ keys.swapaxes(-1, -2))
        total = scores.sum(axis=-1, keepdims=True) + mx.exp(sinks)[None, :, None, None]
        assert mx.allclose(got[i : i + 1], scores / total @ values, atol=1e-5).item()


def test_masks_and_windows_of_a_models_own_are_not_for_buckets() -> None:
    from turbospark_cli.runtime.engine import mlx_models

    cache = BucketedCache(Layout([2]), fold_groups=False)
    assert cache.make_mask(1) is None  # type: ignore[func-returns-value]
    with pytest.raises(ValueError, match="window"):
        cache.make_mask(1, return_array=False, window_size=16)
    some = mx.zeros((1, 2, 1, 4))
    with pytest.raises(ValueError, match="mask"):
        mlx_models._attention(some, some, some, cache, 1.0, mx.zeros((1, 1, 1, 3)))
