"""What a long job is doing now, in one line on stderr that changes in place; `console.status` makes it."""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Callable
from typing import IO, Final, Protocol

_EVERY: Final = 10.0  # seconds between two lines in a log
_CLEAR: Final = "\r\x1b[K"


class Status(Protocol):
    """One line; whoever writes to the terminal clears it before, and shows it again."""

    def show(self, facts: str, detail: str = "") -> None:
        """Say `facts`, and the end of `detail` where there is room."""
        ...

    def clear(self) -> None:
        """Leave no line behind."""
        ...


class LiveStatus:
    """For a terminal."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._shown = False

    def show(self, facts: str, detail: str = "") -> None:
        width = _columns(self._stream) - 1
        line = _fitting(facts, width, from_end=False)
        room = width - _width(line) - 2
        if detail and room > 8:
            line = f"{line}  {_fitting(detail, room, from_end=True)}"
        self._stream.write(f"{_CLEAR}{line}")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False


class SparseStatus:
    """For a log: a line now and then, without the detail."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._said_at = time.monotonic()

    def show(self, facts: str, detail: str = "") -> None:
        if time.monotonic() - self._said_at >= _EVERY:
            self._said_at = time.monotonic()
            self._tell(facts)

    def clear(self) -> None:
        pass


class NoStatus:
    """For `-q`."""

    def show(self, facts: str, detail: str = "") -> None:
        pass

    def clear(self) -> None:
        pass


def clock_text(seconds: float) -> str:
    """A length of time for people: 0:07, 12:34, 1:02:03."""
    whole = max(round(seconds), 0)
    minutes, whole = divmod(whole, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}" if minutes >= 60 else f"{minutes}:{whole:02}"


def _columns(stream: IO[str]) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _width(text: str) -> int:
    """Cells that `text` takes on a terminal."""
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitting(text: str, width: int, *, from_end: bool) -> str:
    """`text` on one line and without control characters, cut to `width` cells at its start or end."""
    clean = "".join(each if each.isprintable() else " " for each in text)
    kept: list[str] = []
    for character in reversed(clean) if from_end else clean:
        width -= _cells(character)
        if width < 0:
            break
        kept.append(character)
    return "".join(reversed(kept) if from_end else kept)
