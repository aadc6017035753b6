"""Recording from a microphone into a temporary wav file, with a level meter."""

from __future__ import annotations

import math
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from turbospark_cli.audio.device import microphone
from turbospark_cli.errors import OutputFailed
from turbospark_cli.status_line import Status, clock_text

_QUIETEST: Final = -60.0  # dB below full scale, the left end of the meter
_WIDTH: Final = 20
_LONGEST: Final = 2**32 - 100  # bytes of a wav file


@contextmanager
def recorded(device: str | None, seconds: float | None, status: Status) -> Iterator[BinaryIO]:
    """A wav file, open at its start, of what the microphone hears until Ctrl-C or for `seconds`.

    Raises DeviceUnavailable, and OutputFailed when there is no room for it.
    """
    with tempfile.TemporaryFile() as file:
        try:
            _record(file, device, seconds, status)
        except OSError as error:
            raise OutputFailed(
                f"The recording cannot be kept in {tempfile.gettempdir()}: {error.strerror or error}.",
                hint="Point TMPDIR at a folder with more space.",
            ) from error
        file.seek(0)
        yield file


def _record(file: BinaryIO, device: str | None, seconds: float | None, status: Status) -> None:
    import numpy as np

    samples = rate = 0
    try:
        with microphone(device) as open_microphone:
            rate = open_microphone.rate
            file.write(_header(rate, 0))
            limit = min(_LONGEST // 2, round(seconds * rate) if seconds else _LONGEST)
            for block in open_microphone.blocks():
                kept = block[: limit - samples]
                file.write((np.clip(kept, -1, 1) * 32767).astype("<i2").tobytes())
                samples += len(kept)
                status.show(meter(float(np.sqrt(np.mean(np.square(block)))), samples / rate))
                if samples >= limit:
                    break
    except KeyboardInterrupt:  # how a person says that this was all
        if not rate:
            raise
    finally:
        status.clear()
    file.seek(0)
    file.write(_header(rate, 2 * samples))


def meter(level: float, seconds: float) -> str:
    """One line: how long it has been, and how loud it is; `level` 1.0 is full scale."""
    decibels = 20 * math.log10(max(level, 1e-9))
    filled = round(_WIDTH * min(max(1 - decibels / _QUIETEST, 0.0), 1.0))
    return f"Recording {clock_text(seconds)} [{'#' * filled}{'-' * (_WIDTH - filled)}] Ctrl-C ends"


def _header(rate: int, size: int) -> bytes:
    """The 44 bytes in front of `size` bytes of 16-bit mono samples."""
    facts = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", size + 36, b"WAVE") + facts + struct.pack("<4sI", b"data", size)
