"""The line that changes in place."""

from __future__ import annotations

import io
import os
import pty

import pytest

from turbospark_cli import console
from turbospark_cli.status_line import LiveStatus, NoStatus, SparseStatus, clock_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03"), (-1, "0:00")],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def shown(facts: str, detail: str = "") -> str:
    stream = io.StringIO()  # 80 columns, since it is no terminal
    LiveStatus(stream).show(facts, detail)
    return stream.getvalue().removeprefix("\r\x1b[K")


def test_a_line_never_wraps_and_shows_the_end_of_the_detail() -> None:
    assert shown("ten of ten") == "ten of ten"
    line = shown("half", "word " * 40 + "last")
    assert len(line) == 79
    assert line.startswith("half  ")
    assert line.endswith(" last")
    assert len(shown("x" * 200)) == 79
    assert shown("x" * 76, "detail") == "x" * 76


def test_wide_characters_take_two_cells() -> None:
    assert len(shown("音" * 100)) == 39


def test_a_model_cannot_control_the_terminal() -> None:
    assert shown("a", "\x1b[31mred\nline") == "a   [31mred line"


def test_clearing_leaves_nothing() -> None:
    stream = io.StringIO()
    status = LiveStatus(stream)
    status.clear()
    assert stream.getvalue() == ""
    status.show("a")
    status.clear()
    status.clear()
    assert stream.getvalue() == "\r\x1b[Ka\r\x1b[K"


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("turbospark_cli.status_line.time.monotonic", lambda: now)
    said: list[str] = []
    status = SparseStatus(said.append)
    for now in (101.0, 109.0, 110.5, 111.0, 121.0):
        status.show(f"at {now}", "detail")
    status.clear()
    assert said == ["at 110.5", "at 121.0"]


def test_the_kind_follows_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(console.status(quiet=True), NoStatus)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(console.status(), SparseStatus)
    master, terminal = pty.openpty()
    with os.fdopen(master, "rb"), os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        assert isinstance(console.status(), LiveStatus)
