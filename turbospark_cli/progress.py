"""How far a long job has come, told in sparse lines for a log; `console` draws the bar for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, Protocol

Unit = Literal["bytes", "steps"]

_LINE_EVERY: Final = 10.0  # seconds between two lines in a log
_LINE_SHARE: Final = 0.1  # or this much of the total, whichever comes first
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Progress(Protocol):
    """What a job tells while it works; `done` never exceeds the total by more than a rounding error."""

    def advance(self, n: int) -> None:
        """`n` more units are done."""

    def update(self, done: int) -> None:
        """`done` units are done in all, as after a resumed download."""


def size_text(count: float) -> str:
    """A byte count for people, in decimal units: 98.3 MB."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes every size")


class _Lines:
    """Writes a line at most every ten seconds or every tenth of the way."""

    def __init__(self, label: str, total: int | None, unit: Unit, tell: Callable[[str], None]) -> None:
        self._label, self._total, self._unit, self._tell = label, total, unit, tell
        self._done = 0
        self._said_done = 0
        self._began = self._said_at = time.monotonic()

    def advance(self, n: int) -> None:
        self.update(self._done + n)

    def update(self, done: int) -> None:
        self._done = done
        far = self._total is not None and done - self._said_done >= self._total * _LINE_SHARE
        if far or time.monotonic() - self._said_at >= _LINE_EVERY:
            self.say()

    def say(self) -> None:
        self._said_at, self._said_done = time.monotonic(), self._done
        rate = self._done / max(self._said_at - self._began, 1e-6)
        parts = [self._amount(self._done)]
        if self._total:
            parts = [f"{self._done * 100 // self._total}%", f"{parts[0]} of {self._amount(self._total)}"]
        if self._unit == "bytes":
            parts.append(f"{size_text(rate)}/s")
        self._tell(f"{self._label}: {', '.join(parts)}")

    def finish(self) -> None:
        if self._done != self._said_done or self._done == 0:
            self.say()

    def _amount(self, count: int) -> str:
        return size_text(count) if self._unit == "bytes" else str(count)


@contextmanager
def lines(label: str, total: int | None, unit: Unit, tell: Callable[[str], None]) -> Iterator[Progress]:
    """For a log or a pipe: a line now and then, the last one when the job is through; `tell` writes it."""
    reporter = _Lines(label, total, unit, tell)
    yield reporter
    reporter.finish()
