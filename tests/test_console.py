"""What goes to stdout, what goes to stderr, and what happens when a reader leaves."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from turbospark_cli import console
from turbospark_cli.errors import ModelNotFound, TurbosparkError, UsageError
from turbospark_cli.progress import lines, size_text


@pytest.fixture(autouse=True)
def _own_colour_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    yield
    console.configure(no_color=False)


class _Terminal:
    """A stream that says it is a terminal and keeps what it gets."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class _Row:
    name: str
    folder: Path


class _Struct(msgspec.Struct):
    size: int


def test_results_go_to_stdout_and_words_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_out("result")
    console.write_out("streamed")
    console.note("note")
    console.warn("careful")
    captured = capsys.readouterr()
    assert captured.out == "result\nstreamed"
    assert captured.err == "note\nwarning: careful\n"


def test_json_is_one_line_of_dataclasses_and_structs(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json([_Row("a", Path("/x")), _Struct(3)])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == [{"name": "a", "folder": "/x"}, {"size": 3}]


def test_an_error_is_a_sentence_an_empty_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(ModelNotFound("No such model.", hint="Pull it."))
    assert capsys.readouterr().err == "error: No such model.\n\nhint: Pull it.\n"
    console.print_error(ModelNotFound("No such model."))
    assert capsys.readouterr().err == "error: No such model.\n"


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> str:
        terminal = _Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        console.warn("careful")
        return terminal.text

    assert "\x1b[" in said()
    console.configure(no_color=True)
    assert said() == "warning: careful\n"
    console.configure(no_color=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert said() == "warning: careful\n"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert said() == "warning: careful\n"


def test_a_table_in_a_pipe_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    console.table(["NAME", "SIZE"], [["smollm2-135m", "1 MB"], ["b", "20 MB"]])
    assert capsys.readouterr().out == "NAME          SIZE\nsmollm2-135m  1 MB\nb             20 MB\n"


def test_a_table_without_rows_still_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    console.table(["NAME"], [])
    assert capsys.readouterr().out == "NAME\n"


def test_a_terminal_never_sees_a_models_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    console.write_out("a\x1b]0;title\x07b\n\tc\x9b2J")
    assert terminal.text == "a]0;titleb\n\tc2J"


def test_a_pipe_gets_text_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    console.write_out("a\x1b[1mb")
    assert capsys.readouterr().out == "a\x1b[1mb"


def test_nobody_to_ask_is_an_error_that_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "is_interactive", lambda: False)
    with pytest.raises(UsageError) as caught:
        console.confirm("Remove it?")
    assert "-y" in (caught.value.hint or "")


@pytest.mark.parametrize(("answer", "agreed"), [("y", True), ("YES", True), ("", False), ("n", False)])
def test_only_yes_agrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, agreed: bool
) -> None:
    class _Keyboard:
        def readline(self) -> str:
            return answer + "\n"

    monkeypatch.setattr(console, "is_interactive", lambda: True)
    monkeypatch.setattr(sys, "stdin", _Keyboard())
    assert console.confirm("Remove it?") is agreed
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Remove it? [y/N] "


def test_progress_in_a_log_is_a_line_for_each_tenth() -> None:
    said: list[str] = []
    with lines("Pulling", 1000, "steps", said.append) as progress:
        for _ in range(1000):
            progress.advance(1)
    assert said[0] == "Pulling: 10%, 100 of 1000"
    assert said[-1] == "Pulling: 100%, 1000 of 1000"
    assert len(said) == 10


def test_progress_of_bytes_tells_sizes_and_speed() -> None:
    said: list[str] = []
    with lines("Pulling", 2_000_000, "bytes", said.append) as progress:
        progress.update(2_000_000)
    assert said[0].startswith("Pulling: 100%, 2.0 MB of 2.0 MB, ")
    assert said[0].endswith("/s")


def test_progress_of_unknown_length_says_how_far_it_came() -> None:
    said: list[str] = []
    with lines("Reading", None, "steps", said.append) as progress:
        progress.advance(7)
    assert said == ["Reading: 7"]


def test_the_bar_of_a_terminal_shows_the_label_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with console.progress("Pulling", 10, "bytes") as progress:
        progress.advance(4)
        progress.update(10)
    assert "Pulling" in terminal.text
    assert "10/10 bytes" in terminal.text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (98_300_000, "98.3 MB"), (3e15, "3000.0 TB")],
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert size_text(count) == text


_WRITER = """
import sys
from turbospark_cli import console
sys.stdin.readline()
for line in range(3):
    console.print_out("x" * 100_000)
    console.table(["A"], [["b"]])
    console.print_json({"a": 1})
console.note("still alive")
"""


def test_a_closed_pipe_ends_nothing() -> None:
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER],
        stdin=subprocess.PIPE,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(write)
        os.close(read)
        _, said = process.communicate("go\n")
    assert (process.returncode, said) == (0, "still alive\n")


def test_an_output_that_is_full_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(_Terminal):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def fileno(self) -> int:
            raise ValueError

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(TurbosparkError, match=r"The output cannot be written: No space left on device\."):
        console.print_out("result")
