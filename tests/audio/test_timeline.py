"""Times of what was heard come back as the times of the file, to the sample."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turbospark_cli.audio.timeline import Timeline
from turbospark_cli.audio.transcript import SAMPLE_RATE, Language, Partial, Progress, Segment, Word
from turbospark_cli.audio.vad import Piece, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = SAMPLE_RATE


def timeline(spans: Sequence[Span], origin: float = 0.0) -> Timeline:
    made = Timeline(origin)
    pieces = [Piece(span, np.zeros(span.length, np.float32)) for span in spans]
    assert sum(map(len, made.listen(pieces))) == sum(span.length for span in spans)
    return made


def span(start: float, voice: float, voice_end: float, end: float) -> Span:
    first, last = round(start * SECOND), round(end * SECOND)
    return Span(first, round(voice * SECOND), round(voice_end * SECOND), last - first)


TWO = [span(10, 10.5, 13.5, 14), span(60, 60.5, 64.5, 65)]  # heard as 0 to 4 and 4 to 9


def placed(start: float, end: float, spans: Sequence[Span] = TWO) -> tuple[float, float]:
    event = timeline(spans).place(Segment(start, end, "text"))
    assert isinstance(event, Segment)
    return event.start, event.end


def test_segments_come_back_to_their_span() -> None:
    assert placed(0.5, 3.5) == (10.5, 13.5)
    assert placed(4.5, 8.25) == (60.5, 64.25)


def test_the_seam_belongs_to_whoever_touches_it() -> None:
    assert placed(1, 4) == (11, 14)
    assert placed(4, 5) == (60, 61)
    assert placed(4, 4) == (60, 60)


def test_a_segment_over_the_seam_with_a_voice_on_both_sides_spans_the_silence() -> None:
    assert placed(3, 6) == (13, 62)


def test_a_segment_of_nothing_but_the_silence_around_a_seam_stays_where_it_is() -> None:
    assert placed(3.6, 4.4) == (13.6, 60.4)


def test_a_segment_that_begins_in_the_silence_before_the_seam_begins_behind_it() -> None:
    assert placed(3.6, 6) == (60.5, 62)


def test_a_segment_that_ends_in_the_silence_behind_the_seam_ends_before_it() -> None:
    assert placed(1, 4.3) == (11, 13.5)


def test_a_segment_of_nothing_but_that_silence_stays_in_order() -> None:
    start, end = placed(3.7, 4.2)
    assert start <= end


def test_a_segment_beyond_the_end_ends_with_the_sound() -> None:
    assert placed(8, 30) == (64, 65)


def test_words_never_span_a_silence() -> None:
    words = (Word(3.0, 3.8, " one", 0.9), Word(3.8, 4.4, " two", 0.8), Word(4.4, 5.0, " three", 0.7))
    event = timeline(TWO).place(Segment(2.9, 5.1, " one two three", words=words))
    assert isinstance(event, Segment)
    assert [(word.start, word.end) for word in event.words] == [(13, 13.8), (60, 60.4), (60.4, 61)]
    assert (event.start, event.end) == (13, 61)
    assert [word.text for word in event.words] == [" one", " two", " three"]


def test_the_rest_passes() -> None:
    there = timeline(TWO, origin=100)
    assert there.place(Partial("a")) == Partial("a")
    assert there.place(Language("en", 0.5)) == Language("en", 0.5)
    assert there.place(Progress(4)) == Progress(114)
    assert there.place(Progress(4.5)) == Progress(160.5)


@st.composite
def heard_spans(draw: st.DrawFn) -> list[Span]:
    spans, at = [], 0
    for _ in range(draw(st.integers(1, 6))):
        start = at + draw(st.integers(0, 10**6))
        before, voice, after = (draw(st.integers(least, 10**5)) for least in (0, 1, 0))
        spans.append(Span(start, start + before, start + before + voice, before + voice + after))
        at = start + spans[-1].length + 1
    return spans


@given(spans=heard_spans(), origin=st.integers(0, 10**6), data=st.data())
def test_every_moment_of_a_voice_is_exact(spans: list[Span], origin: int, data: st.DataObject) -> None:
    """What lies within one span's voice comes back to the sample, wherever the other spans are."""
    place = data.draw(st.integers(0, len(spans) - 1))
    chosen = spans[place]
    first = data.draw(st.integers(chosen.voice, chosen.voice_end - 1))
    last = data.draw(st.integers(first + 1, chosen.voice_end))
    shift = sum(each.length for each in spans[:place]) - chosen.start
    start, end = (first + shift) / SAMPLE_RATE, (last + shift) / SAMPLE_RATE
    there = timeline(spans, origin / SAMPLE_RATE)
    expected = [origin + sample for sample in (first, last)]
    for event in (Segment(start, end, "a"), Segment(start, end, "a", words=(Word(start, end, "a", 1.0),))):
        back = there.place(event)
        assert isinstance(back, Segment)
        assert [round(each * SAMPLE_RATE, 3) for each in (back.start, back.end)] == expected


@given(spans=heard_spans(), moments=st.lists(st.floats(0, 60), min_size=2, max_size=12))
def test_order_is_kept_and_nothing_leaves_the_spans(spans: list[Span], moments: list[float]) -> None:
    there = timeline(spans)
    moments.sort()
    last = 0.0
    for start, end in itertools.pairwise(moments):
        event = there.place(Segment(start, end, "a"))
        assert isinstance(event, Segment)
        assert spans[0].start / SAMPLE_RATE <= event.start <= event.end
        assert event.end <= (spans[-1].start + spans[-1].length) / SAMPLE_RATE
        assert event.start >= last - 1e-9
        last = event.end
