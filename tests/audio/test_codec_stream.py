"""Sound that comes through a pipe."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import pytest
import soundfile

from turbospark_cli.audio.codec import open_file
from turbospark_cli.audio.codec_stream import open_stream
from turbospark_cli.audio.transcript import SAMPLE_RATE
from turbospark_cli.errors import TurbosparkError, UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound


class Dribble(io.RawIOBase):
    """A pipe that gives few bytes at a time and cannot seek."""

    def __init__(self, data: bytes, piece: int = 4001) -> None:
        self._data = io.BytesIO(data)
        self._piece = piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(memoryview(buffer)[: self._piece])


def pipe(data: bytes) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(Dribble(data)))


def read(stream: BinaryIO, start: float = 0.0, end: float | None = None) -> Sound:
    with open_stream(stream, "standard input", start=start, end=end) as recording:
        return np.concatenate(list(recording.chunks()))


def read_file(path: Path, start: float = 0.0, end: float | None = None) -> Sound:
    with open_file(path, start=start, end=end) as recording:
        return np.concatenate(list(recording.chunks()))


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"])
@pytest.mark.parametrize(("start", "end"), [(0.0, None), (0.5, 1.5)])
def test_wav_from_a_pipe_is_what_the_file_holds(
    tone: Path, tmp_path: Path, subtype: str, start: float, end: float | None
) -> None:
    samples, rate = soundfile.read(tone)
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack((samples, 0.5 * samples), axis=1), rate, subtype=subtype)
    piped, stored = read(pipe(path.read_bytes()), start, end), read_file(path, start, end)
    assert len(piped) == len(stored)
    assert np.abs(piped - stored).max() < 1e-6


@pytest.mark.parametrize("size", [0, 0x7FFF_F000, 0xFFFF_FFFF])
def test_a_length_that_its_writer_did_not_know(tone: Path, size: int) -> None:
    data = bytearray(tone.read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = size.to_bytes(4, "little")
    assert len(read(pipe(bytes(data)))) == 2 * SAMPLE_RATE


def test_what_follows_the_sound_is_not_heard(tone: Path) -> None:
    assert len(read(pipe(tone.read_bytes() + b"LIST\x08\0\0\0INFOnote"))) == 2 * SAMPLE_RATE


def test_other_formats_are_read_once_they_are_complete(spoken: Path) -> None:
    assert np.array_equal(read(pipe(spoken.read_bytes()), 1.0, 3.0), read_file(spoken, 1.0, 3.0))


def test_a_file_as_standard_input(spoken: Path) -> None:
    with spoken.open("rb") as stream:
        assert np.array_equal(read(stream), read_file(spoken))


def test_wav_is_heard_while_it_arrives(tone: Path) -> None:
    data = tone.read_bytes()
    half = len(data) // 2
    readable, writable = os.pipe()
    heard = threading.Event()

    def write() -> None:
        with os.fdopen(writable, "wb") as out:
            out.write(data[:half])
            out.flush()
            heard.wait(60)
            out.write(data[half:])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with os.fdopen(readable, "rb") as stream, open_stream(stream, "-") as recording:
            total = 0
            for chunk in recording.chunks():
                total += len(chunk)
                if total > SAMPLE_RATE // 2:
                    heard.set()
    finally:
        heard.set()
        writer.join()
    assert total == 2 * SAMPLE_RATE


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "standard input is empty."),
        (b"just text, no sound" * 99, "standard input cannot be read as sound"),
        (b"RIFF\0\0\0\0WAVE", "standard input cannot be read as sound"),
        (b"RIFF\0\0\0\0WAVELIST\xff\xff\xff\xff", "standard input cannot be read as sound"),
    ],
)
def test_a_broken_stream_is_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(UnreadableAudio) as raised:
        read(pipe(data))
    assert raised.value.message.startswith(sentence)


def test_a_start_behind_the_end(tone: Path) -> None:
    with pytest.raises(UnreadableAudio, match=r"standard input ends after 2\.0 seconds, before --start"):
        read(pipe(tone.read_bytes()), start=3.0)
    data = tone.read_bytes()
    at = data.index(b"data") + 4
    with pytest.raises(UnreadableAudio, match="standard input ends before --start"):
        read(pipe(data[:at] + bytes(4) + data[at + 4 :]), start=3.0)


def test_no_room_for_the_stream(spoken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("turbospark_cli.audio.codec_stream.shutil.copyfileobj", full)
    with pytest.raises(TurbosparkError, match=r"cannot be kept in .*: No space left on device\."):
        read(pipe(spoken.read_bytes()))
