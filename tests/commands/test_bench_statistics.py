"""The figures that streams add up to."""

from __future__ import annotations

import pytest

from turbospark_cli.commands.bench.report import middle, ratios, shown, side_by_side
from turbospark_cli.commands.bench.statistics import (
    Figures,
    Stream,
    decode_rate,
    median,
    percentile,
    spread,
    summarize,
)


def _stream(sent: float, stamps: list[float], tokens: int | None = None, **more: object) -> Stream:
    stream = Stream(sent, stamps, len(stamps) if tokens is None else tokens, finish="stop")
    for name, value in more.items():
        setattr(stream, name, value)
    return stream


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([3.0], 0.95, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.5),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0.25, 2.0),
        ([0.0, 10.0], 0.95, 9.5),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_percentiles(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == pytest.approx(expected)


def test_nothing_has_no_figures() -> None:
    assert percentile([], 0.5) is None
    assert median([None, None]) is None
    assert spread([None, 1.0]) is None
    assert spread([0.0, 0.0]) is None


def test_the_spread_is_half_the_range_over_the_median() -> None:
    assert spread([90.0, 100.0, 110.0]) == pytest.approx(0.1)


def test_a_streams_own_figures() -> None:
    stream = _stream(1.0, [3.0, 4.0, 5.0, 7.0])
    assert stream.first == 2.0
    assert stream.rate == pytest.approx(3 / 4)
    assert _stream(0.0, [1.0]).rate is None


def test_decoding_counts_only_while_all_are_decoding() -> None:
    early = _stream(0.0, [1.0, 2.0, 3.0, 4.0, 5.0])
    late = _stream(0.0, [3.0, 4.0, 5.0, 6.0, 7.0])
    assert decode_rate([early, late], 2) == pytest.approx(4 / 2)  # both from 3 to 5
    assert decode_rate([early, late], 1) == pytest.approx(9 / 6)  # either, from 1 to 7


def test_arrivals_that_hold_several_tokens_count_as_such() -> None:
    assert decode_rate([_stream(0.0, [1.0, 2.0, 3.0], tokens=6)], 1) == pytest.approx(2 * 2 / 2)


def test_streams_that_never_overlap_have_no_common_rate() -> None:
    assert decode_rate([_stream(0.0, [1.0, 2.0]), _stream(0.0, [3.0, 4.0])], 2) is None


def test_a_level_in_figures() -> None:
    streams = [
        _stream(0.0, [1.0, 1.1, 1.2], prompt_tokens=20),
        _stream(0.0, [2.0, 2.3], prompt_tokens=40),
        _stream(0.0, [], error="HTTP 500"),
        _stream(0.5, [9.0], extra=True),
    ]
    figures = summarize(streams, 1, wall=2.5)
    assert (figures["requests"], figures["errors"], figures["tokens"]) == (4, 1, 5)
    assert figures["prompt_tokens"] == 30
    assert figures["ttft_p50_ms"] == pytest.approx(1500)
    assert figures["itl_p50_ms"] == pytest.approx(100)
    assert figures["itl_max_ms"] == pytest.approx(300)
    assert figures["total_tok_s"] == pytest.approx(2)


def test_a_level_in_which_everything_failed() -> None:
    figures = summarize([_stream(0.0, [], error="refused")], 1, wall=1.0)
    assert (figures["errors"], figures["tokens"]) == (1, 0)
    assert figures["ttft_p50_ms"] is None
    assert figures["decode_tok_s"] is None


def test_the_middle_of_three_rounds() -> None:
    rounds: list[Figures] = [
        {"speed": 10.0, "errors": 0, "error": None},
        {"speed": 14.0, "errors": 1, "error": "HTTP 500"},
        {"speed": 11.0, "errors": 2, "error": "HTTP 503"},
    ]
    figures = middle(rounds, "speed")
    assert (figures["speed"], figures["errors"], figures["error"]) == (11.0, 3, "HTTP 500")
    assert figures["rounds"] == 3
    assert figures["spread"] == pytest.approx(2 / 11)


def test_ratios_leave_out_what_has_none() -> None:
    mine: Figures = {"speed": 30.0, "wait": None, "errors": 0, "spread": 0.1, "idle": 1.0}
    other: Figures = {"speed": 10.0, "wait": 2.0, "errors": 0, "spread": 0.2, "idle": 0.0}
    assert ratios(mine, other) == {"speed": 3.0}


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (1234.5, "1234"), (0.01234, "0.0123"), (5, "5"), (2.0, "2"), ("x", "x")]
)
def test_figures_for_people(value: object, text: str) -> None:
    assert shown(value) == text


def test_servers_side_by_side() -> None:
    table = side_by_side(
        "8 at a time", {"a": {"speed": 30.0, "error": None}, "b": {"speed": 10.0}, "ratio": {"speed": 3.0}}
    )
    assert table.splitlines() == [
        "| 8 at a time |  a |  b | ratio |",
        "|-------------|---:|---:|------:|",
        "| speed       | 30 | 10 |     3 |",
    ]
