"""A transcript as text: txt, srt, vtt, tsv and json.

A writer is fed segment by segment, so that whoever reads its text sees it grow; only json comes in one piece
at the end. Captions stay well formed whatever a model says: no blank line splits one, no markup enters vtt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args

from turbospark_cli.audio.transcript import Segment, Task

Format = Literal["txt", "srt", "vtt", "tsv", "json"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
_DIGITS: Final = 3  # of seconds in json
_LIKELY_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Style:
    """What entries are: segments, or single words; `timestamps` shows times where they may be left out."""

    timestamps: bool = False
    words: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a transcript once it is complete; `seconds` is how much sound was heard."""

    name: str
    task: Task
    language: str | None
    seconds: float


class Writer(Protocol):
    """Makes the text of one transcript; the pieces in order are the whole."""

    def head(self) -> str: ...

    def segment(self, segment: Segment) -> str: ...

    def tail(self, facts: Facts) -> str: ...


def writer(form: Format, style: Style) -> Writer:
    """A writer for one transcript."""
    makers: dict[Format, Callable[[Style], Writer]] = {
        "txt": Txt,
        "srt": Srt,
        "vtt": Vtt,
        "tsv": Tsv,
        "json": Json,
    }
    return makers[form](style)


@dataclass(frozen=True, slots=True)
class _Entry:
    start: float
    end: float
    text: str


class _Lines:
    """A writer whose segments are written one by one."""

    def __init__(self, style: Style) -> None:
        self._style = style

    def head(self) -> str:
        return ""

    def segment(self, segment: Segment) -> str:
        return "".join(map(self._entry, self._entries(segment)))

    def tail(self, facts: Facts) -> str:
        return ""

    def _entries(self, segment: Segment) -> Iterator[_Entry]:
        parts = segment.words if self._style.words and segment.words else (segment,)
        for part in parts:
            if text := _one_line(part.text):
                yield _Entry(part.start, part.end, text)

    def _entry(self, entry: _Entry) -> str:
        raise NotImplementedError


class Txt(_Lines):
    """A line for each entry."""

    def _entry(self, entry: _Entry) -> str:
        if not (self._style.timestamps or self._style.words):
            return f"{entry.text}\n"
        start, end = (_clock(each, ".", hours=each >= 3600) for each in (entry.start, entry.end))
        return f"[{start} --> {end}] {entry.text}\n"


class Srt(_Lines):
    """SubRip: numbered captions."""

    _number = 0

    def _entry(self, entry: _Entry) -> str:
        self._number += 1
        return f"{self._number}\n{_clock(entry.start, ',')} --> {_clock(entry.end, ',')}\n{entry.text}\n\n"


class Vtt(_Lines):
    """WebVTT; a caption holds the times of its words where they are known."""

    def head(self) -> str:
        return "WEBVTT\n\n"

    def segment(self, segment: Segment) -> str:
        text = _escaped(_one_line(segment.text))
        if self._style.words and segment.words:
            spoken = (f"<{_clock(word.start, '.')}>{_escaped(word.text)}" for word in segment.words)
            text = _one_line("".join(spoken))
        if not text:
            return ""
        return f"{_clock(segment.start, '.')} --> {_clock(segment.end, '.')}\n{text}\n\n"


class Tsv(_Lines):
    """Tab-separated values; times in whole milliseconds."""

    def head(self) -> str:
        return "start\tend\ttext\n"

    def _entry(self, entry: _Entry) -> str:
        return f"{round(entry.start * 1000)}\t{round(entry.end * 1000)}\t{entry.text}\n"


class Json:
    """One object on one line, with the fields of OpenAI's verbose_json, and the name of the file."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._segments: list[Segment] = []

    def head(self) -> str:
        return ""

    def segment(self, segment: Segment) -> str:
        self._segments.append(segment)
        return ""

    def tail(self, facts: Facts) -> str:
        import msgspec

        document: dict[str, Any] = {
            "file": facts.name,
            "task": facts.task,
            "language": facts.language,
            "duration": round(facts.seconds, _DIGITS),
            "text": "".join(segment.text for segment in self._segments).strip(),
            "segments": [_segment(number, segment) for number, segment in enumerate(self._segments)],
        }
        if self._style.words:
            document["words"] = [
                {
                    "word": word.text.strip(),
                    "start": round(word.start, _DIGITS),
                    "end": round(word.end, _DIGITS),
                    "probability": round(word.probability, _LIKELY_DIGITS),
                }
                for segment in self._segments
                for word in segment.words
            ]
        return msgspec.json.encode(document).decode() + "\n"


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "start": round(segment.start, _DIGITS),
        "end": round(segment.end, _DIGITS),
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": round(segment.avg_logprob, _LIKELY_DIGITS),
        "compression_ratio": round(segment.compression_ratio, _LIKELY_DIGITS),
        "no_speech_prob": round(segment.no_speech_prob, _LIKELY_DIGITS),
    }


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, point: str, *, hours: bool = True) -> str:
    """01:02:03.456, or 02:03.456 without the hours."""
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    tail = f"{milliseconds // 1000:02}{point}{milliseconds % 1000:03}"
    return f"{minutes // 60:02}:{minutes % 60:02}:{tail}" if hours else f"{minutes:02}:{tail}"
