"""The only door to the terminal: results to stdout, everything said to a person to stderr.

Commands never print by themselves, so that every one of them works in a pipe. A reader that closed
stdout is no error: result lines written after that go nowhere, and `write_out`, which streams, raises
BrokenPipeError so that its caller can stop working (`cli.main` then ends quietly).

Colour follows NO_COLOR, `--no-color`, TERM=dumb and the kind of stream, and never carries a meaning alone.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import IO, TYPE_CHECKING

from turbospark_cli.errors import TurbosparkError, UsageError
from turbospark_cli.progress import Progress, Unit, lines
from turbospark_cli.status_line import LiveStatus, NoStatus, SparseStatus, Status

if TYPE_CHECKING:
    import rich.progress

_RED = "\x1b[31m"
_YELLOW = "\x1b[33m"
_RESET = "\x1b[0m"
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}

_no_color = False


def prepare() -> None:
    """Make the standard streams usable, whatever the program was started with.

    One that is missing (a service, `<&-`) becomes the null device; what stdout's encoding lacks becomes `?`.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def configure(no_color: bool) -> None:
    """Turn colour off for the whole process (`--no-color`)."""
    global _no_color
    _no_color = no_color


def has_color(stream: IO[str]) -> bool:
    """Whether escape sequences may be written to `stream`."""
    if _no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def is_interactive() -> bool:
    """Whether a question can be asked: stdin and stdout are both terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def drop_stdout() -> None:
    """Point stdout at nothing, after its reader has left, so that no later flush fails.

    The descriptor itself is replaced: the interpreter flushes stdout once more when it exits.
    """
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, sys.stdout.fileno())
    except (OSError, ValueError):  # stdout has no descriptor or is closed: nothing left to protect
        pass
    finally:
        os.close(sink)


def write_out(text: str) -> None:
    """Stream `text` to stdout at once, without a line end.

    Raises BrokenPipeError, and TurbosparkError for an output that fails otherwise, such as a full disk.

    SAFETY: a terminal gets no control characters, since a model could write escape sequences.
    """
    try:
        sys.stdout.write(text.translate(_CONTROLS) if sys.stdout.isatty() else text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        raise TurbosparkError(f"The output cannot be written: {error.strerror}.") from error


def print_out(text: str) -> None:
    """One line of result to stdout."""
    try:
        write_out(text + "\n")
    except BrokenPipeError:
        drop_stdout()


def print_json(value: object) -> None:
    """One JSON document on one line of stdout; takes dataclasses and msgspec structs as well."""
    import msgspec

    print_out(msgspec.json.encode(value, enc_hook=str).decode())


def note(text: str) -> None:
    """One line to stderr for the person who is watching."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        pass


def warn(text: str) -> None:
    """Something that goes on, but that the user should know."""
    note(f"{_label('warning:', _YELLOW)} {text}")


def print_error(error: TurbosparkError) -> None:
    """What happened and, after an empty line, what to do next."""
    note(f"{_label('error:', _RED)} {error.message}")
    if error.hint:
        note(f"\nhint: {error.hint}")


def _label(word: str, color: str) -> str:
    return f"{color}{word}{_RESET}" if has_color(sys.stderr) else word


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under their column names; aligned plain text when stdout is not a terminal."""
    if sys.stdout.isatty():
        _rich_table(columns, rows)
        return
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_out("  ".join(cells).rstrip())


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    try:
        Console(no_color=not has_color(sys.stdout), highlight=False).print(grid)
    except BrokenPipeError:
        drop_stdout()


def progress(label: str, total: int | None, unit: Unit) -> AbstractContextManager[Progress]:
    """Progress of one long job on stderr: a bar on a terminal, a line now and then elsewhere."""
    return _bar(label, total, unit) if sys.stderr.isatty() else lines(label, total, unit, note)


@contextmanager
def _bar(label: str, total: int | None, unit: Unit) -> Iterator[Progress]:
    from rich import progress as parts
    from rich.console import Console

    columns: list[parts.ProgressColumn] = [parts.TextColumn("{task.description}"), parts.BarColumn()]
    if unit == "bytes":
        columns += [parts.DownloadColumn(), parts.TransferSpeedColumn()]
    else:
        columns.append(parts.MofNCompleteColumn())
    columns.append(parts.TimeRemainingColumn())
    screen = Console(stderr=True, no_color=not has_color(sys.stderr))
    with parts.Progress(*columns, console=screen) as drawing:
        yield _Bar(drawing, drawing.add_task(label, total=total))


class _Bar:
    def __init__(self, drawing: rich.progress.Progress, task: rich.progress.TaskID) -> None:
        self._drawing, self._task = drawing, task

    def advance(self, n: int) -> None:
        self._drawing.advance(self._task, n)

    def update(self, done: int) -> None:
        self._drawing.update(self._task, completed=done)


def status(*, quiet: bool = False) -> Status:
    """One line on stderr that says what is being done: in place on a terminal, now and then elsewhere."""
    if quiet:
        return NoStatus()
    return LiveStatus(sys.stderr) if sys.stderr.isatty() else SparseStatus(note)


def confirm(question: str) -> bool:
    """Ask a yes-or-no question on stderr; only `y` and `yes` agree.

    Raises UsageError when nobody is there to answer; it names the flag that answers in advance.
    """
    if not is_interactive():
        raise UsageError(
            "This needs a yes, and nobody can be asked here.", hint="Pass -y to say yes in advance."
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
