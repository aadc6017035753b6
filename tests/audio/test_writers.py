"""Transcripts in every form."""

from __future__ import annotations

import json

import pytest
from openai.types.audio import TranscriptionVerbose

from turbospark_cli.audio.transcript import Segment, Word
from turbospark_cli.audio.writers import FORMATS, Facts, Format, Style, writer

SEGMENTS = [
    Segment(
        0.0,
        2.5,
        " Hello there.",
        tokens=(5, 6),
        avg_logprob=-0.25,
        words=(Word(0.1, 0.6, " Hello", 0.91234), Word(0.7, 2.5, " there.", 0.8)),
    ),
    Segment(
        3661.0004, 3662.9996, " 1 < 2 & 3 --> 4,\n\nthey\tsay.", words=(Word(3661.0, 3662.0, " 1<2", 1.0),)
    ),
    Segment(3663.0, 3664.0, "  "),
]
FACTS = Facts("talk.mp3", "transcribe", "en", 3665.12345)


def written(form: Format, style: Style | None = None) -> str:
    each = writer(form, style or Style())
    return each.head() + "".join(map(each.segment, SEGMENTS)) + each.tail(FACTS)


def test_txt() -> None:
    assert written("txt") == "Hello there.\n1 < 2 & 3 --> 4, they say.\n"


def test_txt_with_times() -> None:
    assert written("txt", Style(timestamps=True)) == (
        "[00:00.000 --> 00:02.500] Hello there.\n[01:01:01.000 --> 01:01:03.000] 1 < 2 & 3 --> 4, they say.\n"
    )


def test_srt() -> None:
    assert written("srt") == (
        "1\n00:00:00,000 --> 00:00:02,500\nHello there.\n\n"
        "2\n01:01:01,000 --> 01:01:03,000\n1 < 2 & 3 --> 4, they say.\n\n"
    )


def test_vtt_lets_no_markup_in() -> None:
    assert written("vtt") == (
        "WEBVTT\n\n"
        "00:00:00.000 --> 00:00:02.500\nHello there.\n\n"
        "01:01:01.000 --> 01:01:03.000\n1 &lt; 2 &amp; 3 --&gt; 4, they say.\n\n"
    )


def test_tsv() -> None:
    assert written("tsv") == (
        "start\tend\ttext\n0\t2500\tHello there.\n3661000\t3663000\t1 < 2 & 3 --> 4, they say.\n"
    )


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("txt", "[00:00.100 --> 00:00.600] Hello\n[00:00.700 --> 00:02.500] there.\n"),
        ("srt", "1\n00:00:00,100 --> 00:00:00,600\nHello\n\n2\n00:00:00,700 --> 00:00:02,500\nthere.\n\n3\n"),
        ("tsv", "start\tend\ttext\n100\t600\tHello\n700\t2500\tthere.\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\n<00:00:00.100> Hello<00:00:00.700> there.\n\n"),
    ],
)
def test_words(form: Format, text: str) -> None:
    assert written(form, Style(words=True)).startswith(text)


def test_json_is_read_by_the_sdk() -> None:
    text = written("json", Style(words=True))
    assert text.count("\n") == 1
    document = json.loads(text)
    assert (document["file"], document["task"], document["language"]) == ("talk.mp3", "transcribe", "en")
    read = TranscriptionVerbose.model_validate({**document, "segments": None})
    assert read.duration == 3665.123
    assert read.text.startswith("Hello there. 1 < 2")
    assert read.words is not None
    assert [(word.word, word.start, word.end) for word in read.words][:2] == [
        ("Hello", 0.1, 0.6),
        ("there.", 0.7, 2.5),
    ]
    assert document["words"][0]["probability"] == 0.9123
    assert document["segments"][0] == {
        "id": 0,
        "start": 0.0,
        "end": 2.5,
        "text": " Hello there.",
        "tokens": [5, 6],
        "temperature": 0.0,
        "avg_logprob": -0.25,
        "compression_ratio": 1.0,
        "no_speech_prob": 0.0,
    }


def test_json_without_words_has_none() -> None:
    assert "words" not in json.loads(written("json"))


@pytest.mark.parametrize("form", FORMATS)
def test_no_speech_is_a_valid_transcript(form: Format) -> None:
    each = writer(form, Style())
    text = each.head() + each.tail(Facts("a", "transcribe", None, 1.0))
    empty = {"txt": "", "srt": "", "vtt": "WEBVTT\n\n", "tsv": "start\tend\ttext\n"}
    assert json.loads(text)["segments"] == [] if form == "json" else text == empty[form]
