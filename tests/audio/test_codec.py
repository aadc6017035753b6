"""Files of every kind become the same sound at the same moments; whatever else is there is one sentence."""

from __future__ import annotations

import os
import struct
import sys
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pytest
import soundfile

from tests.audio.conftest import rising_tone
from turbospark_cli.audio import codec
from turbospark_cli.audio.transcript import SAMPLE_RATE
from turbospark_cli.errors import UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound


def read(path: Path, start: float = 0.0, end: float | None = None) -> Sound:
    with codec.open_file(path, start=start, end=end) as recording:
        return np.concatenate(list(recording.chunks()))


def convert(source: Path, target: Path, codec_name: str, channels: int = 2) -> Path:
    """Write `source` with FFmpeg's libraries, which libsndfile's formats need no more than ours."""
    samples, rate = soundfile.read(source, dtype="float32")
    with av.open(str(target), "w") as container:
        stream: Any = container.add_stream(codec_name, rate=48_000)
        stream.layout = "stereo" if channels == 2 else "mono"
        resampler = av.AudioResampler(
            format=stream.format,
            layout=stream.layout,
            rate=48_000,
            frame_size=1024 if codec_name == "aac" else 960,
        )
        frame = av.AudioFrame.from_ndarray(samples[None, :], format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
        for each in (*resampler.resample(frame), *resampler.resample(None)):
            container.mux(stream.encode(each))
        container.mux(stream.encode(None))
    return target


def delay(sound: Sound, expected: Sound) -> int:
    """By how many samples `sound` comes later than `expected`, to which it must be alike."""
    length = min(len(sound), len(expected))
    size = 2 * length
    both = np.fft.rfft(sound[:length], size) * np.conj(np.fft.rfft(expected[:length], size))
    match = np.fft.irfft(both)
    assert match.max() > 0.9 * np.linalg.norm(sound[:length]) * np.linalg.norm(expected[:length])
    late = int(np.argmax(match))
    return late if late < length else late - size


@pytest.fixture(params=["wav", "flac", "ogg", "mp3", "opus", "m4a", "mp4", "webm"])
def any_format(request: pytest.FixtureRequest, tone: Path, tmp_path: Path) -> Path:
    """The tone in each format, in stereo."""
    target = tmp_path / f"sound.{request.param}"
    encoders = {"m4a": "aac", "mp4": "aac", "webm": "libopus"}
    if request.param in encoders:
        return convert(tone, target, encoders[request.param])
    samples, rate = soundfile.read(tone, dtype="float32")
    if request.param == "opus":
        soundfile.write(target, read(tone), SAMPLE_RATE, format="OGG", subtype="OPUS")
    else:
        soundfile.write(target, np.stack((samples, samples), axis=1), rate)
    return target


@pytest.mark.parametrize(("start", "end"), [(0.0, None), (0.75, None), (0.6, 1.5)])
def test_every_format_is_the_same_sound_at_the_same_moment(
    any_format: Path, start: float, end: float | None
) -> None:
    sound = read(any_format, start, end)
    length = (end or 2.0) - start
    assert sound.dtype == np.float32
    assert len(sound) == pytest.approx(length * SAMPLE_RATE, abs=0.05 * SAMPLE_RATE if end is None else 0)
    assert abs(delay(sound, rising_tone(start, length))) <= 0.002 * SAMPLE_RATE


def test_the_length_is_known_and_reading_gives_it(tone: Path) -> None:
    with codec.open_file(tone, start=0.5, end=1.25) as recording:
        assert (recording.seconds, recording.start) == (0.75, 0.5)
        assert sum(map(len, recording.chunks())) == 0.75 * SAMPLE_RATE
    with codec.open_file(tone) as recording:
        assert recording.seconds == 2.0


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 48_000, 96_000])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_any_rate_and_channels(tmp_path: Path, rate: int, channels: int) -> None:
    time = np.arange(rate) / rate
    samples = 0.5 * np.sin(2 * np.pi * 440 * time)
    soundfile.write(tmp_path / "a.wav", np.repeat(samples[:, None], channels, axis=1), rate)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)
    sound = read(tmp_path / "a.wav")
    assert len(sound) == SAMPLE_RATE
    assert np.abs(sound - expected)[500:-500].max() < 0.01


def test_what_is_not_a_number_is_silence(tmp_path: Path) -> None:
    samples = np.full(1600, 0.25, np.float32)
    samples[3], samples[4], samples[5] = np.nan, np.inf, -7.0
    soundfile.write(tmp_path / "a.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    assert read(tmp_path / "a.wav")[2:7].tolist() == [0.25, 0.0, 1.0, -1.0, 0.25]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    minute = np.zeros(60 * 44_100, np.int16)
    with soundfile.SoundFile(tmp_path / "long.flac", "w", 44_100, 1) as file:
        for _ in range(10):
            file.write(minute)
    del minute
    tracemalloc.start()
    with codec.open_file(tmp_path / "long.flac") as recording:
        assert sum(map(len, recording.chunks())) == 600 * SAMPLE_RATE
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16e6  # the whole file is 38 MB of samples


def test_an_mp3_goes_on_behind_the_end_that_its_header_names(
    tone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    samples, rate = soundfile.read(tone)
    soundfile.write(tmp_path / "a.mp3", samples, rate)
    once = (tmp_path / "a.mp3").read_bytes()
    (tmp_path / "three.mp3").write_bytes(once * 3)
    (tmp_path / "tail.mp3").write_bytes(once + b"TAG" + bytes(9000))
    sound = read(tmp_path / "three.mp3")
    assert len(sound) == pytest.approx(3 * len(read(tmp_path / "a.mp3")), abs=3)
    assert delay(sound[4 * SAMPLE_RATE :], rising_tone(0, 2)) == pytest.approx(0, abs=0.002 * SAMPLE_RATE)
    assert len(read(tmp_path / "tail.mp3")) == len(read(tmp_path / "a.mp3"))
    assert capfd.readouterr().err == ""


def test_a_late_audio_track_keeps_the_clock_of_the_file(tone: Path, tmp_path: Path) -> None:
    source = convert(tone, tmp_path / "in.webm", "libopus")
    late = tmp_path / "late.webm"
    with av.open(str(source)) as reader, av.open(str(late), "w") as writer:
        track = reader.streams.audio[0]
        copy = writer.add_stream_from_template(track)
        for packet in reader.demux(track):
            if packet.pts is not None:
                packet.pts += round(1 / packet.time_base)
                packet.dts = packet.pts
                packet.stream = copy
                writer.mux(packet)
    sound = read(late)
    assert np.abs(sound[: SAMPLE_RATE - 800]).max() == 0
    assert abs(delay(sound[SAMPLE_RATE:], rising_tone(0, 2))) <= 0.002 * SAMPLE_RATE


def _wav(rate: int, data_size: int, samples: bytes, channels: int = 1) -> bytes:
    fmt = struct.pack("<HHIIHH", 1, channels, rate, min(rate * 2, 2**32 - 1), 2 * channels, 16)
    body = b"WAVEfmt " + struct.pack("<I", 16) + fmt + b"data" + struct.pack("<I", data_size) + samples
    return b"RIFF" + struct.pack("<I", 2**32 - 1) + body


def test_a_header_that_claims_more_than_there_is_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(_wav(SAMPLE_RATE, 2**31 - 20, bytes(3200)))
    assert len(read(tmp_path / "a.wav")) == 1600


BROKEN = {
    "empty.wav": (b"", "empty.wav is empty."),
    "text.wav": (b"I am only text.\n" * 50, "text.wav cannot be read as sound"),
    "noise.mp3": (bytes(range(1, 200)) * 9, "noise.mp3 cannot be read as sound"),
    "header.wav": (_wav(SAMPLE_RATE, 0, b""), "header.wav holds no sound."),
    "cut.wav": (_wav(SAMPLE_RATE, 0, b"")[:20], "cut.wav cannot be read as sound"),
    "slow.wav": (_wav(3, 3200, bytes(3200)), "slow.wav claims an impossible sample rate: 3 Hz."),
    "still.wav": (_wav(0, 3200, bytes(3200)), "still.wav"),
    "wide.wav": (_wav(SAMPLE_RATE, 3200, bytes(3200), channels=30_000), "wide.wav"),
    "list.m4a": (b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n", "list.m4a cannot be read as sound"),
    "broken.m4a": (b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(500), "broken.m4a cannot be read as sound"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    data, sentence = BROKEN[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableAudio) as raised:
        read(tmp_path / name)
    message = raised.value.message
    assert message.startswith(sentence)
    assert message.endswith(".")
    assert message.count("\n") == 0
    assert str(tmp_path) not in message


def test_a_file_that_breaks_off_says_where(tone: Path, tmp_path: Path) -> None:
    samples, rate = soundfile.read(tone)
    soundfile.write(tmp_path / "a.flac", samples, rate)
    data = bytearray((tmp_path / "a.flac").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    (tmp_path / "a.flac").write_bytes(data)
    with pytest.raises(UnreadableAudio, match=r"a\.flac is damaged after \d\.\d seconds: "):
        read(tmp_path / "a.flac")


def test_what_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "locked").symlink_to("locked")
    sentences = {
        tmp_path: f"{tmp_path.name} is a folder, not a file.",
        tmp_path / "pipe": "pipe is not an ordinary file.",
        tmp_path / "gone.wav": "There is no file gone.wav.",
        tmp_path / "locked": "locked cannot be opened: Too many levels of symbolic links.",
    }
    for path, sentence in sentences.items():
        with pytest.raises(UnreadableAudio) as raised:
            read(path)
        assert raised.value.message == sentence


def test_a_start_behind_the_end_is_told(tone: Path) -> None:
    with pytest.raises(UnreadableAudio, match=r"tone\.wav ends after 2\.0 seconds, before --start\."):
        read(tone, start=2.0)


def test_without_pyav_its_formats_name_what_to_install(
    tone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = convert(tone, tmp_path / "a.m4a", "aac")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnreadableAudio) as raised:
        read(path)
    assert raised.value.message == "a.m4a is an MPEG-4 file (m4a, mp4), which needs the package PyAV."
    assert raised.value.hint == "Install it: pip install 'turbospark[av]'"


def test_a_video_without_sound_says_so(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.width = stream.height = 32
        for _ in range(3):
            container.mux(stream.encode(av.VideoFrame(32, 32, "yuv420p")))
        container.mux(stream.encode(None))
    with pytest.raises(UnreadableAudio, match=r"a\.mp4 has no sound in it\."):
        read(tmp_path / "a.mp4")


def test_no_descriptor_is_left_open(tone: Path, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_bytes(b"text" * 100)
    before = len(list(Path("/dev/fd").iterdir()))
    read(tone)
    for path in (tmp_path / "text.wav", tmp_path):
        with pytest.raises(UnreadableAudio):
            read(path)
    assert len(list(Path("/dev/fd").iterdir())) == before
