"""Sound from a pipe: wav while it arrives, anything else from a temporary file once it is complete."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from turbospark_cli.audio.codec import Recording, decoded
from turbospark_cli.audio.codec_wav import NotPlainWav, WavStream
from turbospark_cli.errors import TurbosparkError, UnreadableAudio

_PIECE: Final = 2**16  # bytes


@contextmanager
def open_stream(
    stream: BinaryIO, name: str, *, start: float = 0.0, end: float | None = None
) -> Iterator[Recording]:
    """The recording that comes out of `stream`. Raises UnreadableAudio as `codec.open_file` does."""
    if _is_file_at_its_start(stream):
        with decoded(stream.fileno(), name, start=start, end=end) as recording:
            yield recording
        return
    head = b""
    try:
        wav = WavStream(stream, name)
    except NotPlainWav as error:
        head = error.consumed
    else:
        yield Recording(wav, name, start, end)
        return
    if not head:
        raise UnreadableAudio(f"{name} is empty.")
    with spooled(stream, head) as file, decoded(file.fileno(), name, start=start, end=end) as recording:
        yield recording


@contextmanager
def spooled(stream: BinaryIO, head: bytes = b"") -> Iterator[BinaryIO]:
    """All of `stream`, after `head`, in an unnamed file that is open at its start."""
    with tempfile.TemporaryFile() as file:
        try:
            file.write(head)
            shutil.copyfileobj(stream, file, _PIECE)
            file.flush()
        except OSError as error:
            raise TurbosparkError(
                f"What comes in cannot be kept in {tempfile.gettempdir()}: {error.strerror or error}.",
                hint="Point TMPDIR at a folder with more space.",
            ) from error
        file.seek(0)
        yield file


def _is_file_at_its_start(stream: BinaryIO) -> bool:
    try:
        facts = os.fstat(stream.fileno())
        return stat.S_ISREG(facts.st_mode) and facts.st_size > 0 and stream.tell() == 0
    except (OSError, ValueError):  # not a file of the system at all
        return False
